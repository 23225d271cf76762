"""Judges the mean loss of an epoch: which samples are in it, of which ranks, and how they were weighed."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from lab.checks.common.look import RETURN, Look, line_of
from lab.checks.common.look_values import first_use, skips
from lab.checks.common.tensors import close, number
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

Drawn = dict[str, list[list[Any]]]  # "losses", those of another epoch, and "sizes", by rank and step

USED_UP = "An iterator gives its batches once: count the samples in the loop that takes the steps."


def exact(losses: Sequence[float], sizes: Sequence[int]) -> float:
    """The mean over all samples."""
    return sum(loss * size for loss, size in zip(losses, sizes, strict=True)) / sum(sizes)


def judge_mean(look: Look, reports: Sequence[Any], drawn: Drawn) -> None:
    found = [report["value"] for report in reports]
    losses, sizes = drawn["losses"], drawn["sizes"]
    ranks = range(len(found))
    every, each = [loss for own in losses for loss in own], [size for own in sizes for size in own]
    right, samples = exact(every, each), sum(each)
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
    own = [exact(losses[rank], sizes[rank]) for rank in ranks]
    sums = [own[rank] * sum(sizes[rank]) for rank in ranks]
    whole = [sum(int(loss * size) for loss, size in zip(losses[rank], sizes[rank], strict=True)) for rank in ranks]
    of_whole_losses = [
        sum(int(loss) * size for loss, size in zip(losses[rank], sizes[rank], strict=True)) for rank in ranks
    ]
    without = [
        sum(sums)
        - sum(own_losses[batch] * own_sizes[batch] for own_losses, own_sizes in zip(losses, sizes, strict=True))
        for batch in (0, -1)
    ]
    fewer = [samples - sum(own_sizes[batch] for own_sizes in sizes) for batch in (0, -1)]
    mistakes: dict[str, tuple[list[list[float]], str]] = {
        "no-all-reduce": (
            [own],
            "It is the mean over this rank's samples only: the ranks would report different losses.",
        ),
        "mean-of-one-rank": (
            [[mean] * len(own) for mean in (*own, *(of(sums) / of(map(sum, sizes)) for of in (max, min)))],
            "All have the mean of one rank's samples: those of the other ranks are in no sum.",
        ),
        "average-of-averages": (
            [[sum(every) / len(every)] * len(own), [sum(mine) / len(mine) for mine in losses]],
            "A smaller batch counts as much as the others: add up first, divide once.",
        ),
        "average-of-the-ranks": (
            [[sum(own) / len(own)] * len(own)],
            "A rank with fewer samples counts as much as the others: reduce both sums, and divide then.",
        ),
        "divided-by-own-samples": (
            [
                [right * samples / sum(sizes[rank]) for rank in ranks],
                [right * samples / sum(sizes[rank]) / len(own) for rank in ranks],
            ],
            "Both sums have to be reduced: the losses and the samples.",
        ),
        "loss-not-reduced": (
            [[own[rank] * sum(sizes[rank]) / samples for rank in ranks]],
            "Both sums have to be reduced: the losses and the samples.",
        ),
        "summed-not-averaged": (
            [[sum(own)] * len(own), [right * samples] * len(own), [sum(every)] * len(own)],
            "A sum grows with the epoch and the ranks: divide by the samples of all ranks.",
        ),
        "means-added": (
            [[sum(every) / samples] * len(own)],
            "A batch's loss is a mean: times its samples it is the sum to add up.",
        ),
        "last-batch-only": ([[mine[-1] for mine in losses]], "The sum holds the last batch alone."),
        "divided-by-ranks": (
            [[right / len(own)] * len(own)],
            "Both sums are of all ranks: divided by each other they are the mean already.",
        ),
        "batch-left-out": (
            [[rest / count] * len(own) for rest, count in zip(without, fewer, strict=True)]
            + [[rest / samples] * len(own) for rest in without],
            "Each batch was trained on: its loss and its samples belong in both sums.",
        ),
        "whole-numbers": (
            [[sum(one) / samples] * len(own) for one in (whole, of_whole_losses, list(map(int, sums)))]
            + [[float(int(right))] * len(own)],
            "Integers cut off what is behind the point: a sum of losses is a float.",
        ),
    }
    for name, (candidates, means) in mistakes.items():
        if any(all(map(close, found, candidate)) for candidate in candidates):
            raise Diagnosis(name, saw=saw, means=means, look=place_of(look, name))
    if any(close(value, right) for value in found):
        raise Diagnosis(
            "right-on-some-ranks",
            saw=saw,
            means="reduce() and gather() give one rank what they make, and the others go on with their own.",
            look=look(r"\b(reduce|gather|gather_object|scatter)\(", r"\brank", r"all_reduce", RETURN),
        )
    calls = [(call["values"], call["line"]) for call in reports[0]["reduced"]]
    if again := [line for values, line in calls[1:] for value in values if close(value, sum(sums))]:
        raise Diagnosis(
            "reduced-twice",
            saw=saw,
            means="What is reduced holds all ranks already: a second time it counts once more for each of them.",
            look=look.line(again[0]),
        )
    given = [value for values, _ in calls for value in values]
    half = look(r"float16|half\b")
    if line_of(half) and all(abs(value - right) < right / 20 for value in found):
        raise Diagnosis(
            "half-precision",
            saw=saw,
            means="A sum in 16 bits has three digits, and loses what is added to it: take float32 or float64.",
            look=half,
        )
    raise Diagnosis(
        "wrong-mean",
        saw=saw,
        means="The sum of loss * len(labels) over all ranks, divided by the samples of all ranks.",
        look=first_wrong(look, any(close(value, sums[0]) for value in given), float(sum(sizes[0])) in given),
    )


def first_wrong(look: Look, summed: bool, counted: bool) -> str:
    """Where to look, by what came to the reduction: the sum of the losses, and the number of the samples."""
    if summed and counted:
        return look(r"all_reduce.*(MAX|MIN|PRODUCT)|broadcast\(", r"(?<!/)/(?!/)|div_?\(", RETURN, last=True)
    if summed:
        return look(r"len\(|\.shape|\.size\(|numel\(|\+= 1\b", last=True)
    return first_use(look, "train_step") or look(r"all_reduce", RETURN)


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
