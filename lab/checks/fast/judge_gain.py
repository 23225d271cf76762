"""Judges a measurement on a pretended GPU, and the comparison of two models."""

import math
import random
import statistics
from collections.abc import Sequence
from typing import Any

import torch

from lab.checks.common.look import RETURN, Look
from lab.checks.common.look_values import list_of, lost_at
from lab.checks.common.report import ERROR, expect, expect_as_many, fail
from lab.checks.common.tensors import close, number
from lab.checks.common.tiny import TinyNet, draw_weights
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

HELD = {"line": int, "nan": [str], "numbers": [str]}
PAIR = {
    "error": (None, ERROR),
    "type": str,
    "value": (None, float),
    "changed": bool,
    "changed_at": int,
    "held": [HELD],
}
READING = {"line": int, "taken": int, "busy": bool}
REPORT = {
    "error": (None, ERROR),
    "type": str,
    "seconds": (None, float),
    "taken": int,
    "cpu_time": bool,
    "readings": [READING],
    "pairs": [PAIR],
}

NAN = math.nan
WEIGHT, LAST, BUFFER = "blocks.0.2.weight", "classifier.bias", "blocks.0.3.running_var"
COUNT, BYTES = "blocks.0.3.num_batches_tracked", "bytes"
MANY, DOUBLE = "many", "wide"


def draw_gain(generator: torch.Generator) -> dict[str, Any]:
    """Steps of which the first are slow and one later one too; and networks that differ in known ways."""
    warm_up, steps = random.choice([4, 5]), random.choice([5, 7])
    slow = [(random.uniform(0.2, 0.3), random.uniform(0.5, 0.9)) for _ in range(warm_up)]
    usual = [(random.uniform(0.001, 0.002), random.uniform(0.02, 0.04)) for _ in range(steps)]
    usual.sort()  # the first has the shortest launch, and below the shortest work: to lose it moves the median
    usual[0] = (usual[0][0], random.uniform(0.015, 0.018))
    usual[random.randrange(1, steps)] = (0.002, random.uniform(0.3, 0.4))
    small, large = random.uniform(0.1, 0.3), random.uniform(0.5, 0.9)
    return {
        "warm_up": warm_up,
        "steps": slow + usual,
        "weights": TinyNet(batchnorm=True).state_dict() | draw_weights(generator),
        "changes": [
            ([],),
            ([(WEIGHT, -large), (LAST, small)],),
            ([(WEIGHT, large), (LAST, -small)],),
            ([(WEIGHT, small), (BUFFER, large)],),
            ([(WEIGHT, small), (COUNT, 3.0)],),
            ([(WEIGHT, small), (BYTES, 2.0)],),
            ([(MANY, 3.0)],),
            ([(DOUBLE, 0.01)],),
            ([(WEIGHT, NAN), (LAST, small)],),
            ([(WEIGHT, small), (LAST, NAN)],),
            ([(WEIGHT, small), (BUFFER, NAN)],),
            ([(WEIGHT, NAN), (LAST, small)], [(WEIGHT, NAN)]),
        ],
    }


def judge_gain(look: Look, reports: Sequence[Any], given: dict[str, Any]) -> None:
    expect(reports, REPORT)
    expect_as_many([report["pairs"] for report in reports], len(given["changes"]))
    report = reports[0]
    judge_time(look, report, given)
    judge_differences(look.into("largest_difference"), report["pairs"], given["changes"])


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
            look=look(r"range\(", r"step\("),
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
    line_of = dict.fromkeys(("begin", "end", "whole"), 0)  # of the first reading that is wrong in that way
    for before, reading in zip([None, *readings], readings, strict=False):
        passed = reading["taken"] - before["taken"] if before else 0
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


def judge_differences(look: Look, pairs: Sequence[dict[str, Any]], changes: Sequence[Any]) -> None:
    for pair in pairs:
        if pair["error"]:
            fail(pair["error"], "largest_difference()", look)
        if pair["value"] is None:
            raise Diagnosis(
                "no-difference",
                saw=f"largest_difference() returned a {pair['type']}.",
                means="It returns one number of Python's.",
                look=look(RETURN, last=True),
            )
    if changed := [pair for pair in pairs if pair["changed"]]:
        raise Diagnosis(
            "models-changed",
            saw="after largest_difference() the models hold other numbers than before, or others in type.",
            means="state_dict() hands out the models' own memory: sub_() or model.double() writes there.",
            look=look.line(line) if (line := changed[0]["changed_at"]) else look(r"_\(|double|float|to\("),
        )
    same, lower, higher, buffer, count, wrapped, many, double, *nans = (pair["value"] for pair in pairs)
    if not abs(same) < 1e-9:
        raise Diagnosis(
            "equal-models-differ",
            saw=f"for two equal models largest_difference() returned {number(same)}.",
            means="Equal means 0: nothing else tells a captured step from one that is nearly right.",
            look=look(RETURN, last=True),
        )
    for found, (((_, weight), (_, other)),) in zip((lower, higher), changes[1:3], strict=True):
        if close_enough(found, abs(weight)):
            continue
        saw = f"two models differ by {number(weight)} in a weight and {number(other)} in a bias: you returned "
        if close_enough(found, abs(other)):
            raise Diagnosis(
                "sign-counts",
                saw=f"{saw}{number(found)}.",
                means="A difference may have either sign: take abs() first.",
                look=look(r"max\(", RETURN),
            )
        raise Diagnosis(
            "not-the-largest",
            saw=f"{saw}{number(found)}.",
            means="A mean or a sum hides the one number that is wrong: take the largest.",
            look=look(r"mean\(|sum\(|norm\(", RETURN),
        )
    largest = changes[3][0][1][1]
    if not close_enough(buffer, largest):
        raise Diagnosis(
            "buffers-left-out",
            saw=f"two models differ by {number(largest)} in BatchNorm's running variance: you returned "
            f"{number(buffer)}.",
            means="The evaluation computes with these: a replay that does not update them is wrong, too.",
            look=look(r"parameters\(", RETURN),
        )
    more = changes[4][0][1][1]
    if not close_enough(count, more):
        raise Diagnosis(
            "integers-left-out",
            saw=f"of two models one has counted {number(more)} batches more in BatchNorm's num_batches_tracked: "
            f"you returned {number(count)}.",
            means="Any number counts, whole ones too: this one tells that a step more was taken.",
            look=look(r"is_floating_point|is_complex", r"dtype", RETURN),
        )
    more = changes[5][0][1][1]
    if not close_enough(wrapped, more):
        raise Diagnosis(
            "bytes-wrap-around",
            saw=f"of two models one has {number(more)} more in a buffer of uint8: you returned {number(wrapped)}.",
            means="It has no numbers below 0: they come out large. Turn both tensors into double() first.",
            look=look(r"\s-\s|\bsub(tract)?_?\(", r"dtype", RETURN),
        )
    for found, what, ((_, more),) in (
        (many, "a buffer of integers near 2**30", changes[6][0]),
        (double, "a buffer of float64 near 1e6", changes[7][0]),
    ):
        if not close_enough(found, more):
            raise Diagnosis(
                "digits-lost",
                saw=f"two models differ by {number(more)} in {what}: you returned {number(found)}.",
                means="float32 has seven digits, and rounds the difference off: compare in double().",
                look=look(r"float\(\)|float32", r"\bto\(", r"\s-\s|\bsub(tract)?_?\(", RETURN),
            )
    for pair, (_, *first) in zip(pairs[-len(nans) :], changes[-len(nans) :], strict=True):
        if math.isnan(pair["value"]):
            continue
        who = "two models with a NaN in the same weight pass" if first else "a model with a NaN in it passes"
        raise Diagnosis(
            "nan-lost",
            saw=f"{who} as {number(pair['value'])} apart{'' if first else ' from one without'}.",
            means="NaN equals nothing, itself neither, and Python's max() can lose it: Tensor.max() never does.",
            look=lost_at(look, pair["held"]) or look(RETURN, last=True),
        )


def close_enough(found: float, right: float) -> bool:
    """The weights are float32."""
    return abs(found - right) < 1e-5
