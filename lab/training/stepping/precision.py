"""In what precision a run computes: its default, the context of the forward pass, fp16's scaler.

fp32 keeps everything in single precision. bf16 and fp16 compute convolutions and matrix products in half the
bits and keep weights, their gradients' sums and the optimizer in fp32. fp16's gradients can become too small for
its exponent, so the loss is scaled up before the backward pass and the gradients down after it (Micikevicius et
al. 2017, arXiv:1710.03740).
"""

import contextlib

import torch
from torch import nn

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def default_precision(device: torch.device) -> str:
    """bf16 on a GPU that computes in it, fp16 on an older one, fp32 on the CPU."""
    if device.type != "cuda":
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"


def autocast(
    device: torch.device, precision: str, strategy: str, *, cache: bool = True
) -> contextlib.AbstractContextManager:
    """The context for a forward pass. FSDP brings its own precision; for the others it is torch.autocast.

    Args:
        cache: whether weights in 16 bits may be kept until the context ends; a CUDA graph must make its own.
    """
    if precision in DTYPES and not strategy.startswith("fsdp"):
        return torch.autocast(device.type, dtype=DTYPES[precision], cache_enabled=cache)
    return contextlib.nullcontext()


def make_scaler(device: torch.device, precision: str) -> torch.amp.GradScaler | None:
    """fp16's loss scaler; the other precisions need none. It serves FSDP2 too, not FSDP1."""
    return torch.amp.GradScaler(device.type) if precision == "fp16" else None


def wants_channels_last(model: nn.Module, device: torch.device, strategy: str) -> bool:
    """Whether to keep images as [N, H, W, C] in memory, and filters too where they may be, which cuDNN likes best.

    Under FSDP2 the filters stay contiguous, as it wants them. FSDP1 keeps a unit's parameters in one flat tensor.
    """
    convolves = any(isinstance(module, nn.Conv2d) for module in model.modules())
    return convolves and device.type == "cuda" and strategy != "fsdp1"


def describe(device: torch.device, precision: str, channels_last: bool) -> str:
    """One phrase for the start report, with what fp32 means on this device."""
    words = [precision]
    if device.type == "cuda":
        used = {True: "TF32", False: "fp32"}
        convolutions, products = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
        words.append(f"fp32 convolutions run in {used[convolutions]}, fp32 matrix products in {used[products]}")
    if channels_last:
        words.append("channels_last")
    return "; ".join(words)
