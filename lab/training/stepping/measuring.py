"""A measurement in the place of an epoch: some optimizer steps that are discarded, then some that are timed.

The first steps pay for what happens once: memory is reserved, kernels are chosen, loaders start, DDP arranges its
buckets. After them the device is waited for twice only, where the clock starts and where it stops, so that the CPU
can run ahead of a GPU in between as it does in training.
"""

import time

import torch
import torch.distributed as dist

from lab.runs.records.epoch_record import TimedSteps


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
