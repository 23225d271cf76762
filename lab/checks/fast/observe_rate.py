"""What a rank observes of a learning rate that changes between replays."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import SGD
from torch.utils._pytree import tree_leaves

from lab.checks.common.attempt import attempt, changed_at, dtype, plain, stepped
from lab.checks.common.meta_device import META
from lab.checks.common.tensors import close
from lab.checks.common.tiny import OFFSET, TinyNet
from lab.checks.fast.observe_capture import on_cpu
from lab.ranks.rank import Rank
from lab.training.stepping.cpu_graph import CPUGraph


def follow_rates(rank: Rank) -> dict[str, Any]:
    """Two steps, then a recorded one that is replayed at rates which set_rate() is told."""
    fast = rank.student("fast")
    given = rank.receive()
    net = TinyNet(given["weights"])
    made = attempt(rank, fast.capturable_sgd, net, given["rates"][0], given["momentum"])
    optimizer = made["value"]
    report: dict[str, Any] = {
        "error": made["error"],
        "type": type(optimizer).__name__,
        "sgd": isinstance(optimizer, SGD),
        "rates": [],
        "refused": None,
        "failed": None,
    }
    if made["error"] or not isinstance(optimizer, SGD):
        return report
    report["rates"].append(described(optimizer) | {"line": 0, "copied": 0})
    report["parameters"] = parameters_of(rank, fast, given)
    report["elsewhere"] = rate_elsewhere(fast, given, optimizer)
    report["learned"] = isinstance(rate := optimizer.param_groups[0]["lr"], Tensor) and rate.requires_grad
    images, labels = (part.clone() for part in given["batches"][0])

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(images), labels).backward()
        optimizer.step()

    graph, recorded = CPUGraph(), False
    for number, (batch, rate) in enumerate(zip(given["batches"], given["rates"], strict=True)):
        images.copy_(batch[0])
        labels.copy_(batch[1])
        if number:
            before = described(optimizer)
            with stepped(fast.__file__, lambda _: described(optimizer)) as notes:
                told = attempt(rank, fast.set_rate, optimizer, rate)
            if told["error"]:
                return report | {"failed": told["error"]}
            found = described(optimizer) | {"line": changed_at(notes, before), "copied": 0}
            report["rates"].append(found)
            if not close(found["value"], rate):
                found["copied"] = copied_at(rank, fast, optimizer, rate)
        if number < 2:
            step()
            continue
        try:
            if not recorded:
                with graph.recording():
                    step()
                recorded = True
            graph.replay()
        except RuntimeError as error:
            return report | {"refused": plain(rank, error)}
    return report | {
        "after": on_cpu(net.state_dict()),
        "groups": [both_groups(rank, fast, given["rates"][-1], olds) for olds in given["groups"]],
        "another": another_optimizer(rank, fast, optimizer, given),
    }


def parameters_of(rank: Rank, fast: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What the optimizer of a model with a norm, and with a parameter of its own, leaves out: names.

    And the type of the rate where that model's parameters are of bfloat16.
    """
    net = TinyNet(TinyNet(batchnorm=True).state_dict() | {OFFSET: torch.zeros(10)}, batchnorm=True)
    made = attempt(rank, fast.capturable_sgd, net, given["rates"][0], given["momentum"])
    groups = made["value"].param_groups if isinstance(made["value"], SGD) else []
    has = {id(parameter) for group in groups for parameter in group["params"]}
    names = [name for name, _ in net.named_parameters()]
    left = [name for name, parameter in net.named_parameters() if id(parameter) not in has]
    half = attempt(rank, fast.capturable_sgd, net.to(torch.bfloat16), given["rates"][0], given["momentum"])
    rate = half["value"].param_groups[0]["lr"] if isinstance(half["value"], SGD) else None
    return {"error": made["error"], "names": names, "left": left, "half": dtype(rate)}


def copied_at(rank: Rank, fast: Any, optimizer: SGD, rate: float) -> int:
    """The first line of set_rate() that has a tensor which gets the rate, and is none of the optimizer's; or 0."""
    own = {id(group["lr"]) for group in optimizer.param_groups}

    def numbers(frame: Any) -> list[tuple[Tensor, float]]:
        leaves = [leaf for leaf in tree_leaves(dict(frame.f_locals)) if isinstance(leaf, Tensor)]
        return [(leaf, leaf.item()) for leaf in leaves if leaf.numel() == 1 and id(leaf) not in own]

    with stepped(fast.__file__, numbers) as notes:
        attempt(rank, fast.set_rate, optimizer, rate)
    first: dict[int, tuple[int, Tensor, float]] = {}
    for line, found in notes:
        for tensor, value in found:
            first.setdefault(id(tensor), (line, tensor, value))
    written = [line for line, tensor, value in first.values() if close(tensor.item(), rate) and value != rate]
    return next(iter(written), 0)


def described(optimizer: SGD) -> dict[str, Any]:
    """The rate of the first parameter group: its type, which tensor it is, where that lies, its number."""
    rate = optimizer.param_groups[0]["lr"]
    is_tensor = isinstance(rate, Tensor)
    return {
        "type": type(rate).__name__,
        "id": id(rate),
        "memory": rate.data_ptr() if is_tensor else 0,
        "dtype": str(rate.dtype).removeprefix("torch.") if is_tensor else "",
        "value": float(rate),
    }


def rate_elsewhere(fast: Any, given: dict[str, Any], first: SGD) -> str:
    """The device of the rate where the model is on another one than the CPU; "" where that cannot be told."""
    try:
        rate = fast.capturable_sgd(TinyNet().to(META), given["rates"][0], given["momentum"]).param_groups[0]["lr"]
    except Exception:  # noqa: BLE001 - it is judged on the CPU
        return ""
    shared = rate is first.param_groups[0]["lr"]  # which is told of that, and not of its device
    return rate.device.type if isinstance(rate, Tensor) and not shared else ""


def both_groups(rank: Rank, fast: Any, rate: float, olds: list[float]) -> dict[str, Any]:
    """What set_rate() makes of an optimizer with two parameter groups, and the last line of it that was run."""
    groups = [{"params": [torch.zeros(2, requires_grad=True)], "lr": torch.tensor(old)} for old in olds]
    optimizer = SGD(groups, lr=torch.tensor(0.125), fused=True)
    with stepped(fast.__file__, lambda _: None) as notes:
        attempt(rank, fast.set_rate, optimizer, rate)
    last = notes[-1][0] if notes else 0
    return {"rates": [float(group["lr"]) for group in optimizer.param_groups], "line": last}


def another_optimizer(rank: Rank, fast: Any, first: SGD, given: dict[str, Any]) -> list[float]:
    """The rates of a second optimizer, and of the first when the second's was set; none where that cannot be."""
    made = attempt(rank, fast.capturable_sgd, TinyNet(given["weights"]), given["other"], given["momentum"])
    if not isinstance(made["value"], SGD):
        return []
    found = described(made["value"])["value"]
    attempt(rank, fast.set_rate, made["value"], given["other"] / 2)
    return [found, described(first)["value"]]
