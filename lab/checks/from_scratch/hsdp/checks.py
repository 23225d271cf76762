"""Check of 9.7: a model that is sharded inside of each of two nodes, which are replicas of each other."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from lab.base.source import searchable
from lab.checks.common.look import Look, line_of
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT, fresh_generator
from lab.checks.from_scratch.hsdp.judge import POSITION, draw, judge, sent, twin
from lab.checks.from_scratch.hsdp.judge_apart import judge_apart
from lab.checks.from_scratch.hsdp.net import PER_NODE, RANKS
from lab.checks.from_scratch.hsdp.observe import train, train_apart
from lab.checks.from_scratch.hsdp.places import listed_at
from lab.grading.check import Group, Order, check
from lab.grading.diagnosis import Diagnosis

GATHERED = "The result has a shard for each rank of the group. Without group= it is the group of all ranks."
SCATTERED = "Each rank of the group gets a part of what is reduced. Without group= it is the group of all ranks."
UNUSED = (
    "A parameter that had no part in the loss has no gradient: on other ranks it may have one, so here it is 0."
)

PADDING = (
    "The last shard may end in zeros that only make its length even: what is split is the rest, whole[: sum]."
)


IN_OTHERS = "Each rank is in one node and in one column: lists that overlap, or leave one out, put it in others."


@contextmanager
def in_other_groups(look: Look) -> Iterator[None]:
    """Tell of the lists where make_groups() has looked for the two that a rank is in, and found others."""
    try:
        yield
    except Diagnosis as told:
        _, _, node = look.source()
        inside = node is not None and node.lineno <= line_of(told.look) <= (node.end_lineno or 0)
        if told.name != "raised" or not inside or not re.search(r"values to unpack", searchable(told.saw)):
            raise
        place = listed_at(look, last=True) or told.look
        raise Diagnosis("rank-in-other-groups", saw=told.saw, means=IN_OTHERS, look=place) from None


@check("9.7", "two nodes of two ranks: shards inside of a node, one all-reduce of them between nodes")
def shards_in_nodes(group: Group) -> None:
    drawn = draw(fresh_generator())
    look = Look(group.code, "from_scratch/hsdp.py", "make_groups")
    gather, reduce = look.into("MyHSDP.gather"), look.into("MyHSDP.reduce")
    gathered = retold(
        r"allgather: invalid tensor size|output tensor size must be equal to world_size times",
        "gathered-over-other-size",
        GATHERED,
        look=gather(r"gather"),
    )
    scattered = retold(
        r"outputShape|input tensor must be the same size as output size times",
        "scattered-over-other-size",
        SCATTERED,
        saw="what {rank} reduce-scatters is not a shard for each rank of the group.",
        look=reduce(r"scatter"),
    )
    whole = -(-sum(one.numel() for one in drawn.weights[0]) // PER_NODE) * PER_NODE
    fewer = retold(  # gloo compares the shard times the ranks of the group with what it was given
        rf"outputShape.*\({whole} vs\. (?!{whole}\))",
        "unused-parameter",
        UNUSED,
        saw="what {rank} reduce-scatters has fewer numbers than the parameters.",
        look=reduce(r"grad is not None|if .*grad", r"joined", r"\.grad\b"),
    )
    unused = retold(r"NoneType", "unused-parameter", UNUSED, look=reduce(r"\.grad\b"))
    padding = retold(
        r"split_sizes to sum exactly|invalid for input of size|split_with_sizes",
        "padding-in-last-part",
        PADDING,
        saw="{rank} splits the whole with its padding into the parameters.",
        look=gather(r"split", r"view"),
    )
    beyond = retold(
        r"index out of range",
        "rank-as-position",
        POSITION,
        look=look.into("MyHSDP.__init__")(r"get_rank\((group=None)?\)", r"get_rank"),
    )
    nobody = retold(
        r"Rank \d+ is out of range|new group's rank",
        "ranks-that-are-not-there",
        "The same position of two nodes that follow each other is as many ranks apart as a node has.",
        saw="make_groups() makes a group with a rank that there is not.",
        found=lambda place: listed_at(look, line=line_of(place), last=True) or place,
    )
    with in_other_groups(look), nobody, beyond, gathered, scattered, fewer, unused, padding:
        reports = group.observe(Order(train, RANKS, sent(drawn), timeout=LIMIT))
    judge(look, reports, drawn)
    right = twin(drawn)
    apart = group.observe(Order(train_apart, RANKS, sent(drawn), timeout=LIMIT))
    judge_apart(look, apart, right.weights[0], right.gradients[0])
