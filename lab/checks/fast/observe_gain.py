"""What a rank observes of a measurement, on a pretended GPU whose time is made up, and of two models compared."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn

import lab.training
from lab.checks.common.attempt import attempt
from lab.checks.common.tiny import CPU, TinyNet
from lab.ranks.rank import Rank
from lab.training.stepping import graphs


class PretendedGPU:
    """A clock, and a queue: a launch takes the CPU's time, the work that it starts the GPU's."""

    def __init__(self, steps: list[tuple[float, float]]) -> None:
        self._steps = steps  # seconds of each step: of the CPU, to launch it; of the GPU, to do it
        self.now = 1000.0
        self.free = 1000.0  # when the GPU will have done all it was given
        self.worked = 500.0  # for how long the CPU has done something but wait
        self.taken = 0
        self.cpu_time = False  # whether somebody has asked for that

    def step(self) -> None:
        launch, work = self._steps[min(self.taken, len(self._steps) - 1)]
        self.taken += 1
        self.now += launch
        self.worked += launch
        self.free = max(self.free, self.now) + work

    def synchronize(self, *_: Any) -> None:
        self.now = max(self.now, self.free)

    def time(self) -> float:
        return self.now

    def time_of_work(self) -> float:
        self.cpu_time = True
        return self.worked


@contextmanager
def time_of(gpu: PretendedGPU) -> Iterator[None]:
    """Every clock of Python's shows the pretended time to this thread; those of the CPU's work only that."""
    mine = threading.get_ident()

    def clock(real: Callable[[], Any], shown: Callable[[], float], scale: int) -> Callable[[], Any]:
        def read() -> Any:
            if threading.get_ident() != mine:  # such as the one that speaks with the leader
                return real()
            return round(shown() * scale) if scale > 1 else shown()

        return read

    shown = dict.fromkeys(("perf_counter", "time", "monotonic"), gpu.time)
    shown |= dict.fromkeys(("process_time", "thread_time"), gpu.time_of_work)
    clocks: dict[str, Any] = {name: clock(getattr(time, name), what, 1) for name, what in shown.items()}
    clocks |= {f"{name}_ns": clock(getattr(time, f"{name}_ns"), what, 10**9) for name, what in shown.items()}
    with ExitStack() as patches:
        patches.enter_context(mock.patch.multiple(time, **clocks))
        for module, name in ((lab.training, "synchronize"), (graphs, "synchronize"), (torch.cuda, "synchronize")):
            patches.enter_context(mock.patch.object(module, name, gpu.synchronize))
        yield


def measure(rank: Rank) -> dict[str, Any]:
    """seconds_per_step() of steps that take given["steps"], and largest_difference() of given["pairs"]."""
    given: dict[str, Any] = {}
    gpu = PretendedGPU([])
    with time_of(gpu):  # the module may take a clock by its name when it is imported
        fast = rank.student("fast")
        given |= rank.receive()
        gpu._steps = given["steps"]
        warm_up = given["warm_up"]
        measured = attempt(
            rank, fast.seconds_per_step, gpu.step, CPU, warm_up=warm_up, steps=len(given["steps"]) - warm_up
        )
    value = measured["value"]
    return {
        "error": measured["error"],
        "type": type(value).__name__,
        "seconds": float(value) if isinstance(value, int | float) else None,
        "taken": gpu.taken,
        "cpu_time": gpu.cpu_time,
        "pairs": [compare(rank, fast, given["weights"], change) for change in given["changes"]],
    }


def compare(rank: Rank, fast: Any, weights: dict[str, Any], changes: list[tuple[str, float]]) -> dict[str, Any]:
    """largest_difference() of two networks, of which the second has some first numbers changed."""
    first, second = (TinyNet(weights, batchnorm=True) for _ in range(2))
    for name, change in changes:
        apply(second, name, change)
    answer = attempt(rank, fast.largest_difference, first, second)
    value = answer["value"]
    return {
        "error": answer["error"],
        "type": type(value).__name__,
        "value": float(value) if isinstance(value, int | float) else None,
    }


def apply(net: nn.Module, name: str, change: float) -> None:
    with torch.no_grad():
        value = net.state_dict()[name].view(-1)
        value[0] = value[0] + change
