"""What 8.2 draws, and what the means are that a mistake makes of it."""

import random
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch

from lab.checks.common.tensors import TOLERANCE

Drawn = dict[str, list[list[Any]]]  # "losses", those of another epoch, and "sizes", by rank and step
By = Sequence[Sequence[float]]  # by rank and step

_APART = 2 * TOLERANCE  # by how much of it two of them differ at least


def draw_epoch(world_size: int) -> Drawn:
    """Losses and batch sizes; the last batch is smaller, and another one on each rank.

    Drawn again until no mistake that is known, and no sum in 16 bits, comes out right by luck.
    """
    while True:
        sizes = [[8] * 4 + [last] for last in random.sample(range(2, 7), world_size)]
        drawn: Drawn = {"losses": _losses(0.5, 3, sizes), "losses again": _losses(4, 6, sizes), "sizes": sizes}
        if all(_tells(drawn[name], sizes) for name in ("losses", "losses again")):
            return drawn


def _losses(low: float, high: float, sizes: Sequence[Sequence[int]]) -> list[list[float]]:
    return [[round(random.uniform(low, high), 4) for _ in own] for own in sizes]


def _tells(losses: By, sizes: Sequence[Sequence[int]]) -> bool:
    """Whether each mistake makes another mean of these losses, and none makes what another does."""
    right = [mean_of(losses, sizes)] * len(losses)
    halves = [[_in_16_bits(losses, sizes, dtype)] * len(losses) for dtype in (torch.float16, torch.bfloat16)]
    kinds = [candidates for candidates, _ in mistakes_of(losses, sizes).values()]
    return all(
        any(abs(x - y) > _APART * abs(y) for x, y in zip(mine, other, strict=True))
        for kind, others in combinations([[right], halves, *kinds], 2)
        for mine in kind
        for other in others
    )


def _in_16_bits(losses: By, sizes: Sequence[Sequence[int]], dtype: torch.dtype) -> float:
    sums = []
    for own, own_sizes in zip(losses, sizes, strict=True):
        total = torch.zeros((), dtype=dtype)
        for loss, size in zip(own, own_sizes, strict=True):
            total += torch.tensor(loss) * size
        sums.append(total)
    total = torch.stack(sums).sum()
    return (total / torch.tensor(sum(map(sum, sizes)), dtype=dtype)).item()


def exact(losses: Sequence[float], sizes: Sequence[int]) -> float:
    """The mean over all samples."""
    return sum(loss * size for loss, size in zip(losses, sizes, strict=True)) / sum(sizes)


def mean_of(losses: By, sizes: Sequence[Sequence[int]]) -> float:
    """The mean over the samples of all ranks."""
    return exact([loss for own in losses for loss in own], [size for own in sizes for size in own])


def mistakes_of(losses: By, sizes: Sequence[Sequence[int]]) -> dict[str, tuple[list[list[float]], str]]:
    """The means that mistakes make, each by rank, and what is to be said of them; by the diagnosis's name."""
    ranks = range(len(losses))
    every, each = [loss for own in losses for loss in own], [size for own in sizes for size in own]
    right, samples = exact(every, each), sum(each)
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
    return {
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
