"""What ranks observe of MyDDP: how it begins, two steps, and every collective on the way."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from lab.checks.from_scratch.ddp.net import Net, gradients, loss_of
from lab.checks.from_scratch.traffic import Traffic, waits_noted
from lab.ranks.rank import Rank


def train(rank: Rank) -> dict[str, Any]:
    """One step; then one of two micro-batches, of which the first is in no_sync()."""
    ddp = rank.student("from_scratch.ddp")
    given = rank.receive()
    net = Net(given["weights"][rank.rank])
    seldom = rank.rank == 1  # rank 0 never uses that layer
    inputs = given["inputs"][rank.rank]
    traffic = Traffic()
    before_last: list[int] = []  # collectives that had been called when the last gradient was there
    net.first.weight.register_post_accumulate_grad_hook(lambda _: before_last.append(len(traffic.calls)))
    model = ddp.MyDDP(net, bucket_cap_mb=given["cap_mb"])
    report: dict[str, Any] = {"start": {name: value.clone() for name, value in net.state_dict().items()}}
    dist.barrier()

    with traffic, waits_noted() as waits:
        loss = loss_of(model(inputs[0], seldom=seldom))
        forward = len(traffic.calls)
        waits.clear()
        loss.backward()
        backward, waited = len(traffic.calls), len(waits)
        model.finish()
    calls = traffic.calls[forward:]
    report |= {
        "calls": calls,
        "in backward": backward - forward,
        "before last": (before_last or [forward])[0] - forward,
        "waited in backward": waited,
        "waits": len(waits),
        "gradients": gradients(net),
        "storages": storages(net),
    }
    dist.barrier()

    model.zero_grad()
    with Traffic() as quiet, model.no_sync():
        loss_of(model(inputs[1], seldom=True)).backward()
        model.finish()
    report |= {"quiet calls": quiet.calls, "quiet gradients": gradients(net)}
    net.scale += rank.rank  # as BatchNorm's statistics differ after a step
    dist.barrier()
    before_last.clear()
    traffic.calls.clear()
    with traffic:
        output = model(inputs[2], seldom=seldom)
        report["scale"] = float(net.scale)
        forward = len(traffic.calls)
        loss_of(output).backward()
        model.finish()
    return report | {
        "second before last": (before_last or [forward])[0] - forward,
        "second gradients": gradients(net),
    }


def storages(model: nn.Module) -> int:
    """In how many pieces of memory the gradients lie."""
    found = [p.grad for p in model.parameters() if p.grad is not None]
    return len({torch.Tensor.untyped_storage(gradient).data_ptr() for gradient in found})
