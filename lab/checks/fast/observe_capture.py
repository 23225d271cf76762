"""What ranks observe of a step that is recorded and replayed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lab.checks.common.attempt import attempt
from lab.checks.common.meta_device import META, runs_elsewhere
from lab.checks.common.tiny import CPU, TinyNet, make_optimizer
from lab.ranks.rank import Rank
from lab.training.stepping.cpu_graph import CPUGraph
from lab.training.stepping.graphs import place_of_work

Batch = tuple[Tensor, Tensor]


def capture_and_replay(rank: Rank) -> dict[str, Any]:
    """The student's capture_step() of a model under DDP, and the steps that its result takes."""
    fast = rank.student("fast")
    given = rank.receive()
    net = TinyNet(given["weights"], batchnorm=True)
    return capture(rank, fast.capture_step, given, net, DistributedDataParallel(net), CPU)


def capture_without_ddp(rank: Rank) -> dict[str, Any]:
    """The same without a wrapper: on a GPU, with a real CUDA graph, where this machine has one."""
    fast = rank.student("fast")
    given = rank.receive()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else CPU
    net = TinyNet(given["weights"], batchnorm=True).to(device)
    elsewhere = captured_elsewhere(fast.capture_step, given)
    return capture(rank, fast.capture_step, given, net, net, device) | {"elsewhere": elsewhere}


def captured_elsewhere(capture_step: Callable[..., Any], given: dict[str, Any]) -> str:
    """What goes wrong where model and batches are on another device than the CPU; "" where nothing does."""
    net = TinyNet(batchnorm=True).to(META)
    warm_up = [tuple(part.to(META) for part in own[0]) for own in given["batches"][: given["warm_up"]]]
    return runs_elsewhere(capture_step, net, make_optimizer(net), warm_up)


def capture(
    rank: Rank,
    capture_step: Callable[..., Any],
    given: dict[str, Any],
    net: TinyNet,
    model: nn.Module,
    device: Any,
) -> dict[str, Any]:
    """Warm up, record and replay.

    Args:
        given: weights, batches[step][rank], and warm_up: how many of the steps come before the recording.
        net: in `model`, which may be a wrapper.
    """
    batches = [own[rank.rank] for own in given["batches"]]
    optimizer = make_optimizer(model)
    events: list[tuple[str, str]] = []  # what happened, and where it went
    noted(net, optimizer, events, device)
    warm_up, later = (
        [(images.to(device, copy=True), labels.to(device, copy=True)) for images, labels in some]
        for some in (batches[: given["warm_up"]], batches[given["warm_up"] :])
    )
    with replays_noted(events):
        made = attempt(rank, capture_step, model, optimizer, warm_up)
        report: dict[str, Any] = {
            "error": made["error"],
            "returned": type(made["value"]).__name__,
            "callable": callable(made["value"]),
            "captured": plain_events(events),
            "state": on_cpu(net.state_dict()),
            "steps": [],
            "changed": [],
        }
        if made["error"] or not callable(made["value"]):
            return report
        kept: list[Any] = []
        for images, labels in later:
            events.clear()
            step = attempt(rank, made["value"], images, labels)
            loss = step["value"]
            kept.append(loss)
            report["steps"].append(
                {
                    "error": step["error"],
                    "events": plain_events(events),
                    "type": type(loss).__name__,
                    "shape": list(loss.shape) if isinstance(loss, Tensor) else [],
                    "graph": isinstance(loss, Tensor) and loss.requires_grad,
                    "loss": value_of(loss),
                }
            )
            if step["error"]:
                return report
    report["changed"] = changed(warm_up, batches)
    report["kept"] = [value_of(loss) for loss in kept]
    report["after"] = on_cpu(net.state_dict())
    return report


def noted(net: TinyNet, optimizer: torch.optim.Optimizer, events: list[tuple[str, str]], device: Any) -> None:
    """Note where each forward pass, backward pass and optimizer step goes."""

    def note(what: str) -> Callable[..., None]:
        return lambda *_: events.append((what, place_of_work(device)))

    net.classifier.register_forward_hook(note("forward"))
    net.classifier.bias.register_post_accumulate_grad_hook(note("backward"))
    optimizer.register_step_post_hook(note("step"))
    clear = optimizer.zero_grad

    def zero_grad(*args: Any, **kwargs: Any) -> None:
        events.append(("zero", place_of_work(device)))
        clear(*args, **kwargs)

    optimizer.zero_grad = zero_grad  # type: ignore[method-assign]


def plain_events(events: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"what": what, "place": place} for what, place in events]


@contextmanager
def replays_noted(events: list[tuple[str, str]]) -> Iterator[None]:
    """Note each replay() of any graph."""

    def noting(original: Callable[[Any], None]) -> Callable[[Any], None]:
        def replay(graph: Any) -> None:
            events.append(("replay", "graph"))
            original(graph)

        return replay

    with (
        mock.patch.object(CPUGraph, "replay", noting(CPUGraph.replay)),
        mock.patch.object(torch.cuda.CUDAGraph, "replay", noting(torch.cuda.CUDAGraph.replay)),
    ):
        yield


def changed(now: Sequence[Batch], before: Sequence[Batch]) -> list[int]:
    """The batches of which a tensor is no longer what it was."""
    return [
        number
        for number, (mine, own) in enumerate(zip(now, before, strict=False))
        if not all(part.cpu().equal(was) for part, was in zip(mine, own, strict=True))
    ]


def on_cpu(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().to("cpu", copy=True).double() for name, value in state.items()}


def value_of(loss: Any) -> float | None:
    """What a loss holds now; None where it is not one number."""
    if isinstance(loss, Tensor):
        return float(loss) if loss.numel() == 1 else None
    return float(loss) if isinstance(loss, int | float) and not isinstance(loss, bool) else None
