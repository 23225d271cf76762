"""What ranks observe of a step that is recorded and replayed."""

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import pairwise
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from lab.checks.common.attempt import attempt, lines_now, stepped
from lab.checks.common.meta_device import META, line_in, runs_elsewhere
from lab.checks.common.tiny import CPU, TinyNet, make_optimizer
from lab.ranks.rank import Rank
from lab.training.stepping.cpu_graph import CPUGraph
from lab.training.stepping.graphs import place_of_work

Batch = tuple[Tensor, Tensor]
Event = tuple[str, str, list[int]]  # what happened, where it went, and the student's lines, the innermost first


class Written(TorchFunctionMode):
    """Notes which line of a file writes to which memory while a graph records; and what is written to later."""

    def __init__(self, file: str, device: torch.device) -> None:
        super().__init__()
        self._file, self._device = file, device
        self._lines: dict[int, int] = {}  # memory -> the first line
        self._later: list[int] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        changed = args[0] if name in ("copy_", "__setitem__", "fill_", "zero_") else None
        with torch._C.DisableTorchFunction():
            if place_of_work(self._device) == "graph" and not name.startswith("empty"):
                for memory in memories(result) | memories(changed):
                    self._lines.setdefault(memory, line_in(self._file))
            elif sys._getframe(1).f_code.co_filename == self._file:  # and not the graph, which repeats it
                self._later += memories(changed)
        return result

    def line(self) -> int:
        """The first line that the graph repeats over what was written later; 0 where there is none."""
        return min((self._lines[memory] for memory in self._later if memory in self._lines), default=0)


def memories(value: Any) -> set[int]:
    return {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(value) if isinstance(leaf, Tensor)}


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
    report = capture(rank, fast.capture_step, given, net, net, device) | {"elsewhere": elsewhere}
    again = attempt(rank, another_model, fast.capture_step, given, device)
    return report | {"again": again["value"] or [], "again error": again["error"]}


def another_model(capture_step: Callable[..., Any], given: dict[str, Any], device: Any) -> list[bool]:
    """Whether a second model, with batches of the same shape, is changed by the warm-up; and by a later step."""
    net = TinyNet(batchnorm=True).to(device)
    first, *rest = [tuple(part.to(device, copy=True) for part in own[0]) for own in given["batches"]]
    states = [on_cpu(net.state_dict())]
    step = capture_step(net, make_optimizer(net), [first, *rest[: given["warm_up"] - 1]])
    states.append(on_cpu(net.state_dict()))
    step(*rest[-1])
    states.append(on_cpu(net.state_dict()))
    return [any(not now[name].equal(before[name]) for name in now) for before, now in pairwise(states)]


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
    file = inspect.unwrap(capture_step).__code__.co_filename
    events: list[Event] = []
    noted(net, optimizer, events, device, file)
    warm_up, later = (
        [(images.to(device, copy=True), labels.to(device, copy=True)) for images, labels in some]
        for some in (batches[: given["warm_up"]], batches[given["warm_up"] :])
    )
    written = Written(file, device) if given.get("notes what is written") else None
    with replays_noted(events), written or nullcontext():
        with stepped(file, memory_of(net)) as notes:
            made = attempt(rank, capture_step, model, optimizer, warm_up)
        report: dict[str, Any] = {
            "error": made["error"],
            "returned": type(made["value"]).__name__,
            "callable": callable(made["value"]),
            "captured": plain_events(events),
            "state": on_cpu(net.state_dict()),
            "put_back_at": put_back_at(notes),
            "replay": name_of(made["value"]),
            "borrowed": borrowed(made["value"], warm_up),
            "steps": [],
            "changed": [],
            "written": 0,
        }
        if made["error"] or not callable(made["value"]):
            return report
        kept: list[Any] = []
        for number, (images, labels) in enumerate(later):
            if number == len(later) - 1:  # where the batch before was, as from a loader that uses memory again
                images, labels = (was.copy_(now) for was, now in zip(later[-2], (images, labels), strict=True))
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
                return report | {"written": written.line() if written else 0}
    report["written"] = written.line() if written else 0
    report["changed"] = changed(warm_up, batches)
    report["kept"] = [value_of(loss) for loss in kept]
    report["after"] = on_cpu(net.state_dict())
    return report


def noted(net: TinyNet, optimizer: torch.optim.Optimizer, events: list[Event], device: Any, file: str) -> None:
    """Note where each forward pass, backward pass and optimizer step goes, and the lines of `file` behind it."""

    def note(what: str) -> Callable[..., None]:
        return lambda *_: events.append((what, place_of_work(device), lines_now(file)))

    net.classifier.register_forward_hook(note("forward"))
    net.classifier.bias.register_post_accumulate_grad_hook(note("backward"))
    optimizer.register_step_post_hook(note("step"))
    clear = optimizer.zero_grad

    def zero_grad(*args: Any, **kwargs: Any) -> None:
        events.append(("zero", place_of_work(device), []))
        clear(*args, **kwargs)

    optimizer.zero_grad = zero_grad  # type: ignore[method-assign]


def plain_events(events: list[Event]) -> list[dict[str, Any]]:
    return [{"what": what, "place": place, "lines": lines} for what, place, lines in events]


def memory_of(net: nn.Module) -> Callable[[object], int]:
    """A probe for the parameters of a network, which goes past PyTorch: a graph may be recording."""
    on_cpu = [value.detach().numpy() for value in net.parameters() if value.device == CPU]
    return lambda _: hash(b"".join(value.tobytes() for value in on_cpu))


def put_back_at(notes: list[tuple[int, int]]) -> int:
    """The first line after which a network was again what it was at first; 0 where there is none."""
    first = notes[0][1] if notes else 0
    return next((line for (_, before), (line, now) in pairwise(notes) if now == first != before), 0)


def name_of(function: Any) -> str:
    """Where the file defines what is called: "capture_step.replay", "Step.__call__"; "" for what is none."""
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__ if callable(function) else None
    return str(getattr(function, "__qualname__", "")).replace(".<locals>", "")


def borrowed(function: Any, warm_up: Sequence[Batch]) -> list[str]:
    """The variables of a function, or attributes of what is called, that are tensors of `warm_up`."""
    own = {part.untyped_storage().data_ptr() for batch in warm_up for part in batch}
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    held = dict(getattr(function, "__dict__", {}))
    for name, cell in zip(code.co_freevars if code else (), cells, strict=False):
        try:
            held[name] = cell.cell_contents
        except ValueError:  # nothing was put into it
            continue
    return [
        name
        for name, value in held.items()
        if value is not warm_up
        and any(isinstance(one, Tensor) and one.untyped_storage().data_ptr() in own for one in tree_leaves(value))
    ]


@contextmanager
def replays_noted(events: list[Event]) -> Iterator[None]:
    """Note each replay() of any graph."""

    def noting(original: Callable[[Any], None]) -> Callable[[Any], None]:
        def replay(graph: Any) -> None:
            events.append(("replay", "graph", []))
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
