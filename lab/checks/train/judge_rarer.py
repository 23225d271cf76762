"""Says what a mean is that is wrong in none of the usual ways."""

import math
from collections.abc import Mapping, Sequence

from lab.checks.common.look import Look
from lab.checks.common.look_around import after_loop, reads_kept
from lab.checks.train.means import mistake

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
            else look.kept_default() or reads_kept(look)
            if kind == "earlier"
            else after_loop(look)
            if kind == "last size"
            else look(pattern, r"long|int")
            if kind == "whole numbers"
            else ""
        )
        return means, condition or look(pattern, r"reduce|gather", r"\breturn\b")
    if kind in known:
        return (
            f"{OVER_SOME}{kind}: every rank's sums belong into it, by one all_reduce of all.",
            look(r"new_group|group=", r"broadcast|sum\(|\[:", r"reduce|gather"),
        )
    return None
