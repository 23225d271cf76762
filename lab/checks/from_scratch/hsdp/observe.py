"""What ranks observe of MyHSDP: their groups, what goes over which, what is kept, and two steps' gradients."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lab.checks.from_scratch.hsdp.groups import Unlike, watched
from lab.checks.from_scratch.hsdp.net import PER_NODE, RANKS, RATE, build, loss_of
from lab.checks.from_scratch.live import LiveBytes
from lab.checks.from_scratch.traffic import Traffic
from lab.ranks.rank import Rank


def train(rank: Rank) -> dict[str, Any]:
    """Two steps of SGD."""
    hsdp = rank.student("from_scratch.hsdp")
    given = rank.receive()
    try:
        with watched():
            one_node = [members(group) for group in hsdp.make_groups(RANKS)]
            groups = hsdp.make_groups(PER_NODE)
        with watched():  # by itself: no rank that lacks a group above meets one of these
            alone = [members(group) for group in hsdp.make_groups(1)]
    except Unlike as unlike:
        return {"asked": unlike.asked}
    report: dict[str, Any] = {"one node": one_node, "nodes of one": alone}
    report["groups"] = [members(group) for group in groups]
    inputs = given["inputs"][rank.rank]
    net = build(given["weights"][rank.rank])
    with LiveBytes() as live:
        model = hsdp.MyHSDP(net, *groups)
        report |= {
            "start": model.shard.tolist(),
            "kept": model.shard.untyped_storage().nbytes() // model.shard.element_size(),
            "whole at start": held(net),
        }
        if model.shard.numel() != -(-sum(parameter.numel() for parameter in given["weights"][0]) // PER_NODE):
            return report  # gather() could only fail
        dist.barrier()
        report |= step(model, net, inputs[0], rank.rank)
        report |= {"alive": live.now(), "whole after": held(net)}
    optimizer = torch.optim.SGD([model.shard], lr=RATE)
    optimizer.step()
    again = step(model, net, inputs[1], rank.rank)
    return report | {"second gradient": again["gradient"], "gathered again": again["gathered"]}


def step(model: Any, net: Any, x: Tensor, rank: int) -> dict[str, Any]:
    """Gather, forward, backward, reduce. Numbers are in lists: tensors would count as alive."""
    with Traffic() as before:
        model.gather()
    gathered = [number for parameter in net.parameters() for number in parameter.flatten().tolist()]
    with Traffic() as after:
        loss_of(net, x, rank).backward()
        model.reduce()
    gradient = model.shard.grad
    return {
        "gathered": gathered,
        "gather calls": before.calls,
        "reduce calls": after.calls,
        "gradient": None if gradient is None else gradient.tolist(),
    }


def members(group: Any) -> list[int]:
    return list(dist.get_process_group_ranks(group))


def held(net: Any) -> int:
    """The numbers that parameters and their gradients keep in memory."""
    tensors = [
        one for parameter in net.parameters() for one in (parameter.data, parameter.grad) if one is not None
    ]
    storages = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in tensors}
    return sum(storages.values()) // 4
