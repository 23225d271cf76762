"""What is counted during an epoch: images, right answers, losses, seconds; nothing waits for the device."""

import contextlib
import math
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lab.base.machine import peak_resident
from lab.runs.records.epoch_record import Totals
from lab.training.metrics.step_figures import StepFigures

RECENT_STEPS = 64  # steps whose losses are kept to tell at which of them one stopped being a number


class EpochMeter:
    """One rank's counts of the epoch going on.

    Args:
        device: where its tensors are.
        micro_batches: losses to an optimizer step.
    """

    def __init__(self, device: torch.device, micro_batches: int = 1) -> None:
        self._device = device
        self.labels: Tensor | None = None  # of the batch going on
        self.image_shape: torch.Size | None = None  # [3, H, W], once a batch was trained on
        self.figures: StepFigures | None = None  # where somebody keeps them
        self._step = 0  # of the last loss that backward() saw
        self._step_losses: list[Tensor] = []  # of this step's micro-batches
        self.images = 0
        self._evaluated = 0
        self._seconds = 0.0
        self._started: float | None = None  # when the training pass going on began
        self._trained_at = time.perf_counter()
        self._correct = torch.zeros((), device=device, dtype=torch.int64)
        self._losses = torch.zeros(2, device=device, dtype=torch.float64)  # the sum, and over how many samples
        self._recent: deque[tuple[int, Tensor]] = deque(maxlen=RECENT_STEPS * micro_batches)

    def follow(self, model: nn.Module) -> None:
        """Count what goes through the model from now on."""
        model.register_forward_hook(self._look_at_forward)

    def begin_epoch(self) -> None:
        self.images = self._evaluated = 0
        self._step, self._step_losses = 0, []
        self._seconds = 0.0
        self._correct.zero_()
        self._losses.zero_()
        if self.figures is not None:
            self.figures.begin_epoch()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)

    def begin_pass(self) -> None:
        self._started = time.perf_counter()
        self.begin_step()

    def begin_step(self) -> None:
        """The end of what was done after the step before; from here on the next one is timed."""
        if self.figures is not None:
            self.figures.begin_step()

    def end_step(self, step: int) -> None:
        """After an optimizer step, counted from 1 in the epoch."""
        if self.figures is not None:
            self.figures.end_step(step)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, the training pass's clock stands still."""
        before = time.perf_counter()
        try:
            yield
        finally:
            if self._started is not None:
                self._started += time.perf_counter() - before

    def begin_evaluation(self) -> None:
        """Forget what was evaluated so far; the time of the next evaluation begins."""
        self._evaluated, self._trained_at = 0, time.perf_counter()

    def count_evaluated(self, images: int) -> None:
        """So many more images were evaluated, in a replay that calls no hook."""
        self._evaluated += images

    def end_pass(self) -> None:
        self._correct.item()  # waits for the device
        self._trained_at = time.perf_counter()
        self._seconds = self.seconds
        self._started = self.labels = None

    @property
    def seconds(self) -> float:
        """Of the training pass so far."""
        return self._seconds + (0.0 if self._started is None else time.perf_counter() - self._started)

    def add_loss(self, loss: Tensor, step: int) -> None:
        """A micro-batch's mean loss; `step` is its optimizer step, counted from 1 in the epoch."""
        if not is_recording():
            self.note_loss(loss, step)
        if self.labels is not None:
            count = len(self.labels)
            # In the words of train_one_epoch(), so that the mean of a resumed epoch has the same last digit.
            self._losses += torch.stack([loss * count, torch.full_like(loss, count)])

    def note_loss(self, loss: Tensor, step: int) -> None:
        """Remember it by itself: for the progress lines, and to name the step of one that is no number."""
        if step != self._step:
            self._step, self._step_losses = step, []
        self._step_losses.append(loss)
        self._recent.append((step, loss))

    @property
    def step_loss(self) -> Tensor | None:
        """The mean over the micro-batches of the last step; None where run.backward() was not used."""
        if len(self._step_losses) < 2:
            return self._step_losses[0] if self._step_losses else None
        return torch.stack(self._step_losses).mean()

    @property
    def total_loss(self) -> Tensor:
        """The sum of this rank's losses; not a finite number from the first loss on that is none."""
        return self._losses[0]

    def mean_loss(self) -> float | None:
        """The mean loss over the samples of all ranks; None where run.backward() was not used. Collective."""
        losses = self._losses.clone()
        dist.all_reduce(losses)
        return (losses[0] / losses[1]).item() if losses[1] > 0 else None

    def first_bad_step(self) -> tuple[int, float] | None:
        """(step, loss) of the first loss on any rank that is no finite number. Collective."""
        bad = [(step, loss.item()) for step, loss in self._recent if not math.isfinite(loss.item())]
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, bad[0] if bad else None)
        return min((one for one in everyone if one is not None), key=lambda one: one[0], default=None)

    def totals(self) -> Totals:
        """Over all ranks. Collective."""
        since = time.perf_counter() - self._trained_at
        slowest = torch.tensor(
            [self._seconds, since, self._peak_memory()], dtype=torch.float64, device=self._device
        )
        counts = torch.tensor([self.images, 0, self._evaluated], dtype=torch.float64, device=self._device)
        counts[1] = self._correct
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        dist.all_reduce(counts)
        seconds, evaluation, memory = slowest.tolist()
        images, correct, evaluated = counts.tolist()
        norm, scale = (math.nan, math.nan) if self.figures is None else self.figures.totals()
        return Totals(images, correct, seconds, evaluated, evaluation, int(memory), norm, scale)

    def state(self) -> dict[str, Any]:
        """This rank's counts, for a checkpoint."""
        loss, samples = self._losses.tolist()
        counts = {"images": self.images, "correct": int(self._correct), "seconds": self.seconds}
        squares = {} if self.figures is None else {"squares": self.figures.state()}
        return {**counts, "loss": loss, "samples": samples, **squares}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from these counts."""
        self.images = int(state["images"])
        self._seconds = state["seconds"]
        self._correct.fill_(int(state["correct"]))
        self._losses.copy_(torch.tensor([state["loss"], state["samples"]], dtype=torch.float64))
        if self.figures is not None and "squares" in state:  # earlier versions kept none
            self.figures.load(state["squares"])

    def _look_at_forward(self, model: nn.Module, inputs: tuple[Any, ...], logits: Tensor) -> None:
        """Forward hook: counts right answers while training, images while evaluating."""
        if not model.training:
            self._evaluated += len(logits)
        elif self.labels is not None:
            self.image_shape = inputs[0].shape[1:]
            self._correct += (logits.detach().argmax(dim=1) == self.labels).sum()

    def _peak_memory(self) -> int:
        on_gpu = self._device.type == "cuda"
        return torch.cuda.max_memory_allocated(self._device) if on_gpu else peak_resident()


def join_states(states: list[dict[str, Any]], rank: int) -> dict[str, Any]:
    """Counts of an epoch begun by another number of ranks: rank 0 takes them all, the others none."""
    joined = {name: sum(state[name] for state in states) * (rank == 0) for name in states[0]}
    return joined | {"seconds": max(state["seconds"] for state in states)}


def is_recording() -> bool:
    """True while a graph is recorded: nothing is computed now, and a replay repeats none of what the CPU does."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
