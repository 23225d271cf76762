"""What an image costs in training, counted and not estimated, and how near the devices come to their best.

    MFU = FLOPs of an image x images per second / (devices x FLOP/s of one at its peak)

(Model FLOPs utilisation: Chowdhery et al. 2022, PaLM, arXiv:2204.02311, appendix B.) The FLOPs are those of the
forward and the backward pass of the network as it is written, in convolutions and matrix products: what activation
checkpointing computes again is no progress, so it does not count. They are counted on a copy without numbers
(PyTorch's device "meta"), which no wrapper, no compiler and no random number has to do with.
"""

import contextlib
import copy
import math
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lab.runs.records.epoch_record import Work
from lab.training.metrics.peaks import peak_flops

BATCH = 2  # images to count with: BatchNorm refuses a single number for a channel


class WorkCounter:
    """Counts a network's FLOPs once, when the first images show their shape.

    Args:
        devices: number of ranks.
        say: takes a line for people, where the FLOPs cannot be counted.
    """

    def __init__(self, device: torch.device, devices: int, precision: str, say: Callable[[str], None]) -> None:
        self._devices, self._precision, self._say = devices, precision, say
        self._card = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        self._copy: nn.Module | None = None
        self._counted: Work | None = None

    def keep(self, model: nn.Module) -> None:
        """Take a copy of the network, not yet wrapped or compiled, that has its shapes and none of its numbers."""
        with self._saying_what_fails():
            self._copy = _without_numbers(model)

    def of(self, shape: torch.Size | None) -> Work:
        """What an image of this shape, [3, H, W], costs; nothing is known of it before one is seen."""
        if self._counted is None and self._copy is not None and shape is not None:
            with self._saying_what_fails():
                self._counted = self._count(self._copy, shape)
            self._copy = None
        return self._counted or Work(devices=self._devices)

    @contextlib.contextmanager
    def _saying_what_fails(self) -> Iterator[None]:
        """Networks of one's own may do what cannot be done without numbers: a line says so, the run goes on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - said
            first = (str(error).splitlines() or [""])[0]
            self._say(f"warning: no FLOPs and no MFU: they cannot be counted ({type(error).__name__}: {first})")

    def _count(self, model: nn.Module, shape: torch.Size) -> Work:
        dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        images = torch.empty(BATCH, *shape, device="meta", dtype=dtype)
        with torch.enable_grad(), FlopCounterMode(display=False) as counter:
            model(images).sum().backward()
        counts = counter.get_flop_counts()["Global"]
        convolutions = sum(n for operation, n in counts.items() if "conv" in str(operation)) / BATCH
        products = sum(counts.values()) / BATCH - convolutions
        return Work(convolutions + products, self._best_seconds(convolutions, products), self._devices)

    def _best_seconds(self, convolutions: float, products: float) -> float:
        """Convolutions of fp32 and products of matrices of fp32 may be computed in TF32, each or neither."""
        parts = (
            (convolutions, torch.backends.cudnn.allow_tf32),
            (products, torch.backends.cuda.matmul.allow_tf32),
        )
        seconds = 0.0
        for flops, tf32 in parts:
            peak = peak_flops(self._card, self._precision, tf32=tf32)
            seconds += math.nan if peak is None else flops / peak
        return seconds


def _without_numbers(model: nn.Module) -> nn.Module:
    """A copy on the device "meta", made without a second copy of the weights in memory."""
    known: dict[int, object] = {}
    for parameter in model.parameters():
        known[id(parameter)] = nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        known[id(buffer)] = buffer.to("meta")
    return copy.deepcopy(model, known).train()
