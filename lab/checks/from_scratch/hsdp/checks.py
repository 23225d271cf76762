"""Check of 9.7: a model that is sharded inside of each of two nodes, which are replicas of each other."""

from lab.checks.common.look import Look
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT, fresh_generator
from lab.checks.from_scratch.hsdp.judge import draw, judge, sent
from lab.checks.from_scratch.hsdp.net import RANKS
from lab.checks.from_scratch.hsdp.observe import train
from lab.grading.check import Group, Order, check

GATHERED = "The result has a shard for each rank of the group. Without group= it is the group of all ranks."
SCATTERED = "Each rank of the group gets a part of what is reduced. Without group= it is the group of all ranks."
UNUSED = (
    "A parameter that had no part in the loss has no gradient: on other ranks it may have one, so here it is 0."
)


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
        look=reduce(r"scatter"),
    )
    unused = retold(r"NoneType", "unused-parameter", UNUSED, look=reduce(r"\.grad\b"))
    with gathered, scattered, unused:
        reports = group.observe(Order(train, RANKS, sent(drawn), timeout=LIMIT))
    judge(look, reports, drawn)
