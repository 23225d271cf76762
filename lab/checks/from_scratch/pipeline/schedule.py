"""A schedule played through without ranks: how long it takes, and how much of that each rank waits."""

from collections.abc import Sequence
from dataclasses import dataclass

FORWARD, BACKWARD = "F", "B"
Action = tuple[str, int]


@dataclass(frozen=True)
class Played:
    """
    bubble      the part of all ranks' time in which they wait, where each action takes as long as any other
    stuck       for each rank that never comes to its end, the action that it waits to do
    in_between  for each rank the most micro-batches that were forward, and not yet backward
    """

    bubble: float
    stuck: dict[int, Action]
    in_between: list[int]


def play(schedule: Sequence[Sequence[Action]]) -> Played:
    """Let each rank do its actions in their order, each as soon as what it needs from its neighbour is there."""
    ranks = len(schedule)
    ends: dict[tuple[int, str, int], int] = {}  # when an action of a rank is done
    position, clock = [0] * ranks, [0] * ranks
    moved = True
    while moved:
        moved = False
        for rank in range(ranks):
            while position[rank] < len(schedule[rank]):
                kind, micro = schedule[rank][position[rank]]
                needs = _needs(rank, ranks, kind, micro)
                if any(one not in ends for one in needs):
                    break
                clock[rank] = max([clock[rank], *(ends[one] for one in needs)]) + 1
                ends[rank, kind, micro] = clock[rank]
                position[rank] += 1
                moved = True
    stuck = {rank: schedule[rank][at] for rank, at in enumerate(position) if at < len(schedule[rank])}
    work = sum(map(len, schedule))
    total = ranks * max(clock)
    return Played(1 - work / total if total else 0.0, stuck, [_most(one) for one in schedule])


def _needs(rank: int, ranks: int, kind: str, micro: int) -> list[tuple[int, str, int]]:
    if kind == FORWARD:
        return [(rank - 1, FORWARD, micro)] if rank else []
    own = [(rank, FORWARD, micro)]
    return [*own, (rank + 1, BACKWARD, micro)] if rank + 1 < ranks else own


def _most(actions: Sequence[Action]) -> int:
    now = most = 0
    for kind, _ in actions:
        now += 1 if kind == FORWARD else -1
        most = max(most, now)
    return most


def bubble(ranks: int, micro_batches: int) -> float:
    """(p-1)/(m+p-1)."""
    return (ranks - 1) / (micro_batches + ranks - 1)
