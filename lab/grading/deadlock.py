"""The first collective that does not match between ranks: the reason of a deadlock, as soon as it is certain.

Every rank of a process group must issue the same collectives in the same order. What a rank has issued never
changes, so a difference between two ranks is final the moment it is seen; and a rank that has ended will issue
nothing more. No clock is involved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lab.grading.recorder import Collective

Kind = Literal["missing", "order", "shape"]

# Their inputs differ between ranks by design: only the source's or the destination's counts.
_UNEVEN = ("gather", "scatter", "send", "recv", "alltoall", "all_to_all")


@dataclass(frozen=True)
class Mismatch:
    """The ranks disagree about collective `number` of `group`.

    - "missing": the ranks in `waiting` have issued it; those in `absent` have ended and never will.
    - "order": they have issued different collectives.
    - "shape": they have issued the same one with tensors of different sizes.

    `waiting` maps a rank to the collective it has issued; `absent` are the ranks that have none.
    """

    kind: Kind
    group: str
    number: int
    waiting: Mapping[int, Collective]
    absent: Sequence[int]


def find_mismatch(issued: Mapping[int, Sequence[Collective]], ended: Sequence[int]) -> Mismatch | None:
    """The first mismatch, or None while a deadlock is not certain.

    Args:
        issued: for each rank the collectives it has issued so far, in their order.
        ended: the ranks that will issue no more. Unless they are the only rank of a group, their share of it is
            over: a rank that never took part in a group is not missed there.
    """
    groups = sorted({collective.group for collectives in issued.values() for collective in collectives})
    found = [mismatch for group in groups if (mismatch := _in_group(group, issued, ended))]
    return found[0] if found else None


def _in_group(group: str, issued: Mapping[int, Sequence[Collective]], ended: Sequence[int]) -> Mismatch | None:
    lanes = {rank: [one for one in every if one.group == group] for rank, every in issued.items()}
    if group != "0":  # the default group has all ranks; another one those that were seen in it
        lanes = {rank: lane for rank, lane in lanes.items() if lane}
    by_number = {rank: {one.number: one for one in lane} for rank, lane in lanes.items()}
    # A rank remembers its last collectives only: compare from where all of them remember.
    first = max((min(numbers) for numbers in by_number.values() if numbers), default=1)
    last = max((max(numbers) for numbers in by_number.values() if numbers), default=0)
    for number in range(first, last + 1):
        waiting = {rank: numbers[number] for rank, numbers in by_number.items() if number in numbers}
        absent = [rank for rank in by_number if rank not in waiting]
        kind: Kind | None = _disagreement(list(waiting.values()))
        if kind is None and any(rank in ended for rank in absent):
            kind = "missing"
        if kind is not None:
            return Mismatch(kind, group, number, waiting, absent)
        if absent:
            return None  # they may still come
    return None


def _disagreement(collectives: Sequence[Collective]) -> Kind | None:
    if len({collective.name for collective in collectives}) > 1:
        return "order"
    uneven = collectives[0].name.lstrip("_").startswith(_UNEVEN)
    if not uneven and len({_elements(collective) for collective in collectives}) > 1:
        return "shape"
    return None


def _elements(collective: Collective) -> tuple[int, ...]:
    """How many elements each input has: gloo matches these, not the shapes."""
    counts = []
    for size in collective.sizes:
        count = 1
        for n in size:
            count *= n
        counts.append(count)
    return tuple(counts)
