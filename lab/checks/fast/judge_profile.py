"""Profiles of a step drawn anew, and what time_by_cause() must make of them."""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from lab.checks.common.look import RETURN, Look
from lab.checks.common.report import ERROR, expect, expect_as_many, fail, fits
from lab.checks.common.tensors import number
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

CAUSES = ("compute", "communication", "input", "launch")

Span = tuple[str, float, float]  # what, begin, end


def draw_profiles() -> list[list[Span]]:
    """Steps in which every mistake gives another number, and one of a single kernel."""
    steps = []
    for _ in range(3):
        now = random.randint(500, 900) + 0.5
        spans: list[Span] = []
        for draw in (*random.sample((_overlapped, _late, _starved, _idle, _alone), 5), _last):
            part, now = draw(now)
            spans += part
        steps.append(random.sample(spans, len(spans)))
    begin = float(random.randint(100, 400))
    return [*steps, [("compute", begin, begin + random.randint(20, 40) + 0.25)]]


def _lengths(count: int) -> list[float]:
    """In quarters of a microsecond: exact in every kind of float."""
    return [random.randint(44, 156) / 4 for _ in range(count)]


def _overlapped(now: float) -> tuple[list[Span], float]:
    """Two kernels on two streams, with a launch under them and a communication that ends after them."""
    a, b, c, d = _lengths(4)
    spans = [("compute", now, now + a + b), ("compute", now + a, now + a + b + c), ("launch", now + 3, now + a)]
    end = now + a + b + c
    return [*spans, ("communication", end - 7, end + d)], end + d


def _late(now: float) -> tuple[list[Span], float]:
    """A communication that has begun when a kernel begins, and ends under it."""
    a, b, c = _lengths(3)
    return [("communication", now, now + a + b), ("compute", now + a, now + a + b + c)], now + a + b + c


def _starved(now: float) -> tuple[list[Span], float]:
    """The CPU waits for the next batch, at first while a kernel still runs; then another thread launches, too."""
    a, b = _lengths(2)
    end = now + a + b
    return [("compute", now, now + a), ("input", now + a - 6, end), ("launch", end - 5, end - 2)], end


def _idle(now: float) -> tuple[list[Span], float]:
    """A launch with nothing to hide it, and a gap in which nothing was noted at all."""
    a, b = _lengths(2)
    return [("launch", now, now + a)], now + a + b


def _alone(now: float) -> tuple[list[Span], float]:
    """A communication with launches beside it, and a wait for input that it hides in part."""
    a, b, c = _lengths(3)
    end = now + a + b
    return [("communication", now, end), ("launch", now + 2, now + a), ("input", end - 5, end + c)], end + c


def _last(now: float) -> tuple[list[Span], float]:
    """A kernel that outlasts the launch that begins last."""
    (a,) = _lengths(1)
    return [("compute", now, now + a), ("launch", now + 3, now + 7.5)], now + a


def by_priority(spans: Sequence[Span], order: Sequence[str], rest: str | None) -> dict[str, float]:
    """Each piece of the step to the first of `order` that is running; else to `rest`, or to nobody."""
    times = dict.fromkeys(CAUSES, 0.0)
    edges = sorted({edge for _, *both in spans for edge in both})
    for begin, end in pairwise(edges):
        running = [what for what, first, last in spans if first <= begin and last >= end]
        cause = next((cause for cause in order if cause in running), rest)
        if cause:
            times[cause] += end - begin
    return times


def added(spans: Sequence[Span]) -> dict[str, float]:
    """The lengths of all spans of each kind."""
    return {cause: sum((end - begin for what, begin, end in spans if what == cause), 0.0) for cause in CAUSES}


def each_alone(spans: Sequence[Span]) -> dict[str, float]:
    """How long each kind was running, whatever else was."""
    return {cause: by_priority(spans, [cause], None)[cause] for cause in CAUSES}


def from_zero(spans: Sequence[Span]) -> dict[str, float]:
    """The time before the first span counts as a gap."""
    times = by_priority(spans, CAUSES, "launch")
    return times | {"launch": times["launch"] + min(begin for _, begin, _ in spans)}


def first_begun(spans: Sequence[Span]) -> dict[str, float]:
    """Each piece to the kind of the span that has been running the longest."""
    times = dict.fromkeys(CAUSES, 0.0)
    for begin, end in pairwise(sorted({edge for _, *both in spans for edge in both})):
        running = [(first, last, what) for what, first, last in spans if first <= begin and last >= end]
        times[min(running)[2] if running else "launch"] += end - begin
    return times


def until_last_begun(spans: Sequence[Span]) -> dict[str, float]:
    """The step ends with the span that begins last."""
    stop = max(spans, key=lambda span: span[1])[2]
    return by_priority([(what, begin, min(end, stop)) for what, begin, end in spans], CAUSES, "launch")


# What leads to other times: name -> (the times, what they mean).
MISTAKES = {
    "spans-added": (added, "Spans run at the same time: added up, moments count twice, and idle ones never."),
    "overlap-counted-twice": (
        each_alone,
        "What runs under a compute kernel costs the step nothing: each moment has one cause.",
    ),
    "communication-before-compute": (
        lambda spans: by_priority(spans, ("communication", "compute", "input"), "launch"),
        "Communication under a kernel is hidden: without it, the step would be no shorter.",
    ),
    "input-before-kernels": (
        lambda spans: by_priority(spans, ("input", "compute", "communication"), "launch"),
        "While the GPU works, a CPU that waits for its next batch holds nothing up.",
    ),
    "launch-before-kernels": (
        lambda spans: by_priority(spans, ("launch", "compute", "communication", "input"), "launch"),
        "Launches under kernels are how it should be: the CPU is ahead of the GPU.",
    ),
    "launch-before-input": (
        lambda spans: by_priority(spans, ("compute", "communication", "launch", "input"), "launch"),
        "Launches that are noted while the CPU waits for a batch do not shorten the wait: input comes first.",
    ),
    "first-begun-first": (
        first_begun,
        "What has begun first is not what the step waits for: of all that is running, the first of CAUSES is.",
    ),
    "step-cut-short": (
        until_last_begun,
        "The span that begins last need not end last: the step ends where the last of all ends.",
    ),
    "gaps-left-out": (
        lambda spans: by_priority(spans, CAUSES, None),
        "The CPU does more between launches than a profile notes: a GPU without work waits for launches.",
    ),
    "gaps-as-input": (
        lambda spans: by_priority(spans, CAUSES, "input"),
        "Where the CPU does not wait for a batch, the input is not what the GPU waits for.",
    ),
    "counted-from-zero": (from_zero, "A profile's clock starts anywhere: the step begins with its first span."),
    "not-in-microseconds": (
        lambda spans: {cause: time / 1000 for cause, time in by_priority(spans, CAUSES, "launch").items()},
        "Times stay in the unit of the spans.",
    ),
    "shares-returned": (
        lambda spans: {
            cause: time / sum(by_priority(spans, CAUSES, "launch").values())
            for cause, time in by_priority(spans, CAUSES, "launch").items()
        },
        "Microseconds can be added over steps and compared between runs; shares cannot.",
    ),
}


def judge_profiles(look: Look, reports: Sequence[Any], profiles: Sequence[Sequence[Span]]) -> None:
    expect(reports, [{"error": (None, ERROR), "value": object}])
    expect_as_many(reports, len(profiles))
    answers = reports[0]
    for answer in answers:
        if answer["error"]:
            fail(answer["error"], "time_by_cause()", look)
    found = [answer["value"] for answer in answers]
    judge_kind(look, found)
    right = [by_priority(spans, CAUSES, "launch") for spans in profiles]
    for step, (mine, wanted) in enumerate(zip(found, right, strict=True), start=1):
        compared(f"microseconds of step {step}", [mine], wanted)
    if all(map(same, found, right)):
        return
    wrong = next(i for i, times in enumerate(found) if not same(times, right[i]))
    length = number(sum(right[wrong].values()))
    saw = f"a step of {length} us: you returned {told(found[wrong])}; it was {told(right[wrong])}."
    if all(map(in_whole_numbers, found, right, profiles)):
        raise Diagnosis(
            "whole-microseconds",
            saw=saw,
            means="A profile's times have fractions: what counts whole microseconds cuts kernels off.",
            look=look(*PLACES["whole-microseconds"], RETURN),
        )
    for name, (times, means) in MISTAKES.items():
        if all(same(mine, times(spans)) for mine, spans in zip(found, profiles, strict=True)):
            raise Diagnosis(name, saw=saw, means=means, look=look(*PLACES.get(name, ()), *PRIORITY, RETURN))
    raise Diagnosis(
        "wrong-times",
        saw=saw,
        means="Each piece between two edges goes to the first of CAUSES that is running, and else to launch.",
        look=look(r"running|begin", *PRIORITY, RETURN),
    )


# Where a piece gets its cause; and where to look for a mistake first.
PRIORITY = (r"^(for|if) .*cause|\bnext\(", r"^for .* in ")
PLACES = {
    "gaps-left-out": (r"\bnext\(|launch",),
    "gaps-as-input": (r"input",),
    "shares-returned": (RETURN,),
    "not-in-microseconds": (RETURN,),
    "counted-from-zero": (r"sorted\(|\b0\b",),
    "launch-before-input": (r"launch.*input|if .*launch",),
    "step-cut-short": (r"\[-1\]", r"end\b"),
    "whole-microseconds": (r"\bint\(|round\(|//|floor|ceil",),
    "first-begun-first": (r"\bnext\(|\[0\]",),
}


def in_whole_numbers(times: dict[str, float], right: dict[str, float], spans: Sequence[Span]) -> bool:
    """About the right times, but each a whole number of microseconds."""
    about = all(abs(times[cause] - right[cause]) < len(spans) for cause in CAUSES)
    return about and all(float(times[cause]).is_integer() for cause in CAUSES)


def judge_kind(look: Look, found: Sequence[Any]) -> None:
    """A dict of numbers, with every cause."""
    for times in found:
        if not isinstance(times, dict):
            shown = repr(times) if isinstance(times, str) else f"a {type(times).__name__}"
            raise Diagnosis(
                "no-times",
                saw=f"time_by_cause() returned {shown}.",
                means="It returns a dict: how many microseconds each cause answers for.",
                look=look(RETURN, last=True),
            )
        if missing := [cause for cause in CAUSES if cause not in times]:
            raise Diagnosis(
                "cause-missing",
                saw=f"time_by_cause() returned no {missing[0]} for a step that had none.",
                means="All four are there, with 0.0 where there was nothing: whoever adds up steps relies on it.",
                look=look(r"times|= ?\{|dict"),
            )
        if odd := [
            cause for cause in CAUSES if not (fits(times[cause], (int, float)) and abs(times[cause]) < 1e15)
        ]:
            raise Diagnosis(
                "no-times",
                saw=f"for {odd[0]} time_by_cause() returned a {type(times[odd[0]]).__name__}.",
                means="A number of microseconds for each cause.",
                look=look(RETURN, last=True),
            )


def same(mine: dict[str, float], other: dict[str, float]) -> bool:
    return all(abs(mine[cause] - other[cause]) < 1e-6 for cause in CAUSES)


def told(times: dict[str, float]) -> str:
    return ", ".join(f"{cause} {number(times[cause])}" for cause in CAUSES)
