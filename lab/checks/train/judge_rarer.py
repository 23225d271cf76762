"""Judges the mean of an epoch; and says what a mean is that is wrong in no usual way, and where it goes wrong."""

import ast
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from lab.base.source import searchable
from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import kept_at
from lab.checks.common.look_values import overwritten
from lab.checks.common.syntax import calls_of, names_in
from lab.checks.common.tensors import number
from lab.checks.train.draw import possible_means, rarer_means
from lab.checks.train.means import after_loop, mistake, moving_at, near, worked_out
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

OVER_SOME = "It is the mean over "

# What a value is that is none of the usual ones -> what that means, and the line.
RARER = {
    "dataset": (
        "It is the sum over len(loader.dataset): an epoch drops some, so count what was used.",
        r"dataset",
    ),
    "sampler": (
        "It is divided by a sampler's length: count the samples of the batches instead.",
        r"len\(.*sampler",
    ),
    "first batch": (
        "It is the mean of the first batch of each rank alone: every batch counts.",
        r"%|\bif\b|break",
    ),
    "last size": (
        "Every batch counts with the size of one of them: multiply each loss by its own batch's.",
        r"\*",
    ),
    "last count": (
        "It is divided by the samples of the last batch alone: add them up over all batches.",
        r"(?<![+<>=!])=[^=].*(sum\(\)|len\(|size|shape|numel)",
    ),
    "moving average": (
        "It is a moving average of the losses, which forgets the first ones: add up.",
        r"0?\.\d+\s*\*",
    ),
    "whole numbers": (
        "It is a sum cut to whole numbers: keep sums in float32 or float64.",
        r"\b(u?int\d+|long)\b|dtype=int\b",
    ),
    "earlier": ("It has the sums of the call before in it: each call has to start from zero.", r"zeros|total|sum"),
    "own count": (
        "It is divided by a rank's own samples times the ranks: these differ, so reduce them.",
        r"world_size|\breturn\b",
    ),
    "class 0": (
        "It leaves out class 0, which is a class like all others: only -100 is filler.",
        r"[>]\s*0|labels\b.*if",
    ),
    "filler as class 0": (
        "The loss counts filler as images of class 0: cross_entropy ignores -100 only.",
        r"clamp|where",
    ),
}


REDUCING = ("all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "gather")


def averaged_at(
    look: Look, observed: Sequence[float], known: Mapping[str, Sequence[Sequence[float]]], added: str
) -> str:
    """Where a mean of means goes wrong: a batch or a rank counts as one; "" where the line does not say so.

    Args:
        added: what a line looks like that adds the mean of a batch as it is.
    """
    of_ranks, _ = known["averages"]
    if all(map(near, observed, of_ranks)):
        return divided_before(look, REDUCING)
    return place if line_of(place := look(added)) else counted_alike(look)


def rarer_kind(
    look: Look, observed: Sequence[float], known: Mapping[str, list[list[float]]]
) -> tuple[str, str] | None:
    """What a value means that no usual mistake gives, and the place; None where it is unknown."""
    kind = mistake(observed, {"exact": [[math.nan] * len(observed)], **known})
    if kind in RARER:
        means, pattern = RARER[kind]
        condition = (
            look.under(r"\+=|append")
            if kind == "first batch"
            else kept_at(look)
            if kind == "earlier"
            else times_the_ranks(look)
            if kind == "own count"
            else after_loop(look)
            if kind == "last size"
            else overwritten(look)
            if kind == "last count"
            else look(pattern, r"long|int")
            if kind == "whole numbers"
            else moving_at(look)
            if kind == "moving average"
            else ""
        )
        return means, condition or worked_out(look, pattern)
    if kind in known:
        return (
            f"{OVER_SOME}{kind}: every rank's sums belong into it, by one all_reduce of all.",
            look(r"new_group|group=", r"broadcast|sum\(|\[:", r"reduce|gather"),
        )
    return None


MEANS = {
    "own": ("no-all-reduce", "Each rank knows only its own samples; the sums must be all-reduced."),
    "averages": (
        "average-of-averages",
        "A mean of means counts samples of small batches more: add up losses and counts, divide last.",
    ),
    "world size": (
        "divided-by-world-size",
        "The sums are divided by the number of samples, by nothing else.",
    ),
    "not divided": ("loss-summed-over-epoch", "A mean is the sum divided by the number of samples."),
    "batches": ("divided-by-batches", "The sum over samples belongs over the number of samples."),
    "means added": ("means-added", "Each step's loss is a mean: multiply it by its number of samples first."),
    "last batch": ("last-batch-only", "One batch says little about the epoch: all steps count."),
    "own count": ("count-not-reduced", "The number of samples must be summed over the ranks too."),
    "own total": ("loss-not-reduced", "The sum of the losses must be summed over the ranks too."),
    "ranks added": ("summed-not-averaged", "all_reduce adds up: reduce sums and counts, and divide afterwards."),
    "in the loop": (
        "reduced-in-loop",
        "After an all-reduce the sums hold all ranks' samples; the next one counts those again. Reduce once.",
    ),
    "some ranks": ("ranks-disagree", "Every rank must have the same mean: all_reduce, not reduce."),
    "other": ("wrong-mean", "It must be the sum of loss times samples over all ranks, divided by all samples."),
}

# Where such a mistake usually is; the others are where the ranks reduce.
LINES = {
    "averages": [r"batch_size", r"\.mean\(|mean\s*=", r"loss(?!.*(\*|train_step|\[\]|list\())"],
    "world size": [r"world_size"],
    "not divided": [r"\breturn\b"],
    "batches": [r"\+=\s*1\b|len\(loader\)"],
    "means added": [r"\+=\s*loss|append\(", r"[+]\s*loss\b(?!\s*[*])"],
    "last batch": [r"(?<![+=])=\s*loss|\]\s*=(?!=)"],
    "other": [r"\breturn\b.*[-+]\s*\d"],
}


def judge_mean(look: Look, observed: Sequence[float], epoch: int, given: dict[str, Any]) -> None:
    known = possible_means(given, epoch)
    compared(f"mean loss of epoch {given['epochs'][epoch]}", observed, known["exact"][0][0])
    kind = mistake(observed, known)
    if kind == "exact":
        return
    name, means = MEANS.get(kind, MEANS["other"])
    place = averaged_at(look, observed, known, r"(\+=|append\().*\bloss\b(?!.*\*)") if kind == "averages" else ""
    place = place or worked_out(look, *LINES.get(kind, []))
    if kind == "other" and (rare := rarer_kind(look, observed, rarer_means(given, epoch))):
        means, place = rare
    values = ", ".join(f"rank {rank} {number(value)}" for rank, value in enumerate(observed))
    raise Diagnosis(
        name,
        saw=f"train_one_epoch() returned: {values}. The mean over all samples is {number(known['exact'][0][0])}.",
        means=means,
        look=place,
    )


def divided_before(look: Look, functions: Collection[str]) -> str:
    """The place of the first division above the first call of one of some functions; "" without one."""
    _, _, node = look.source()
    calls = [call.lineno for one in functions for call in (calls_of(node, one) if node else ())]
    divided = [
        part.lineno
        for part in (ast.walk(node) if node and calls else ())
        if isinstance(part, ast.BinOp | ast.AugAssign)
        and isinstance(part.op, ast.Div)
        and part.lineno < min(calls)
    ]
    return look.line(min(divided)) if divided else ""


def counted_alike(look: Look) -> str:
    """The place of the first statement in a loop that counts or weights each round as 1; "" without one."""
    _, _, node = look.source()
    loops = [part for part in ast.walk(node) if isinstance(part, ast.For | ast.While)] if node else []
    found = [
        part.lineno
        for loop in loops
        for part in ast.walk(loop)
        if isinstance(part, ast.AugAssign | ast.Assign)
        and isinstance(part.value, ast.Constant)
        and part.value.value == 1
        and (isinstance(part, ast.Assign) or isinstance(part.op, ast.Add))
    ]
    return look.line(min(found)) if found else ""


def times_the_ranks(look: Look) -> str:
    """The place of the first product with the number of ranks; "" without one."""
    _, _, node = look.source()
    parts = list(ast.walk(node)) if node else []
    assigned = [one for one in parts if isinstance(one, ast.Assign) and "world_size" in ast.unparse(one.value)]
    ranks = {name for one in assigned for target in one.targets for name in names_in(target)}
    products = [
        one.lineno
        for one in parts
        if isinstance(one, ast.BinOp | ast.AugAssign)
        and isinstance(one.op, ast.Mult)
        and (names_in(one) & ranks or "world_size" in ast.unparse(one))
    ]
    return look.line(min(products)) if products else ""


def compared_at(look: Look) -> str:
    """Where predictions are made that are no classes, and else where they are compared with labels; "" if nowhere.

    Classes are places, and no values: argmax, or the second of what max() and topk() give. Labels are not made
    there: they come from what the loop goes through.
    """
    _, _, node = look.source()
    parts = list(ast.walk(node)) if node else []
    of_loops = {name for part in parts if isinstance(part, ast.For) for name in names_in(part.target)}
    statements = [
        part
        for part in parts
        if isinstance(part, ast.Assign)
        and (names_in(part.value).isdisjoint(of_loops) or "model(" in ast.unparse(part))
    ]
    for line, sides in _comparisons(node) if node else ():
        for name in filter(None, map(_variable, sides)):
            made = [
                one for one in statements if one.lineno < line and any(name in names_in(it) for it in one.targets)
            ]
            last = max(made, key=lambda one: one.lineno, default=None)
            if last is not None and not _gives_classes(last, name):
                return look.line(last.lineno)
        return look.line(line)
    return ""


def _variable(value: ast.expr) -> str:
    """The variable that an expression is, in another form too: values.round().long(); "" where it is another."""
    forms = ("round", "long", "int", "float", "to", "cpu", "flatten", "view", "squeeze")
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in forms:
        value = value.func.value
    return value.id if isinstance(value, ast.Name) else ""


def _comparisons(node: ast.AST) -> Iterator[tuple[int, list[ast.expr]]]:
    """Of values that are none of the two constants: a == b, a != b, a.eq(b)."""
    for part in ast.walk(node):
        if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Eq | ast.NotEq):
            sides = [part.left, *part.comparators]
        elif (
            isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in ("eq", "ne")
        ):
            sides = [part.func.value, *part.args]
        else:
            continue
        if not any(isinstance(one, ast.Constant | ast.UnaryOp) or ast.unparse(one).isupper() for one in sides):
            yield part.lineno, sides


def _gives_classes(made: ast.Assign, name: str) -> bool:
    """Whether a statement gives a variable the places of the largest values."""
    value, target = ast.unparse(made.value), made.targets[0]
    if isinstance(target, ast.Tuple) and re.search(r"max|topk|sort", searchable(value)):
        return name in names_in(target.elts[-1])
    return re.search(r"argmax|argsort|indices|\[1\]", searchable(value)) is not None
