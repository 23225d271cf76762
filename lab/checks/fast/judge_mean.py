"""Judges the mean loss of an epoch: which samples are in it, of which ranks, and how they were weighed."""

import ast
from collections.abc import Sequence
from math import isfinite
from typing import Any

from lab.checks.common.look import RETURN, Look, line_of
from lab.checks.common.look_values import first_use, skips
from lab.checks.common.syntax import names_in
from lab.checks.common.tensors import close, number
from lab.checks.fast.means import By, Drawn, exact, mean_of, mistakes_of
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

USED_UP = "An iterator gives its batches once: count the samples in the loop that takes the steps."


def judge_mean(look: Look, reports: Sequence[Any], drawn: Drawn) -> None:
    found = [report["value"] for report in reports]
    losses, sizes = drawn["losses"], drawn["sizes"]
    right, samples = mean_of(losses, sizes), sum(map(sum, sizes))
    compared("mean loss of the epoch", found, right)
    if all(close(value, right) for value in found):
        return
    saw = (
        f"the ranks returned {', '.join(map(number, found))}; the mean over {samples} samples is {number(right)}."
    )
    if reports[0]["again"] and not any(map(isfinite, found)):
        raise Diagnosis(
            "batches-used-up",
            saw=saw,
            means=USED_UP,
            look=look.line(reports[0]["again"]),
        )
    judge_known(look, found, saw, losses, sizes)
    if any(close(value, right) for value in found):
        raise Diagnosis(
            "right-on-some-ranks",
            saw=saw,
            means="reduce() and gather() give one rank what they make, and the others go on with their own.",
            look=look(r"\b(reduce|gather|gather_object|scatter)\(", r"\brank", r"all_reduce", RETURN),
        )
    calls = [(call["values"], call["line"]) for call in reports[0]["reduced"]]
    if again := [line for values, line in calls[1:] for value in values if close(value, right * samples)]:
        raise Diagnosis(
            "reduced-twice",
            saw=saw,
            means="What is reduced holds all ranks already: a second time it counts once more for each of them.",
            look=look.line(again[0]),
        )
    judge_half(look, found, saw, right)
    given = [value for values, _ in calls for value in values]
    own = exact(losses[0], sizes[0]) * sum(sizes[0])
    raise Diagnosis(
        "wrong-mean",
        saw=saw,
        means="The sum of loss * len(labels) over all ranks, divided by the samples of all ranks.",
        look=first_wrong(look, any(close(value, own) for value in given), float(sum(sizes[0])) in given),
    )


def judge_known(look: Look, found: Sequence[float], saw: str, losses: By, sizes: Sequence[Sequence[int]]) -> None:
    """A mean that a known mistake makes of these losses."""
    for name, (candidates, means) in mistakes_of(losses, sizes).items():
        if any(all(map(close, found, candidate)) for candidate in candidates):
            raise Diagnosis(name, saw=saw, means=means, look=place_of(look, name))


def judge_half(look: Look, found: Sequence[float], saw: str, right: float) -> None:
    """A mean that is nearly right, where something is half as precise."""
    half = look(r"float16|half\b")
    if line_of(half) and all(abs(value - right) < right / 20 for value in found):
        raise Diagnosis(
            "half-precision",
            saw=saw,
            means="A sum in 16 bits has three digits, and loses what is added to it: take float32 or float64.",
            look=half,
        )


def first_wrong(look: Look, summed: bool, counted: bool) -> str:
    """Where to look, by what came to the reduction: the sum of the losses, and the number of the samples."""
    if summed and counted:
        return look(r"all_reduce.*(MAX|MIN|PRODUCT)|broadcast\(", r"(?<!/)/(?!/)|div_?\(", RETURN, last=True)
    if summed:
        return look(r"len\(|\.shape|\.size\(|numel\(|\+= 1\b", last=True)
    return of_the_last(look) or first_use(look, "train_step") or look(r"all_reduce", RETURN)


def of_the_last(look: Look) -> str:
    """Where a variable of a loop is read behind it, and so is that of the last round; "" if nowhere."""
    _, _, node = look.source()
    loops = [part for part in ast.walk(node) if isinstance(part, ast.For)] if node else []
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name)] if node else []
    for loop in loops:
        own, end = names_in(loop.target), loop.end_lineno or loop.lineno
        again = {name for other in loops if other is not loop for name in names_in(other.target)}
        behind = [part.lineno for part in names if part.id in own - again and part.lineno > end]
        if behind:
            return look.line(min(behind))
    return ""


def place_of(look: Look, name: str) -> str:
    """Where to look for a mistake that has a name."""
    used = first_use(look, "train_step")
    if name == "batch-left-out":
        return skips(look, used) or look(r"\[1:|\[:-1|islice|next\(", r"train_step\(")
    by_sign = look(*MEAN_PLACES[name]) if name in MEAN_PLACES else ""
    if line_of(by_sign):
        return by_sign
    if name == "whole-numbers":
        return look.source_of("all_reduce", "tensor", 0, like=MAKES) or used or look(r"all_reduce", RETURN)
    return (used if name in OF_THE_SUM else "") or look(r"all_reduce", RETURN)


MAKES = r"torch\.(zeros|ones|tensor|as_tensor|empty|full)\(|new_\w+\("  # a tensor
OF_THE_SUM = ("average-of-averages", "means-added", "last-batch-only")  # what is added to it is wrong
MEAN_PLACES = {
    "mean-of-one-rank": (r"MAX|MIN|broadcast\w*\(|\[0\]\[", r"\brank|get_rank"),
    "no-all-reduce": (RETURN,),
    "average-of-averages": (r"\bmean\(|/ ?len\(",),
    "average-of-the-ranks": (r"(?<!/)/=?(?!/)|div_?\(|\bmean\(",),
    "divided-by-own-samples": (r"world|ranks",),
    "summed-not-averaged": (RETURN,),
    "divided-by-ranks": (r"/.*world|world.*/", r"/=? ?\(?\w*(world|ranks|size)", r"div_?\(|AVG", r"(?<!/)/(?!/)"),
    "whole-numbers": (r"\blong\b|\bint\d*\b|//|trunc|floor|round\(", r"\[0, 0\]|tensor\(0[,)]"),
}
