"""What ranks observe of MyFSDP: shards, steps, collectives, and how much memory is alive at most."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lab.checks.from_scratch.fsdp.net import Net, loss_of
from lab.checks.from_scratch.live import LiveBytes
from lab.checks.from_scratch.origin import lines_on_the_way
from lab.checks.from_scratch.traffic import Traffic, waited_for, waits_noted
from lab.ranks.rank import Rank

RATE = 0.1


# In place of what is observed in bf16, where its shards are in another type, or parameters in no unit.
IN_NO_UNIT = {"bf16 seen": ["float32"], "bf16 scattered": 0, "bf16 gradients": []}


class Scattered(TorchDispatchMode):
    """The memory of what is given to a reduce-scatter in its context.

    changed: the lines of the student's file that then write to it, or to what the sum comes into.
    """

    def __init__(self, file: str | None) -> None:
        super().__init__()
        self.given: list[torch.UntypedStorage] = []
        self.changed: list[int] = []
        self._file, self._busy = file, set[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = args[0] if args else None
        if func.namespace == "c10d" and "reduce_scatter" in func.overloadpacket.__name__ and len(args) > 1:
            tensors = [one for one in tree_leaves(args[1]) if isinstance(one, torch.Tensor)]
            self.given += [one.untyped_storage() for one in tensors]
            into = [one for one in tree_leaves(first) if isinstance(one, torch.Tensor)]
            self._busy |= {one.untyped_storage().data_ptr() for one in [*tensors, *into]}
        elif (
            func._schema.is_mutable
            and isinstance(first, torch.Tensor)
            and first.untyped_storage().data_ptr() in self._busy
        ):
            self.changed += [line for _, line in lines_on_the_way(self._file)[:1]]
        return func(*args, **(kwargs or {}))


def train(rank: Rank) -> dict[str, Any]:
    """Two steps of SGD, an evaluation, and one step with blocks in bf16."""
    fsdp = rank.student("from_scratch.fsdp")
    given = rank.receive()
    inputs = given["inputs"][rank.rank]
    unwaited: list[int] = []
    net = Net(given["weights"][rank.rank])
    with waited_for(fsdp.__file__, unwaited), forward_hooks(net, fsdp.__file__) as hooks:
        model = fsdp.MyFSDP(net)
    report: dict[str, Any] = {"start": copied(model), "unwaited": unwaited, "root hooks": hooks}
    parameters = list(model.parameters())
    report["elements"] = [parameter.numel() for parameter in parameters]
    report["kept"] = [p.untyped_storage().nbytes() // p.element_size() for p in parameters]
    report["order"] = blocks_of(model)
    report["in no unit"] = [name for name, _ in model.module.named_parameters()]
    optimizer = torch.optim.SGD(parameters, lr=RATE)
    lacking = watch_gathers(model, fsdp.__file__, unwaited)
    dist.barrier()
    with Traffic() as traffic, waits_noted() as waits, LiveBytes() as live:
        reductions = watch_reductions(model, waits, fsdp.__file__)
        try:
            output = model(inputs[0])
        except (
            AttributeError
        ):  # a layer is without its parameters: is there a unit that was gathered before its turn?
            gathered = [number for number, unit in enumerate(model.units) if unit.whole is not None]
            if len(gathered) != 2 or gathered[0] == 0 or gathered[1] != len(model.units) - 1:
                raise
            return {"gathered": gathered}
        loss = loss_of(output)
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
        "waited in reduce": sum(waited for waited, _, _, _ in reductions),
        "kept in pending": [kept for _, kept, _, _ in reductions],
        "not in pending": sum(lost for _, _, lost, _ in reductions),
        "changed under way": [line for _, _, _, lines in reductions for line in lines],
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
    watch_gathers(low, fsdp.__file__, unwaited)
    report["not filled"] = len(lacking)
    report["bf16 shards"] = sorted({str(p.dtype) for p in low.parameters()})
    if report["bf16 shards"] != ["torch.float32"]:
        return report | IN_NO_UNIT  # gloo reduces into no other type than it is given
    with Traffic() as low_traffic:
        try:
            loss = loss_of(low(inputs[0].bfloat16()))
        except RuntimeError:
            if not list(net.parameters()):
                raise
            return report | IN_NO_UNIT  # what is in no unit is still in fp32, and all else in bf16
        low_traffic.calls.clear()
        loss.backward()
        low.finish()
    return report | {
        "bf16 seen": net.seen,
        "bf16 scattered": sum(call["bytes"] for call in low_traffic.calls if "scatter" in call["name"]),
        "bf16 gradients": sorted({"None" if p.grad is None else str(p.grad.dtype) for p in low.parameters()}),
    }


@contextmanager
def forward_hooks(module: torch.nn.Module, file: str | None) -> Iterator[list[int]]:
    """The lines of the file that register what is to be called behind this module's own forward pass."""
    lines: list[int] = []
    original = torch.nn.Module.register_forward_hook

    def register(one: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if one is module:
            lines.extend(line for _, line in lines_on_the_way(file)[:1])
        return original(one, *args, **kwargs)

    with mock.patch.object(torch.nn.Module, "register_forward_hook", register):
        yield lines


def watch_gathers(model: Any, file: str | None, unwaited: list[int]) -> list[Any]:
    """What a Unit.fill() to come has begun has ended when it returns, so that what it fills can be freed.

    Returns a list that gets the unit of each after which what was to be filled has no part with the own shard.

    unwaited: gets the lines that began what it had not waited for.
    """
    lacking: list[Any] = []

    def watched(unit: Any, fill: Any) -> Any:
        def call(whole: torch.Tensor) -> None:
            with waited_for(file, unwaited):
                fill(whole)
            shard = unit.shard.detach()
            there = whole.untyped_storage().nbytes() >= whole.nbytes
            if there and not holds(whole.detach(), shard.to(whole.dtype)):
                lacking.append(unit)

        return call

    for unit in model.units:
        unit.fill = watched(unit, unit.fill)
    return lacking


def holds(whole: torch.Tensor, shard: torch.Tensor) -> bool:
    """Whether one of its equal parts is this."""
    ranks = dist.get_world_size()
    return whole.numel() != ranks * shard.numel() or any(
        torch.equal(part, shard.flatten()) for part in whole.flatten().chunk(ranks)
    )


def watch_reductions(model: Any, waits: list[int], file: str | None) -> list[tuple[int, int, int, list[int]]]:
    """For each Unit.reduce() to come: how often it waits, how many shards long unit.pending is then, how much of
    what it has given to the reduce-scatter is not in there, and the lines that change what is under way."""
    noted: list[tuple[int, int, int, list[int]]] = []

    def watched(unit: Any, reduce: Any) -> Any:
        def call(gradient: torch.Tensor) -> None:
            first = len(waits)
            with Scattered(file) as scattered:
                reduce(gradient)
            kept = [one for one in tree_leaves(unit.pending) if isinstance(one, torch.Tensor)]
            memory = {one.data_ptr(): one.numel() for one in kept}
            alive = {one.untyped_storage().data_ptr() for one in kept}
            lost = sum(one.data_ptr() not in alive for one in scattered.given)
            length = sum(memory.values()) // unit.shard.numel()
            noted.append((len(waits) - first, length, lost, scattered.changed))

        return call

    for unit in model.units:
        unit.reduce = watched(unit, unit.reduce)
    return noted


def copied(model: Any) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in model.full_state_dict().items()}


def blocks_of(model: Any) -> list[int]:
    """For each of model.units the number of the block that it belongs to; that of no block for what is left."""
    blocks = [set(block.modules()) for block in model.module.blocks]
    owners = [unit.places[0][0] for unit in model.units]
    return [next((i for i, block in enumerate(blocks) if owner in block), len(blocks)) for owner in owners]
