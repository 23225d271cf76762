"""What ranks observe of the training step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, TensorDataset

from lab.checks.common.attempt import attempt, dtype
from lab.checks.common.left_behind import swallowed_where, watched
from lab.checks.common.pretended_gpu import GPU, another_of, pretended_gpu
from lab.checks.common.stand_in import named_like
from lab.checks.common.tiny import (
    MOMENTUM,
    RATE,
    Batch,
    TinyNet,
    gradients_of,
    make_optimizer,
    quiet_run,
    weights_of,
)
from lab.ranks.rank import Rank
from lab.training.run import Run


@named_like(SGD)
class NotedSGD(SGD):
    """Notes each step, and the gradients it finds."""

    def __init__(self, net: nn.Module, events: list[str]) -> None:
        super().__init__(net.parameters(), lr=RATE, momentum=MOMENTUM)
        self.net = net
        self.events = events
        self.gradients: list[dict[str, Tensor]] = []

    def step(self, *args: Any, **kwargs: Any) -> Any:
        self.events.append("step")
        self.gradients.append(gradients_of(self.net))
        return super().step(*args, **kwargs)


@named_like(Run)
class NotedRun(Run):
    """Notes what the step leaves to the run: the backward pass and its gradients, and when autocast() is open."""

    def prepare(self) -> None:
        self.handed = 0
        self.opened = 0
        self.net: nn.Module | None = None
        self.after_backward: dict[str, Tensor] = {}  # the gradients of `net`

    def backward(self, loss: Tensor) -> None:
        self.handed += 1
        super().backward(loss)
        if self.net is not None:
            self.after_backward = gradients_of(self.net)

    @contextmanager
    def autocast(self) -> Iterator[None]:
        with super().autocast():
            self.opened += 1
            try:
                yield
            finally:
                self.opened -= 1


def noted_run(*more: str, precision: str = "fp32") -> NotedRun:
    run = quiet_run(NotedRun, *more, precision=precision)
    assert isinstance(run, NotedRun)
    run.prepare()
    return run


def take_steps(rank: Rank) -> dict[str, Any]:
    """Two steps in fp32, one with a nan on the last rank, one in bf16, one of a model that is not wrapped; and one
    that accumulates two batches."""
    train = rank.student("train")
    given = rank.receive()
    report: dict[str, Any] = {"steps": []}
    for precision in ("fp32", "bf16"):
        run = noted_run(precision=precision)
        net = run.net = TinyNet(given["weights"])
        model = DistributedDataParallel(net)
        events: list[str] = []
        types: list[str] = []
        opened: list[bool] = []
        note_passes(net, events, types, partial(note_opened, run, opened))
        optimizer = NotedSGD(net, events)
        for batch in given["batches"] if precision == "fp32" else given["batches"][:1]:
            events.clear()
            opened.clear()
            optimizer.gradients.clear()
            run.handed = 0
            images, labels = batch[rank.rank]
            reduced: list[str] = []
            with reductions_noted(reduced), watched(rank, model, optimizer, weights=False) as left:
                loss = train.train_step(model, optimizer, images, labels, run)
            if precision == "fp32":
                report["steps"].append(
                    {
                        "events": list(events),
                        "gradients": optimizer.gradients[0] if optimizer.gradients else {},
                        "after backward": run.after_backward,
                        "weights": weights_of(net),
                        "loss": describe_loss(loss),
                        "reduced": reduced,
                        "training": net.training,
                        "handed": run.handed,
                        "opened": all(opened[:1]),  # a second pass is none that is trained by
                        "left": left,
                    }
                )
        report[precision] = types[0] if types else "nothing"
        report[f"{precision} loss"] = dtype(loss)
        if precision == "fp32":
            events.clear()
            take_nan_step(rank, train, model, optimizer, images, labels, run)
    report["computed"], report["unwrapped"] = take_plain_step(rank, train, given["batches"][0][rank.rank])
    report["accumulated"] = accumulate(train, given["weights"], [batch[rank.rank] for batch in given["batches"]])
    batch = given["batches"][0][rank.rank]
    parts = ("zero_grad", "autocast", "forward", "backward", "step")
    report["swallowed"] = {part: step_failing_in(train, part, batch) for part in parts}
    net, run = TinyNet(), noted_run()
    run.device = GPU
    with pretended_gpu(str(train.__file__)) as devices, suppress(Exception):
        train.train_step(net, make_optimizer(net), *batch, run)
    report["asked"], report["waits"] = another_of(devices), [vars(one) for one in devices.waits[:1]]
    return report


def step_failing_in(train: ModuleType, part: str, batch: Batch) -> str:
    """What comes of a step in which the forward pass fails, or a method of the run's or the optimizer's."""
    net, run = TinyNet(), noted_run()
    optimizer = NotedSGD(net, [])
    failing = {"forward": net, "backward": run, "autocast": run}.get(part, optimizer)
    return swallowed_where([(failing, part)], train.train_step, net, optimizer, *batch, run)


def accumulate(train: ModuleType, weights: dict[str, Tensor], batches: list[Batch]) -> dict[str, Tensor]:
    """The gradients that the optimizer finds in its first step, which takes two batches: --accumulate 2.

    Empty where that cannot be told.
    """
    net = TinyNet(weights)
    model, events = DistributedDataParallel(net), list[str]()
    optimizer = NotedSGD(net, events)
    images, labels = (torch.cat(part) for part in zip(*batches, strict=True))
    loader: DataLoader = DataLoader(TensorDataset(images, labels), batch_size=len(batches[0][1]))
    try:
        with noted_run("--accumulate", "2", "--per-device-batch-size", str(loader.batch_size)) as run:
            run.begin(model, optimizer, loader)
            for images, labels in run.batches(loader):
                train.train_step(model, optimizer, images, labels, run)
    except Exception:  # noqa: BLE001 - on every rank alike, and the steps before this one say why
        return {}
    return optimizer.gradients[0] if optimizer.gradients else {}


def take_nan_step(
    rank: Rank, train: ModuleType, model: nn.Module, optimizer: NotedSGD, images: Tensor, labels: Tensor, run: Run
) -> None:
    """A step in which one rank's loss is nan. It is not judged: all ranks must come to its end, or none."""
    spoilt = rank.rank == rank.world_size - 1
    try:
        train.train_step(model, optimizer, images * float("nan") if spoilt else images, labels, run)
    except Exception:  # whatever a student raises for a nan is right; on the other ranks it is an error like any
        if not spoilt:
            raise
        if "backward" not in optimizer.events:  # to stop here is right; the others must not wait in this check
            F.cross_entropy(model(images), labels).backward()


class Descent(TorchDispatchMode):
    """Notes which tensors are computed from the results of a network; a number read from one has lost that."""

    def __init__(self) -> None:
        super().__init__()
        self._from_network: dict[int, Tensor] = {}  # by id; kept, so that no other tensor gets the same

    def add(self, tensor: Any) -> None:
        self._from_network[id(tensor)] = tensor

    def __contains__(self, tensor: Any) -> bool:
        return id(tensor) in self._from_network

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(isinstance(one, Tensor) and one in self for one in tree_leaves((args, kwargs or {}))):
            for one in tree_leaves(result):
                if isinstance(one, Tensor):
                    self.add(one)
        return result


def take_plain_step(rank: Rank, train: ModuleType, batch: Batch) -> tuple[bool, dict[str, Any] | None]:
    """Whether the loss of a step is a tensor computed from the network's results, and not a number made into one.

    The model is not wrapped: second, the error where one is missed. Where a step fails, the first is True.
    """
    net, descent = TinyNet(), Descent()
    net.register_forward_hook(lambda module, inputs, output: descent.add(output))
    with descent:
        result = attempt(rank, train.train_step, net, make_optimizer(net), *batch, quiet_run())
    loss, error = result["value"], result["error"]
    computed = error is not None or not isinstance(loss, Tensor) or loss in descent
    return computed, error if error and "AttributeError" in error["bases"] else None


@contextmanager
def reductions_noted(reduced: list[str]) -> Iterator[None]:
    """Note the step's own reductions of more than a number: DDP's are called elsewhere."""

    def noting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def collective(*args: Any, **kwargs: Any) -> Any:
            if any(isinstance(leaf, Tensor) and leaf.numel() > 1 for leaf in tree_leaves((args, kwargs))):
                reduced.append(name)
            return real(*args, **kwargs)

        return collective

    names = ("all_reduce", "reduce", "broadcast", "all_gather")
    noted: dict[str, Any] = {name: noting(name, getattr(dist, name)) for name in names}
    with mock.patch.multiple(dist, **noted):
        yield


def note_opened(run: NotedRun, opened: list[bool]) -> None:
    opened.append(run.opened > 0)


def note_passes(net: TinyNet, events: list[str], types: list[str], passing: Callable[[], object]) -> None:
    """Note each forward and backward pass through the last layer, and the type of its results."""

    def forward(module: nn.Module, inputs: Any, output: Tensor) -> None:
        passing()
        events.append("forward")
        types.append(dtype(output))

    net.classifier.register_forward_hook(forward)
    net.classifier.bias.register_post_accumulate_grad_hook(lambda parameter: events.append("backward"))


def describe_loss(loss: Any) -> dict[str, Any]:
    tensor = isinstance(loss, Tensor)
    number = loss.item() if tensor and loss.numel() == 1 else None
    return {
        "type": type(loss).__name__,
        "tensor": tensor,
        "graph": tensor and loss.requires_grad,
        "shape": list(loss.shape) if tensor else [],
        "value": float(number) if isinstance(number, int | float) else None,
    }
