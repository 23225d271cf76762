"""A Run that notes what main.py does with it, and how the model looks then."""

import contextlib
import copy
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import lab.training
from lab.base.errors import UserError
from lab.checks.common.attempt import NumberedImages, dtype
from lab.checks.common.stand_in import WrongArgumentsError, named_like
from lab.training.data.datasets import DataSets
from lab.training.run import Run

MIB = 2**20


def in_words(value: Any) -> str:
    """An argument, as its mistaken place is told of."""
    if isinstance(value, torch.device):
        return f"the device {value}"
    return "the Run" if isinstance(value, Run) else f"a {type(value).__name__}"


def drawn_datasets(given: Mapping[str, Any], *, augmented: bool) -> DataSets:
    """As load_datasets() returns them, of images that can be told apart. Args: `given` is what the judge sent."""
    labels, classes = torch.arange(given["samples"]) % 2, given["classes"]
    parts = [NumberedImages(labels[i:], first=1000 * i, shape=(3, 32, 32)) for i in range(3)]
    for part in parts:
        part.classes = classes
    train, valid, test = parts
    train.pipeline = "given" if augmented else None  # type: ignore[attr-defined]
    return DataSets(train, valid, test if given["test_set"] else None, tuple(classes))  # type: ignore[arg-type]


def recorded_run(note: Callable[..., None], role: Callable[[Any], str], given: Mapping[str, Any]) -> type[Run]:
    """The class that stands in for Run.

    Args:
        note: takes the name of a call and its details, as plain data.
        role: says which loader one is.
        given: what the judge sent; by the time that a Run is made.
    """

    @named_like(Run)
    class RecordedRun(Run):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            if given["evaluate_only"]:  # on the command line it would need a checkpoint
                bound = inspect.signature(Run.__init__).bind(self, *args, **kwargs).arguments
                bound["args"].evaluate_only = self.args.evaluate_only = True
            note("Run", device=str(self.device), records=self._keeps or self.args.dry_run)
            self.begun: Any = None

        def __enter__(self) -> "Run":
            note("enter")
            return super().__enter__()

        def __exit__(self, *error: Any) -> None:
            note("exit", group=dist.is_initialized())
            super().__exit__(*error)

        def prepare_model(self, model: nn.Module) -> nn.Module:
            if not isinstance(model, nn.Module):
                raise WrongArgumentsError(f"this_run.prepare_model() got a {type(model).__name__}, not the model")
            note("prepare_model", kind=kind_of(model))
            prepared = super().prepare_model(model)
            if kind_of(prepared) == "none":
                prepared = copy.copy(prepared)  # with the same parameters, but to be told from the one given
                prepared.prepared_by_the_run = True  # type: ignore[assignment]
            return prepared

        def begin(self, model: nn.Module, optimizer: Any, train_loader: Any) -> None:
            found = describe(model, optimizer)
            if found["kind"] not in STRATEGIES:
                raise WrongArgumentsError(f"this_run.begin() got {found['kind']} in place of model and optimizer")
            loader = role(train_loader)
            note("begin", loader=loader, **found)
            self.begun = model, optimizer
            if loader == "train":
                # Of a batch that does not fit, the judge has more to say.
                with contextlib.suppress(UserError):
                    super().begin(model, optimizer, train_loader)

        def evaluate(self, model: nn.Module, datasets: Any, loader: Any) -> None:
            if not isinstance(datasets, DataSets) or not callable(loader):
                raise WrongArgumentsError(
                    f"this_run.evaluate() got {in_words(model)}, {in_words(datasets)} and {in_words(loader)}, not "
                    "the model, the data sets and a function that makes the loader of some images"
                )
            parts = [images for images in (datasets.valid, datasets.test) if images is not None]
            note("run_evaluate", loaders=[role(loader(images)) for images in parts])

        def record_test(self, loss: float, accuracy: float) -> None:
            for value in (loss, accuracy):
                if not isinstance(value, int | float):
                    raise WrongArgumentsError(
                        f"this_run.record_test() got a {type(value).__name__} in place of loss or accuracy"
                    )
            note("record_test", loss=float(loss), accuracy=float(accuracy))

    return RecordedRun


def line_in_main(code: Path | None) -> int:
    """The line of the student's main.py that is being run, the innermost; 0 outside of it."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != str(code and code / "main.py"):
        frame = frame.f_back  # type: ignore[assignment]
    return frame.f_lineno if frame is not None else 0


STRATEGIES = ("none", "ddp", "fsdp", "fsdp1")


def kind_of(model: nn.Module) -> str:
    """The value of --strategy that a model is wrapped for."""
    if isinstance(model, DistributedDataParallel):
        return "ddp"
    if isinstance(model, FullyShardedDataParallel):
        return "fsdp1"
    return "fsdp" if isinstance(model, FSDPModule) else "none"


def describe(model: Any, optimizer: Any) -> dict[str, Any]:
    """How the model is wrapped, where it is, and whether the optimizer holds its parameters."""
    if not isinstance(model, nn.Module) or not isinstance(optimizer, Optimizer):
        return {"kind": f"{type(model).__name__} and {type(optimizer).__name__}"}
    parameters = {id(parameter) for parameter in model.parameters()}
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    group = optimizer.param_groups[0]
    return {
        "kind": kind_of(model),
        "prepared": any(hasattr(module, "prepared_by_the_run") for module in model.modules()),
        "bucket_mb": float(getattr(model, "bucket_bytes_cap", 0)) / MIB,
        "devices": sorted({parameter.device.type for parameter in model.parameters()}),
        "types": sorted({dtype(parameter) for parameter in model.parameters()}),
        "parameters": len(parameters),
        "held": len(held & parameters),
        "foreign": len(held - parameters),
        "optimizer": type(optimizer).__name__,
        "lr": float(group["lr"]),
        "momentum": float(group.get("momentum", 0)),
        "weight_decay": float(group.get("weight_decay", 0)),
    }


def replace(home: types.ModuleType, name: str, by: object) -> None:
    """Where it is defined, and in lab.training, from where students import it."""
    setattr(home, name, by)
    setattr(lab.training, name, by)
