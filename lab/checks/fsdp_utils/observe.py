"""What ranks observe of get_fsdp_model."""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.device_mesh
import torch.distributed.fsdp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule
from torch.distributed.tensor import DTensor

from lab.checks.common.attempt import dtype
from lab.checks.common.left_behind import no_memory, swallowed
from lab.checks.common.meta_device import gpus_of_a_node, one_gpu_a_node
from lab.checks.common.pretended_gpu import Placed
from lab.checks.common.tiny import (
    CPU,
    Chain,
    TinyNet,
    gradients_of,
    local,
    make_optimizer,
    train_steps,
    weights_of,
)
from lab.checks.fsdp_utils.placement import WHOLE, outer_first
from lab.ranks.rank import Rank


def train_sharded(rank: Rank) -> dict[str, Any]:
    """How the model is sharded, and two training steps with it."""
    fsdp_utils = rank.student("fsdp_utils")
    given = rank.receive()
    net = TinyNet(given["weights"][rank.rank])
    net.blocks[1] = Chain(*net.blocks[1].children())
    # What is not trained must be the same on all ranks, too.
    net.frozen = nn.Parameter(torch.full((5,), rank.rank + 1.0), requires_grad=False)
    net.register_buffer("buffer", torch.full((2,), rank.rank + 1.0))
    order: list[str] = []
    with sharding_noted(fsdp_utils, net, order), sources_compared(rank), one_gpu_a_node(seen=False):
        model = fsdp_utils.get_fsdp_model(net, CPU)
    report: dict[str, Any] = {"type": type(model).__name__, "module": isinstance(model, nn.Module)}
    if not report["module"]:
        return report
    report |= {
        "same": model is net,
        "order": order,
        "units": [name for name, module in model.named_modules() if isinstance(module, FSDPModule)],
        "placements": {name: placement(parameter) for name, parameter in model.named_parameters()},
        "start": weights_of(model),
        "frozen": [*rows(model, "frozen"), *rows(model, "buffer")],
        "trainable": [name for name, parameter in model.named_parameters() if parameter.requires_grad],
        "error": "",
        "gpu": pretend_to_shard(fsdp_utils, torch.device("cuda", 1)),
        "cpu": pretend_to_shard(fsdp_utils, CPU),
        "swallowed": {name: fail(fsdp_utils, name) for name in ("broadcast", "fully_shard")},
        "gathered": {},
    }
    if outer_first(order) or not report["units"]:
        return report
    batches = [batch[rank.rank] for batch in given["batches"]]
    layers = computing_noted(model)
    report["gathered"] = gathering_noted(model)
    try:
        images, labels = batches[0]
        F.cross_entropy(model(images), labels).backward()
        report["gradients"] = gradients_of(model)
        train_steps(model, batches)
    except Exception as error:  # noqa: BLE001 - the judge looks at how it is sharded first
        report["error"] = f"{type(error).__name__}: {error}"[:300]
    report |= {"computed": layers, "end": weights_of(model)}
    return report


def train_in_bf16(rank: Rank) -> dict[str, Any]:
    """A training step in bf16, of the tiny network and then with a BatchNorm in it; and one in fp16."""
    fsdp_utils = rank.student("fsdp_utils")
    given = rank.receive()
    images, labels = given["parts"][rank.rank]
    reports = {}
    for name, net, precision in (
        ("plain", TinyNet(given["weights"]), "bf16"),
        ("batchnorm", TinyNet(batchnorm=True), "bf16"),
        ("fp16", TinyNet(batchnorm=True), "fp16"),
    ):
        order: list[str] = []
        with sharding_noted(fsdp_utils, net, order):
            model = fsdp_utils.get_fsdp_model(net, CPU, precision=precision)
        layers = computing_noted(model)
        report: dict[str, Any] = {"error": "", "gradients": {}, "loss": 0.0, "logits": "", "order": order}
        report["kept"] = model is not net
        report["gathered"] = gathering_noted(model)
        report["parameters"] = {name: dtype(value) for name, value in model.named_parameters()}
        try:
            logits = model(images)
            report["logits"] = dtype(logits)
            loss = F.cross_entropy(logits, labels)
            loss.backward()
            report |= {"gradients": gradients_of(model), "loss": loss.item()}
            make_optimizer(model).step()
        except Exception as error:  # noqa: BLE001 - the judge says what this means
            report["error"] = f"{type(error).__name__}: {error}"[:300]
        report["computed"] = layers
        report["statistics"] = {name: dtype(value) for name, value in model.named_buffers() if "running" in name}
        reports[name] = report
    layers = computing_noted(model := fsdp_utils.get_fsdp_model(TinyNet(given["weights"]), CPU))
    if not any(report["kept"] for report in reports.values()):
        model(images)
    return reports | {"later": layers}


def rows(model: nn.Module, name: str) -> list[float]:
    """What this rank holds of a parameter or buffer of one dimension; nothing where there is none."""
    tensor = getattr(model, name, None)
    return [float(number) for number in local(tensor).flatten()] if isinstance(tensor, Tensor) else []


def placement(parameter: Tensor) -> str:
    """ "Shard(0)", "Replicate", or WHOLE for a plain tensor."""
    placements = getattr(parameter, "placements", None)
    if placements is None:
        return WHOLE
    return ", ".join(f"Shard({p.dim})" if p.is_shard() else type(p).__name__ for p in placements)


def computing_noted(model: nn.Module) -> dict[str, str]:
    """Filled by the next forward pass: for each linear layer, the type of its results."""
    layers: dict[str, str] = {}

    def note(name: str, output: Tensor) -> None:
        layers[name] = dtype(output)

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda module, inputs, output, name=name: note(name, output))
    return layers


def gathering_noted(model: nn.Module) -> dict[str, list[str]]:
    """Filled by the next forward pass: for each block, those of which a parameter is whole while it computes.

    BatchNorms are gathered all together, by shard_batchnorms.
    """
    gathered: dict[str, list[str]] = {}
    blocks = {f"blocks.{number}": block for number, block in enumerate(getattr(model, "blocks", ()))}

    def whole(block: nn.Module) -> bool:
        layers = [layer for layer in block.modules() if not isinstance(layer, nn.BatchNorm1d)]
        own = [parameter for layer in layers for parameter in layer.parameters(recurse=False)]
        return any(not isinstance(parameter, DTensor) for parameter in own)

    def note(name: str) -> None:
        gathered.setdefault(name, [other for other, block in blocks.items() if whole(block)])

    for name, block in blocks.items():
        block.register_forward_pre_hook(lambda module, inputs, name=name: note(name))
    return gathered


def pretend_to_shard(fsdp_utils: ModuleType, device: torch.device) -> dict[str, Any] | None:
    """What get_fsdp_model does in a machine with eight GPUs, which need not be there: nothing is really moved,
    sent or sharded.

    Returns:
        steps: "to cuda:1", "send", "mesh cuda 2" (of two ranks), "shard", "offload", "keep", in order; None where
        the code asks for more than this pretence can give.
    """
    steps: list[str] = []

    def to(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        target = torch._C._nn._parse_to(*args, **kwargs)[0]
        if target is not None:
            steps.append(f"to {target}")
            placed.device = torch.device("cuda", current) if str(target) == "cuda" else target
        return module

    def cuda(module: nn.Module, target: Any = None) -> nn.Module:
        return to(module, "cuda" if target is None else torch.device("cuda", torch.device(target).index))

    def mesh(device_type: str, mesh_shape: Any, **kwargs: Any) -> None:
        steps.append(f"mesh {device_type} {math.prod(mesh_shape)}")

    net = TinyNet()
    placed, current = Placed(net), device.index or 0

    def shard(module: Any, *args: Any, **kwargs: Any) -> Any:
        steps.append("shard")
        if isinstance(kwargs.get("offload_policy"), CPUOffloadPolicy):
            steps.append("offload")
        if kwargs.get("reshard_after_forward") is False and module is net.blocks[0]:
            steps.append("keep")
        return module

    def send(*args: Any, **kwargs: Any) -> None:
        steps.append("send")

    with ExitStack() as stack:
        stack.enter_context(replaced(fsdp_utils, init_device_mesh=mesh, fully_shard=shard, broadcast=send))
        stack.enter_context(mock.patch.object(nn.Module, "to", to))
        stack.enter_context(mock.patch.object(nn.Module, "cuda", cuda))
        known = {"is_available": True, "set_device": None, "current_device": current}
        known |= {"device_count": gpus_of_a_node(8)}
        for name, value in known.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, return_value=value))
        stack.enter_context(placed)
        try:
            fsdp_utils.get_fsdp_model(net, device)
        except Exception:  # noqa: BLE001 - what this machine cannot show is not held against the answer
            return None
    return {"steps": steps}


@contextmanager
def replaced(fsdp_utils: ModuleType, **functions: Callable[..., Any]) -> Iterator[None]:
    """Exchange functions of PyTorch by their names, wherever the student's code may have them from."""
    homes = (fsdp_utils, torch.distributed.fsdp, torch.distributed.device_mesh, dist)
    with ExitStack() as stack:
        for name, by in functions.items():
            for home in homes:
                if hasattr(home, name):
                    stack.enter_context(mock.patch.object(home, name, by))
        yield


def fail(fsdp_utils: ModuleType, name: str) -> str:
    """The type of what get_fsdp_model returns where the first call of a function raises; "" where that comes out.

    Nothing is really sent or sharded.
    """
    calls: list[str] = []

    def called(one: str, module: Any = None, *_: Any, **__: Any) -> Any:
        calls.append(one)
        return no_memory() if one == name and calls.count(one) == 1 else module

    functions = {one: partial(called, one) for one in ("init_device_mesh", "broadcast", "fully_shard")}
    with replaced(fsdp_utils, **functions):
        kind = swallowed(fsdp_utils.get_fsdp_model, TinyNet(), CPU)
    return kind if name in calls else ""


class OffloadError(Exception):
    """The shards are to be kept in the CPU's memory; without a GPU, PyTorch would say only that there is none."""


class WrongSourceError(Exception):
    """Ranks name different sources in the same broadcast, and would wait for each other for ever."""


@contextmanager
def sources_compared(rank: Rank) -> Iterator[None]:
    """Raise WrongSourceError in the later one of two ranks that broadcast from different ranks."""
    original = dist.broadcast
    store = dist.distributed_c10d._get_default_store()
    numbers = itertools.count()
    others = [other for other in range(rank.world_size) if other != rank.rank]

    def broadcast(tensor: Tensor, src: Any = None, *args: Any, **kwargs: Any) -> Any:
        number, source = next(numbers), str(kwargs.get("group_src", src))
        store.set(f"source {number} of {rank.rank}", source)
        for other in others:
            key = f"source {number} of {other}"
            if store.check([key]) and (theirs := store.get(key).decode()) != source:
                said = sorted([(rank.rank, source), (other, theirs)])
                raise WrongSourceError(" and ".join(f"rank {one} sends with src={src}" for one, src in said))
        return original(tensor, src, *args, **kwargs)

    with mock.patch.object(dist, "broadcast", broadcast):
        yield


@contextmanager
def sharding_noted(fsdp_utils: ModuleType, net: nn.Module, order: list[str]) -> Iterator[None]:
    """Write the names of the modules that fully_shard is called for into `order`; the root's is ""."""
    original = torch.distributed.fsdp.fully_shard
    names = {id(module): name for name, module in net.named_modules()}

    def noting(module: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(kwargs.get("offload_policy"), CPUOffloadPolicy):
            raise OffloadError("offload_policy=CPUOffloadPolicy()")
        order.extend(names.get(id(one), "?") for one in (module if isinstance(module, list | tuple) else [module]))
        # Then FSDP would raise or do nothing, depending on the release.
        return module if outer_first(order) else original(module, *args, **kwargs)

    with ExitStack() as stack:
        for place in (torch.distributed.fsdp, fsdp_utils):
            if getattr(place, "fully_shard", None) is original:
                stack.enter_context(mock.patch.object(place, "fully_shard", noting))
        yield
