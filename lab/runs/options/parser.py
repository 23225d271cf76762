"""The command line of main.py: every option and what it means.

To add an option: one `add_argument` in its group below, and a line in rules.py if it can be meaningless.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.runs.options import model_and_data
from lab.runs.options.own import metavar, one_of_or_own
from lab.runs.options.rules import (
    DEFAULT_BASE_LR,
    DEFAULT_BUCKET_CAP_MB,
    DEFAULT_GLOBAL_BATCH,
    DEFAULT_MEASURE_WARMUP,
    DEFAULT_MOMENTUM,
    DEFAULT_WEIGHT_DECAY,
    REFERENCE_BATCH,
)
from lab.runs.options.schedule import SCHEDULES

STRATEGIES = ("none", "ddp", "fsdp", "fsdp1")
OPTIMIZERS = ("sgd", "adam", "adamw")
PRECISIONS = ("fp32", "bf16", "fp16")


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Show a default only where there is one to show."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False):
            return action.help
        return super()._get_help_string(action)


def _positive(kind: type) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not value > 0 or value == float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not a positive number")
        return value

    return parse


def _not_negative(kind: type) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not value >= 0 or value == float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is negative or not finite")
        return value

    return parse


def build_parser() -> argparse.ArgumentParser:
    """The parser of main.py."""
    parser = argparse.ArgumentParser(
        prog="main.py",
        description="Train an image classifier on one device or on many.",
        epilog="example: torchrun --standalone --nproc-per-node 2 solutions/main.py --strategy ddp. SIGTERM and "
        "SIGUSR1 save at the end of the step and end the run with exit code 85; --resume latest goes on.",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )

    group = parser.add_argument_group("what to train, and how it is spread")
    group.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="ddp",
        help="none: one device, no wrapper (only at world size 1); ddp: replicated; fsdp: sharded with "
        "fully_shard; fsdp1: sharded with FullyShardedDataParallel, for comparison",
    )
    model_and_data.add_model_arguments(group, _positive(int))

    group = parser.add_argument_group("data")
    model_and_data.add_data_arguments(group, _positive(int), _not_negative(int))

    group = parser.add_argument_group("batch, rate and length")
    batch = group.add_mutually_exclusive_group()
    batch.add_argument(
        "--global-batch-size",
        type=_positive(int),
        metavar="N",
        help="images per optimizer step: per-device batch x ranks x accumulation "
        f"(default: {DEFAULT_GLOBAL_BATCH})",
    )
    batch.add_argument(
        "--per-device-batch-size",
        type=_positive(int),
        metavar="N",
        help="images that each rank computes at a time, instead",
    )
    group.add_argument(
        "--accumulate",
        type=_positive(int),
        default=1,
        metavar="N",
        help="add up the gradients of N smaller batches before each optimizer step; no gradients are "
        "communicated in between (fsdp still gathers its parameters)",
    )
    length = group.add_mutually_exclusive_group()
    length.add_argument("--epochs", type=_positive(int), default=5, metavar="N", help="passes over the data")
    length.add_argument(
        "--measure-steps",
        type=_positive(int),
        metavar="N",
        help="instead of epochs, train for N timed optimizer steps after --measure-warmup others, going through "
        "the data as often as that takes; the records have the mean time of a step",
    )
    group.add_argument(
        "--measure-warmup",
        type=_positive(int),
        metavar="N",
        help=f"steps before the timed ones (default: {DEFAULT_MEASURE_WARMUP})",
    )
    group.add_argument(
        "--optimizer",
        type=one_of_or_own(OPTIMIZERS),
        metavar=metavar(OPTIMIZERS),
        default="sgd",
        help="sgd has momentum; FILE:NAME: your own",
    )
    group.add_argument(
        "--base-lr",
        type=_positive(float),
        metavar="RATE",
        help=f"learning rate; SGD uses base * global batch / {REFERENCE_BATCH}, Adam and AdamW use it as it is "
        f"(default: {DEFAULT_BASE_LR['sgd']} for sgd, else {DEFAULT_BASE_LR['adam']})",
    )
    group.add_argument(
        "--scale-lr",
        action="store_true",
        help="let the rate of Adam and AdamW follow the global batch as SGD's does",
    )
    group.add_argument(
        "--schedule",
        choices=SCHEDULES,
        default="constant",
        help="of the rate; cosine: down to zero at the end; step: a tenth of it from half of the run on, a "
        "hundredth from three quarters on",
    )
    group.add_argument(
        "--warmup-epochs",
        type=_not_negative(float),
        default=0.0,
        metavar="N",
        help="let the rate grow from near zero during this time; fractions count",
    )
    group.add_argument(
        "--momentum", type=_not_negative(float), metavar="M", help=f"SGD only (default: {DEFAULT_MOMENTUM})"
    )
    group.add_argument(
        "--weight-decay",
        type=_not_negative(float),
        metavar="W",
        help="L2 penalty on the weights; AdamW decays the weights themselves "
        f"(default: {DEFAULT_WEIGHT_DECAY['adamw']} for adamw, else {DEFAULT_WEIGHT_DECAY['sgd']})",
    )
    group.add_argument(
        "--clip-norm",
        type=_positive(float),
        metavar="NORM",
        help="scale the gradients down to this norm, taken over all parameters and ranks, where theirs is larger",
    )

    group = parser.add_argument_group("randomness")
    group.add_argument(
        "--seed", type=_not_negative(int), default=0, metavar="N", help="of weights, order, dropout, augmentation"
    )
    group.add_argument(
        "--deterministic",
        action="store_true",
        help="only algorithms that give the same bits each time; slower on a GPU",
    )

    group = parser.add_argument_group("precision and communication")
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="of forward and backward pass; fp16 scales its loss (default: on a GPU bf16, or fp16 where it has no "
        "bf16; on the CPU fp32)",
    )
    group.add_argument("--no-amp", action="store_true", help="no mixed precision: the same as --precision fp32")
    group.add_argument(
        "--bucket-cap-mb",
        type=_positive(float),
        metavar="MIB",
        help=f"ddp only: gradients are all-reduced in buckets of this size (default: {DEFAULT_BUCKET_CAP_MB:g})",
    )

    group.add_argument(
        "--capture",
        action="store_true",
        help="none and ddp on GPUs: record the whole training step as one CUDA graph and replay it, so that the "
        "CPU launches it at once; pays where a step is launch-bound (see --profile)",
    )

    group = parser.add_argument_group("checkpoints")
    group.add_argument(
        "--resume",
        metavar="WHICH",
        help="go on from a checkpoint: its path; or latest or best of the run that --run-id names; or auto, "
        "latest if there is one and a new start if not",
    )
    saving = group.add_mutually_exclusive_group()
    saving.add_argument(
        "--no-checkpoints", action="store_true", help="write none; else latest.pth and best.pth after every epoch"
    )
    saving.add_argument(
        "--save-every-steps",
        type=_positive(int),
        metavar="N",
        help="write latest.pth in mid-epoch too, every N steps",
    )
    group.add_argument(
        "--save-frequency", type=_positive(int), metavar="N", help="also keep epoch_XXX.pth, every N epochs"
    )

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

    group = parser.add_argument_group("output")
    group.add_argument(
        "--output-dir", type=Path, default=Path("results"), metavar="DIR", help="run folders are made in here"
    )
    group.add_argument(
        "--print-every", type=_positive(int), default=20, metavar="N", help="steps between lines of the log"
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
    group.add_argument("--repeat", type=_positive(int), default=1, metavar="N", help="label for the records")
    return parser


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse main.py's command line; a usage error ends with exit code 2."""
    return build_parser().parse_args(argv)


def as_record(options: argparse.Namespace) -> dict[str, object]:
    """The options as plain JSON values, for config.json."""
    return {name: str(value) if isinstance(value, os.PathLike) else value for name, value in vars(options).items()}
