"""The first collective that does not match between ranks: the reason of a deadlock, as soon as it is certain.

Every rank of a process group must issue the same collectives in the same order. What a rank has issued never
changes, so a difference between two ranks is final the moment it is seen; and a rank that has ended will issue
nothing more. No clock is involved.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lab.collectives.lanes import Collective, Lane
from lab.collectives.stall import Position, find_stall

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

    @property
    def stuck(self) -> list[int]:
        """The ranks whose collective has not come to its end."""
        return [rank for rank, collective in self.waiting.items() if not collective.done]


def find_mismatch(issued: Mapping[int, Sequence[Collective]], ended: Collection[int]) -> Mismatch | None:
    """The first mismatch that keeps a rank waiting, or None while there is none for certain.

    Args:
        issued: for each rank the collectives it has issued so far, in their order.
        ended: the ranks that will issue no more. Unless they are the only rank of a group, their share of it is
            over: a rank that never took part in a group is not missed there.
    """
    groups = sorted({collective.group for collectives in issued.values() for collective in collectives})
    found = [mismatch for group in groups if (mismatch := _in_group(group, issued, ended))]
    return found[0] if found else None


def _in_group(group: str, issued: Mapping[int, Sequence[Collective]], ended: Collection[int]) -> Mismatch | None:
    lanes = {rank: [one for one in every if one.group == group] for rank, every in issued.items()}
    if group != "0":  # the default group has all ranks; another one those that were seen in it
        lanes = {rank: lane for rank, lane in lanes.items() if lane}
    by_number = {rank: {one.number: one for one in lane} for rank, lane in lanes.items()}
    # A rank remembers its last collectives only: compare from where all of them remember.
    first = max((min(numbers) for numbers in by_number.values() if numbers), default=1)
    last = {rank: max(numbers, default=0) for rank, numbers in by_number.items()}
    for number in sorted({number for numbers in by_number.values() for number in numbers if number >= first}):
        waiting = {rank: numbers[number] for rank, numbers in by_number.items() if number in numbers}
        # A rank that is further on has issued something here that the recorder does not note.
        absent = [rank for rank in by_number if rank not in waiting and last[rank] < number]
        kind: Kind | None = disagreement(list(waiting.values()))
        if kind is None and any(rank in ended for rank in absent):
            kind = "missing"
        if kind is not None and not all(one.done for one in waiting.values()):
            return Mismatch(kind, group, number, waiting, absent)
        if absent and kind is None:
            return None  # they may still come
    return None


def disagreement(collectives: Sequence[Collective]) -> Kind | None:
    if len({collective.name for collective in collectives}) > 1:
        return "order"
    uneven = collectives[0].name.lstrip("_").startswith(_UNEVEN)
    if not uneven and len({_contents(collective) for collective in collectives}) > 1:
        return "shape"
    return None


def _contents(collective: Collective) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """How many elements each input has, and of which types: gloo matches these, not the shapes."""
    return tuple(math.prod(size) for size in collective.sizes), collective.types


class Detector:
    """Tells from the ranks' messages, as they come, when a group is in a deadlock."""

    def __init__(self, lanes: Mapping[int, Lane]) -> None:
        self._lanes = lanes
        self._read = 0  # messages when they were compared last
        # What was found, and how many messages each rank that is stuck had sent then; of collectives, of messages.
        self._suspected: list[tuple[object, dict[int, int]] | None] = [None, None]

    def deadlock(self, running: Collection[int]) -> bool:
        """Whether a rank in `running` waits in a collective, or for a message, that can never come to its end.

        A collective ends a moment before the recorder knows it: so the rank must have been seen in it twice. So
        must all ranks that wait for each other's messages: what they say is not of the same moment.
        """
        read = sum(lane.messages for lane in self._lanes.values())
        if read == self._read:
            return False
        self._read = read
        ended = [rank for rank, lane in self._lanes.items() if lane.final]
        found = find_mismatch({rank: lane.collectives for rank, lane in self._lanes.items()}, ended)
        stuck = [rank for rank in found.stuck if rank in running] if found else []
        what = (found.kind, found.group, found.number) if found else None
        if any(self._seen_again(0, what, stuck)):
            return True
        stall = find_stall({rank: position(lane) for rank, lane in self._lanes.items()}, ended)
        waits = (
            tuple((rank, one.kind, one.peer, one.tag, one.nth) for rank, one in stall.messages.items())
            if stall
            else None
        )
        again = self._seen_again(1, waits, stall.ranks if stall else [])
        return bool(again) and all(again)

    def _seen_again(self, place: int, what: object, stuck: Sequence[int]) -> list[bool]:
        """For each rank that is stuck, whether it has said something since this was found first."""
        if not stuck:
            self._suspected[place] = None
            return []
        known = self._suspected[place]
        if known is None or known[0] != what:
            known = self._suspected[place] = what, {rank: self._lanes[rank].messages for rank in stuck}
        return [rank in known[1] and self._lanes[rank].messages > known[1][rank] for rank in stuck]


def position(lane: Lane) -> Position:
    return Position(lane.one_to_one, lane.collectives, lane.in_wait)
