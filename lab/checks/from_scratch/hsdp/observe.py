"""What ranks observe of MyHSDP: their groups, what goes over which, what is kept, and two steps' gradients."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lab.checks.from_scratch.hsdp.groups import Unlike, on_all, wanted, watched
from lab.checks.from_scratch.hsdp.net import APART, PER_NODE, RANKS, RATE, build, loss_of
from lab.checks.from_scratch.live import LiveBytes
from lab.checks.from_scratch.traffic import Traffic, waits_noted
from lab.checks.from_scratch.unfinished import used_early
from lab.ranks.rank import Rank


def train(rank: Rank) -> dict[str, Any]:
    """Two steps of SGD."""
    hsdp = rank.student("from_scratch.hsdp")
    given = rank.receive()
    asked_for = []  # how many ranks a node, last

    def make_groups(ranks_per_node: int) -> Any:
        asked_for.append(ranks_per_node)
        return hsdp.make_groups(ranks_per_node)

    try:
        with watched():
            one_node = [members(group) for group in make_groups(RANKS)]
            groups = make_groups(PER_NODE)
        with watched():  # by itself: no rank that lacks a group above meets one of these
            alone = [members(group) for group in make_groups(1)]
    except Unlike as unlike:
        return {"asked": unlike.asked, "all": wanted(hsdp.make_groups, asked_for[-1])}
    report: dict[str, Any] = {"one node": one_node, "nodes of one": alone}
    report["groups"] = [members(group) for group in groups]
    if not on_all(all(report["groups"])):
        return report  # nobody can work in a group that it is not in
    inputs = given["inputs"][rank.rank]
    net = build(given["weights"][rank.rank])
    with LiveBytes(hsdp.__file__, within=("joined",)) as live:
        model = hsdp.MyHSDP(net, *groups)
        report |= {
            "start": model.shard.tolist(),
            "kept": model.shard.untyped_storage().nbytes() // model.shard.element_size(),
            "whole at start": list(held(net)),
        }
        length = -(-sum(parameter.numel() for parameter in given["weights"][0]) // PER_NODE)
        if not on_all(model.shard.numel() == length):
            return report  # gather() could only fail
        report |= step(model, net, inputs[0], rank.rank, hsdp.__file__)
        if "gradient" not in report:
            return report
        report |= {"alive": live.now(), "largest": live.largest(), "whole after": list(held(net))}
    optimizer = torch.optim.SGD([model.shard], lr=RATE)
    optimizer.step()
    again = step(model, net, inputs[1], rank.rank)
    return report | {"second gradient": again.get("gradient"), "gathered again": again["gathered"]}


def train_apart(rank: Rank) -> dict[str, Any]:
    """A step on one node of all ranks, and one on nodes of one rank each."""
    hsdp = rank.student("from_scratch.hsdp")
    given = rank.receive()
    report = {}
    for key, per_node in APART.items():
        net = build(given["weights"][rank.rank])
        model = hsdp.MyHSDP(net, *hsdp.make_groups(per_node))
        once = step(model, net, given["inputs"][rank.rank][0], rank.rank)
        report[key] = {
            "gathered": len(once["gathered"]),
            "gradient": once.get("gradient"),
            "whole after": list(held(net)),
        }
    return report


def step(model: Any, net: Any, x: Tensor, rank: int, file: str | None = None) -> dict[str, Any]:
    """Gather, forward, backward, reduce. Numbers are in lists: tensors would count as alive."""
    asking = ("wait", "is_completed", "get_future")  # what says when the result of a collective is there
    with Traffic() as before, waits_noted(*asking) as gathering:
        model.gather()
    gathered = [number for parameter in net.parameters() for number in parameter.flatten().tolist()]
    if not on_all(len(gathered) == sum(shape.numel() for shape in model.shapes)):
        return {"gathered": gathered}  # what is empty cannot compute
    with Traffic() as after, waits_noted(*asking) as reducing, used_early(file) as early:
        loss_of(net, x, rank).backward()
        model.reduce()
    gradient = model.shard.grad
    return {
        "gathered": gathered,
        "gather calls": before.calls,
        "reduce calls": after.calls,
        "not waited": [max(0, len(before.calls) - len(gathering)), max(0, len(after.calls) - len(reducing))],
        "begun early": early.begun,
        "gradient": None if gradient is None else gradient.tolist(),
    }


def members(group: Any) -> list[int]:
    """Its ranks; none where this rank is not in it, for which new_group() gives a number in place of a group."""
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        return []
    return list(dist.get_process_group_ranks(group))


def held(net: Any) -> tuple[int, int]:
    """The numbers that parameters keep in memory, and those that their gradients do."""
    return numbers(p.data for p in net.parameters()), numbers(
        p.grad for p in net.parameters() if p.grad is not None
    )


def numbers(tensors: Iterable[Tensor]) -> int:
    storages = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in tensors}
    return sum(storages.values()) // 4
