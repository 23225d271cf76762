"""--capture: the whole training step as one CUDA graph, recorded once and replayed in every later step.

A step of a small network is hundreds of kernels, each shorter than what the CPU needs to launch the next. A graph
is launched at once, with the same kernels and the same numbers in them. What it cannot do is decide: all that the
CPU does in train_step() happens once, while the graph is recorded.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer

from lab.base.errors import UserError
from lab.runs.options.precision import CAPTURE_WARM_UP
from lab.runs.records.progress import Progress
from lab.training.profiling.phases import GRAPH, Phases
from lab.training.stepping.meter import EpochMeter
from lab.training.stepping.stepper import Stepper

EVALUATION_WARM_UP = 2  # batches of evaluations before the one that is recorded: kernels are chosen, or compiled

TrainStep = Callable[[nn.Module, Optimizer, Tensor, Tensor, Any], Tensor]
Step = Callable[[Tensor, Tensor], Tensor]  # the same of images and labels alone
Forward = Callable[[Tensor], Tensor]  # images -> logits


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


@dataclass(frozen=True)
class Recorded:
    """A graph, and where each replay finds its batch and leaves its loss."""

    graph: torch.cuda.CUDAGraph
    images: Tensor
    labels: Tensor
    loss: Tensor


@dataclass(frozen=True)
class RecordedForward:
    """The same of a batch of an evaluation."""

    graph: torch.cuda.CUDAGraph
    images: Tensor
    logits: Tensor


class Capture:
    """One rank's graphs: one for each kind of micro-batch, the first of a step, one in between, the last. Without
    accumulation a batch is first and last, and there is one graph. One more is for evaluations.

    From the making of this object on, all work goes into a stream of its own. Recording needs such a stream, and
    DDP remembers in which one it was built.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        torch.cuda.set_stream(self._stream)
        self._recorded: dict[tuple[bool, bool], Recorded] = {}  # by whether it is the first, the last of its step
        self._eager_steps = 0
        self._forward: RecordedForward | None = None
        self._forward_shape: torch.Size | None = None  # of the batches that it is for
        self._eager_forwards = 0
        self._gathered = False  # whether a forward pass has been made since the last replay

    def begin(self, stepper: Stepper, meter: EpochMeter, phases: Phases) -> None:
        """Raises UserError when the optimizer cannot be captured."""
        stepper.make_capturable()
        self._stepper, self._meter, self._phases = stepper, meter, phases
        self._sharded = [module for module in stepper.model.modules() if isinstance(module, FSDPModule)]
        if self._sharded:
            stepper.model.register_forward_hook(self._note_forward)

    def _note_forward(self, *_: object) -> None:
        self._gathered = True

    def check_in_use(self) -> None:
        """After a step. Raises UserError when train_step() has not come through here."""
        if self._eager_steps == 0:
            raise UserError(
                "--capture finds nothing to record: train_step() in train.py needs @capturable in the line before "
                "it, and train_one_epoch() must call it"
            )

    def step(self, eager: Step, images: Tensor, labels: Tensor, step: int) -> Tensor:
        """One call of train_step(): the function itself in the first steps and for a batch of another size.

        Args:
            eager: train_step(), in which there are the same model, optimizer and run each time.
            step: its number, counted from 1 in the epoch.

        Raises:
            UserError: it cannot be recorded; or with accumulation, a batch of another size, whose gradients would
                not be where the graphs of the same step look for them.
        """
        stepper = self._stepper
        if not self._recorded and (self._eager_steps < CAPTURE_WARM_UP or not stepper.is_first):
            self._eager_steps += stepper.is_last
            return eager(images, labels)
        kind = stepper.is_first, stepper.is_last
        self._reshard()
        if kind not in self._recorded:
            _expect_buffer_sync(stepper.model, expected=False)
            self._recorded[kind] = self._record(eager, images, labels)
        recorded = self._recorded[kind]
        if images.shape != recorded.images.shape:
            if stepper.accumulate > 1:
                raise UserError(
                    "--capture with --accumulate needs batches of one size: "
                    f"{len(recorded.images)} images were recorded, and now there are {len(images)}"
                )
            self._meter.labels = labels
            return eager(images, labels)
        recorded.images.copy_(images)
        recorded.labels.copy_(labels)
        stepper.await_copies()
        if stepper.is_last:
            stepper.set_rates()
        self._phases.enter(GRAPH)
        recorded.graph.replay()
        _expect_buffer_sync(stepper.model, expected=stepper.is_last)
        self._phases.enter("")
        stepper.steps += stepper.is_last
        loss = recorded.loss.clone()  # the next replay writes to the same memory
        self._meter.note_loss(loss, step)
        return loss

    def evaluate(self, eager: Forward, images: Tensor) -> Tensor:
        """One batch of an evaluation: the network itself for the first ones and for another size, else a replay.

        Under FSDP2 each gathers all parameters anew, so that a batch has the same collectives either way. All the
        same NCCL wants all ranks to replay together: batches must be as large on the one as on the other, as those
        of ValidationShard are.

        Args:
            eager: the network, in evaluation mode and without gradients.
        """
        if self._forward_shape is None:
            self._forward_shape = images.shape
        model = self._stepper.model
        self._reshard()
        if (
            images.shape != self._forward_shape
            or self._eager_forwards < EVALUATION_WARM_UP
            # Its first batch sends rank 0's running statistics around, and no other does.
            or (isinstance(model, nn.parallel.DistributedDataParallel) and model.will_sync_module_buffers())
        ):
            self._eager_forwards += images.shape == self._forward_shape
            return eager(images)
        if self._forward is None:
            self._forward = self._record_forward(eager, images)
        else:
            self._meter.count_evaluated(len(images))  # recording counted its own
        self._forward.images.copy_(images)
        self._forward.graph.replay()
        return self._forward.logits.clone()  # the next replay writes to the same memory

    def _reshard(self) -> None:
        """Let FSDP2 forget what it has gathered.

        After an evaluation the root's parameters stay gathered until the next backward pass. A replay changes the
        shards behind Python's back, so the evaluation after it would compute with those old values. And what is
        recorded must gather all of them: what lies there already would be left out of the graph.
        """
        if self._gathered:
            for module in self._sharded:
                module.reshard()
            self._gathered = False

    def _record(self, eager: Step, images: Tensor, labels: Tensor) -> Recorded:
        """Record the step. Nothing is computed yet.

        All its graphs share one pool of memory, in which the gradients that they add up stay where they are.
        """
        images, labels = images.clone(), labels.clone()
        self._meter.labels = labels
        graph = torch.cuda.CUDAGraph()
        pool = next((one.graph.pool() for one in self._recorded.values()), None)
        with self._recording(graph, pool, "train_step()"):
            loss = eager(images, labels)
        return Recorded(graph, images, labels, loss)

    def _record_forward(self, eager: Forward, images: Tensor) -> RecordedForward:
        """Record a batch of an evaluation. What FSDP2 gathers in the graph is given back in it."""
        images = images.clone()
        graph = torch.cuda.CUDAGraph()
        with self._recording(graph, None, "an evaluation"):
            logits = eager(images)
            self._reshard()
        return RecordedForward(graph, images, logits)

    @contextlib.contextmanager
    def _recording(self, graph: torch.cuda.CUDAGraph, pool: Any, what: str) -> Iterator[None]:
        try:
            # Other threads, such as the one that pins the loader's batches, go on using CUDA meanwhile.
            with torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"):
                yield
        except RuntimeError as error:
            first: BaseException = error
            while first.__context__ is not None:  # ending a recording that has failed fails too
                first = first.__context__
            raise UserError(
                f"--capture cannot record {what}: nothing in it may wait for the GPU, as .item(), .cpu(), "
                f"printing a tensor or an if on one do. CUDA says: {str(first).splitlines()[0]}"
            ) from error

    def close(self, say: Callable[[str], None], *, failed: bool) -> None:
        """Give the graphs back, before the process group whose collectives they hold."""
        recorded, self._recorded = self._recorded, {}
        forward, self._forward = self._forward, None
        graphs = [one.graph for one in (*recorded.values(), forward) if one is not None]
        if graphs and not failed:
            torch.cuda.synchronize(self._device)
            for graph in graphs:
                graph.reset()
        torch.cuda.set_stream(torch.cuda.default_stream(self._device))
        if not recorded and not failed:
            say(f"warning: --capture had no effect: the run ended within its first {CAPTURE_WARM_UP} steps")


def _expect_buffer_sync(model: nn.Module, *, expected: bool) -> None:
    """Let DDP send rank 0's BatchNorm statistics around before its next forward pass, or not.

    It does so before every step, though only rank 0's count and training does not use them. That they are sent
    before the next evaluation, as after a replay, is as good to the last bit; a graph goes without.
    """
    if isinstance(model, nn.parallel.DistributedDataParallel):
        model.require_forward_param_sync = expected
