"""Judges the traffic of MyHSDP: over which groups it goes, and how many bytes from whom to whom."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import Look
from lab.checks.from_scratch.hsdp.net import PER_NODE, RANKS
from lab.grading.diagnosis import Diagnosis

Calls = Sequence[dict[str, Any]]

EVERYONE = list(range(RANKS))


def node_of(rank: int) -> list[int]:
    first = rank - rank % PER_NODE
    return list(range(first, first + PER_NODE))


def over_nodes(ranks: Sequence[int]) -> bool:
    """Whether a group has ranks of more than one node."""
    return len({rank // PER_NODE for rank in ranks}) > 1


def bytes_sent(call: dict[str, Any]) -> float:
    """What a rank sends in a ring. A reduce-scatter is noted by its result, which is a part."""
    size, ranks = call["bytes"], len(call["ranks"])
    if "gather" in call["name"]:
        return size * (ranks - 1) / ranks
    if "scatter" in call["name"]:
        return size * (ranks - 1)
    return 2 * size * (ranks - 1) / ranks if "reduce" in call["name"] else size


def table(every: Sequence[Calls], rank: int) -> str:
    """Whom a rank talks to: "rank 0 sent 2696 bytes inside of its node and 5392 to the other one"."""
    inside = sum(bytes_sent(call) for call in every[rank] if not over_nodes(call["ranks"]))
    between = sum(bytes_sent(call) for call in every[rank] if over_nodes(call["ranks"]))
    return f"rank {rank} sent {inside:.0f} bytes inside of its node and {between:.0f} between nodes"


def judge_gather(look: Look, every: Sequence[Calls]) -> None:
    place = look(r"gather")
    for rank, calls in enumerate(every):
        if not calls:
            raise Diagnosis(
                "not-gathered",
                saw=f"rank {rank} called no collective in gather().",
                means="It has its shard only: the rest comes from the other ranks of its node.",
                look=place,
            )
        for call in calls:
            if over_nodes(call["ranks"]):
                everyone = sorted(call["ranks"]) == EVERYONE
                raise Diagnosis(
                    "gathered-over-all-ranks" if everyone else "gathered-over-the-wrong-group",
                    saw=f"in gather() rank {rank} called {call['name'].strip('_')} with ranks {call['ranks']}.",
                    means=f"Its node, {node_of(rank)}, has all shards between them: nothing need leave it.",
                    look=place,
                )


def judge_reduce(look: Look, every: Sequence[Calls], shard: int) -> None:
    """`shard`: its bytes."""
    for rank, calls in enumerate(every):
        said = ", ".join(f"{call['name'].strip('_')} with {call['ranks']}" for call in calls) or "nothing"
        saw = f"in reduce() rank {rank} called {said}."
        scatters = [call for call in calls if "scatter" in call["name"]]
        others = [call for call in calls if "scatter" not in call["name"]]
        if wrong := [call for call in scatters if over_nodes(call["ranks"])]:
            everyone = sorted(wrong[0]["ranks"]) == EVERYONE
            raise Diagnosis(
                "scattered-over-all-ranks" if everyone else "scattered-over-the-wrong-group",
                saw=saw,
                means=f"Its shard is one of its node's, {node_of(rank)}: the reduce-scatter stays in there.",
                look=look(r"scatter"),
            )
        if any(sorted(call["ranks"]) == EVERYONE for call in others):
            raise Diagnosis(
                "all-reduce-over-all-ranks",
                saw=saw,
                means="Ranks of one node have different parts: only those at the same position may add theirs up.",
                look=look(r"all_reduce", r"reduce"),
            )
        if not any(over_nodes(call["ranks"]) for call in others):
            summed = any("allreduce" in call["name"] for call in others)
            raise Diagnosis(
                "all-reduce-inside-the-node" if summed else "no-all-reduce",
                saw=saw,
                means="The nodes are replicas: the same part on all of them becomes the sum over all.",
                look=look(r"all_reduce", r"scatter"),
            )
    for rank, calls in enumerate(every):
        between = sum(bytes_sent(call) for call in calls if over_nodes(call["ranks"]))
        inside = sum(bytes_sent(call) for call in calls if not over_nodes(call["ranks"]))
        if between > 1.1 * shard:
            raise Diagnosis(
                "whole-between-nodes",
                saw=f"in reduce() {table(every, rank)}; a shard has {shard}.",
                means="Reduce-scatter first: then a rank sends its part over the slow links, and not all of it.",
                look=look(r"all_reduce", r"reduce"),
            )
        if inside > 1.1 * shard:
            raise Diagnosis(
                "too-many-bytes-inside",
                saw=f"in reduce() {table(every, rank)}; a shard has {shard}.",
                means="A reduce-scatter sends each rank its part and no more.",
                look=look(r"all_reduce|gather|scatter", r"reduce"),
            )


def judge_waited(look: Look, counts: Sequence[Sequence[int]]) -> None:
    """counts[rank]: how many collectives of gather(), and of reduce(), nobody waited for."""
    for rank, own in enumerate(counts):
        for name, count in zip(("gather", "reduce"), own, strict=True):
            if count:
                raise Diagnosis(
                    "not-waited",
                    saw=f"in {name}() rank {rank} did not wait() for {count} of its collectives.",
                    means="With async_op=True it has only begun: before its wait() the result may be missing.",
                    look=look.into(f"MyHSDP.{name}")(r"async_op *= *True", r"async_op", r"gather|reduce"),
                )


def judge_begun(look: Look, lines: Sequence[Sequence[int]]) -> None:
    """What the second collective of reduce() takes is what the first has made, so that has ended."""
    for rank, own in enumerate(lines):
        if own:
            raise Diagnosis(
                "begun-too-early",
                saw=f"in reduce() rank {rank} began a collective of a tensor that another was still filling.",
                means="It takes what the first one makes: wait() for that, and begin the second then.",
                look=look.line(own[0]),
            )
