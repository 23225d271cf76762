"""Options: what is saved of a run, and what it goes on from. No torch."""

import argparse

from lab.base.errors import UsageError
from lab.runs.options.model import BARE, REPLICATED
from lab.runs.options.numbers import positive

CHECKPOINT_FORMATS = ("single", "sharded")
RUN_CHECKPOINTS = ("latest", "best", "auto")  # what --resume takes besides a path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("checkpoints")
    group.add_argument(
        "--resume",
        metavar="WHICH",
        help="go on from a checkpoint: its path; or latest or best of the run that --run-id names; or auto, "
        "latest if there is one and a new start if not",
    )
    group.add_argument(
        "--evaluate-only",
        action="store_true",
        help="train nothing: how the checkpoint of --resume PATH does, in all and class by class",
    )
    saving = group.add_mutually_exclusive_group()
    saving.add_argument(
        "--no-checkpoints", action="store_true", help="write none; else latest.pth and best.pth after every epoch"
    )
    saving.add_argument(
        "--save-every-steps",
        type=positive(int),
        metavar="N",
        help="write latest.pth in mid-epoch too, every N steps",
    )
    group.add_argument(
        "--checkpoint-format",
        choices=CHECKPOINT_FORMATS,
        default="single",
        help="single: all in one file, gathered on rank 0; sharded: fsdp only, each rank writes its shards",
    )
    group.add_argument(
        "--save-frequency", type=positive(int), metavar="N", help="also keep epoch_XXX.pth, every N epochs"
    )


def resolve(options: argparse.Namespace, resolved: argparse.Namespace) -> list[str]:
    """Fill in checkpoints. Returns warnings; raises UsageError where the options contradict each other."""
    warnings: list[str] = []
    sharded = options.checkpoint_format == "sharded"
    measures = options.measure_steps is not None
    resolved.checkpoints = not (options.no_checkpoints or measures or options.strategy in BARE)
    if options.evaluate_only:
        resolved.checkpoints = resolved.tensorboard = False
        return warnings
    asked = {
        "--resume": options.resume is not None,
        "--save-every-steps": options.save_every_steps is not None,
        "--save-frequency": options.save_frequency is not None,
        "--checkpoint-format": sharded,
        "--tensorboard": measures and options.tensorboard,
    }
    for option in (name for name, given in asked.items() if given):
        if measures:
            raise UsageError(
                f"--measure-steps measures a new run without checkpoints and curves: leave out {option}"
            )
        if options.strategy in BARE:
            other = "ddp" if options.strategy in REPLICATED else "fsdp"
            raise UsageError(
                f"--strategy {options.strategy} has no checkpoints, so no {option}: use --strategy {other}"
            )
    if options.strategy in BARE and not (options.no_checkpoints or measures):
        warnings.append(f"--strategy {options.strategy} writes no checkpoints")
    elif options.no_checkpoints and (options.strategy in BARE or measures):
        none = "--measure-steps" if measures else f"--strategy {options.strategy}"
        warnings.append(f"--no-checkpoints has no effect with {none}, which writes none anyway")
    if sharded and options.strategy != "fsdp":
        raise UsageError(
            f"--checkpoint-format sharded is for --strategy fsdp: with {options.strategy} every rank has the "
            "whole model, which one file holds"
        )
    if sharded and options.no_checkpoints:
        raise UsageError("--no-checkpoints and --checkpoint-format contradict each other: leave one of them out")
    if options.no_checkpoints and options.save_frequency is not None:
        raise UsageError("--no-checkpoints and --save-frequency contradict each other: leave one of them out")
    if options.save_frequency is not None and options.save_frequency > resolved.epochs:
        warnings.append(f"--save-frequency {options.save_frequency} has no effect with --epochs {resolved.epochs}")
    if options.resume == "auto" and not resolved.checkpoints:
        warnings.append(
            "--resume auto finds nothing that a run with --no-checkpoints has left: leave out one of them"
        )
    if options.resume in RUN_CHECKPOINTS and options.run_id is None:
        raise UsageError(
            f"--resume {options.resume} means a checkpoint of this run, so name the run with --run-id; a "
            "checkpoint of another run is named by its path"
        )
    return warnings
