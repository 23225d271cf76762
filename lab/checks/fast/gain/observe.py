"""What a rank observes of a measurement, on a pretended GPU whose time is made up, and of two models compared."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

import lab.training
from lab.checks.common.attempt import attempt, changed_at, lines_now, stepped
from lab.checks.common.meta_device import line_in
from lab.checks.common.tiny import CPU, TinyNet
from lab.ranks.rank import Rank
from lab.training.stepping import graphs

_KEPT = 200  # readings of the clock


class PretendedGPU:
    """A clock, and a queue: a launch takes the CPU's time, the work that it starts the GPU's."""

    def __init__(self, steps: list[tuple[float, float]]) -> None:
        self._steps = steps  # seconds of each step: of the CPU, to launch it; of the GPU, to do it
        self.now = 1000.0
        self.free = 1000.0  # when the GPU will have done all it was given
        self.worked = 500.0  # for how long the CPU has done something but wait
        self.taken = 0
        self.cpu_time = False  # whether somebody has asked for that
        self.readings: list[dict[str, Any]] = []  # of the clock: by which line, and what was before

    def begin(self, steps: list[tuple[float, float]]) -> None:
        """Another measurement, of these steps."""
        self._steps, self.taken, self.cpu_time = steps, 0, False
        self.readings.clear()
        self.synchronize()

    def read(self, lines: list[int]) -> None:
        """Note a reading: how many steps were taken, and whether the GPU was still at one of them."""
        if len(self.readings) < _KEPT:
            line = lines[0] if lines else 0
            self.readings.append({"line": line, "taken": self.taken, "busy": self.free > self.now})

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
def time_of(gpu: PretendedGPU, file: str) -> Iterator[None]:
    """Every clock of Python's shows the pretended time to this thread; those of the CPU's work only that.

    Args:
        file: the student's, whose lines are noted.
    """
    mine = threading.get_ident()

    def clock(real: Callable[[], Any], shown: Callable[[], float], scale: int) -> Callable[[], Any]:
        def read() -> Any:
            if threading.get_ident() != mine:  # such as the one that speaks with the leader
                return real()
            gpu.read(lines_now(file))
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
    """seconds_per_step() of each of given["times"], and largest_difference() of given["changes"]."""
    gpu = PretendedGPU([])
    with time_of(gpu, f"{rank.code}/fast.py"):  # the module may take a clock by its name when it is imported
        fast = rank.student("fast")
        given = rank.receive()
        times = [timed(rank, fast, gpu, **one) for one in given["times"]]
    return {
        "times": times,
        "pairs": [compare(rank, fast, given["weights"], *changes) for changes in given["changes"]],
    }


def timed(
    rank: Rank, fast: Any, gpu: PretendedGPU, steps: list[tuple[float, float]], warm_up: int
) -> dict[str, Any]:
    """seconds_per_step() of steps that take so long, and what it did for that."""
    gpu.begin(steps)
    count = len(steps) - warm_up
    measured = attempt(rank, fast.seconds_per_step, gpu.step, CPU, warm_up=warm_up, steps=count)
    value = measured["value"]
    return {
        "error": measured["error"],
        "type": type(value).__name__,
        "seconds": float(value) if isinstance(value, int | float) else None,
        "taken": gpu.taken,
        "cpu_time": gpu.cpu_time,
        "readings": list(gpu.readings),
    }


Changes = Sequence[tuple[str, float]]


def compare(
    rank: Rank, fast: Any, weights: dict[str, Any], changes: Changes, of_first: Changes = ()
) -> dict[str, Any]:
    """largest_difference() of two networks, of which the second has the first numbers of some tensors changed.

    Where they are others afterwards, or a NaN is lost, it is called again to see in which line.
    """
    nets = networks(weights, changes, of_first)
    before = content(*nets)
    answer = attempt(rank, fast.largest_difference, *nets)
    value = answer["value"]
    report = {
        "error": answer["error"],
        "type": type(value).__name__,
        "value": float(value) if isinstance(value, int | float) else None,
        "changed": content(*nets) != before,
        "changed_at": 0,
        "held": [],
        "lost_at": 0,
    }
    if report["changed"]:
        nets = networks(weights, changes, of_first)
        with stepped(fast.__file__, lambda _: content(*nets)) as notes:
            attempt(rank, fast.largest_difference, *nets)
        report["changed_at"] = changed_at(notes, before)
    if report["value"] is not None and report["value"] == report["value"] and any(n != n for _, n in changes):
        nets = networks(weights, changes, of_first)
        with stepped(fast.__file__, held) as notes, losses_noted(fast) as lines:
            attempt(rank, fast.largest_difference, *nets)
        report["lost_at"] = lines[0] if lines else 0
        report["held"] = [{"line": line, "nan": nan, "numbers": numbers} for line, (nan, numbers) in notes]
    return report


@contextmanager
def losses_noted(fast: Any) -> Iterator[list[int]]:
    """Note the lines of a module in which Python's max() or sorted() is given a NaN, and gives something else."""
    lines: list[int] = []

    def noting(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            some = [list(args[0])] if len(args) == 1 else list(args)
            result = real(*some, **kwargs)
            numbers = some[0] if len(args) == 1 else some
            if any(map(_is_nan, numbers)) and not _is_nan(result):
                lines.append(line_in(fast.__file__))
            return result

        return call

    with mock.patch.multiple(fast, create=True, max=noting(max), sorted=noting(sorted)):
        yield lines


def _is_nan(value: Any) -> bool:
    return _is_a_number(value) and bool((torch.as_tensor(value) != value).any())


def networks(weights: dict[str, Any], changes: Changes, of_first: Changes) -> tuple[TinyNet, TinyNet]:
    first, second = (TinyNet(weights, batchnorm=True) for _ in range(2))
    for net, some in ((first, of_first), (second, changes)):
        net.register_buffer(BYTES, torch.full((2,), 7, dtype=torch.uint8))
        net.register_buffer(MANY, torch.full((2,), 2**30))
        net.register_buffer(SHORT, torch.ones(2, dtype=torch.bfloat16))
        net.register_buffer(DOUBLE, torch.full((2,), 1e6, dtype=torch.float64))
        for place, (name, change) in enumerate(some):
            apply(net, name, [before for before, _ in some[:place]].count(name), change)
    return first, second


BYTES = "bytes"  # a buffer of whole numbers below 256
SHORT = "short"  # of bfloat16
MANY, DOUBLE = "many", "wide"  # large whole numbers, and float64: more digits than float32 has


def content(*nets: nn.Module) -> list[tuple[str, str, bytes]]:
    """All that two networks hold, to be compared."""
    return [
        (name, str(value.dtype), value.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
        for net in nets
        for name, value in net.state_dict().items()
    ]


def held(frame: Any) -> tuple[list[str], list[str]]:
    """The variables of a function that hold a NaN, and those that hold other numbers."""
    nan: list[str] = []
    numbers: list[str] = []
    for name, value in frame.f_locals.items():
        parts = value[:50] if isinstance(value, list | tuple) else [value]
        if not parts or not all(_is_a_number(part) for part in parts):
            continue
        (nan if any(bool((torch.as_tensor(part) != part).any()) for part in parts) else numbers).append(name)
    return nan[:20], numbers[:20]


def _is_a_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, Tensor) and value.is_floating_point())


def apply(net: nn.Module, name: str, place: int, change: float) -> None:
    with torch.no_grad():
        value = net.state_dict()[name].view(-1)
        value[place] = value[place].item() + change  # a tensor of integers and a float make float32
