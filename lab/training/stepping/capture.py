"""--capture: the whole training step as one CUDA graph, recorded once and replayed in every later step.

A step of a small network is hundreds of kernels, each shorter than what the CPU needs to launch the next. A graph
is launched at once, with the same kernels and the same numbers in them. What it cannot do is decide: all that the
CPU does in train_step() happens once, while the graph is recorded.
"""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lab.base.errors import UserError
from lab.runs.options.precision import CAPTURE_WARM_UP
from lab.runs.records.progress import Progress
from lab.training.profiling.phases import GRAPH, Phases
from lab.training.stepping.meter import EpochMeter
from lab.training.stepping.stepper import Stepper

TrainStep = Callable[[nn.Module, Optimizer, Tensor, Tensor, Any], Tensor]
Step = Callable[[Tensor, Tensor], Tensor]  # the same of images and labels alone


class CapturedRun(Protocol):
    """What a captured step needs of the run."""

    progress: Progress
    capture: "Capture | None"


def capturable(train_step: TrainStep) -> TrainStep:
    """A decorator for train_step(): with --capture it is recorded and replayed; without, nothing changes."""

    @functools.wraps(train_step)
    def step(model: nn.Module, optimizer: Optimizer, images: Tensor, labels: Tensor, run: CapturedRun) -> Tensor:
        if run.capture is None:
            return train_step(model, optimizer, images, labels, run)

        def eager(images: Tensor, labels: Tensor) -> Tensor:
            return train_step(model, optimizer, images, labels, run)

        return run.capture.step(eager, images, labels, run.progress.step + 1)

    return step


class Capture:
    """One rank's graph. From the making of this object on, all work goes into a stream of its own.

    Recording needs such a stream, and DDP remembers in which one it was built.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        torch.cuda.set_stream(self._stream)
        self._graph: torch.cuda.CUDAGraph | None = None  # once it is recorded
        self._eager_steps = 0

    def begin(self, stepper: Stepper, meter: EpochMeter, phases: Phases) -> None:
        """Raises UserError when the optimizer cannot be captured."""
        stepper.make_capturable()
        self._stepper, self._meter, self._phases = stepper, meter, phases

    def check_in_use(self) -> None:
        """After a step. Raises UserError when train_step() has not come through here."""
        if self._eager_steps == 0:
            raise UserError(
                "--capture finds nothing to record: train_step() in train.py needs @capturable in the line before "
                "it, and train_one_epoch() must call it"
            )

    def step(self, eager: Step, images: Tensor, labels: Tensor, step: int) -> Tensor:
        """One training step: the function itself in the first steps and for a batch of another size.

        Args:
            eager: train_step(), in which there are the same model, optimizer and run each time.
            step: its number, counted from 1 in the epoch.
        """
        if self._eager_steps < CAPTURE_WARM_UP:
            self._eager_steps += 1
            return eager(images, labels)
        model = self._stepper.model
        if self._graph is None:
            _expect_buffer_sync(model)
            self._graph = self._record(eager, images, labels)
        if images.shape != self._images.shape:
            self._meter.labels = labels
            return eager(images, labels)
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._stepper.set_rates()
        self._phases.enter(GRAPH)
        self._graph.replay()
        _expect_buffer_sync(model)
        self._phases.enter("")
        self._stepper.steps += 1
        loss = self._loss.clone()  # the next replay writes to the same memory
        self._meter.note_loss(loss, step)
        return loss

    def _record(self, eager: Step, images: Tensor, labels: Tensor) -> torch.cuda.CUDAGraph:
        """Record the step. Nothing is computed yet."""
        self._images, self._labels = images.clone(), labels.clone()  # where every replay finds its batch
        self._meter.labels = self._labels
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads, such as the one that pins the loader's batches, go on using CUDA meanwhile.
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                self._loss = eager(self._images, self._labels)
        except RuntimeError as error:
            first: BaseException = error
            while first.__context__ is not None:  # ending a recording that has failed fails too
                first = first.__context__
            raise UserError(
                "--capture cannot record train_step(): nothing in it may wait for the GPU, as .item(), .cpu(), "
                f"printing a tensor or an if on one do. CUDA says: {str(first).splitlines()[0]}"
            ) from error
        return graph

    def close(self, say: Callable[[str], None], *, failed: bool) -> None:
        """Give the graph back, before the process group whose collectives it holds."""
        recorded, self._graph = self._graph, None
        if recorded is not None and not failed:
            torch.cuda.synchronize(self._device)
            recorded.reset()
        torch.cuda.set_stream(torch.cuda.default_stream(self._device))
        if recorded is None and not failed:
            say(f"warning: --capture had no effect: the run ended within its first {CAPTURE_WARM_UP} steps")


def _expect_buffer_sync(model: nn.Module) -> None:
    """Let DDP send rank 0's BatchNorm statistics around before its next forward pass.

    It does so after every training step that went through its forward(), which a replay does not. The first pass
    of an evaluation depends on it, and so does a recording: it must contain the broadcast.
    """
    if isinstance(model, nn.parallel.DistributedDataParallel):
        model.require_forward_param_sync = True
