"""Options: how a step is computed and communicated. No torch."""

import argparse

from lab.base.errors import UsageError
from lab.runs.options.model import BARE, REPLICATED
from lab.runs.options.numbers import positive
from lab.runs.options.own import is_own

PRECISIONS = ("fp32", "bf16", "fp16")

DEFAULT_BUCKET_CAP_MB = 25.0
# Steps before the one that --capture records. DDP arranges its buckets in the first two and times itself during
# the first ten; optimizers make their state in the first.
CAPTURE_WARM_UP = 11


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
        type=positive(float),
        metavar="MIB",
        help="ddp, my-ddp, my-zero: gradients are all-reduced in buckets so large "
        f"(default: {DEFAULT_BUCKET_CAP_MB:g})",
    )
    group.add_argument(
        "--sync-batchnorm",
        action="store_true",
        help="let BatchNorm normalise by the images of all ranks, where there are few on each",
    )
    group.add_argument(
        "--capture",
        action="store_true",
        help="none, ddp and fsdp on GPUs: record the whole training step as one CUDA graph and replay it, so that "
        "the CPU launches it at once; pays where a step is launch-bound (see --profile)",
    )
    group.add_argument(
        "--compile",
        action="store_true",
        help="none, ddp and fsdp: torch.compile the network, or each of its blocks, to fewer and larger kernels; "
        "the first run takes a minute longer, the next ones find the code in the output folder. Best with "
        "--capture",
    )


def resolve(
    options: argparse.Namespace, resolved: argparse.Namespace, device: str, default_precision: str
) -> list[str]:
    """Fill in precision and bucket_cap_mb. Returns warnings; raises UsageError where this cannot be computed."""
    if options.no_amp and options.precision not in (None, "fp32"):
        raise UsageError(
            f"--no-amp and --precision {options.precision} contradict each other: leave one of them out"
        )
    resolved.precision = "fp32" if options.no_amp else (options.precision or default_precision)
    if resolved.precision == "fp16" and device == "cpu":
        raise UsageError("--precision fp16 needs a GPU: on the CPU use --precision bf16 or fp32")
    strategy, other = options.strategy, "ddp" if options.strategy in REPLICATED else "fsdp"
    if resolved.precision == "fp16" and strategy in BARE:
        raise UsageError(
            f"--strategy {strategy} has no fp16 here: use --precision bf16 or fp32, or --strategy {other}"
        )
    if strategy == "my-fsdp" and options.clip_norm is not None:
        raise UsageError(
            "--clip-norm needs the norm over the shards of all ranks, which --strategy my-fsdp does not compute: "
            "use --strategy fsdp"
        )
    if options.capture:
        _check_capture(resolved, device)
    if options.compile and strategy == "fsdp1":
        raise UsageError("--compile cannot compile --strategy fsdp1, PyTorch's first FSDP: use --strategy fsdp")
    if options.sync_batchnorm:
        for option, given in (
            ("--compile", options.compile),
            ("--checkpoint-activations", options.checkpoint_activations),
        ):
            if given:
                raise UsageError(
                    f"--sync-batchnorm communicates inside of the network, which {option} cannot do: leave out "
                    "one of them"
                )
    if options.compile and strategy in BARE:
        raise UsageError(
            f"--compile cannot compile --strategy {strategy}, whose hooks are yours: use --strategy {other}"
        )
    if options.bucket_cap_mb is None:
        resolved.bucket_cap_mb = DEFAULT_BUCKET_CAP_MB
    elif options.strategy not in REPLICATED:
        return [f"--bucket-cap-mb has no effect with --strategy {options.strategy}"]
    return []


def _check_capture(resolved: argparse.Namespace, device: str) -> None:
    """Raises UsageError where a training step cannot be one CUDA graph."""
    if device != "cuda":
        raise UsageError("--capture records a CUDA graph, so it needs a GPU")
    if resolved.strategy == "fsdp1":
        raise UsageError("--capture cannot record --strategy fsdp1, PyTorch's first FSDP: use --strategy fsdp")
    if resolved.strategy in BARE:
        raise UsageError(
            f"--capture cannot record --strategy {resolved.strategy}, which begins and waits in Python: "
            f"use --strategy {'ddp' if resolved.strategy in REPLICATED else 'fsdp'}"
        )
    if resolved.checkpoint_activations and is_own(resolved.model):
        raise UsageError(
            "--capture records --checkpoint-activations for the lab's own networks only, of which it knows that "
            "they draw no random numbers: leave out one of them"
        )
