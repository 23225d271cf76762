"""What ranks observe of the student's main.py: who calls what, in which order, with what.

main.run() runs as it is, with the student's own modules; in between stand recorders that hand every call on.
Only the data set is a tiny one, train() does not train, and nothing is written to disk.
"""

import hashlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import lab.training.datasets
import lab.training.filesystem
import lab.training.reporter
import lab.training.run
from lab.checks._observe import NumberedImages
from lab.grading.rank import Rank
from lab.training.datasets import DataSets
from lab.training.run import EpochRecord, Run

MIB = 2**20


class WrongCallError(Exception):
    """main.py calls something with what would only fail later, in a place that misleads."""


class NeedlessWrapperError(Exception):
    """main.py wraps a model that trains on one device, without other ranks."""


def rehearse(rank: Rank) -> dict[str, Any]:
    """Run main.run() with the judge's command line."""
    recorder = Recorder(rank)
    recorder.install()
    main = rank.student("main")
    given = recorder.given = rank.receive()
    torch.manual_seed(given["noise"] + rank.rank)  # so that ranks start alike only if main.py sees to it
    records = main.run(main.parse_args(given["argv"]))
    return {
        "events": recorder.events,
        "returned": "records" if records is recorder.records else type(records).__name__,
        "group_left": not dist.is_initialized(),
    }


class Recorder:
    """The calls of one rank, in order, as plain data."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.events: list[dict[str, Any]] = []
        self.given: dict[str, Any] = {}
        self.records = [EpochRecord(1, 1.0, 1.0, 0.5, 0.5, 1.0, 1.0, 1)]  # what train() returns
        self._datasets: DataSets | None = None
        self._loaders: tuple[Any, ...] = ()
        self._in_load_once = 0

    def install(self) -> None:
        """Stand between main.py and what it imports; to be called before it is imported."""
        lab.training.datasets.load_datasets = self._stand_in(
            lab.training.datasets.load_datasets, self.load_datasets
        )
        lab.training.filesystem.is_first_on_filesystem = self.is_first_on_filesystem
        lab.training.reporter.Reporter.open_folder = lambda reporter: None  # type: ignore[method-assign, assignment, return-value]
        lab.training.run.Run = self._recording_run()  # type: ignore[misc]
        modules = {name: self.rank.student(name) for name in ("distributed_utils", "data", "model", "train")}
        modules |= {name: self.rank.student(name) for name in ("ddp_utils", "fsdp_utils")}
        self._record(modules["distributed_utils"], "setup", self.setup)
        self._record(modules["distributed_utils"], "cleanup", self.cleanup)
        self._record(modules["data"], "load_once", self.load_once)
        self._record(modules["data"], "get_dataloaders", self.get_dataloaders)
        self._record(modules["model"], "build_model", self.build_model)
        self._record(modules["ddp_utils"], "get_ddp_model", self.wrap)
        self._record(modules["fsdp_utils"], "get_fsdp_model", self.wrap)
        self._record(modules["train"], "train", self.train)

    def note(self, call: str, **details: Any) -> None:
        self.events.append({"call": call, **details})

    # ---- the recorders: each gets the original function and its arguments by name

    def setup(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        device = original(**arguments)
        self.note("setup")
        # A model on "meta" was moved there, which could not be told of one on the CPU.
        return torch.device("meta") if self.given["meta_device"] else device

    def cleanup(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        self.note("cleanup")
        return original(**arguments)

    def load_once(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        self.note("load_once", is_first=arguments.get("is_first") is True)
        self._in_load_once += 1
        try:
            return original(**arguments)
        finally:
            self._in_load_once -= 1

    def load_datasets(self, original: Callable[..., Any], arguments: dict[str, Any]) -> DataSets:
        self.note(
            "load_datasets",
            inside=self._in_load_once > 0,
            name=str(arguments["name"]),
            data_dir=str(arguments["data_dir"]),
            validation=str(arguments["validation"]),
        )
        labels, classes = torch.arange(self.given["samples"]) % 2, self.given["classes"]
        train = NumberedImages(labels, shape=(3, 32, 32))
        valid = NumberedImages(labels[1:], first=1000, shape=(3, 32, 32))
        train.classes = valid.classes = classes
        self._datasets = DataSets(train, valid, None, tuple(classes))  # type: ignore[arg-type]
        return self._datasets

    def is_first_on_filesystem(self, *_: Any, **__: Any) -> bool:
        return self.rank.rank in self.given["first"]

    def get_dataloaders(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        batch = arguments["global_batch_size"]
        if not isinstance(batch, int):
            raise WrongCallError(f"get_dataloaders() got global_batch_size={batch!r}")
        sets = {id(self._datasets.train): "train", id(self._datasets.valid): "valid"} if self._datasets else {}
        self.note(
            "get_dataloaders",
            sets=[sets.get(id(arguments[name]), "other") for name in ("train_set", "valid_set")],
            global_batch_size=batch,
            num_workers=int(arguments.get("num_workers", -1)),
            seed=int(arguments.get("seed", -1)),
        )
        loaders = original(**arguments)
        self._loaders = tuple(loaders)
        return loaders

    def build_model(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        model = original(**arguments)
        weights = [
            parameter.detach().cpu().contiguous() for parameter in model.parameters() if not parameter.is_meta
        ]
        digest = hashlib.sha256(b"".join(weight.numpy().tobytes() for weight in weights)).hexdigest()
        self.note(
            "build_model",
            name=str(arguments.get("name")),
            num_classes=int(arguments.get("num_classes", -1)),
            digest=digest,
            weight=float(weights[0].flatten()[0]) if weights else 0.0,
        )
        return model

    def wrap(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        self.note("wrap", by=original.__name__, precision=str(arguments.get("precision", "")))
        if self.given["meta_device"]:
            raise NeedlessWrapperError(f"{original.__name__}() was called")
        return original(**arguments)

    def train(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        loaders = {id(loader): name for loader, name in zip(self._loaders, ("train", "valid"), strict=False)}
        self.note(
            "train",
            loaders=[loaders.get(id(arguments[name]), "other") for name in ("train_loader", "valid_loader")],
            run=isinstance(arguments["run"], Run),
            group=dist.is_initialized(),
            **describe(arguments["model"], arguments["optimizer"]),
        )
        return self.records

    # ---- how they come between

    def _record(self, module: ModuleType, name: str, recorder: Callable[..., Any]) -> None:
        if hasattr(module, name):  # else main.py cannot be imported, and that is what the student should see
            setattr(module, name, self._stand_in(getattr(module, name), recorder))

    @staticmethod
    def _stand_in(original: Callable[..., Any], recorder: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = dict(bound.arguments)
            for parameter in signature.parameters.values():
                if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                    arguments |= arguments.pop(parameter.name)  # each by the name that the caller gave it
            return recorder(original, arguments)

        return recorded

    def _recording_run(self) -> type[Run]:
        note = self.note

        class RecordingRun(Run):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                note("Run")

            def __enter__(self) -> "Run":
                note("enter")
                return super().__enter__()

            def __exit__(self, *error: Any) -> None:
                note("exit")
                super().__exit__(*error)

            def begin(self, model: nn.Module, optimizer: Any, train_loader: Any) -> None:
                note("begin", **describe(model, optimizer))
                super().begin(model, optimizer, train_loader)

        return RecordingRun


def describe(model: Any, optimizer: Any) -> dict[str, Any]:
    """How the model is wrapped, where it is, and whether the optimizer holds its parameters."""
    if not isinstance(model, nn.Module) or not isinstance(optimizer, Optimizer):
        return {"kind": f"{type(model).__name__} and {type(optimizer).__name__}"}
    parameters = {id(parameter) for parameter in model.parameters()}
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    group = optimizer.param_groups[0]
    return {
        "kind": kind_of(model),
        "bucket_mb": float(getattr(model, "bucket_bytes_cap", 0)) / MIB,
        "devices": sorted({parameter.device.type for parameter in model.parameters()}),
        "parameters": len(parameters),
        "held": len(held & parameters),
        "foreign": len(held - parameters),
        "optimizer": type(optimizer).__name__,
        "lr": float(group["lr"]),
        "momentum": float(group.get("momentum", 0)),
        "weight_decay": float(group.get("weight_decay", 0)),
    }


def kind_of(model: nn.Module) -> str:
    """The value of --strategy that a model is wrapped for."""
    if isinstance(model, DistributedDataParallel):
        return "ddp"
    if isinstance(model, FullyShardedDataParallel):
        return "fsdp1"
    return "fsdp" if isinstance(model, FSDPModule) else "none"
