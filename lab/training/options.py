"""The command line of main.py: every option, what it means, and which of them work together.

To add an option: one `add_argument` in its group below, and a line in `resolve` if it can be meaningless.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lab.training import model_data_options
from lab.training.errors import UsageError
from lab.training.model_data_options import input_options as input_options
from lab.training.model_data_options import loader_options as loader_options
from lab.training.model_data_options import model_options as model_options

STRATEGIES = ("none", "ddp", "fsdp", "fsdp1")
OPTIMIZERS = ("sgd", "adam")
PRECISIONS = ("fp32", "bf16")

REFERENCE_BATCH = 256  # the global batch for which --base-lr is meant
DEFAULT_GLOBAL_BATCH = 256
DEFAULT_BASE_LR = {"sgd": 0.03, "adam": 1e-3}

DEFAULT_MOMENTUM = 0.9
DEFAULT_BUCKET_CAP_MB = 25.0


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
        epilog="example: torchrun --standalone --nproc-per-node 2 solutions/main.py --strategy ddp",
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
    model_data_options.add_model_arguments(group, _positive(int))

    group = parser.add_argument_group("data")
    model_data_options.add_data_arguments(group, _positive(int), _not_negative(int))

    group = parser.add_argument_group("batch, rate and length")
    batch = group.add_mutually_exclusive_group()
    batch.add_argument(
        "--global-batch-size",
        type=_positive(int),
        metavar="N",
        help=f"images per step over all ranks (default: {DEFAULT_GLOBAL_BATCH})",
    )
    batch.add_argument(
        "--per-device-batch-size",
        type=_positive(int),
        metavar="N",
        help="images per step on each rank instead",
    )
    group.add_argument("--epochs", type=_positive(int), default=5, metavar="N", help="passes over the data")
    group.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd", help="the optimizer")
    group.add_argument(
        "--base-lr",
        type=_positive(float),
        metavar="RATE",
        help=f"learning rate; SGD uses base * global batch / {REFERENCE_BATCH}, Adam uses it as it is "
        f"(default: {DEFAULT_BASE_LR['sgd']} for sgd, {DEFAULT_BASE_LR['adam']} for adam)",
    )
    group.add_argument(
        "--momentum", type=_not_negative(float), metavar="M", help=f"SGD only (default: {DEFAULT_MOMENTUM})"
    )
    group.add_argument(
        "--weight-decay",
        type=_not_negative(float),
        default=5e-4,
        metavar="W",
        help="L2 penalty on the weights",
    )
    group.add_argument("--seed", type=_not_negative(int), default=0, metavar="N", help="of weights and order")

    group = parser.add_argument_group("precision and communication")
    group.add_argument("--precision", choices=PRECISIONS, default="fp32", help="of forward and backward pass")
    group.add_argument(
        "--bucket-cap-mb",
        type=_positive(float),
        metavar="MIB",
        help=f"ddp only: gradients are all-reduced in buckets of this size (default: {DEFAULT_BUCKET_CAP_MB:g})",
    )

    group = parser.add_argument_group("output")
    group.add_argument(
        "--output-dir", type=Path, default=Path("results"), metavar="DIR", help="run folders are made in here"
    )
    group.add_argument("--print-every", type=_positive(int), default=20, metavar="N", help="steps between lines")
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


def require_launcher(environ: Mapping[str, str] = os.environ) -> None:
    """Refuse a plain `python main.py`: without a launcher there are no ranks.

    Raises:
        UsageError: neither torchrun nor srun started this process.
    """
    if "RANK" not in environ and "SLURM_PROCID" not in environ:
        raise UsageError(
            "this process was not started by a launcher, so it has no rank. Type\n"
            "    torchrun --standalone --nproc-per-node 2 main.py --strategy ddp\n"
            "or, on a cluster, sbatch run.sh"
        )


def resolve(options: argparse.Namespace, world_size: int) -> tuple[argparse.Namespace, list[str]]:
    """Fill in what depends on the number of ranks, and check that the options can work together.

    Args:
        options: what `parse` returned. It is not changed.
        world_size: number of ranks.

    Returns:
        A copy in which global_batch_size, per_device_batch_size, base_lr, learning_rate, momentum and
        bucket_cap_mb are set, and warnings about options that have no effect here.

    Raises:
        UsageError: the options contradict each other or the number of ranks.
    """
    resolved = argparse.Namespace(**vars(options))
    warnings: list[str] = []

    if options.strategy == "none" and world_size != 1:
        raise UsageError(
            f"--strategy none trains on one device, but there are {world_size} ranks: start one rank, or "
            "choose --strategy ddp or fsdp"
        )
    warnings += model_data_options.resolve(options, resolved)
    if options.run_id is not None and (
        options.run_id in ("", "..") or Path(options.run_id).name != options.run_id
    ):
        raise UsageError(f"--run-id {options.run_id!r} must be a plain folder name without slashes")

    if options.per_device_batch_size is not None:
        resolved.global_batch_size = options.per_device_batch_size * world_size
    elif options.global_batch_size is None:
        resolved.global_batch_size = DEFAULT_GLOBAL_BATCH
    if resolved.global_batch_size % world_size:
        fitting = max(world_size, resolved.global_batch_size // world_size * world_size)
        raise UsageError(
            f"a global batch of {resolved.global_batch_size} images cannot be divided evenly among "
            f"{world_size} ranks: use --global-batch-size {fitting} or --per-device-batch-size"
        )
    resolved.per_device_batch_size = resolved.global_batch_size // world_size

    if options.base_lr is None:
        resolved.base_lr = DEFAULT_BASE_LR[options.optimizer]
    # Goyal et al. 2017 (arXiv:1706.02677): a batch k times as large takes a k times larger step of SGD.
    scale = resolved.global_batch_size / REFERENCE_BATCH if options.optimizer == "sgd" else 1.0
    resolved.learning_rate = resolved.base_lr * scale

    if options.momentum is None:
        resolved.momentum = DEFAULT_MOMENTUM
    elif options.optimizer != "sgd":
        warnings.append(f"--momentum has no effect with --optimizer {options.optimizer}")
    if options.bucket_cap_mb is None:
        resolved.bucket_cap_mb = DEFAULT_BUCKET_CAP_MB
    elif options.strategy != "ddp":
        warnings.append(f"--bucket-cap-mb has no effect with --strategy {options.strategy}")
    return resolved, warnings


def as_record(options: argparse.Namespace) -> dict[str, object]:
    """The options as plain JSON values, for config.json."""
    return {name: str(value) if isinstance(value, os.PathLike) else value for name, value in vars(options).items()}
