"""What the run sees to in evaluate(model, loader, device), below its call of the model: as fast as in training.

One rule for all strategies: the network computes in the run's precision and in its memory format, in evaluation as
in training, and hands its logits on in fp32, because a loss summed over a data set in 16 bits would be none. FSDP
does so by itself; for the others it is autocast.
"""

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from lab.training.stepping.capture import Capture


class FastEvaluation:
    """The calls of a model in evaluation mode and without gradients; all others are as they were.

    Args:
        model: wrapped.
        autocast: makes the context of a forward pass.
        layout: of the images in memory.
        capture: with --capture, when it has begun.
    """

    def __init__(
        self,
        model: nn.Module,
        autocast: Callable[[], contextlib.AbstractContextManager],
        layout: torch.memory_format,
        capture: Capture | None,
    ) -> None:
        self._model, self._autocast, self._layout, self._capture = model, autocast, layout, capture
        self._plain = model._call_impl
        # Not its forward(): the hooks around it, in which FSDP gathers the parameters, belong into the graph.
        model._call_impl = self._call  # type: ignore[method-assign]

    def release(self) -> None:
        """Give the model its own method back."""
        del self._model._call_impl

    def _call(self, *inputs: Tensor, **named: object) -> Tensor:
        if self._model.training or torch.is_grad_enabled() or named or len(inputs) != 1:
            return self._plain(*inputs, **named)
        (images,) = inputs
        if self._layout != torch.preserve_format:
            images = images.contiguous(memory_format=self._layout)
        if self._capture is None:
            return self._compute(images)
        return self._capture.evaluate(self._compute, images)

    def _compute(self, images: Tensor) -> Tensor:
        with self._autocast():
            logits: Tensor = self._plain(images)
        return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
