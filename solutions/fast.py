"""Section 8, for who wants more: make it fast. Where a step's time goes, and a step recorded as one graph."""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.utils.data import Sampler

from lab.training import new_graph, recording, side_stream, synchronize

CAUSES = ("compute", "communication", "input", "launch")


@dataclass(frozen=True)
class Span:
    """One entry of a step's profile: what ran from when to when, in microseconds.

    what    "compute" or "communication": a kernel on the GPU
            "input": the CPU waits for the next batch; "launch": the CPU tells the GPU what to do
    """

    what: str
    begin: float
    end: float


def time_by_cause(spans: Sequence[Span]) -> dict[str, float]:
    """The microseconds of a step that each of CAUSES answers for: every moment of the step counts once.

    A moment is spent on compute where such a kernel runs, whatever else does; else on communication where that
    runs; else the GPU has nothing to do, because of the input where the CPU waits for it, and for want of launches
    where it does not.
    """
    # TODO 8.1: cut the step at every begin and end. In each piece, the first cause of CAUSES that is running gets
    # its length; where none of the spans that are running names one, it is "launch".
    ### BEGIN SOLUTION 8.1
    times = dict.fromkeys(CAUSES, 0.0)
    edges = sorted({edge for span in spans for edge in (span.begin, span.end)})
    for begin, end in pairwise(edges):
        running = [span.what for span in spans if span.begin <= begin and span.end >= end]
        cause = next((cause for cause in CAUSES if cause in running), "launch")
        times[cause] += end - begin
    return times
    ### END SOLUTION


def slow_epoch_loss(
    train_step: Callable[[Tensor, Tensor], Tensor], batches: Iterable[tuple[Tensor, Tensor]], device: torch.device
) -> float:
    """What epoch_loss() replaces: right, and slow."""
    total, samples = 0.0, 0
    for images, labels in batches:
        loss = train_step(images, labels)
        total += loss.item() * len(labels)  # the CPU waits here until the GPU has done the step
        samples += len(labels)
    sums = torch.tensor([total, samples], dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def epoch_loss(
    train_step: Callable[[Tensor, Tensor], Tensor], batches: Iterable[tuple[Tensor, Tensor]], device: torch.device
) -> float:
    """Train on every batch, and return the mean loss over the samples of all ranks.

    Args:
        train_step: takes a step on (images, labels), and returns the mean loss of this rank's samples, detached
            and still on the device.
        batches: on the device; the last may be smaller.
    """
    # TODO 8.2: what slow_epoch_loss() does, but with the sums on the device: read there once, at the end.
    ### BEGIN SOLUTION 8.2
    sums = torch.zeros(2, dtype=torch.float64, device=device)  # of the losses, of the samples
    for images, labels in batches:
        loss = train_step(images, labels)
        sums[0] += loss * len(labels)
        sums[1] += len(labels)
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()
    ### END SOLUTION


class DeviceBatches:
    """Batches of a data set that lies on the device as a whole: no workers, no copy of images in a step.

    CIFAR-10 as uint8 takes 150 MB. train_one_epoch() of section 6 takes this as it takes a DataLoader: it calls
    .sampler.set_epoch() before each epoch.

    Args:
        images: uint8 [N, 3, H, W], on the CPU.
        labels: [N], on the CPU.
        sampler: yields this rank's indices, in another order each epoch.
    """

    def __init__(
        self, images: Tensor, labels: Tensor, sampler: Sampler[int], batch_size: int, device: torch.device
    ) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        # TODO 8.3a: self.images and self.labels: on the device, as small as they are.
        ### BEGIN SOLUTION 8.3a
        self.images = images.to(device)
        self.labels = labels.to(device)
        ### END SOLUTION

    def __len__(self) -> int:
        return len(self.sampler) // self.batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch's whole batches: images float32 [B, 3, H, W] from 0 to 1, and labels [B]."""
        # TODO 8.3b: this epoch's order as one tensor on the device; then pick each batch with its part of it, and
        # turn only these images into floats.
        ### BEGIN SOLUTION 8.3b
        order = torch.tensor(list(self.sampler), device=self.images.device)
        for indices in order.split(self.batch_size)[: len(self)]:
            yield self.images[indices].float() / 255, self.labels[indices]
        ### END SOLUTION


def capture_step(
    model: nn.Module, optimizer: Optimizer, warm_up: Sequence[tuple[Tensor, Tensor]]
) -> Callable[[Tensor, Tensor], Tensor]:
    """Take the first steps of a training as ever, and record another as a graph.

    Args:
        warm_up: images and labels of the first steps, on the model's device, all of one shape. They stay as they
            are.

    Returns:
        A function that takes the next step on (images, labels): it copies them to where the graph finds its batch,
        replays it, and returns the mean loss, in a tensor that later steps leave alone.
    """
    device = warm_up[0][0].device
    # TODO 8.4: a step on each batch of warm_up in a side_stream(device); tensors of the graph's own for images and
    # labels; one step on these in recording(new_graph(device)), its gradients made anew inside; then the function.
    ### BEGIN SOLUTION 8.4
    static_images, static_labels = (part.clone() for part in warm_up[-1])

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(static_images), static_labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with side_stream(device):
        for images, labels in warm_up:
            static_images.copy_(images)
            static_labels.copy_(labels)
            step()
    graph = new_graph(device)
    with recording(graph):
        static_loss = step()

    def replay(images: Tensor, labels: Tensor) -> Tensor:
        static_images.copy_(images)
        static_labels.copy_(labels)
        graph.replay()
        return static_loss.clone()

    return replay
    ### END SOLUTION


def capturable_sgd(model: nn.Module, rate: float, momentum: float) -> SGD:
    """SGD whose learning rate a recorded step reads anew in every replay: it is a tensor on the model's device.

    Only the fused kernel reads it there; the others ask the tensor for its number, which a recording refuses.
    """
    # TODO 8.5a: SGD of all parameters with fused=True.
    ### BEGIN SOLUTION 8.5a
    device = next(model.parameters()).device
    return SGD(model.parameters(), lr=torch.tensor(rate, device=device), momentum=momentum, fused=True)
    ### END SOLUTION


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Let all later steps, replayed ones too, use this learning rate, in every parameter group."""
    # TODO 8.5b: write it into the tensors that the graph knows.
    ### BEGIN SOLUTION 8.5b
    for group in optimizer.param_groups:
        group["lr"].fill_(rate)
    ### END SOLUTION


def seconds_per_step(
    step: Callable[[], object], device: torch.device, *, warm_up: int = 5, steps: int = 20
) -> float:
    """The median time of `steps` steps, after `warm_up` others. A step's time ends when the device has done it.

    Of an even number of times the median is the mean of the two in the middle.
    """
    # TODO 8.6a: read time.perf_counter() before and after each step, but only when the device has nothing left to
    # do: synchronize(device) waits for that.
    ### BEGIN SOLUTION 8.6a
    for _ in range(warm_up):
        step()
    times = []
    for _ in range(steps):
        synchronize(device)
        begin = time.perf_counter()
        step()
        synchronize(device)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
    ### END SOLUTION


def largest_difference(first: nn.Module, second: nn.Module) -> float:
    """How far two trained models are apart: the largest difference of any number in their parameters and buffers.

    NaN where a number is NaN: a model that has diverged must not pass for equal.
    """
    # TODO 8.6b: over the values of both state_dict()s, which have the buffers too. Python's max() can lose a NaN.
    ### BEGIN SOLUTION 8.6b
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return torch.stack([(a.double() - b.double()).abs().max() for a, b in pairs]).max().item()
    ### END SOLUTION
