"""Check of 9.1: an all-reduce around a ring, for several numbers of ranks."""

import ast
import re
from contextlib import AbstractContextManager

from lab.base.source import searchable
from lab.checks.common.look import Look
from lab.checks.common.look_around import argument_of
from lab.checks.common.syntax import calls_of
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT
from lab.checks.from_scratch.ring.judge import (
    EXCHANGE,
    GATHER,
    SCATTER,
    draw,
    judge,
    judge_alone,
    made_for_incoming,
)
from lab.checks.from_scratch.ring.observe import reduce_all
from lab.grading.check import Group, Order, check
from lab.grading.diagnosis import Diagnosis


@check("9.1", "the sum of tensors of any length, in messages around a ring of 3 and of 4 ranks")
def sums_around_a_ring(group: Group) -> None:
    look = Look(group.code, "from_scratch/ring.py", "ring_all_reduce")
    drawn = {ranks: draw(ranks) for ranks in (3, 4, 1)}
    pending = {
        ranks: group.start(Order(reduce_all, ranks, given, timeout=LIMIT)) for ranks, given in drawn.items()
    }
    with (
        no_such_rank(look, r"there is no rank \d", "send"),
        no_such_rank(look, r"there is no rank -", "recv"),
        retold(
            r"not connected",
            "talks-to-itself",
            "Its neighbours are (rank + 1) % N and (rank - 1) % N; what a rank has need not travel.",
            saw="a rank sends to itself or receives from itself.",
        ),
    ):
        for ranks in (3, 4):
            try:
                reports = group.values(pending[ranks]())
            except Diagnosis as diagnosis:
                if diagnosis.name == "wrong-peer":
                    raise at_the_wrong_peer(look, diagnosis, ranks) from None
                types = re.findall(r"numbers of (\w+)", searchable(diagnosis.saw))
                if diagnosis.name != "message-sizes-differ":
                    raise
                if len(set(types)) < 2:
                    raise (
                        backwards(look, diagnosis, group)
                        or not_next_to_it(look, diagnosis, group)
                        or at_the_wrong_size(look, diagnosis, group)
                    ) from None
                raise Diagnosis(
                    "buffer-of-other-type",
                    saw=diagnosis.saw,
                    means="A buffer has the type of what comes in: torch.empty(n) is float32, whatever that is.",
                    look=look.into("reduce_scatter")(r"empty|zeros|new_|tensor\(", r"exchange\("),
                ) from None
            judge(look, reports, drawn[ranks])
    with retold(r"not connected", "talks-to-itself", "With N = 1 there are no steps: N-1 is none."):
        judge_alone(look, group.values(pending[1]()), drawn[1])


def no_such_rank(look: Look, pattern: str, kind: str) -> AbstractContextManager[None]:
    return retold(
        pattern,
        "no-such-rank",
        "The ring closes: after rank N-1 comes rank 0, (rank + 1) % N.",
        saw="a rank sends to rank N or receives from rank -1, which there is not.",
        look=peer_of(look.into(EXCHANGE), kind),
    )


def peer_of(look: Look, kind: str) -> str:
    """Where it is said to whom a rank sends, or from whom it receives; "" where that is not known."""
    named = {"send": "dst", "recv": "src"}[kind]
    return argument_of(look, f"i{kind}", named, 1) or argument_of(look, kind, named, 1)


def backwards(look: Look, told: Diagnosis, group: Group) -> Diagnosis | None:
    """For sizes that differ because all ranks send to the one before, and number their parts for the other way."""
    reports = group.results[-1].reports
    sent = [(report.rank, one.peer) for report in reports for one in report.messages if one.kind == "send"]
    if not sent or any(to != (rank - 1) % len(reports) for rank, to in sent):
        return None
    exchange = look.into(EXCHANGE)
    place = exchange(r"send")
    named = re.search(r"send\([^,]*, ?(dst=)?(left|prev\w*|prv|before)\b", searchable(place))
    return Diagnosis(
        "ring-backwards",
        saw=f"every rank sends to the one before it; {told.saw}",
        means="exchange() sends to the next rank, (rank + 1) % N: the parts' numbers are those of that direction.",
        look=place if named else peer_of(exchange, "send") or place,
    )


def not_next_to_it(look: Look, told: Diagnosis, group: Group) -> Diagnosis | None:
    """For sizes that differ because a rank talks to another one than its neighbour in a ring of all."""
    reports = group.results[-1].reports
    for report in reports:
        for one in report.messages:
            step = 1 if one.kind == "send" else -1
            if one.kind in ("send", "recv") and one.peer != (report.rank + step) % len(reports):
                does = "sends to" if one.kind == "send" else "receives from"
                exchange = look.into(EXCHANGE)
                return Diagnosis(
                    "not-its-neighbour",
                    saw=f"rank {report.rank} of {len(reports)} {does} rank {one.peer}; {told.saw}",
                    means="In a ring of N ranks the next one is (rank + 1) % N, the one before (rank - 1) % N.",
                    look=peer_of(exchange, one.kind) or exchange(r"send" if step > 0 else r"recv"),
                )
    return None


def at_the_wrong_peer(look: Look, told: Diagnosis, ranks: int) -> Diagnosis:
    """The same, at the side that is not with its neighbour: after rank r comes r + 1."""
    way = re.match(r"rank (\d+) waits to (send to|receive from) rank (\d+)", searchable(told.saw))
    to = (int(way[3]) - int(way[1])) % ranks if way else 0
    exchange = look.into(EXCHANGE)
    place = told.look
    if way and way[2] == "send to" and to == 1:
        place = exchange(r"recv")
    elif way and way[2] == "receive from" and to == ranks - 1:
        place = exchange(r"send")
    return Diagnosis(told.name, saw=told.saw, means=told.means, look=place, details=told.details)


def at_the_wrong_size(look: Look, told: Diagnosis, group: Group) -> Diagnosis:
    """The same, where the two tensors come from that exchange() was given and handed on as they were."""
    reports = group.results[-1].reports
    frames = [frame for report in reports for one in report.messages if not one.done for frame in one.frames]
    half = SCATTER if any(frame.function == SCATTER for frame in frames) else GATHER
    handed_on = handed(look.into(EXCHANGE), "recv") and handed(look.into(EXCHANGE), "send")
    made = made_for_incoming(look, half) if handed_on else ""
    added = look.into(half)(r"\+=|add_\(")
    fits = re.search(r"(\w[\w.\[\]() %+-]*?)(?: ?\+= ?|\.add_\()", searchable(added.partition("  ")[2]))
    if made and fits and fits[1] in made:  # it is as long as what it is added to: the other side is not
        made = argument_of(look.into(half), EXCHANGE, "outgoing", 0)
    place = made or told.look
    return Diagnosis(told.name, saw=told.saw, means=told.means, look=place, details=told.details)


def handed(look: Look, kind: str) -> bool:
    """Whether the function sends or receives its arguments themselves, and no part of them."""
    _, _, node = look.source()
    calls = [call for name in (kind, f"i{kind}") for call in calls_of(node, name)] if node else []
    names = {one.arg for one in node.args.args} if node else set()
    return bool(calls) and all(
        call.args and isinstance(call.args[0], ast.Name) and call.args[0].id in names for call in calls
    )
