"""Of each step of an epoch: the norm of its gradients, and fp16's loss scale.

They stay on the device until somebody who waits for it anyway reads them. FSDP's ranks each have the gradients of
their shards only: what is kept of a step is this rank's part of the squared norm, and the ranks add up their parts
when they are read, many steps at a time, instead of once in every step.
"""

import math
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Replicate

Mark = float | torch.cuda.Event


@dataclass(frozen=True)
class StepMeasures:
    """What is known of a step that has just ended, on the device: to read it waits."""

    gradient_square: Tensor | None  # this rank's part of it
    loss_scale: Tensor | None  # with fp16, after the step
    began: Mark
    ended: Mark

    def seconds(self) -> float:
        """From the end of the step before, or the beginning of the epoch; saving and the like left out."""
        began, ended = self.began, self.ended
        if isinstance(began, float) or isinstance(ended, float):
            return float(ended) - float(began)  # type: ignore[arg-type]  # both are, on the CPU
        ended.synchronize()
        return began.elapsed_time(ended) / 1000


def mark(device: torch.device) -> Mark:
    """This moment, in the order of the device's own work; it waits for nothing."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


class GradientSquare:
    """This rank's part of the squared norm of a step's gradients, after accumulation, before clipping.

    The parts of all ranks add up to the square over all parameters: what several ranks have alike, DDP's gradients
    or those of replicated shards, is divided by their number.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.value = torch.full((), math.nan, dtype=torch.float64, device=device)  # of the last step
        sharded = isinstance(model, FullyShardedDataParallel)  # whose shards are plain tensors
        self._copies = 1 if sharded else dist.get_world_size()

    @torch.no_grad()
    def measure(self, gradients: list[Tensor]) -> None:
        """Replace `value`, in the same memory: a step that is a CUDA graph writes it in each replay."""
        by_copies: dict[int, list[Tensor]] = {}
        for gradient in gradients:
            local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
            by_copies.setdefault(self._copies_of(gradient), []).append(local)
        self.value.zero_()
        for copies, tensors in by_copies.items():
            self.value.add_(torch.nn.utils.get_total_norm(tensors).double().square(), alpha=1 / copies)

    def _copies_of(self, gradient: Tensor) -> int:
        if not isinstance(gradient, DTensor):
            return self._copies
        mesh = gradient.device_mesh
        return math.prod(
            mesh.size(i) for i, place in enumerate(gradient.placements) if isinstance(place, Replicate)
        )


class StepFigures:
    """One rank's, of the epoch going on.

    Args:
        steps: optimizer steps of an epoch.
        scaler: fp16's.
    """

    def __init__(
        self, model: nn.Module, steps: int, device: torch.device, scaler: torch.amp.GradScaler | None
    ) -> None:
        self.square = GradientSquare(model, device)
        self._scaler = scaler
        self._one = torch.ones((), device=device)
        self._device = device
        self._began = self._ended = mark(device)
        self._done = 0  # steps of the epoch
        self._squares = torch.full((steps,), math.nan, dtype=torch.float64, device=device)
        self._scales = None if scaler is None else self._squares.clone()

    def begin_epoch(self) -> None:
        """Nothing is known of the steps of an epoch before they are done."""
        self._done = 0
        for kept in (self._squares, self._scales):
            if kept is not None:
                kept.fill_(math.nan)

    def begin_step(self) -> None:
        """Here the next step's time begins."""
        self._began = mark(self._device)

    def end_step(self, step: int) -> None:
        """Keep the figures of this step, counted from 1 in the epoch. Waits for nothing."""
        self._ended, self._done = mark(self._device), step
        if step > len(self._squares):  # of another loader than the one that the run began with
            return
        self._squares[step - 1].copy_(self.square.value)
        if self._scaler is not None and self._scales is not None:
            self._scales[step - 1].copy_(self._scaler.scale(self._one))  # get_scale() would wait for the device

    def last_step(self) -> StepMeasures:
        """Of the step that has just ended."""
        square, scale = (
            kept[self._done - 1] if kept is not None and self._done <= len(kept) else None
            for kept in (self._squares, self._scales)
        )
        return StepMeasures(square, scale, self._began, self._ended)

    def totals(self) -> tuple[float, float]:
        """The mean norm over the steps, and the loss scale at the end; nan where there is none. Collective.

        A step whose gradients overflow in fp16 changes no weight, and its norm is no number: it does not count.
        """
        squares = self._squares.clone()
        dist.all_reduce(squares)
        norms = squares.sqrt()
        norm = norms[norms.isfinite()].mean().item()
        if self._scales is None:
            return norm, math.nan
        known = self._scales[self._scales.isfinite()]
        return norm, known[-1].item() if len(known) else math.nan

    def state(self) -> Tensor:
        """This rank's parts of the steps done, for a checkpoint; the parts of all ranks may be added up."""
        return self._squares[: self._done].cpu()

    def load(self, squares: Tensor) -> None:
        """Go on from them."""
        self._squares[: len(squares)].copy_(squares)


def clip_gradients(model: nn.Module, parameters: list[nn.Parameter], limit: float) -> None:
    """Scale the gradients down to this norm over all parameters and ranks, where theirs is larger. Collective."""
    if isinstance(model, FullyShardedDataParallel):
        model.clip_grad_norm_(limit)
        return
    norm = torch.nn.utils.get_total_norm([one.grad for one in parameters if one.grad is not None])
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()  # each rank has the norm of its shards: sum the squares over all ranks
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
