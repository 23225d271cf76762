"""What ranks observe of average_gradients and of DDP."""

import inspect
from contextlib import ExitStack
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lab.checks.common.attempt import dtype
from lab.checks.common.left_behind import collectives_begun, no_memory, swallowed
from lab.checks.common.meta_device import gpus_of_a_node, one_gpu_a_node
from lab.checks.common.pending import Handle, handles_noted
from lab.checks.common.pretended_gpu import Placed
from lab.checks.common.tiny import CPU, TinyNet, gradients_of, train_steps, weights_of
from lab.checks.ddp_utils.draw import OTHER_TYPES
from lab.checks.ddp_utils.observe_models import average_again, average_in, average_on_a_node, fail_to_average
from lab.grading.explain import unset_by_srun
from lab.ranks.rank import Rank

# Arguments of DDP with which it sends no weights or buffers.
SENDING = ("broadcast_buffers", "forward_sync_buffers", "init_sync")


def average(rank: Rank) -> dict[str, Any]:
    """This rank's gradients and weights after average_gradients, and the gradients of two more models.

    The second one has a parameter of its own beside those of its children, and a gradient of inf on one rank, as
    mixed precision makes it; of the third one all gradients of that rank are 0. Others are averaged several times,
    are not in fp32, and are on a node of one GPU; with the last one every collective raises.
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
    before = collectives_begun()
    with handles_noted(pending):
        ddp_utils.average_gradients(model)
    called = collectives_begun() > before
    frozen = model.frozen.grad
    del model.unused, model.frozen
    report = {
        "weights": weights_of(model),
        "gradients": gradients_of(model),
        "pending": sum(not handle.used for handle in pending),
        "overtaken": any(handle.overtaken for handle in pending),
        "frozen": frozen is not None,
        "called": called,
    }
    dist.barrier()  # a rank that has left out a collective must not meet the others in one of the second model
    second = TinyNet(given["weights"])
    second.own = nn.Parameter(torch.zeros(3))
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
    report |= {"second": gradients_of(second), "third": gradients_of(third)}
    dist.barrier()
    held: list[Any] = []  # as long as these are there, nothing new gets the id of one of them
    report["again"] = average_again(ddp_utils, rank.rank, held)
    dist.barrier()
    return report | {
        "other types": [average_in(rank, ddp_utils, kind, held) for kind in OTHER_TYPES],
        "on a node": average_on_a_node(rank, ddp_utils),
        "swallowed": fail_to_average(ddp_utils),
    }


def train_with_ddp(rank: Rank) -> dict[str, Any]:
    """What get_ddp_model returns, and two training steps with it."""
    ddp_utils = rank.student("ddp_utils")
    given = rank.receive()
    model = TinyNet(given["weights"][rank.rank])
    model.register_buffer("buffer", torch.full((2,), rank.rank + 1.0))
    with one_gpu_a_node(seen=False):
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
    with mock.patch.object(DistributedDataParallel, "__init__", no_memory):
        report["swallowed"] = swallowed(ddp_utils.get_ddp_model, TinyNet(), CPU)
    return report


class SomeRanks:
    """What new_group and new_subgroups give where nothing is made: a group of `ranks`, None for all."""

    def __init__(self, ranks: Any = None, *_: Any, **__: Any) -> None:
        self.all = ranks is None or sorted(ranks) == list(range(dist.get_world_size()))

    @classmethod
    def on_each_node(cls, group_size: int | None = None, *_: Any, **__: Any) -> tuple["SomeRanks", list[Any]]:
        group = cls(range(group_size or torch.cuda.device_count()))
        return group, [group]


def pretend_to_wrap(
    ddp_utils: ModuleType, device: torch.device, bucket_cap_mb: float = 25
) -> dict[str, Any] | None:
    """What get_ddp_model does with a network that has a BatchNorm and a frozen parameter, on any device.

    Reports the devices it moves to, DDP's arguments, and what has become of the network. Nothing is really moved
    or wrapped, so a GPU need not be there. There seem to be eight, also for a model that stays on the CPU. None
    when the code asks CUDA for more than this pretence can give.
    """
    steps: list[str] = []
    arguments: dict[str, Any] = {}
    signature = inspect.signature(DistributedDataParallel.__init__)
    current = device.index or 0

    def wrap(ddp: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
        steps.append("wrap")
        arguments.update(signature.bind(ddp, *args, **kwargs).arguments)
        nn.Module.__init__(ddp)
        ddp.module = arguments["module"]

    def to(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        target = torch._C._nn._parse_to(*args, **kwargs)[0]
        steps.append("no device" if target is None else str(target))
        if target is not None:
            placed.device = torch.device("cuda", current) if str(target) == "cuda" else target
        return module

    def cuda(module: nn.Module, target: Any = None) -> nn.Module:
        return to(module, "cuda" if target is None else torch.device("cuda", torch.device(target).index))

    net = TinyNet(batchnorm=True)
    placed = Placed(net)
    frozen = net.get_parameter("blocks.0.2.bias").requires_grad_(False)
    layers = {name: type(module).__name__ for name, module in net.named_modules()}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(DistributedDataParallel, "__init__", wrap))
        for name, by in {"to": to, "cuda": cuda}.items():
            stack.enter_context(mock.patch.object(nn.Module, name, by))
        known = {"is_available": True, "set_device": None, "current_device": current}
        known |= {"device_count": gpus_of_a_node(8)}
        for name, value in known.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, return_value=value))
        for name, group in {"new_group": SomeRanks, "new_subgroups": SomeRanks.on_each_node}.items():
            for home in (dist, ddp_utils):
                if hasattr(home, name):
                    stack.enter_context(mock.patch.object(home, name, group))
        stack.enter_context(placed)
        try:
            wrapped = ddp_utils.get_ddp_model(net, device, bucket_cap_mb=bucket_cap_mb)
        except Exception as error:
            if unset_by_srun(type(error).__name__, str(error)):
                raise
            return None
    inside = getattr(wrapped, "module", wrapped)
    found = inside.named_modules() if isinstance(inside, nn.Module) else ()
    exchanged = [type(module).__name__ for name, module in found if layers.get(name) != type(module).__name__]
    output = arguments.get("output_device")
    return {
        "steps": steps,
        "device_ids": describe_devices(arguments.get("device_ids")),
        "output_device": describe_devices(None if output is None else [output]),
        "all_ranks": getattr(arguments.get("process_group"), "all", True),
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
    """["cuda:1"], [1] or None as text; [None], which DDP refuses on a CPU, is not None."""
    if device_ids is None:
        return "None"
    if not isinstance(device_ids, list | tuple) or len(device_ids) != 1 or device_ids[0] is None:
        return str(device_ids)[:80]
    only = device_ids[0]
    return f"cuda:{only}" if isinstance(only, int) else str(only)[:80]
