"""A measurement in the place of an epoch: some optimizer steps that are discarded, then some that are timed.

The first steps pay for what happens once: memory is reserved, kernels are chosen, loaders start, DDP arranges its
buckets. After them the device is waited for twice only, where the clock starts and where it stops, so that the CPU
can run ahead of a GPU in between as it does in training.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from lab.runs.records.epoch_record import TimedSteps

Batch = tuple[Tensor, Tensor]


class EpochWindow:
    """An epoch that is one pass over the data, of which no step is timed by itself."""

    @property
    def is_open(self) -> bool:
        """Whether the clock runs: nothing may wait for the device now."""
        return False

    def length(self, pass_steps: int) -> int:
        """Optimizer steps of the epoch, where one pass over the data has `pass_steps`."""
        return pass_steps

    def end_step(self) -> None:
        """After each optimizer step, on every rank."""

    def result(self, images_per_step: int) -> TimedSteps | None:
        """For the record. Collective."""
        return None


class StepWindow(EpochWindow):
    """Times `steps` optimizer steps after `warmup` others, on every rank.

    Args:
        warmup: at least one.
        steps: at least one.
    """

    def __init__(self, device: torch.device, warmup: int, steps: int) -> None:
        self._warmup, self._steps = warmup, steps
        self._total = warmup + steps
        self._device = device
        self._done = 0
        self._started = self._seconds = float("nan")

    @property
    def is_open(self) -> bool:
        return self._warmup <= self._done < self._total

    def length(self, pass_steps: int) -> int:
        return self._total

    def end_step(self) -> None:
        self._done += 1
        if self._done == self._warmup:
            dist.barrier()  # all ranks start together: none is charged for waiting for a late one
            self._wait_for_device()
            self._started = time.perf_counter()
        elif self._done == self._total:
            self._wait_for_device()
            self._seconds = time.perf_counter() - self._started

    def result(self, images_per_step: int) -> TimedSteps:
        """A step's seconds on the slowest rank; nan if training ended before the window did. Collective."""
        slowest = torch.tensor(self._seconds / self._steps, dtype=torch.float64, device=self._device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return TimedSteps(self._steps, slowest.item(), images_per_step)

    def _wait_for_device(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class DeviceInputs:
    """A whole data set on the device, ready for the network: a batch is one gather, no loader is waited for.

    The numbers are those that a loader delivers, in the order of the loader's sampler, so training is the same.
    Random changes of the images, which are new in every epoch, are refused with the options.
    """

    def __init__(self, dataset: Dataset, device: torch.device) -> None:
        self._device = device
        indices: Sequence[int] = range(len(dataset))  # type: ignore[arg-type]
        fetch = getattr(dataset, "__getitems__", lambda chosen: [dataset[i] for i in chosen])
        images, labels = default_collate(fetch(indices))
        self._images, self._labels = images.to(device), labels.to(device)

    def batches(self, loader: DataLoader, passes: int, first_epoch: int) -> Iterator[Batch]:
        """The batches of some passes over the data, each in an order of its own."""
        # All of the order at once: to send a part of it in mid-window could make the CPU wait for the device.
        order = [batch for epoch in _epochs(loader, passes, first_epoch) for batch in epoch.batch_sampler]
        on_device = [torch.tensor(batch).to(self._device) for batch in order]
        for chosen in on_device:
            yield self._images[chosen], self._labels[chosen]


def batch_source(loader: DataLoader, inputs: DeviceInputs | None, needed: int, epoch: int) -> Iterator[Batch]:
    """At least `needed` batches, in as many passes over the data as that takes.

    Args:
        inputs: from here where there are any, else from the loader.
        epoch: of the first pass; it stands for its order.
    """
    passes = -(-needed // len(loader)) if len(loader) else 1
    if inputs is not None:
        return inputs.batches(loader, passes, epoch)
    if passes > 1:
        return itertools.chain.from_iterable(_epochs(loader, passes, epoch))
    return iter(loader)


def _epochs(loader: DataLoader, passes: int, first_epoch: int) -> Iterator[Any]:
    """The loader once for each pass, its sampler told which one it is."""
    for number in range(passes):
        if number and hasattr(loader.sampler, "set_epoch"):  # the first pass: train_one_epoch() has done it
            loader.sampler.set_epoch(first_epoch + number)
        yield loader
