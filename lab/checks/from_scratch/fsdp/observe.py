"""What ranks observe of MyFSDP: shards, steps, collectives, and how much memory is alive at most."""

from typing import Any

import torch
import torch.distributed as dist

from lab.checks.from_scratch.fsdp.net import Net, loss_of
from lab.checks.from_scratch.live import LiveBytes
from lab.checks.from_scratch.traffic import Traffic, waits_noted
from lab.ranks.rank import Rank

RATE = 0.1


def train(rank: Rank) -> dict[str, Any]:
    """Two steps of SGD, an evaluation, and one step with blocks in bf16."""
    fsdp = rank.student("from_scratch.fsdp")
    given = rank.receive()
    inputs = given["inputs"][rank.rank]
    model = fsdp.MyFSDP(Net(given["weights"][rank.rank]))
    report: dict[str, Any] = {"start": copied(model)}
    parameters = list(model.parameters())
    report["elements"] = [parameter.numel() for parameter in parameters]
    report["kept"] = [p.untyped_storage().nbytes() // p.element_size() for p in parameters]
    report["order"] = blocks_of(model)
    optimizer = torch.optim.SGD(parameters, lr=RATE)
    dist.barrier()
    with Traffic() as traffic, waits_noted() as waits, LiveBytes() as live:
        loss = loss_of(model(inputs[0]))
        forward, resting = len(traffic.calls), live.peak
        loss.backward()
        backward = len(traffic.calls)
        waits.clear()
        model.finish()
        waited = len(waits)
    report |= {
        "forward": traffic.calls[:forward],
        "backward": traffic.calls[forward:backward],
        "finish": traffic.calls[backward:],
        "waited": waited,
        "forward peak": resting,
        "peak": live.peak,
        "gradients": [None if p.grad is None else [p.grad.numel(), str(p.grad.dtype)] for p in parameters],
    }
    optimizer.step()
    report["after one"] = copied(model)
    optimizer.zero_grad()
    for part in inputs[1]:  # two micro-batches
        loss_of(model(part)).backward()
    model.finish()
    optimizer.step()
    report["after two"] = copied(model)
    with torch.no_grad():
        report["evaluated"] = model(inputs[0]).detach().clone()
    dist.barrier()
    net = Net(given["weights"][rank.rank])
    low = fsdp.MyFSDP(net, torch.bfloat16)
    loss = loss_of(low(inputs[0].bfloat16()))
    loss.backward()
    low.finish()
    return report | {
        "bf16 seen": net.seen,
        "bf16 shards": sorted({str(p.dtype) for p in low.parameters()}),
        "bf16 gradients": sorted({"None" if p.grad is None else str(p.grad.dtype) for p in low.parameters()}),
    }


def copied(model: Any) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in model.full_state_dict().items()}


def blocks_of(model: Any) -> list[int]:
    """For each of model.units the number of the block that it belongs to; that of no block for what is left."""
    blocks = [set(block.modules()) for block in model.module.blocks]
    owners = [unit.places[0][0] for unit in model.units]
    return [next((i for i, block in enumerate(blocks) if owner in block), len(blocks)) for owner in owners]
