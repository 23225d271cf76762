"""Judges measurements on a pretended GPU."""

import statistics
from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import RETURN, Look
from lab.checks.common.look_around import kept_at
from lab.checks.common.look_values import fixed_number, list_of
from lab.checks.common.report import ERROR, expect, expect_as_many, fail, remembered
from lab.checks.common.tensors import close, number
from lab.checks.fast.gain.judge_differences import PAIR, judge_differences
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

READING = {"line": int, "taken": int, "busy": bool}
TIME = {
    "error": (None, ERROR),
    "type": str,
    "seconds": (None, float),
    "taken": int,
    "cpu_time": bool,
    "readings": [READING],
}
REPORT = {"times": [TIME], "pairs": [PAIR]}


def judge_gain(look: Look, reports: Sequence[Any], given: dict[str, Any]) -> None:
    expect(reports, REPORT)
    expect_as_many([report["pairs"] for report in reports], len(given["changes"]))
    expect_as_many([report["times"] for report in reports], len(given["times"]))
    (first, even), (drawn, drawn_even) = reports[0]["times"], given["times"]
    judge_fixed(look, reports[0]["times"], given["times"])
    judge_time(look, first, drawn)
    judge_second(look, even, drawn_even, drawn)
    judge_time(look, even, drawn_even)
    judge_differences(look.into("largest_difference"), reports[0]["pairs"], given["changes"])


def judge_fixed(look: Look, reports: Sequence[dict[str, Any]], given: Sequence[dict[str, Any]]) -> None:
    """Two measurements with a warm-up of another length each, and as many steps left out of both."""
    begun = {report["readings"][0]["taken"] for report in reports if report["readings"]}
    counts = [len(one["steps"]) for one in given]
    if len(begun) != 1 or [report["taken"] for report in reports] != counts:
        return
    found = [report["seconds"] for report in reports]
    for left_out in range(min(counts)):
        times = [statistics.median(sum(step) for step in one["steps"][left_out:]) for one in given]
        if not all(mine is not None and close(mine, one) for mine, one in zip(found, times, strict=True)):
            continue
        right = [statistics.median(times_of(one)) for one in given]
        wrong = next((i for i, mine in enumerate(times) if not close(mine, right[i])), None)
        if not left_out or wrong is None:
            return
        raise Diagnosis(
            "warm-up-of-its-own",
            saw=f"with warm_up={given[wrong]['warm_up']} you returned {number(times[wrong])} s, the median "
            f"without the first {left_out} steps (here only pretended).",
            means="The caller says how many steps are warm-up: leave out as many, no more and no fewer.",
            look=look(r"\[\d+ ?:|\bif\b.*\d", RETURN),
        )


def judge_second(look: Look, report: dict[str, Any], given: dict[str, Any], before: dict[str, Any]) -> None:
    """Another measurement, of an even number of steps: what is wrong only here."""
    seconds, timed, earlier = report["seconds"], times_of(given), times_of(before)
    right = statistics.median(timed)
    if seconds is None or close(seconds, right):
        return
    saw = f"in a second measurement a step takes {number(right)} s (here only pretended); you returned "
    if close(seconds, statistics.median(earlier)):
        raise remembered(look, f"{saw}{number(seconds)}, as in the first.")
    if close(seconds, statistics.median(earlier + timed)):
        raise Diagnosis(
            "times-kept",
            saw=f"{saw}{number(seconds)}, the median with the steps of the first.",
            means="Each call is a measurement of its own: times that outlive it are of other steps.",
            look=kept_at(look) or look.kept(),
        )
    lower, upper = statistics.median_low(timed), statistics.median_high(timed)
    if close(seconds, lower) or close(seconds, upper):
        raise Diagnosis(
            "one-of-the-middle-two",
            saw=f"of {len(timed)} steps the two in the middle took {number(lower)} and {number(upper)} s (here "
            f"only pretended); you returned {number(seconds)}.",
            means="Of an even number the median is the mean of these two: statistics.median() does that.",
            look=look(r"sort|median|// ?2|kthvalue|quantile", RETURN, last=True),
        )


def times_of(given: dict[str, Any]) -> list[float]:
    """Seconds of each step that counts."""
    return [launch + work for launch, work in given["steps"]][given["warm_up"] :]


def judge_time(look: Look, report: dict[str, Any], given: dict[str, Any]) -> None:
    if report["error"]:
        fail(report["error"], "seconds_per_step()", look)
    seconds, warm_up, count = report["seconds"], given["warm_up"], len(given["steps"])
    if seconds is None:
        raise Diagnosis(
            "no-seconds",
            saw=f"seconds_per_step() returned a {report['type']}.",
            means="It returns one number: the median seconds of a step.",
            look=look(RETURN, last=True),
        )
    if report["taken"] != count:
        raise Diagnosis(
            "other-number-of-steps",
            saw=f"of {warm_up} steps of warm-up and {count - warm_up} others it took {report['taken']} in all.",
            means="Who compares two measurements must know how many steps are in them.",
            look=fixed_number(look) or look(r"range\(", r"step\("),
        )
    times = [launch + work for launch, work in given["steps"]]
    launches = [launch for launch, _ in given["steps"]]
    right = statistics.median(times[warm_up:])
    compared("seconds of a step", [seconds], right)
    if close(seconds, right):
        return
    saw = f"a step takes {number(right)} s on the GPU (here only pretended); you returned {number(seconds)}."
    if report["cpu_time"]:
        raise Diagnosis(
            "cpu-time-taken",
            saw=saw,
            means="This clock only counts while the CPU works for the program: not while it waits for the device.",
            look=look(r"process_time|thread_time", r"perf_counter"),
        )
    timed = times[warm_up:]
    pipelined = queue_time(given["steps"], warm_up) / len(timed)
    readings = report["readings"]
    ends: list[bool] = []  # whether the GPU was still at the step that had been taken
    line_of = dict.fromkeys(("begin", "end", "whole"), 0)  # of the first reading that is wrong in that way
    for before, reading in zip([None, *readings], readings, strict=False):
        passed = reading["taken"] - before["taken"] if before else 0
        ends += [reading["busy"]] if passed else []
        kind = "whole" if passed > 1 else "" if not reading["busy"] else "end" if passed else "begin"
        if kind and not line_of[kind]:
            line_of[kind] = reading["line"]
    mistakes: dict[str, tuple[list[float], str, tuple[str, ...]]] = {
        "not-synchronised": (
            [
                statistics.median(launches[warm_up:]),
                statistics.fmean(launches[warm_up:]),
                sum(launches[warm_up:]),
                statistics.median(launches),
            ],
            "This is how long it took to launch a step: the call is back long before the GPU has done it.",
            (r"step\(\)", r"perf_counter"),
        ),
        "mean-not-median": (
            [statistics.fmean(timed)],
            "One step that something else held up changes a mean, and no median.",
            (r"mean|sum\(|/", RETURN),
        ),
        "warm-up-timed": (
            [statistics.median(times), statistics.fmean(times), statistics.median(times[:warm_up])],
            "The first steps allocate, choose kernels and record: no later step does.",
            (r"warm_up", r"range\("),
        ),
        "cut-after-sorting": (
            [statistics.median(sorted(times)[warm_up:])],
            "Sorted, the first are the fastest, and no longer the warm-up: cut first, and sort then.",
            (r"sort",),
        ),
        "fastest-taken": (
            [min(timed)],
            "The best of some steps is luck: the median is what a step takes.",
            (r"min\(",),
        ),
        "slowest-taken": ([max(timed)], "The worst of some steps is bad luck: take the median.", (r"max\(",)),
        "not-divided": ([sum(timed)], "This is the time of all steps together.", (RETURN,)),
        "not-in-seconds": ([1000 * right, 1e6 * right, 1e9 * right], "perf_counter() is in seconds.", (RETURN,)),
        "timed-as-a-whole": (
            [pipelined, (sum(timed)) / len(timed)],
            "All steps timed at once give a mean, in which one slow step counts: time each by itself.",
            (r"perf_counter", RETURN),
        ),
    }
    if not all(ends):  # some of them were waited for
        mistakes.pop("not-synchronised")
    lines = {"not-synchronised": line_of["end"], "timed-as-a-whole": line_of["whole"]}
    for name, (candidates, means, place) in mistakes.items():
        if any(close(seconds, candidate) for candidate in candidates):
            line = lines.get(name, 0)
            raise Diagnosis(name, saw=saw, means=means, look=look.line(line) if line else look(*place, RETURN))
    if any(close(seconds, statistics.median(some)) for some in (timed[1:], timed[:-1])):
        made = list_of(look, readings[0]["line"]) if len(readings) == len(timed) else ""
        raise Diagnosis(
            "step-left-out",
            saw=saw,
            means=f"Of {len(timed)} steps one has no time: read the clock before the first step and after each.",
            look=made or look(r"pairwise|zip\(|diff\(|\[1:|:-1\]", RETURN),
        )
    if line_of["begin"] and not line_of["end"]:
        raise Diagnosis(
            "begins-too-early",
            saw=f"{saw} The clock was read while the GPU was still at an earlier step.",
            means="What was launched before is still running, and counts as this step's: synchronise first.",
            look=look.line(line_of["begin"]),
        )
    raise Diagnosis(
        "wrong-time",
        saw=saw,
        means="Synchronise, read the clock, step, synchronise, read the clock: for each step, then the median.",
        look=look.line(line_of["end"]) if line_of["end"] else look(r"perf_counter", RETURN),
    )


def queue_time(steps: Sequence[tuple[float, float]], first: int) -> float:
    """Seconds of all steps from `first` on, launched one after the other, until the GPU has done them."""
    now = free = 0.0
    for launch, work in steps[first:]:
        now += launch
        free = max(free, now) + work
    return free
