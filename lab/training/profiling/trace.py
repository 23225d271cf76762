"""Reads a trace of torch.profiler: what computed, what communicated, and for which part of the training step.

On a GPU these are its kernels and copies, each belonging to the part in which the CPU launched it; so nothing
depends on how far the GPU is behind. On the CPU they are PyTorch's operators, and gloo's collectives, which run
in threads of their own.
"""

import gzip
import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.training.profiling.intervals import Interval, union
from lab.training.profiling.phases import PARTS, PREFIX

_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_STEP = "ProfilerStep#"  # torch.profiler's own range around each step
OTHER = ""  # no part of the step


@dataclass(frozen=True)
class Trace:
    """One rank's steps. All times in microseconds, on one clock."""

    steps: int
    window: Interval  # from the first step's begin to the end of the last work that the steps asked for
    parts: Mapping[str, list[Interval]]  # part -> when the CPU was in it
    work: Mapping[str, list[Interval]]  # part -> when something computed for it; copies to the GPU are data's
    collectives: Mapping[tuple[str, int], Interval]  # (name, which one of that name) -> when it ran
    on_gpu: bool

    @property
    def durations(self) -> dict[tuple[str, int], float]:
        """Of the collectives, from the moment at which this rank has joined in."""
        return {key: end - begin for key, (begin, end) in self.collectives.items()}

    @property
    def has_backward(self) -> bool:
        """Whether the loop called run.backward(), and not only loss.backward()."""
        return bool(self.parts.get("backward"))


def read_trace(path: Path) -> Trace:
    """The trace that torch.profiler exported to this file, .json or .json.gz.

    Raises:
        OSError, ValueError: it cannot be read, or holds no step.
    """
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    return make_trace([event for event in events if event.get("ph") == "X"])


def make_trace(events: list[dict[str, Any]]) -> Trace:
    """From events with a duration: name, cat, ts, dur, tid, args. Raises ValueError where there is no step."""
    of_category: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        of_category.setdefault(event.get("cat", ""), []).append(event)
    annotations = of_category.get("user_annotation", [])
    steps = [event for event in annotations if event["name"].startswith(_STEP)]
    if not steps:
        raise ValueError("the trace holds no step")
    parts = {
        part: union(_span(event) for event in annotations if event["name"] == PREFIX + part) for part in PARTS
    }
    begin = min((spans[0][0] for spans in parts.values() if spans), default=min(_span(step)[0] for step in steps))
    on_gpu = [event for category in _ON_GPU for event in of_category.get(category, [])]
    if on_gpu:
        launches = [event for category in _LAUNCHES for event in of_category.get(category, [])]
        work, collectives = _work_of_gpu(on_gpu, launches, parts)
    else:
        collectives = [event for event in annotations if event["name"].startswith("gloo:")]
        work = _work_of_cpu(of_category.get("cpu_op", []), parts)
    ended = [spans[-1][1] for spans in work.values() if spans] if on_gpu else []
    return Trace(
        steps=len(steps),
        window=(begin, max([*ended, *(_span(step)[1] for step in steps)])),
        parts=parts,
        work=work,
        collectives=_numbered(collectives),
        on_gpu=bool(on_gpu),
    )


def _numbered(events: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], Interval]:
    """Every rank has its collectives of one name in the same order."""
    count: dict[str, int] = {}
    numbered = {}
    for event in sorted(events, key=lambda event: event["ts"]):
        name = event["name"]
        count[name] = count.get(name, 0) + 1
        numbered[name, count[name]] = _span(event)
    return numbered


def _span(event: Mapping[str, Any]) -> Interval:
    return event["ts"], event["ts"] + event["dur"]


class _Clock:
    """Which part was going on at a moment."""

    def __init__(self, parts: Mapping[str, list[Interval]]) -> None:
        self._spans = sorted((*span, part) for part, spans in parts.items() for span in spans)
        self._begins = [span[0] for span in self._spans]

    def part_at(self, moment: float) -> str:
        index = bisect_right(self._begins, moment) - 1
        return self._spans[index][2] if index >= 0 and moment < self._spans[index][1] else OTHER


def _work_of_gpu(
    events: Iterable[Mapping[str, Any]], launches: Iterable[Mapping[str, Any]], parts: Mapping[str, list[Interval]]
) -> tuple[dict[str, list[Interval]], list[Mapping[str, Any]]]:
    launched = {event["args"]["correlation"]: event["ts"] for event in launches if "correlation" in event["args"]}
    clock = _Clock(parts)
    work: dict[str, list[Interval]] = {part: [] for part in (*PARTS, OTHER)}
    collectives = []
    for event in events:
        moment = launched.get(event["args"].get("correlation"))
        if moment is None:
            continue  # it was launched before the first step
        if event["name"].startswith("nccl"):
            collectives.append(event)
        else:
            work[clock.part_at(moment)].append(_span(event))
    return {part: union(spans) for part, spans in work.items()}, collectives


def _work_of_cpu(
    events: Iterable[Mapping[str, Any]], parts: Mapping[str, list[Interval]]
) -> dict[str, list[Interval]]:
    """The innermost operators: those around them wait for collectives too."""
    innermost: list[Mapping[str, Any]] = []
    next_begin: dict[Any, float] = {}  # of each thread
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"]), reverse=True):
        begin, end = _span(event)
        if end <= next_begin.get(event["tid"], math.inf):  # the next one begins after it, not inside it
            innermost.append(event)
        next_begin[event["tid"]] = begin
    clock = _Clock(parts)
    work: dict[str, list[Interval]] = {part: [] for part in (*PARTS, OTHER)}
    for event in innermost:
        if not event["name"].startswith(("c10d::", "_c10d_functional::")):
            work[clock.part_at(event["ts"])].append(_span(event))
    return {part: union(spans) for part, spans in work.items()}
