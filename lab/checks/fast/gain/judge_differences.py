"""Judges how far two models are apart, of which it is known in what they differ."""

import math
from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import RETURN, Look, line_of
from lab.checks.common.look_around import kept_at
from lab.checks.common.look_values import lost_at
from lab.checks.common.report import ERROR, fail, remembered
from lab.checks.common.tensors import number
from lab.grading.diagnosis import Diagnosis

HELD = {"line": int, "nan": [str], "numbers": [str]}
PAIR = {
    "error": (None, ERROR),
    "type": str,
    "value": (None, float),
    "changed": bool,
    "changed_at": int,
    "held": [HELD],
    "lost_at": int,
}


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
    judge_kept(look, [pair["value"] for pair in pairs], changes)
    values = [pair["value"] for pair in pairs]
    same, lower, higher, buffer, count, wrapped, short, many, double, several, *nans = values
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
        raise not_the_largest(look, f"{saw}{number(found)}.")
    more, less = (change for _, change in changes[9][0])
    if not close_enough(several, more):
        raise not_the_largest(
            look,
            f"two models differ by {number(more)} and {number(less)} in two numbers of a weight: you returned "
            f"{number(several)}.",
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
    more = changes[6][0][0][1]
    if not close_enough(short, more):
        raise Diagnosis(
            "type-left-out",
            saw=f"two models differ by {number(more)} in a buffer of bfloat16: you returned {number(short)}.",
            means="Any number counts, of whichever type: double() takes them all.",
            look=look(r"dtype|float32|float64|is_", RETURN),
        )
    for found, what, ((_, more),) in (
        (many, "a buffer of integers near 2**30", changes[7][0]),
        (double, "a buffer of float64 near 1e6", changes[8][0]),
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
        # Seen in both, and not in the second alone: what asks for it asks the first only.
        guard = look(r"^(el)?if .*(isnan|isfinite)") if not first and math.isnan(pairs[-1]["value"]) else ""
        lost = look.line(pair["lost_at"]) if pair["lost_at"] else lost_at(look, pair["held"])
        raise Diagnosis(
            "nan-lost",
            saw=f"{who} as {number(pair['value'])} apart{'' if first else ' from one without'}.",
            means="NaN equals nothing, itself neither, and Python's max() can lose it: Tensor.max() never does.",
            look=(guard if line_of(guard) else "") or lost or look(r"\bfmax|nan_to_num|nanm", RETURN, last=True),
        )


def not_the_largest(look: Look, saw: str) -> Diagnosis:
    return Diagnosis(
        "not-the-largest",
        saw=saw,
        means="A mean or a sum hides the one number that is wrong: take the largest.",
        look=look(r"mean\(|sum\(|norm\(|dist\(|sqrt\(", RETURN),
    )


def judge_kept(look: Look, found: Sequence[float], changes: Sequence[Any]) -> None:
    """Two models, and not those of the calls before. The last pairs have NaN, after which nothing can be told."""
    known = [(mine, pair[0]) for mine, pair in zip(found, changes, strict=True) if not math.isnan(sum_of(pair[0]))]
    right = [max((abs(change) for _, change in changed), default=0.0) for _, changed in known]
    if all(close_enough(mine, one) for (mine, _), one in zip(known, right, strict=True)):
        return
    if all(close_enough(mine, max(right[: call + 1])) for call, (mine, _) in enumerate(known)):
        wrong = next(call for call, (mine, _) in enumerate(known) if not close_enough(mine, right[call]))
        raise Diagnosis(
            "differences-kept",
            saw=f"two models differ by {number(right[wrong])}: you returned {number(known[wrong][0])}, as for two "
            "others before.",
            means="Each call compares two models: differences that outlive it are of others.",
            look=kept_at(look) or look.kept(),
        )
    if len({mine for mine, _ in known}) == 1 and close_enough(known[0][0], right[0]):
        raise remembered(
            look, f"two models differ by {number(right[1])}: you returned {number(known[1][0])} again."
        )


def sum_of(changed: Sequence[tuple[str, float]]) -> float:
    return sum(change for _, change in changed)


def close_enough(found: float, right: float) -> bool:
    """The weights are float32."""
    return abs(found - right) < 1e-5
