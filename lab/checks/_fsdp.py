"""What ranks observe of get_fsdp_model."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.distributed.fsdp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from lab.checks._tiny import CPU, TinyNet, gradients_of, make_optimizer, train_steps, weights_of
from lab.grading.rank import Rank

WHOLE = "whole"  # the placement of a parameter that is not sharded


def train_sharded(rank: Rank) -> dict[str, Any]:
    """How the model is sharded, and two training steps with it."""
    fsdp_utils = rank.student("fsdp_utils")
    given = rank.receive()
    net = TinyNet(given["weights"][rank.rank])
    order: list[str] = []
    with sharding_noted(fsdp_utils, net, order):
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
        "error": "",
    }
    if "" in order[:-1] or not report["units"]:
        return report
    batches = [batch[rank.rank] for batch in given["batches"]]
    layers = computing_noted(model)
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
        model = fsdp_utils.get_fsdp_model(net, CPU, precision=precision)
        layers = computing_noted(model)
        report: dict[str, Any] = {"error": "", "gradients": {}, "loss": 0.0}
        report["parameters"] = {name: dtype(value) for name, value in model.named_parameters()}
        try:
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            report |= {"gradients": gradients_of(model), "loss": loss.item()}
            make_optimizer(model).step()
        except Exception as error:  # noqa: BLE001 - the judge says what this means
            report["error"] = f"{type(error).__name__}: {error}"[:300]
        report["computed"] = layers
        report["statistics"] = {name: dtype(value) for name, value in model.named_buffers() if "running" in name}
        reports[name] = report
    return reports


def placement(parameter: Tensor) -> str:
    """ "Shard(0)", "Replicate", or WHOLE for a plain tensor."""
    placements = getattr(parameter, "placements", None)
    if placements is None:
        return WHOLE
    return ", ".join(f"Shard({p.dim})" if p.is_shard() else type(p).__name__ for p in placements)


def dtype(tensor: Tensor) -> str:
    """ "float32"."""
    return str(tensor.dtype).removeprefix("torch.")


def computing_noted(model: nn.Module) -> dict[str, str]:
    """Filled by the next forward pass: for each linear layer, the type of its results."""
    layers: dict[str, str] = {}

    def note(name: str, output: Tensor) -> None:
        layers[name] = dtype(output)

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda module, inputs, output, name=name: note(name, output))
    return layers


@contextmanager
def sharding_noted(fsdp_utils: ModuleType, net: nn.Module, order: list[str]) -> Iterator[None]:
    """Write the names of the modules that fully_shard is called for into `order`; the root's is ""."""
    original = torch.distributed.fsdp.fully_shard
    names = {id(module): name for name, module in net.named_modules()}

    def noting(module: Any, *args: Any, **kwargs: Any) -> Any:
        too_late = "" in order
        for one in module if isinstance(module, list | tuple) else [module]:
            order.append(names.get(id(one), "?"))
        # After the root, FSDP would raise or do nothing, depending on the release.
        return module if too_late else original(module, *args, **kwargs)

    with ExitStack() as stack:
        for place in (torch.distributed.fsdp, fsdp_utils):
            if getattr(place, "fully_shard", None) is original:
                stack.enter_context(mock.patch.object(place, "fully_shard", noting))
        yield
