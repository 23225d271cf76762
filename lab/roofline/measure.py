"""One training step by kinds of kernel: torch.profiler has the time, the operators' shapes the rest.

Around each operator lies a range with its number, by which the kernels that the operator launched are found again
in the profile.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass

import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from lab.roofline.kinds import COPY, PEAK, TF32, Kind
from lab.roofline.step import Operator, Subject, Tally, name_of, prepare, too_large
from lab.training.stepping.precision import DTYPES

STEPS = 5
MARK = "operator "  # and its number: the range around one


def measure(subject: Subject, device: torch.device) -> list[Kind]:
    """The kinds of kernel of a step, and the device's peaks.

    Raises:
        UserError: the batch does not fit in the device's memory, or the network cannot be built.
    """
    about = (subject.name, subject.precision, subject.batch, name_of(device))
    try:
        parts = _step(subject, device)
        peaks = list(_peaks(subject.precision, device))
    except torch.OutOfMemoryError:
        raise too_large(subject, device) from None
    return [Kind(*about, **asdict(costs)) for costs in (*parts, *peaks)]


@dataclass
class Costs:
    """A Kind's, without what it is of."""

    kind: str
    kernels: float = 0.0
    seconds: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    written: float = 0.0


def _step(subject: Subject, device: torch.device) -> list[Costs]:
    tally = Tally(lambda number, kind: record_function(f"{MARK}{number}"))
    step = prepare(subject, device, tally)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as profiler, tally:
        for _ in range(STEPS):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return _by_kind(profiler.events() or (), tally.operators, on_gpu=device.type == "cuda")


def _by_kind(events: Iterable[FunctionEvent], operators: list[Operator], *, on_gpu: bool) -> list[Costs]:
    """A step's sums for each kind; what launched nothing, such as a view, is in none."""
    launched: dict[int, list[float]] = {}  # of an operator: the kernels' seconds, on the CPU its own
    for event in events:
        if on_gpu:
            number = _operator(event)
            if number is not None:
                launched.setdefault(number, []).extend(1e-6 * kernel.duration for kernel in event.kernels)
        elif event.name.startswith(MARK) and not _is_view(event):
            launched[int(event.name.removeprefix(MARK))] = [1e-6 * event.cpu_time_total]
    sums: dict[str, Costs] = {}
    for number, kernels in launched.items():
        one = operators[number]
        if kernels:
            costs = sums.setdefault(one.kind, Costs(one.kind))
            costs.kernels += len(kernels) / STEPS
            costs.seconds += sum(kernels) / STEPS
            costs.flops += one.flops / STEPS
            costs.bytes += one.bytes / STEPS
            costs.written += one.written / STEPS
    return list(sums.values())


def _operator(event: FunctionEvent) -> int | None:
    """The number of the operator in whose range a CPU event lies."""
    inside: FunctionEvent | None = event
    while inside is not None:
        if inside.name.startswith(MARK):
            return int(inside.name.removeprefix(MARK))
        inside = inside.cpu_parent
    return None


VIEWS = (
    "view",
    "t",
    "transpose",
    "permute",
    "expand",
    "detach",
    "slice",
    "select",
    "unsqueeze",
    "alias",
    "as_strided",
)


def _is_view(event: FunctionEvent) -> bool:
    return all(child.name.removeprefix("aten::") in VIEWS for child in event.cpu_children)


def _peaks(precision: str, device: torch.device) -> Iterator[Costs]:
    """Large matrix products, as the step's convolutions and products are computed, and one large copy."""
    on_gpu = device.type == "cuda"
    side = 8192 if on_gpu else 1024
    dtype = DTYPES.get(precision, torch.float32)
    allowed = torch.backends.cuda.matmul.allow_tf32
    for name in _products(precision, on_gpu=on_gpu):
        a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
        out = torch.empty_like(a)
        torch.backends.cuda.matmul.allow_tf32 = name == TF32
        try:
            seconds = _fastest(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), device)  # type: ignore[misc]
        finally:
            torch.backends.cuda.matmul.allow_tf32 = allowed
        yield Costs(name, 1.0, seconds, 2.0 * side**3, 3.0 * out.nbytes, float(out.nbytes))
    source = torch.empty((1 << 30) if on_gpu else (1 << 27), dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    yield Costs(
        COPY, 1.0, _fastest(lambda: target.copy_(source), device), 0.0, 2.0 * source.nbytes, float(source.nbytes)
    )


def _products(precision: str, *, on_gpu: bool) -> list[str]:
    """The peaks to measure: of each way in which the step's convolutions and products are computed."""
    if precision != "fp32" or not on_gpu:
        return [f"{PEAK}{precision}"]
    ways = {torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32}
    return [TF32 if tf32 else f"{PEAK}fp32" for tf32 in sorted(ways)]


def _fastest(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of ten, after two others."""
    best = float("inf")
    for turn in range(12):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if turn >= 2:
            best = min(best, time.perf_counter() - began)
    return best
