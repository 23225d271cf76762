"""What ranks observe of average_gradients and of DDP."""

import inspect
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lab.checks.common.attempt import dtype
from lab.checks.common.pending import Handle, handles_noted
from lab.checks.common.tiny import CPU, TinyNet, gradients_of, train_steps, weights_of
from lab.grading.explain import unset_by_srun
from lab.ranks.rank import Rank

# Arguments of DDP with which it sends no weights or buffers.
SENDING = ("broadcast_buffers", "forward_sync_buffers", "init_sync")


def average(rank: Rank) -> dict[str, Any]:
    """This rank's gradients and weights after average_gradients, and the gradients of two more models.

    The second one has a gradient of inf on one rank, as mixed precision makes it; of the third one all gradients
    of that rank are 0.
    """
    ddp_utils = rank.student("ddp_utils")
    given = rank.receive()
    model = TinyNet(given["weights"])
    images, labels = given["parts"][rank.rank]
    F.cross_entropy(model(images), labels).backward()
    if rank.rank == given["idle"]:
        # As where none of a rank's samples takes part in a layer. In the last parameter, so that a rank that
        # leaves it out is seen to be missing, and does not meet the others in another parameter.
        model.classifier.bias.grad = torch.zeros_like(model.classifier.bias)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(given["moved"][rank.rank][name])
    # As in a layer that only some architectures use, and in one that is not to be trained: no gradient.
    model.unused = nn.Parameter(torch.zeros(3))
    model.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
    pending: list[Handle] = []
    with handles_noted(pending):
        ddp_utils.average_gradients(model)
    frozen = model.frozen.grad
    del model.unused, model.frozen
    report = {
        "weights": weights_of(model),
        "gradients": gradients_of(model),
        "pending": sum(not handle.used for handle in pending),
        "frozen": frozen is not None,
    }
    dist.barrier()  # a rank that has left out a collective must not meet the others in one of the second model
    second = TinyNet(given["weights"])
    for parameter in second.parameters():
        parameter.grad = torch.full_like(parameter, rank.rank + 1.0)
        if rank.rank == given["idle"] and parameter is second.classifier.bias:
            parameter.grad[0] = float("inf")
    ddp_utils.average_gradients(second)
    dist.barrier()
    third = TinyNet(given["weights"])
    for parameter in third.parameters():
        parameter.grad = torch.full_like(parameter, 0.0 if rank.rank == given["idle"] else rank.rank + 1.0)
    ddp_utils.average_gradients(third)
    return report | {"second": gradients_of(second), "third": gradients_of(third)}


def train_with_ddp(rank: Rank) -> dict[str, Any]:
    """What get_ddp_model returns, and two training steps with it."""
    ddp_utils = rank.student("ddp_utils")
    given = rank.receive()
    model = TinyNet(given["weights"][rank.rank])
    model.register_buffer("buffer", torch.full((2,), rank.rank + 1.0))
    wrapped = ddp_utils.get_ddp_model(model, CPU, bucket_cap_mb=given["bucket_cap_mb"])
    report: dict[str, Any] = {"type": type(wrapped).__name__, "ddp": isinstance(wrapped, DistributedDataParallel)}
    if not report["ddp"]:
        return report
    inside = wrapped.module
    report["inside"] = "the model" if inside is model else f"another {type(inside).__name__}"
    report["bucket_cap_mb"] = wrapped.bucket_bytes_cap / 2**20
    report["types"] = sorted({dtype(parameter) for parameter in inside.parameters()})
    if report["types"] != ["float32"]:
        return report

    report["start"] = weights_of(inside)
    buffer = getattr(inside, "buffer", torch.empty(0))
    report["buffer"] = buffer.tolist()
    batches = [batch[rank.rank] for batch in given["batches"]]
    images, labels = batches[0]
    F.cross_entropy(wrapped(images), labels).backward()
    report["gradients"] = gradients_of(inside)
    buffer.fill_(rank.rank + 1.0)  # as a BatchNorm goes on with this rank's images
    train_steps(wrapped, batches)
    report["end"] = weights_of(inside)
    report["buffer"] += buffer.tolist()
    group = wrapped.process_group
    report["group"] = dist.get_process_group_ranks(group) if isinstance(group, dist.ProcessGroup) else []
    report["gpu"] = pretend_to_wrap(
        ddp_utils, torch.device("cuda", given["gpus"][rank.rank]), given["bucket_cap_mb"]
    )
    report["cpu"] = pretend_to_wrap(ddp_utils, CPU)
    with mock.patch.object(dist, "get_world_size", return_value=1):
        report["alone"] = pretend_to_wrap(ddp_utils, CPU)
    return report


def pretend_to_wrap(
    ddp_utils: ModuleType, device: torch.device, bucket_cap_mb: float = 25
) -> dict[str, Any] | None:
    """What get_ddp_model does with a network that has a BatchNorm and a frozen parameter, on any device.

    Reports the devices it moves to, DDP's arguments, and what has become of the network. Nothing is really moved
    or wrapped, so a GPU need not be there. None when the code asks CUDA for more than this pretence can give.
    """
    steps: list[str] = []
    arguments: dict[str, Any] = {}
    signature = inspect.signature(DistributedDataParallel.__init__)

    def wrap(ddp: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
        steps.append("wrap")
        arguments.update(signature.bind(ddp, *args, **kwargs).arguments)
        nn.Module.__init__(ddp)
        ddp.module = arguments["module"]

    def to(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        target = torch._C._nn._parse_to(*args, **kwargs)[0]
        steps.append("no device" if target is None else str(target))
        return module

    def cuda(module: nn.Module, target: Any = None) -> nn.Module:
        return to(module, "cuda" if target is None else torch.device("cuda", torch.device(target).index))

    net = TinyNet(batchnorm=True)
    frozen = net.get_parameter("blocks.0.2.bias").requires_grad_(False)
    layers = {name: type(module).__name__ for name, module in net.named_modules()}
    with (
        mock.patch.object(DistributedDataParallel, "__init__", wrap),
        mock.patch.object(nn.Module, "to", to),
        mock.patch.object(nn.Module, "cuda", cuda),
        mock.patch.object(torch.cuda, "is_available", return_value=device.type == "cuda"),
        mock.patch.object(torch.cuda, "device_count", return_value=8 if device.type == "cuda" else 0),
        mock.patch.object(torch.cuda, "set_device"),
        mock.patch.object(torch.cuda, "current_device", return_value=device.index),
    ):
        try:
            wrapped = ddp_utils.get_ddp_model(net, device, bucket_cap_mb=bucket_cap_mb)
        except Exception as error:
            if unset_by_srun(type(error).__name__, str(error)):
                raise
            return None
    inside = getattr(wrapped, "module", wrapped)
    found = inside.named_modules() if isinstance(inside, nn.Module) else ()
    exchanged = [type(module).__name__ for name, module in found if layers.get(name) != type(module).__name__]
    return {
        "steps": steps,
        "device_ids": describe_devices(arguments.get("device_ids")),
        "wrapped": isinstance(wrapped, DistributedDataParallel),
        "exchanged": exchanged,
        "thawed": frozen.requires_grad,
        "bucket_cap_mb": cap_in_mib(arguments.get("bucket_cap_mb")),
        "switched_off": [name for name in SENDING if arguments.get(name) is False],
    }


def cap_in_mib(cap: Any) -> float:
    """DDP's bucket_cap_mb, which is 25 where it is None."""
    return float(cap) if isinstance(cap, int | float) else 25.0


def describe_devices(device_ids: Any) -> str:
    """["cuda:1"], [1] or None as text."""
    if device_ids is None:
        return "None"
    if not isinstance(device_ids, list | tuple) or len(device_ids) != 1:
        return str(device_ids)[:80]
    only = device_ids[0]
    return f"cuda:{only}" if isinstance(only, int) else str(only)[:80]
