"""Options: --evaluate-only, a run that trains nothing. No torch."""

import argparse
from pathlib import Path

from lab.base.errors import UsageError
from lab.runs.options.checkpoints import RUN_CHECKPOINTS

# What decides how a checkpoint does, how it is computed, and what the records are called. All others are about
# training: given beside --evaluate-only, they would do nothing.
ITS_OPTIONS = (
    *("evaluate_only", "resume", "strategy", "model", "width", "depth", "dataset", "data_dir", "validation"),
    *("image_size", "num_workers", "prefetch", "pin_memory", "global_batch_size", "per_device_batch_size"),
    *(
        "shard",
        "shard_ranks",
        "precision",
        "no_amp",
        "deterministic",
        "output_dir",
        "run_id",
        "scaling",
        "repeat",
        "command",
    ),
)


def spelled(name: str, value: object) -> str:
    """An option as it would be typed."""
    option = f"--{'no-' if value is False else ''}{name.replace('_', '-')}"
    return option if isinstance(value, bool) else f"{option} {value}"


def check(options: argparse.Namespace, defaults: argparse.Namespace) -> None:
    """Raises UsageError where an evaluation is not told of what, or is told how to train.

    Args:
        options: as parsed.
        defaults: what the parser gives for no arguments.
    """
    if not options.evaluate_only:
        return
    folder = options.output_dir / (options.run_id or "RUN")
    if options.resume is None or options.resume in RUN_CHECKPOINTS:
        checkpoint = folder / "checkpoints" / f"{options.resume if options.resume == 'best' else 'latest'}.pth"
        sharded = checkpoint.with_suffix(".json")
        if sharded.exists() and not checkpoint.exists():
            checkpoint = sharded
        raise UsageError(
            "--evaluate-only is a run of its own, so name the checkpoint by its path: "
            f"--resume {checkpoint}, and no --run-id of the run that wrote it"
        )
    without_effect = [
        spelled(name, value)
        for name, value in sorted(vars(options).items())
        if name not in ITS_OPTIONS and value != getattr(defaults, name, None)
    ]
    if without_effect:
        raise UsageError(f"--evaluate-only trains nothing: leave out {', '.join(without_effect)}")
    if options.run_id is not None and Path(options.resume).resolve().is_relative_to(folder.resolve()):
        raise UsageError(
            f"--evaluate-only would write its records over those of the run in {folder}: choose another --run-id, "
            "or leave it out"
        )
