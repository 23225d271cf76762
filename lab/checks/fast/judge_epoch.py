"""Judges an epoch's loss: the mean over all ranks and samples, and nobody waited for it on the way."""

import random
from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import RETURN, Look
from lab.checks.common.report import ERROR, expect, expect_as_many, fail, remembered
from lab.checks.common.tensors import close, number
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

REPORT = {
    "error": (None, ERROR),
    "type": str,
    "value": (None, float),
    "steps": [int],
    "waits": [{"read": str, "steps": int}],
    "reduced": [int],
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
    judge_mean(look, [report["value"] for report in reports], drawn)
    judge_again(look, reports, drawn)
    if problem := reports[0]["elsewhere"]:
        raise Diagnosis(
            "not-on-its-device",
            saw=f"with losses on a GPU (here only pretended): {problem}",
            means="What is added up must be where the losses are: the argument device says where.",
            look=look(r"torch\.(zeros|tensor)\(", r"all_reduce"),
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
    if early := [wait["read"] for wait in report["waits"] if wait["steps"] < count]:
        raise Diagnosis(
            "waits-in-the-loop",
            saw=f"before the last of {count} steps the CPU had read {len(early)} tensors: {early[0]}.",
            means="For each, the CPU waits until the GPU has done its step, and launches nothing meanwhile.",
            look=look(r"\.item\(|float\(|\.tolist\(|\.cpu\(|\.numpy\(|print\(|['\"]cpu['\"]|\bif ", r"loss"),
        )
    if early_reductions := [steps for steps in report["reduced"] if steps < count]:
        raise Diagnosis(
            "reduced-in-the-loop",
            saw=f"all_reduce was called after {early_reductions[0]} of {count} steps.",
            means="Every step would wait for the slowest rank, only for a number that is needed at the end.",
            look=look(r"all_reduce"),
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


def judge_mean(look: Look, found: Sequence[float], drawn: Drawn) -> None:
    losses, sizes = drawn["losses"], drawn["sizes"]
    ranks = range(len(found))
    every, each = [loss for own in losses for loss in own], [size for own in sizes for size in own]
    right, samples = exact(every, each), sum(each)
    compared("mean loss of the epoch", found, right)
    if all(close(value, right) for value in found):
        return
    own = [exact(losses[rank], sizes[rank]) for rank in ranks]
    mistakes: dict[str, tuple[list[list[float]], str]] = {
        "no-all-reduce": (
            [own],
            "It is the mean over this rank's samples only: the ranks would report different losses.",
        ),
        "average-of-averages": (
            [
                [sum(every) / len(every)] * len(own),
                [sum(own) / len(own)] * len(own),
                [sum(mine) / len(mine) for mine in losses],
            ],
            "A smaller batch counts as much as the others: add up first, divide once.",
        ),
        "divided-by-own-samples": (
            [[right * samples / sum(sizes[rank]) for rank in ranks]],
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
    }
    saw = (
        f"the ranks returned {', '.join(map(number, found))}; the mean over {samples} samples is {number(right)}."
    )
    for name, (candidates, means) in mistakes.items():
        if any(all(map(close, found, candidate)) for candidate in candidates):
            raise Diagnosis(
                name, saw=saw, means=means, look=look(*MEAN_PLACES.get(name, ()), r"all_reduce", RETURN)
            )
    raise Diagnosis(
        "wrong-mean",
        saw=saw,
        means="The sum of loss * len(labels) over all ranks, divided by the samples of all ranks.",
        look=look(r"all_reduce", RETURN),
    )


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


MEAN_PLACES = {
    "no-all-reduce": (RETURN,),
    "means-added": (r"\+=|append",),
    "average-of-averages": (r"\+=|append|\bsum\(|mean\(",),
    "last-batch-only": (r"sums?\[?.* = ",),
}
