"""Options: batch, length, rate and randomness of a run. No torch."""

import argparse

from lab.base.errors import UsageError
from lab.runs.options.numbers import below_one, not_negative, positive
from lab.runs.options.own import is_own, metavar, one_of_or_own
from lab.runs.options.schedule import SCHEDULES

OPTIMIZERS = ("sgd", "adam", "adamw")

REFERENCE_BATCH = 256  # the global batch for which --base-lr is meant
DEFAULT_GLOBAL_BATCH = 256
SAMPLE_GLOBAL_BATCH = 8  # of the few photographs that come with the lab
DEFAULT_BASE_LR = {"sgd": 0.03, "adam": 1e-3, "adamw": 1e-3}
DEFAULT_WEIGHT_DECAY = {"sgd": 5e-4, "adam": 5e-4, "adamw": 1e-2}
DEFAULT_MOMENTUM = 0.9
DEFAULT_MEASURE_WARMUP = 20  # enough for caches, clocks and DDP's second bucket layout


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("batch, rate and length")
    batch = group.add_mutually_exclusive_group()
    batch.add_argument(
        "--global-batch-size",
        type=positive(int),
        metavar="N",
        help="images per optimizer step: per-device batch x ranks x accumulation "
        f"(default: {DEFAULT_GLOBAL_BATCH}; sample: {SAMPLE_GLOBAL_BATCH})",
    )
    batch.add_argument(
        "--per-device-batch-size",
        type=positive(int),
        metavar="N",
        help="images that each rank computes at a time, instead",
    )
    group.add_argument(
        "--accumulate",
        type=positive(int),
        default=1,
        metavar="N",
        help="add up the gradients of N smaller batches before each optimizer step; no gradients are "
        "communicated in between (fsdp still gathers its parameters)",
    )
    length = group.add_mutually_exclusive_group()
    length.add_argument("--epochs", type=positive(int), default=5, metavar="N", help="passes over the data")
    length.add_argument(
        "--measure-steps",
        type=positive(int),
        metavar="N",
        help="instead of epochs, train for N timed optimizer steps after --measure-warmup others, going through "
        "the data as often as that takes; the records have the mean time of a step",
    )
    group.add_argument(
        "--measure-warmup",
        type=positive(int),
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
        type=positive(float),
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
        type=not_negative(float),
        default=0.0,
        metavar="N",
        help="let the rate grow from near zero during this time; fractions count",
    )
    group.add_argument(
        "--momentum", type=below_one(float), metavar="M", help=f"SGD only (default: {DEFAULT_MOMENTUM})"
    )
    group.add_argument(
        "--weight-decay",
        type=not_negative(float),
        metavar="W",
        help="L2 penalty on the weights; AdamW decays the weights themselves "
        f"(default: {DEFAULT_WEIGHT_DECAY['adamw']} for adamw, else {DEFAULT_WEIGHT_DECAY['sgd']})",
    )
    group.add_argument(
        "--clip-norm",
        type=positive(float),
        metavar="NORM",
        help="scale the gradients down to this norm, taken over all parameters and ranks, where theirs is larger",
    )

    group = parser.add_argument_group("randomness")
    group.add_argument(
        "--seed", type=not_negative(int), default=0, metavar="N", help="of weights, order, dropout, augmentation"
    )
    group.add_argument(
        "--deterministic",
        action="store_true",
        help="only algorithms that give the same bits each time; slower on a GPU",
    )


def resolve(options: argparse.Namespace, resolved: argparse.Namespace, world_size: int) -> list[str]:
    """Fill in the three batch sizes, the length, and what the optimizer takes. Returns warnings.

    Raises:
        UsageError: the options contradict each other, or the batch cannot be divided among the ranks.
    """
    warnings: list[str] = []
    _resolve_batch(options, world_size, resolved)
    _resolve_measurement(options, resolved, warnings)
    _resolve_rate(options, resolved, warnings)
    return warnings


def _resolve_batch(options: argparse.Namespace, world_size: int, resolved: argparse.Namespace) -> None:
    parts = world_size * options.accumulate
    if options.per_device_batch_size is not None:
        resolved.global_batch_size = options.per_device_batch_size * parts
    elif options.global_batch_size is None:
        few = options.dataset == "sample"
        resolved.global_batch_size = SAMPLE_GLOBAL_BATCH if few else DEFAULT_GLOBAL_BATCH
        if options.evaluate_only:  # it trains no batch: one that these ranks can share
            resolved.global_batch_size = _shared(resolved.global_batch_size, parts)
    if resolved.global_batch_size % parts:
        fitting = _shared(resolved.global_batch_size, parts)
        times = f" x {options.accumulate} accumulated batches" if options.accumulate > 1 else ""
        raise UsageError(
            f"a global batch of {resolved.global_batch_size} images cannot be divided evenly among "
            f"{world_size} ranks{times}: use --global-batch-size {fitting} or --per-device-batch-size"
        )
    resolved.per_device_batch_size = resolved.global_batch_size // parts
    resolved.loader_batch_size = resolved.global_batch_size // options.accumulate


def _shared(batch: int, parts: int) -> int:
    """The largest global batch up to this one that can be divided; at least one image for each part."""
    return max(parts, batch // parts * parts)


def _resolve_measurement(options: argparse.Namespace, resolved: argparse.Namespace, warnings: list[str]) -> None:
    """--measure-steps makes one long epoch of the run, which is not saved, and not drawn: that would cost time.

    What asks for either is refused with the checkpoints.
    """
    if options.measure_steps is None:
        resolved.measure_warmup = 0
        if options.measure_warmup is not None:
            warnings.append("--measure-warmup has no effect without --measure-steps")
        return
    resolved.epochs, resolved.tensorboard = 1, False
    resolved.measure_warmup = options.measure_warmup or DEFAULT_MEASURE_WARMUP
    if options.profile:
        raise UsageError("--profile slows the steps that --measure-steps times: leave out one of them")


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
