"""Which options work together, and what follows from the number of ranks and the device. Imports no torch."""

import argparse
from pathlib import Path

from lab.base.errors import UsageError
from lab.runs.options import model_and_data
from lab.runs.options.own import is_own

REFERENCE_BATCH = 256  # the global batch for which --base-lr is meant
DEFAULT_GLOBAL_BATCH = 256
DEFAULT_BASE_LR = {"sgd": 0.03, "adam": 1e-3, "adamw": 1e-3}
DEFAULT_WEIGHT_DECAY = {"sgd": 5e-4, "adam": 5e-4, "adamw": 1e-2}
DEFAULT_MOMENTUM = 0.9
DEFAULT_BUCKET_CAP_MB = 25.0
# Steps before the one that --capture records. DDP arranges its buckets in the first two and times itself during
# the first ten; optimizers make their state in the first.
CAPTURE_WARM_UP = 11
DEFAULT_MEASURE_WARMUP = 20  # enough for caches, clocks and DDP's second bucket layout

RUN_CHECKPOINTS = ("latest", "best", "auto")  # what --resume takes besides a path


def resolve(
    options: argparse.Namespace, world_size: int, *, device: str = "cpu", default_precision: str = "fp32"
) -> tuple[argparse.Namespace, list[str]]:
    """Fill in what depends on the number of ranks and the device, and check that the options can work together.

    Args:
        options: what `options.parse` returned. It is not changed.
        world_size: number of ranks.
        device: "cpu" or "cuda".
        default_precision: what this device computes in unless told otherwise.

    Returns:
        A copy, and warnings about options that have no effect here. In the copy are set: global_batch_size,
        loader_batch_size (images over all ranks that a loader delivers at a time: the global batch, or one of its
        parts with accumulation), per_device_batch_size (one rank's share of that), precision, base_lr,
        learning_rate, momentum, weight_decay, bucket_cap_mb, measure_warmup (0 for a run in epochs), epochs (1 for
        a measurement), and checkpoints (whether any are written).

    Raises:
        UsageError: the options contradict each other, the number of ranks or the device.
    """
    resolved = argparse.Namespace(**vars(options))
    warnings: list[str] = []
    _check_run(options, world_size)
    warnings += model_and_data.resolve(options, resolved)
    _resolve_batch(options, world_size, resolved)
    _resolve_measurement(options, resolved, warnings)
    _resolve_rate(options, resolved, warnings)
    _resolve_precision(options, device, default_precision, resolved)
    _resolve_checkpoints(options, resolved, warnings)
    if options.capture:
        _check_capture(resolved, device)
    if options.nvtx and device != "cuda":
        warnings.append("--nvtx has no effect without a GPU")
    if options.profile and options.dry_run:
        warnings.append("--profile has no effect in a dry run")
    if options.bucket_cap_mb is None:
        resolved.bucket_cap_mb = DEFAULT_BUCKET_CAP_MB
    elif options.strategy != "ddp":
        warnings.append(f"--bucket-cap-mb has no effect with --strategy {options.strategy}")
    return resolved, warnings


def _check_capture(resolved: argparse.Namespace, device: str) -> None:
    """Raises UsageError where a training step cannot be one CUDA graph."""
    if device != "cuda":
        raise UsageError("--capture records a CUDA graph, so it needs a GPU")
    if resolved.strategy.startswith("fsdp"):
        raise UsageError(
            f"--capture cannot record --strategy {resolved.strategy}, which gathers and frees its parameters in "
            "every step: use --strategy ddp"
        )
    if resolved.precision == "fp16":
        raise UsageError(
            "--capture cannot record fp16, whose scaler lets the CPU decide whether a step is taken: use "
            "--precision bf16"
        )
    if resolved.accumulate > 1:
        raise UsageError("--capture records one step on one batch: leave out --accumulate")
    if resolved.checkpoint_activations:
        raise UsageError("--capture cannot record --checkpoint-activations: leave out one of them")


def _check_run(options: argparse.Namespace, world_size: int) -> None:
    if options.strategy == "none" and world_size != 1:
        raise UsageError(
            f"--strategy none trains on one device, but there are {world_size} ranks: start one rank, or "
            "choose --strategy ddp or fsdp"
        )
    if options.run_id is not None and (
        options.run_id in ("", "..") or Path(options.run_id).name != options.run_id
    ):
        raise UsageError(f"--run-id {options.run_id!r} must be a plain folder name without slashes")


def _resolve_batch(options: argparse.Namespace, world_size: int, resolved: argparse.Namespace) -> None:
    parts = world_size * options.accumulate
    if options.per_device_batch_size is not None:
        resolved.global_batch_size = options.per_device_batch_size * parts
    elif options.global_batch_size is None:
        resolved.global_batch_size = DEFAULT_GLOBAL_BATCH
    if resolved.global_batch_size % parts:
        fitting = max(parts, resolved.global_batch_size // parts * parts)
        times = f" x {options.accumulate} accumulated batches" if options.accumulate > 1 else ""
        raise UsageError(
            f"a global batch of {resolved.global_batch_size} images cannot be divided evenly among "
            f"{world_size} ranks{times}: use --global-batch-size {fitting} or --per-device-batch-size"
        )
    resolved.per_device_batch_size = resolved.global_batch_size // parts
    resolved.loader_batch_size = resolved.global_batch_size // options.accumulate


def _resolve_measurement(options: argparse.Namespace, resolved: argparse.Namespace, warnings: list[str]) -> None:
    """--measure-steps makes one long epoch of the run, which is not saved, and not drawn: that would cost time."""
    if options.measure_steps is None:
        resolved.measure_warmup = 0
        if options.measure_warmup is not None:
            warnings.append("--measure-warmup has no effect without --measure-steps")
        return
    resolved.epochs, resolved.tensorboard = 1, False
    resolved.measure_warmup = options.measure_warmup or DEFAULT_MEASURE_WARMUP
    if options.profile:
        raise UsageError("--profile slows the steps that --measure-steps times: leave out one of them")
    keeping = {
        "--resume": options.resume is not None,
        "--save-every-steps": options.save_every_steps is not None,
        "--save-frequency": options.save_frequency is not None,
        "--tensorboard": options.tensorboard,
    }
    for option, given in keeping.items():
        if given:
            raise UsageError(
                f"--measure-steps measures a new run without checkpoints and curves: leave out {option}"
            )


def _resolve_rate(options: argparse.Namespace, resolved: argparse.Namespace, warnings: list[str]) -> None:
    if options.base_lr is None:
        if is_own(options.optimizer):
            raise UsageError(
                f"--optimizer {options.optimizer} needs --base-lr: nobody else knows a good rate for it"
            )
        resolved.base_lr = DEFAULT_BASE_LR[options.optimizer]
    if options.weight_decay is None:
        resolved.weight_decay = DEFAULT_WEIGHT_DECAY.get(options.optimizer, 0.0)
    # Goyal et al. 2017 (arXiv:1706.02677): a batch k times as large takes a k times larger step of SGD.
    follows = options.optimizer == "sgd" or options.scale_lr
    resolved.learning_rate = resolved.base_lr * (resolved.global_batch_size / REFERENCE_BATCH if follows else 1.0)
    if options.optimizer == "sgd" and options.scale_lr:
        warnings.append("--scale-lr has no effect with --optimizer sgd: its rate follows the batch anyway")
    if options.momentum is None:
        resolved.momentum = DEFAULT_MOMENTUM
    elif options.optimizer != "sgd":
        warnings.append(f"--momentum has no effect with --optimizer {options.optimizer}")
    if options.warmup_epochs and options.warmup_epochs >= resolved.epochs:
        raise UsageError(
            f"--warmup-epochs {options.warmup_epochs:g} leaves nothing of --epochs {resolved.epochs}: warm up less"
        )


def _resolve_precision(
    options: argparse.Namespace, device: str, default: str, resolved: argparse.Namespace
) -> None:
    if options.no_amp and options.precision not in (None, "fp32"):
        raise UsageError(
            f"--no-amp and --precision {options.precision} contradict each other: leave one of them out"
        )
    resolved.precision = "fp32" if options.no_amp else (options.precision or default)
    if resolved.precision == "fp16" and device == "cpu":
        raise UsageError("--precision fp16 needs a GPU: on the CPU use --precision bf16 or fp32")
    if resolved.precision == "fp16" and options.strategy == "fsdp1":
        raise UsageError("--strategy fsdp1 has no fp16 here: use --precision bf16 or fp32, or --strategy fsdp")


def _resolve_checkpoints(options: argparse.Namespace, resolved: argparse.Namespace, warnings: list[str]) -> None:
    measures = options.measure_steps is not None
    resolved.checkpoints = not (options.no_checkpoints or measures or options.strategy == "fsdp1")
    asked = {
        "--resume": options.resume is not None,
        "--save-every-steps": options.save_every_steps is not None,
        "--save-frequency": options.save_frequency is not None,
    }
    if options.strategy == "fsdp1":
        for option, given in asked.items():
            if given:
                raise UsageError(f"--strategy fsdp1 has no checkpoints, so no {option}: use --strategy fsdp")
        if not (options.no_checkpoints or measures):
            warnings.append("--strategy fsdp1 writes no checkpoints")
    if options.no_checkpoints and options.save_frequency is not None:
        raise UsageError("--no-checkpoints and --save-frequency contradict each other: leave one of them out")
    if options.save_frequency is not None and options.save_frequency > resolved.epochs:
        warnings.append(f"--save-frequency {options.save_frequency} has no effect with --epochs {resolved.epochs}")
    if options.resume in RUN_CHECKPOINTS and options.run_id is None:
        raise UsageError(
            f"--resume {options.resume} means a checkpoint of this run, so name the run with --run-id; a "
            "checkpoint of another run is named by its path"
        )
