"""Options: what a run shows of itself, and where it leaves its records. No torch."""

import argparse
from pathlib import Path

from lab.base.errors import UsageError
from lab.runs.options.numbers import positive

DEFAULT_PRINT_EVERY = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("looking inside")
    group.add_argument(
        "--profile",
        action="store_true",
        help="trace a few steps after the warm-up, on every rank, and say what share of a step goes into data, "
        "forward, backward, communication and optimizer, and what holds it up",
    )
    group.add_argument(
        "--nvtx", action="store_true", help="name the parts of every step for Nsight Systems (with --profile too)"
    )

    group.add_argument(
        "--startup-times",
        action="store_true",
        help="say after the first step what was done before it, and how long each part took",
    )

    group = parser.add_argument_group("output")
    group.add_argument(
        "--output-dir", type=Path, default=Path("results"), metavar="DIR", help="run folders are made in here"
    )
    group.add_argument(
        "--print-every",
        type=positive(int),
        default=DEFAULT_PRINT_EVERY,
        metavar="N",
        help="steps between lines of the log",
    )
    group.add_argument(
        "--tensorboard",
        action=argparse.BooleanOptionalAction,
        help="curves in the run folder's tensorboard/ (default: on where TensorBoard is installed)",
    )
    group.add_argument(
        "--dry-run", action="store_true", help="set up everything, report, stop before training; no records"
    )
    group.add_argument(
        "--run-id", metavar="NAME", help="name of the run folder (default: made of strategy and time)"
    )
    group.add_argument("--scaling", choices=("strong", "weak"), help="label for the records of a sweep")
    group.add_argument("--repeat", type=positive(int), default=1, metavar="N", help="label for the records")


def resolve(options: argparse.Namespace, device: str) -> list[str]:
    """Returns warnings; raises UsageError for a run's name that is none."""
    warnings: list[str] = []
    if options.run_id is not None and (
        options.run_id in ("", "..") or Path(options.run_id).name != options.run_id
    ):
        raise UsageError(f"--run-id {options.run_id!r} must be a plain folder name without slashes")
    if options.nvtx and device != "cuda":
        warnings.append("--nvtx has no effect without a GPU")
    if options.dry_run:
        given = {
            "--profile": options.profile,
            "--startup-times": options.startup_times,
            "--nvtx": options.nvtx and device == "cuda",
            "--tensorboard": options.tensorboard,
            "--save-every-steps": options.save_every_steps is not None,
            "--save-frequency": options.save_frequency is not None,
            "--no-checkpoints": options.no_checkpoints,
            "--checkpoint-format": options.checkpoint_format != "single",
            "--print-every": options.print_every != DEFAULT_PRINT_EVERY,
            "--scaling": options.scaling is not None,
            "--repeat": options.repeat != 1,
        }
        warnings += [f"{option} has no effect in a dry run" for option, is_given in given.items() if is_given]
    return warnings
