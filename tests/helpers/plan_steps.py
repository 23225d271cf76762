"""In a rank: one training step of a network, spread in one of the planner's ways, and what was sent in it."""

import gc
import math
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from lab.checks.from_scratch.live import LiveBytes

# Which of an operation's tensors are the whole that it is about: the gathered output, the input to be scattered.
NAMES = {
    "allreduce_": ("all-reduce", 0),
    "all_reduce": ("all-reduce", 0),
    "all_reduce_": ("all-reduce", 0),
    "_allgather_base_": ("all-gather", 0),
    "_reduce_scatter_base_": ("reduce-scatter", 1),
    "broadcast_": ("broadcast", 0),
    "send": ("send", 0),
}
IGNORED = {"wait_tensor", "_wrap_tensor_autograd", "recv_", "monitored_barrier_", "barrier"}


class Listener(TorchDispatchMode):
    """Bytes and calls of each collective that a rank dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if func.namespace in ("c10d", "_c10d_functional") and name not in IGNORED:
            collective, whole = NAMES[name]  # one that is not known shall fail the test
            tensors = [leaf for leaf in tree_leaves(args[whole]) if isinstance(leaf, torch.Tensor)]
            self.bytes[collective] += sum(tensor.nbytes for tensor in tensors)
            self.calls[collective] += 1
        return func(*args, **(kwargs or {}))


def listened(step, held: int = 0) -> dict:
    with Listener() as listener:
        step()
    return {"bytes": dict(listener.bytes), "calls": dict(listener.calls), "held": held}


def made(model: str, options: dict, batch: int):
    from model import build_model

    torch.manual_seed(0)
    return build_model(model, **options), torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))


def trained(network: nn.Module, images, labels, optimizer, precision: str, autocast: bool):
    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast and precision == "bf16"):
            loss = nn.functional.cross_entropy(network(images).float(), labels)
        loss.backward()
        optimizer.step()

    return step


def ddp(rank, model, options, precision, batch, zero=False):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    from ddp_utils import get_ddp_model

    network, images, labels = made(model, options, batch)
    wrapped = get_ddp_model(network, torch.device("cpu"))
    wrapped.broadcast_buffers = (
        False  # as a run of the lab has it: once before an evaluation, not before each step
    )
    wrapped.require_forward_param_sync = False
    make = torch.optim.Adam
    optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), make) if zero else make(wrapped.parameters())
    step = trained(wrapped, images, labels, optimizer, precision, autocast=True)
    step()
    step()  # the buckets are laid out anew before the second
    held = sum(p.numel() for p in optimizer.optim.state) if zero else 0
    return listened(step, held)


def zero(rank, *arguments):
    return ddp(rank, *arguments, zero=True)


def fsdp(rank, model, options, precision, batch, shards=None, grad=False):
    from torch.distributed.fsdp import FSDPModule

    from fsdp_utils import get_fsdp_model

    network, images, labels = made(model, options, batch)
    wrapped = get_fsdp_model(network, torch.device("cpu"), precision=precision, shards=shards)
    if grad:
        for module in wrapped.modules():
            if isinstance(module, FSDPModule):
                module.set_reshard_after_forward(False, recurse=False)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01, momentum=0.9)
    return listened(trained(wrapped, images, labels, optimizer, precision, autocast=False))


def grad(rank, *arguments):
    return fsdp(rank, *arguments, grad=True)


def hybrid(rank, *arguments):
    return fsdp(rank, *arguments, shards=2)


def tensor(rank, model, options, precision, batch):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    network, images, labels = made(model, options, batch)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in network.blocks:
        # Query, key and value lie one after the other in one layer: columns of each go to every rank.
        parallelize_module(
            block,
            mesh,
            {"mlp.0": ColwiseParallel(), "mlp.2": RowwiseParallel(), "attention.out": RowwiseParallel()},
        )
        parallelize_module(block, mesh, {"attention.query_key_value": ColwiseParallel()})
    local = [p.to_local() if isinstance(p, DTensor) else p for p in network.parameters()]
    held = sum(p.numel() for p in local)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, foreach=False)
    step = trained(network, images, labels, optimizer, precision, autocast=False)
    return listened(step, held)


def pipeline(rank, model, options, precision, batch, micro):
    """GPipe by hand: the blocks of this stage, activations to the next, their gradients back."""
    network, images, labels = made(model, options, batch)
    size, last = dist.get_world_size(), dist.get_world_size() - 1
    number = dist.get_rank()
    each = math.ceil(len(network.blocks) / size)
    blocks = list(network.blocks)[number * each : (number + 1) * each]
    tokens = network.position.shape[1:]

    def step():
        kept = []
        for part, target in zip(images.chunk(micro), labels.chunk(micro), strict=True):
            if number == 0:
                x = network.patches(part).flatten(2).transpose(1, 2) + network.position
            else:
                x = torch.empty(len(part), *tokens)
                dist.recv(x, number - 1)
                x.requires_grad_()
            out = x
            for block in blocks:
                out = block(out)
            if number < last:
                dist.send(out.detach().contiguous(), number + 1)
            else:
                out = nn.functional.cross_entropy(network.head(network.norm(out).mean(1)), target)
            kept.append((x, out))
        for x, out in kept:
            gradient = None
            if number < last:
                gradient = torch.empty(out.shape)
                dist.recv(gradient, number + 1)
            out.backward(gradient)
            if number > 0:
                dist.send(x.grad.contiguous(), number - 1)

    return listened(step)


class _LocalBytes(LiveBytes):
    """Of a DTensor the part that is here: by itself it says the size of the whole."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        results = []

        def called(*_, **__):
            results.append(func(*args, **(kwargs or {})))
            return tree_map(_local, results[0])

        super().__torch_dispatch__(called, types, tree_map(_local, args), tree_map(_local, kwargs or {}))
        return results[0]


def _local(leaf):
    return leaf._local_tensor if isinstance(leaf, DTensor) else leaf


def alive_at_most(way: str, model: str, options: dict, precision: str, batch: int) -> int:
    """Bytes of tensors at the peak of the third step with AdamW, as a GPU would compute it: foreach."""
    with _LocalBytes() as live:
        network, images, labels = made(model, options, batch)
        wrapped = _WRAPPED[way](network, precision)
        optimizer = torch.optim.AdamW(wrapped.parameters(), foreach=True)
        step = trained(wrapped, images, labels, optimizer, precision, autocast=way in ("none", "ddp"))
        step()
        step()
        gc.collect()
        live.peak = 0
        step()
    return live.peak


def _ddp(network: nn.Module, precision: str) -> nn.Module:
    from ddp_utils import get_ddp_model

    return get_ddp_model(network, torch.device("cpu"))


def _fsdp(network: nn.Module, precision: str) -> nn.Module:
    from fsdp_utils import get_fsdp_model

    return get_fsdp_model(network, torch.device("cpu"), precision=precision)


def _fsdp_grad(network: nn.Module, precision: str) -> nn.Module:
    wrapped = _fsdp(network, precision)
    wrapped.set_reshard_after_forward(False)
    return wrapped


_WRAPPED = {"none": lambda network, precision: network, "ddp": _ddp, "full": _fsdp, "grad": _fsdp_grad}

WAYS = {
    "ddp": ddp,
    "zero": zero,
    "full": fsdp,
    "grad": grad,
    "hybrid": hybrid,
    "tensor": tensor,
    "pipeline": pipeline,
}
