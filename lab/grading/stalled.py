"""Ranks that wait for each other's messages, in three lines: who waits for whom, with which tag, at which line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lab.collectives.lanes import Frame, Message
from lab.collectives.origin import file_line, origin
from lab.collectives.stall import Stall
from lab.grading.diagnosis import Diagnosis
from lab.grading.hang import look
from lab.grading.places import Place, place

if TYPE_CHECKING:
    from lab.ranks.reports import GroupResult

# Diagnosis -> what it means.
MEANS = {
    "all-receive-first": "A receive waits until somebody sends: begin both, isend and irecv, and then wait.",
    "all-send-first": "A send waits until somebody receives: begin both, isend and irecv, and then wait.",
    "tags-differ": "A send meets the receive of the same tag only.",
    "wrong-peer": "A send to one rank needs a receive from this one there, and nowhere else.",
    "talks-to-itself": "gloo has no connection of a rank with itself, and what a rank has need not travel.",
    "message-missing": "Every receive needs its send on the other side, and every send its receive.",
    "waits-in-a-circle": "Each waits for another one that waits too: some rank has to do another thing first.",
    "message-sizes-differ": "Both sides of a message must have as many elements, of the same type.",
}  # fmt: skip


def diagnose(result: GroupResult, code: Path) -> Diagnosis | None:
    """The diagnosis of a group whose ranks wait for messages for ever; None where that is not known."""
    stall = result.stall
    if stall is None:
        return None
    gone = {one.peer for one in stall.messages.values() if _is_gone(stall, one.peer, code)}
    rank, message = min(stall.messages.items(), key=lambda item: (item[1].peer not in gone, item[0]))
    frame = _own(message, code)
    other = _of_other_tag(result, rank, message)
    elsewhere = [
        one
        for one in result.reports[message.peer].messages
        if one.kind != message.kind and not one.done and one.peer != rank and one.tag == message.tag
    ]
    waits = stall.messages.get(message.peer)
    if message.kind == "recv" and waits is not None and waits.kind == "recv":
        elsewhere = []  # what it has sent to other ranks before is not what keeps it
    kinds = {one.kind for one in stall.messages.values()}
    if message.peer == rank:
        name = "talks-to-itself"
        verb = "receive from" if message.kind == "recv" else "send to"
        saw = f"rank {rank} waits to {verb} itself{_where(frame)}."
    elif other is not None:
        return _tags_differ(rank, message, other, code)
    elif message.peer in gone:
        name = "message-missing"
        verb = "sending it" if message.kind == "recv" else "receiving it"
        saw = f"{_waits(rank, message, code)}; rank {message.peer} {_left(message, code)} without {verb}."
    elif elsewhere:
        name = "wrong-peer"
        saw = (
            f"{_waits(rank, message, code)}; rank {message.peer} {_has(elsewhere[0])} {_to(elsewhere[0])} instead."
        )
    else:
        for waiting, own in sorted(stall.messages.items()):
            if own.peer != waiting and (other := _of_other_tag(result, waiting, own)):
                return _tags_differ(waiting, own, other, code)
        name = "waits-in-a-circle"
        if not stall.collectives:
            name = {"recv": "all-receive-first", "send": "all-send-first"}.get("".join(kinds), name)
        saw = f"{_all(stall, code)}."
    return Diagnosis(name, saw=saw, means=MEANS[name], look=look(frame, place(frame, code) if frame else Place()))


def _of_other_tag(result: GroupResult, rank: int, message: Message) -> Message | None:
    """What the other side has begun in place of what this message waits for, with another tag; or None."""
    own = [one for one in result.reports[rank].messages if one.peer == message.peer]
    there = [one for one in result.reports[message.peer].messages if not one.done and one.peer == rank]
    for one in there:
        has_met = any(one.meets(mine, rank) for mine in own)
        if one.kind != message.kind and one.tag != message.tag and not has_met:
            return one
    return None


def _tags_differ(rank: int, message: Message, other: Message, code: Path) -> Diagnosis:
    """Shown is the side that says a tag, where the other one has 0, which goes without saying."""
    frame = _own(other if other.tag and not message.tag else message, code)
    return Diagnosis(
        "tags-differ",
        saw=f"{_waits(rank, message, code)}; rank {message.peer} {_has(other)} with tag {other.tag}.",
        means=MEANS["tags-differ"],
        look=look(frame, place(frame, code) if frame else Place()),
    )


def _is_gone(stall: Stall, rank: int, code: Path) -> bool:
    """Whether a rank has left the student's code: it has ended, or is in a collective of the check's own."""
    if rank in stall.ended:
        return True
    collective = stall.collectives.get(rank)
    return collective is not None and origin(collective, code).frame is None


def sizes(result: GroupResult, code: Path) -> Diagnosis | None:
    """The diagnosis where two sides of a message differ in size or type: gloo ends the one that receives."""
    for report in result.reports:
        for one in report.messages:
            if one.kind != "recv" or not 0 <= one.peer < len(result.reports):
                continue
            for other in result.reports[one.peer].messages:
                if other.meets(one, report.rank) and (other.elements, other.type) != (one.elements, one.type):
                    frame = _own(one, code)
                    return Diagnosis(
                        "message-sizes-differ",
                        saw=f"rank {one.peer} sent {_contents(other)} to rank {report.rank}, which received into "
                        f"{_contents(one)}{_where(frame)}.",
                        means=MEANS["message-sizes-differ"],
                        look=look(frame, place(frame, code)) if frame else "the tensors that are received into",
                    )
    return None


def _all(stall: Stall, code: Path) -> str:
    """ "rank 0 waits to receive from rank 2 (tag 0), rank 1 from rank 0 (tag 0), ... at ring.py:31"."""
    parts: list[str] = []
    said: list[str] = []
    tags = {one.tag for one in stall.messages.values()}
    places = {_where(_own(one, code)) for one in stall.messages.values()}
    for rank, one in stall.messages.items():
        verb = "receive" if one.kind == "recv" else "send"
        tag = f" (tag {one.tag})" if len(tags) > 1 else ""
        where = _where(_own(one, code)) if len(places) > 1 else ""
        begin = f"rank {rank} waits to {verb} " if verb not in said or where else f"rank {rank} "
        said = [verb]
        parts.append(f"{begin}{_to(one)}{tag}{where}")
    for rank, collective in stall.collectives.items():
        parts.append(f"rank {rank} is in {origin(collective, code)}")
    common = "" if len(places) > 1 else places.pop()
    return ", ".join(parts[:5]) + (f", and {len(parts) - 5} more alike" if len(parts) > 5 else "") + common


def _waits(rank: int, one: Message, code: Path) -> str:
    verb = "receive" if one.kind == "recv" else "send"
    return f"rank {rank} waits to {verb} {_to(one)} (tag {one.tag}){_where(_own(one, code))}"


def _to(one: Message) -> str:
    return f"from rank {one.peer}" if one.kind == "recv" else f"to rank {one.peer}"


def _has(one: Message) -> str:
    return "waits to receive" if one.kind == "recv" else "sends"


def _left(one: Message, code: Path) -> str:
    entry = next((frame for frame in one.frames if Path(frame.file).is_relative_to(code)), None)
    return f"returned from {entry.function}()" if entry else "had gone on"


def _contents(one: Message) -> str:
    return f"{one.elements} numbers of {one.type}"


def _own(one: Message, code: Path) -> Frame | None:
    """The student's innermost line of it."""
    own = [frame for frame in one.frames if Path(frame.file).is_relative_to(code)]
    return own[-1] if own else None


def _where(frame: Frame | None) -> str:
    return f" at {file_line(frame)}" if frame else " in the check"
