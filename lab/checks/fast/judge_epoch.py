"""Judges an epoch's loss: the mean over all ranks and samples, and nobody waited for it on the way."""

import random
from collections.abc import Sequence
from math import isfinite
from typing import Any

from lab.checks.common.look import RETURN, Look, line_of
from lab.checks.common.look_values import first_use, skips
from lab.checks.common.report import ERROR, expect, expect_as_many, fail, remembered
from lab.checks.common.tensors import close, number
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

REPORT = {
    "error": (None, ERROR),
    "type": str,
    "value": (None, float),
    "steps": [int],
    "waits": [{"read": str, "steps": int, "line": int}],
    "reduced": [{"name": str, "steps": int, "line": int, "values": [float]}],
    "again": int,
    "error again": (None, ERROR),
    "value again": (None, float),
    "elsewhere": str,
}

Drawn = dict[str, list[list[Any]]]  # "losses", those of another epoch, and "sizes", by rank and step


def draw_epoch(world_size: int) -> Drawn:
    """Losses and batch sizes; the last batch is smaller, and another one on each rank."""
    sizes = [[8] * 4 + [last] for last in random.sample(range(2, 7), world_size)]

    def losses(low: float, high: float) -> list[list[float]]:
        return [[round(random.uniform(low, high), 4) for _ in own] for own in sizes]

    return {"losses": losses(0.5, 3), "losses again": losses(4, 6), "sizes": sizes}


def judge_epoch(look: Look, reports: Sequence[Any], drawn: Drawn) -> None:
    expect(reports, REPORT)
    for rank, report in enumerate(reports):
        if report["error"]:
            fail(report["error"], f"epoch_loss() on rank {rank}", look)
        judge_steps(look, report["steps"], len(drawn["sizes"][rank]))
    for report in reports:
        judge_waits(look, report)
    for rank, report in enumerate(reports):
        judge_kind(look, rank, report)
    expect_as_many([report["steps"] for report in reports], len(drawn["sizes"][0]))
    judge_mean(look, reports, drawn)
    judge_again(look, reports, drawn)
    if problem := reports[0]["elsewhere"]:
        raise Diagnosis(
            "not-on-its-device",
            saw=f"with losses on a GPU (here only pretended): {problem}",
            means="What is added up must be where the losses are: the argument device says where.",
            look=look.source_of("all_reduce", "tensor", 0, like=MAKES)
            or look(r"torch\.(zeros|tensor)\(", r"all_reduce"),
        )


def judge_steps(look: Look, steps: Sequence[int], count: int) -> None:
    if list(steps) != list(range(count)):
        raise Diagnosis(
            "not-one-step-each",
            saw=f"of {count} batches, train_step() was called for: {', '.join(map(str, steps)) or 'none'}.",
            means="Each batch gets one step, in the order in which it comes.",
            look=look(r"train_step\(", r"for "),
        )


def judge_waits(look: Look, report: dict[str, Any]) -> None:
    """Nothing is read, and nothing reduced, before the last step has been taken."""
    count = len(report["steps"])
    if early := [wait for wait in report["waits"] if wait["steps"] < count]:
        by = early[0]["read"]
        times = f"waited {len(early)} times" if by == "synchronize()" else f"read {len(early)} tensors"
        raise Diagnosis(
            "waits-in-the-loop",
            saw=f"before the last of {count} steps the CPU had {times}: {by}.",
            means="For each, the CPU waits until the GPU has done its step, and launches nothing meanwhile.",
            look=look.line(early[0]["line"]),
        )
    if early_calls := [call for call in report["reduced"] if call["steps"] < count]:
        first = early_calls[0]
        raise Diagnosis(
            "reduced-in-the-loop",
            saw=f"{first['name']} was called after {first['steps']} of {count} steps.",
            means="Every step would wait for the slowest rank, only for a number that is needed at the end.",
            look=look.line(first["line"]),
        )


def judge_kind(look: Look, rank: int, report: dict[str, Any]) -> None:
    if report["type"] == "NoneType":
        raise Diagnosis(
            "nothing-returned",
            saw="epoch_loss() returned None.",
            means="It returns the epoch's mean loss.",
            look=look(RETURN, r"all_reduce"),
        )
    if report["value"] is None:
        raise Diagnosis(
            "not-a-number",
            saw=f"epoch_loss() returned a {report['type']} on rank {rank}.",
            means="The epoch has ended: now one number of Python's may be read, with .item().",
            look=look(RETURN),
        )


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
            means="An iterator gives its batches once: count the samples in the loop that takes the steps.",
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


def judge_again(look: Look, reports: Sequence[Any], drawn: Drawn) -> None:
    """A second epoch, which has other losses: nothing of the first is in its mean."""
    for rank, report in enumerate(reports):
        if report["error again"]:
            fail(report["error again"], f"a second epoch_loss() on rank {rank}", look)
    first, right = mean_of(drawn["losses"], drawn), mean_of(drawn["losses again"], drawn)
    found = [report["value again"] for report in reports]
    if all(value is not None and close(value, right) for value in found):
        return
    shown = ", ".join("no number" if value is None else number(value) for value in found)
    saw = (
        f"in a second epoch the ranks returned {shown}; its mean is {number(right)}, "
        f"and that of the first was {number(first)}."
    )
    if all(value is not None and close(value, first) for value in found):
        raise remembered(look, saw)
    raise Diagnosis(
        "epochs-added-up",
        saw=saw,
        means="Each call is an epoch of its own: sums that outlive it hold the losses of all that came before.",
        look=look.kept(),
    )


def mean_of(losses: Sequence[Sequence[float]], drawn: Drawn) -> float:
    """Over the samples of all ranks."""
    return exact([loss for own in losses for loss in own], [size for own in drawn["sizes"] for size in own])


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
