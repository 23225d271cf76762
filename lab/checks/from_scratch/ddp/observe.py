"""What ranks observe of MyDDP: how it begins, two steps, and every collective on the way."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lab.checks.from_scratch.ddp.net import Net, gradients, loss_of, tensors
from lab.checks.from_scratch.held import callbacks_held
from lab.checks.from_scratch.traffic import Traffic, waits_noted
from lab.ranks.rank import Rank


class Touched(TorchDispatchMode):
    """Counts the changes of tensors whose all-reduce has begun, until one is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.waits: list[int] = []
        self._travelling: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = next((one for one in tree_leaves(args) if isinstance(one, torch.Tensor)), None)
        if first is not None and func.namespace == "c10d":
            self._travelling.add(first.untyped_storage()._cdata)
        elif first is not None and func._schema.is_mutable and not self.waits:
            self.count += first.untyped_storage()._cdata in self._travelling
        return func(*args, **(kwargs or {}))


def train(rank: Rank) -> dict[str, Any]:
    """One step; one of two micro-batches, of which the first is in no_sync(); one with other layers."""
    ddp = rank.student("from_scratch.ddp")
    given = rank.receive()
    net = Net(given["weights"][rank.rank])
    seldom = rank.rank == 1  # rank 0 uses neither that layer nor `shift`
    inputs = given["inputs"][rank.rank]
    traffic = Traffic()
    before_last: list[int] = []  # collectives that had been called when the last gradient was there
    net.first.weight.register_post_accumulate_grad_hook(lambda _: before_last.append(len(traffic.calls)))
    model = ddp.MyDDP(net, bucket_cap_mb=given["cap_mb"])
    report: dict[str, Any] = {"start": {name: value.clone() for name, value in tensors(net).items()}}
    dist.barrier()

    with waits_noted() as waits, callbacks_held(ddp.__file__, waits) as held, traffic, Touched() as touched:
        touched.waits = waits
        loss = loss_of(model(inputs[0], seldom=seldom))
        forward = len(traffic.calls)
        waits.clear()
        loss.backward()
        backward, waited = len(traffic.calls), len(waits)
        ready = counted(model)
        model.finish()
        found, late = gradients(net), held.lines()
    calls = traffic.calls[forward:]
    report |= {
        "calls": calls,
        "in backward": backward - forward,
        "before last": (before_last or [forward])[0] - forward,
        "waited in backward": waited,
        "waits": len(waits),
        "touched": touched.count,
        "ready": ready,
        "left": counted(model),
        "gradients": found,
        "late callbacks": late,
        "storages": storages(net),
    }
    dist.barrier()

    model.zero_grad()
    with Traffic() as quiet, model.no_sync():
        loss_of(model(inputs[1], seldom=True)).backward()
        backward = len(quiet.calls)
        model.finish()
    report |= {
        "quiet calls": quiet.calls,
        "quiet in backward": backward,
        "quiet ready": counted(model),
        "quiet gradients": gradients(net),
    }
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
    report |= {
        "second before last": (before_last or [forward])[0] - forward,
        "second gradients": gradients(net),
    }
    model.zero_grad()
    output = model(inputs[3], seldom=not seldom, head=not seldom)
    with Traffic() as third:
        loss_of(output).backward()
    model.finish()
    return report | {"third gradients": gradients(net), "third in backward": len(third.calls)}


def counted(model: Any) -> list[int]:
    """How many gradients each bucket has counted."""
    return [int(getattr(bucket, "ready", 0)) for bucket in model.buckets]


def storages(model: nn.Module) -> int:
    """In how many pieces of memory the gradients lie."""
    found = [p.grad for p in model.parameters() if p.grad is not None]
    return len({torch.Tensor.untyped_storage(gradient).data_ptr() for gradient in found})
