"""Activation checkpointing by block: less memory for one more forward pass (Chen et al. 2016, arXiv:1604.06174).

A checkpointed block keeps only its input. When the backward pass comes to it, the block runs forward a second
time to have its activations back. Dropout draws the same mask again, and gradients are the same to the last bit.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from lab.base.errors import UserError


def checkpoint_activations(model: nn.Module, *, captured: bool = False, compiled: bool = False) -> None:
    """Make every block of the model checkpoint its activations, in place.

    Args:
        captured: for steps that are recorded as a CUDA graph, in which the state of the random numbers cannot be
            kept and put back.
        compiled: for blocks that will be compiled: torch.compile sees to it that BatchNorm counts a batch once.

    Raises:
        UserError: captured, a block has dropout.

    The blocks' forward() is replaced, not the blocks: parameter names stay, and so do the hooks by which DDP and
    FSDP gather and release parameters around each block. So the model may be wrapped before or afterwards.
    """
    inner = model if hasattr(model, "blocks") else model.module  # DDP hides the model's own attributes
    for block in inner.blocks:  # type: ignore[union-attr]
        if captured and any(getattr(module, "p", 0) > 0 for module in block.modules()):
            raise UserError(
                "--capture cannot record --checkpoint-activations of a network with dropout, which has to draw "
                "the same mask twice: leave out one of them"
            )
        # FSDP1 has put itself in the block's place. Inside it, so that the second pass gathers nothing anew.
        block = getattr(block, "_fsdp_wrapped_module", block)
        options: dict[str, Any] = {"preserve_rng_state": not captured}
        if not compiled:
            options["context_fn"] = partial(_contexts, block)
        block.forward = _checkpointed(block.forward, options)


def _checkpointed(forward: Callable[[Tensor], Tensor], options: Mapping[str, Any]) -> Callable[[Tensor], Tensor]:
    def twice(x: Tensor) -> Tensor:
        return checkpoint(forward, x, use_reentrant=False, **options)

    return twice


def _contexts(block: nn.Module) -> tuple[contextlib.AbstractContextManager, contextlib.AbstractContextManager]:
    """Of the first and of the second forward pass."""
    return contextlib.nullcontext(), _running_statistics_kept(block)


@contextlib.contextmanager
def _running_statistics_kept(block: nn.Module) -> Iterator[None]:
    """Inside, BatchNorm normalises by the batch but does not count it: the first forward pass has done so."""
    norms = [module for module in block.modules() if isinstance(module, _BatchNorm)]
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        # Zero of the new statistics goes into the old ones. They are passed on still: without them BatchNorm
        # would save other tensors for backward than it did the first time, which checkpoint() refuses.
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, tracked) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, tracked
