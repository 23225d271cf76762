"""Ranks that wait for each other's messages and can never go on: the reason, as soon as it is certain.

A send and a receive meet by rank, tag and order: the nth of the one with the nth of the other. A rank that waits
for one whose other side has not begun depends on that rank alone; one that waits in a collective depends on all
that have not come to it. Where somebody depends on a rank that has ended, or on one that is stuck itself, nothing
will ever move: the wait-for graph of Holt, "Some deadlock properties of computer systems", 1972.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lab.collectives.lanes import Collective, Message


@dataclass(frozen=True)
class Position:
    """How far a rank has come: its messages and collectives, in their order, and whether it waits in the last."""

    messages: Sequence[Message]
    collectives: Sequence[Collective]
    in_wait: bool

    @property
    def message(self) -> Message | None:
        """The one that it waits for."""
        return next((one for one in reversed(self.messages) if one.waiting), None)

    @property
    def collective(self) -> Collective | None:
        """The one of all ranks that it waits in."""
        own = [one for one in self.collectives if one.group == "0"] if self.in_wait else []
        return own[-1] if own and not own[-1].done else None


@dataclass(frozen=True)
class Stall:
    """Ranks that wait for messages for ever.

    messages     rank -> the message that it waits for
    collectives  rank -> the collective that it is in meanwhile
    ended        the ranks that will begin no more messages
    """

    messages: Mapping[int, Message]
    collectives: Mapping[int, Collective]
    ended: Collection[int]

    @property
    def ranks(self) -> list[int]:
        return sorted([*self.messages, *self.collectives])


def find_stall(positions: Mapping[int, Position], ended: Collection[int]) -> Stall | None:
    """Who waits for ever, if anybody waits for a message and that is certain.

    Args:
        positions: of each rank, all of the same moment.
        ended: the ranks that will do nothing more.
    """
    needs = {rank: _needs(rank, positions) for rank in positions if rank not in ended}
    stuck = {rank for rank, others in needs.items() if others}
    while free := {rank for rank in stuck if not needs[rank] & (stuck | set(ended))}:
        stuck -= free
    messages = {rank: one for rank in sorted(stuck) if (one := positions[rank].message)}
    collectives = {
        rank: call for rank in sorted(stuck) if rank not in messages and (call := positions[rank].collective)
    }
    return Stall(messages, collectives, ended) if messages else None


def _needs(rank: int, positions: Mapping[int, Position]) -> set[int]:
    """The ranks of which one must do something before this one goes on; none where it is not known to wait."""
    here = positions[rank]
    message, collective = here.message, here.collective
    if message is not None and message.peer == rank:
        return {rank}  # gloo has no connection of a rank with itself
    if message is not None:
        there = positions.get(message.peer)
        return {message.peer} if there and not any(one.meets(message, rank) for one in there.messages) else set()
    if collective is not None:
        return {other for other, position in positions.items() if not _has(position, collective)}
    return set()


def _has(position: Position, collective: Collective) -> bool:
    return any((one.group, one.number) == ("0", collective.number) for one in position.collectives)
