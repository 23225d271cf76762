"""The command line of main.py: every option, and what the options mean together.

To add an option: one `add_argument` in its group's file, and a rule in the resolve() below it if it can be
meaningless.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

from lab.runs.options import checkpoints, data, evaluation, model, optimisation, output, precision


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Show a default only where there is one to show."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False):
            return action.help
        return super()._get_help_string(action)


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
    for group in (model, data, optimisation, precision, checkpoints, output):
        group.add_arguments(parser)
    return parser


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse main.py's command line; a usage error ends with exit code 2. `command` is the line itself."""
    options = build_parser().parse_args(argv)
    program, given = (sys.argv[0], sys.argv[1:]) if argv is None else ("main.py", argv)
    options.command = shlex.join([program, *map(str, given)])
    return options


def resolve(
    options: argparse.Namespace,
    world_size: int,
    *,
    device: str = "cpu",
    default_precision: str = "fp32",
    ranks_per_node: int | None = None,
) -> tuple[argparse.Namespace, list[str]]:
    """Fill in what depends on the number of ranks and the device, and check that the options can work together.

    Args:
        options: what `options.parse` returned. It is not changed.
        world_size: number of ranks.
        device: "cpu" or "cuda".
        default_precision: what this device computes in unless told otherwise.
        ranks_per_node: consecutive ranks on each node; None where the nodes differ, or nobody knows.

    Returns:
        A copy, and warnings about options that have no effect here. In the copy are set: global_batch_size,
        loader_batch_size (images over all ranks that a loader delivers at a time: the global batch, or one of its
        parts with accumulation), per_device_batch_size (one rank's share of that), precision, base_lr,
        learning_rate, momentum, weight_decay, bucket_cap_mb, shard_ranks (with --shard hybrid), measure_warmup (0
        for a run in epochs), epochs (1 for a measurement), and checkpoints (whether any are written).

    Raises:
        UsageError: the options contradict each other, the number of ranks or the device.
    """
    evaluation.check(options, build_parser().parse_args([]))
    resolved = argparse.Namespace(**vars(options))
    return resolved, [
        *model.resolve(options, resolved, world_size, ranks_per_node),
        *data.resolve(options, resolved),
        *optimisation.resolve(options, resolved, world_size),
        *checkpoints.resolve(options, resolved),
        *output.resolve(options, device),
        *precision.resolve(options, resolved, device, default_precision),
    ]


def as_record(options: argparse.Namespace) -> dict[str, object]:
    """The options as plain JSON values, for config.json."""
    return {name: str(value) if isinstance(value, os.PathLike) else value for name, value in vars(options).items()}
