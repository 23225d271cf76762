"""What ranks observe of the student's main.py: who calls what, in which order, with what.

main.run() runs as it is, with the student's own modules; in between stand recorders that hand every call on.
Only the data set is a tiny one, train() does not train, and nothing is written to disk.
"""

import argparse
import contextlib
import copy
import functools
import hashlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import lab.base.files
import lab.training.data.datasets
import lab.training.run
import lab.training.watching.reporter
from lab.checks.common.left_behind import no_memory, swallowed
from lab.checks.common.meta_device import META, pretending, runs_elsewhere
from lab.checks.common.stand_in import WrongArgumentsError, stand_in
from lab.checks.main.observe_errors import (
    GroupLeftError,
    NeedlessWrapperError,
    NoTestImagesError,
    RehearsedError,
    UnresolvedOptionsError,
    come_out_of,
)
from lab.checks.main.observe_run import describe, drawn_datasets, in_words, line_in_main, recorded_run, replace
from lab.ranks.rank import Rank
from lab.runs.records.epoch_record import EpochRecord
from lab.training.data.datasets import DataSets, load_datasets
from lab.training.run import Run

FAILING = "an error"  # in place of a precision: no wrapper can be made
EVENT_FILE = "lab.training.watching.event_file"


def rehearse(rank: Rank) -> dict[str, Any]:
    """Run main.run() with the judge's command line."""
    recorder = CallRecorder(rank)
    recorder.install()
    main = rank.student("main")
    recorder.install_in(main)
    given = rank.receive()
    recorder.given.update(given)
    torch.manual_seed(given["noise"] + rank.rank)  # so that ranks start alike only if main.py sees to it
    records = None
    # On "meta" there are no numbers to be read: of the weights, say.
    device = pretending(None) if given["meta_device"] else contextlib.nullcontext()
    with device, come_out_of(given["fails"], recorder.events) as come_out:
        records = main.run(main.parse_args(given["argv"]))
    kind = "an empty list" if isinstance(records, list) and not records else type(records).__name__
    return {
        "events": recorder.events,
        "returned": "records" if records == recorder.records else kind,
        "group_left": not dist.is_initialized(),
        "come_out": come_out,
    }


class CallRecorder:
    """The calls of one rank, in order, as plain data."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.events: list[dict[str, Any]] = []
        self.given: dict[str, Any] = {}
        self.records = [EpochRecord(n, 1.0, 1.0, 0.5, 0.5, 1.0, 1.0, 1) for n in (1, 2)]  # what train() returns
        self._datasets = DataSets(None, None, None, ())  # type: ignore[arg-type]
        self._loaders: list[tuple[Any, str]] = []
        self._evaluation: Callable[..., Any] = types.SimpleNamespace
        self._in_load_once = 0
        self._device: Any = None  # of setup()
        self._trained: Any = None  # the model that came to train()
        self._asked = ""  # the precision with which wrap_model() is called only to see what it does; or FAILING

    def install(self) -> None:
        """Stand between main.py and what it imports; to be called before it is imported."""
        replace(lab.training.data.datasets, "load_datasets", stand_in(load_datasets, self.load_datasets))
        asked = stand_in(lab.base.files.is_first_on_filesystem, self.is_first_on_filesystem, ["path"])
        replace(lab.base.files, "is_first_on_filesystem", asked)
        replace(lab.training.run, "Run", recorded_run(self.note, self.role, self.given))
        lab.training.watching.reporter.Reporter.open_folder = lambda *_: None  # type: ignore[method-assign, assignment]
        if importlib.util.find_spec("tensorboard"):  # no curves are drawn: to import it for that takes 0.1 s
            sys.modules.setdefault(EVENT_FILE, types.ModuleType(EVENT_FILE))
        modules = {name: self.rank.student(name) for name in ("distributed_utils", "data", "model", "train")}
        modules |= {name: self.rank.student(name) for name in ("ddp_utils", "fsdp_utils")}
        self._record(modules["distributed_utils"], "setup", self.setup)
        self._record(modules["distributed_utils"], "cleanup", self.cleanup)
        self._record(modules["data"], "load_once", self.load_once, "load", "is_first")
        sets = ("train_set", "valid_set", "global_batch_size")
        self._record(modules["data"], "get_dataloaders", self.get_dataloaders, *sets)
        self._record(modules["model"], "build_model", self.build_model, "name", "num_classes")
        self._record(modules["ddp_utils"], "get_ddp_model", self.wrap, "model", "device")
        self._record(modules["fsdp_utils"], "get_fsdp_model", self.wrap, "model", "device")
        self._record(modules["fsdp_utils"], "get_fsdp1_model", self.wrap, "model", "device")
        trained = ("model", "optimizer", "train_loader", "valid_loader", "run")
        self._record(modules["train"], "train", self.train, *trained)
        self._record(modules["train"], "evaluate", self.evaluate, "model", "loader", "device")
        self._evaluation = getattr(modules["train"], "Evaluation", types.SimpleNamespace)

    def install_in(self, main: types.ModuleType) -> None:
        """The same for what run() finds in main.py itself."""
        self._record(main, "wrap_model", self.wrap_model, "model", "device", "args")

    def note(self, call: str, **details: Any) -> None:
        self.events.append({"call": call, **details})

    # ---- the recorders: each gets the original function and its arguments by name

    def setup(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        device = original(**arguments)
        # A model on "meta" was moved there, which could not be told of one on the CPU.
        device = META if self.given["meta_device"] else device
        self._device = device
        self.note("setup", device=str(device))
        return device

    def cleanup(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        self.note("cleanup")
        return original(**arguments)

    def is_first_on_filesystem(self, original: Callable[..., Any], arguments: dict[str, Any]) -> bool:
        self.note("is_first_on_filesystem", path=str(arguments["path"]))
        return self.rank.rank in self.given["first"]

    def load_once(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        load = arguments["load"]
        if isinstance(load, DataSets):
            raise WrongArgumentsError("load_once() got the data sets themselves, not a function that loads them")
        if not callable(load):
            raise WrongArgumentsError(f"load_once() got {in_words(load)} in place of a function that loads")
        try:
            inspect.signature(load).bind()
        except TypeError:
            raise WrongArgumentsError(
                "load_once() calls load(), which is a function that needs arguments"
            ) from None
        self.note("load_once", is_first=bool(arguments["is_first"]))
        self._in_load_once += 1
        try:
            return original(**arguments)
        finally:
            self._in_load_once -= 1

    def load_datasets(self, original: Callable[..., Any], arguments: dict[str, Any]) -> DataSets:
        plain = {name: value if isinstance(value, int) else str(value) for name, value in arguments.items()}
        self.note("load_datasets", inside=self._in_load_once > 0, arguments=plain)
        self._datasets = drawn_datasets(self.given, augmented=bool(arguments["augment"]))
        return self._datasets

    def get_dataloaders(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        self._need_the_group("get_dataloaders")
        batch = arguments["global_batch_size"]
        if batch is None:
            raise UnresolvedOptionsError("get_dataloaders() got global_batch_size=None")
        if not isinstance(batch, int):
            raise WrongArgumentsError(f"get_dataloaders() got global_batch_size={batch!r}")
        if arguments["valid_set"] is None and self._datasets.test is None:
            raise NoTestImagesError("get_dataloaders() got None for the images")
        sets = [self._part(arguments[name]) for name in ("train_set", "valid_set")]
        known = ("train_set", "valid_set", "global_batch_size", "num_workers", "seed")
        self.note(
            "get_dataloaders",
            line=line_in_main(self.rank.code),
            sets=sets,
            global_batch_size=batch,
            num_workers=int(arguments.get("num_workers", 0)),
            seed=int(arguments.get("seed", 0)),
            options={name: repr(value) for name, value in arguments.items() if name not in known},
        )
        loaders = original(**arguments)
        train, valid = sets
        kinds = (
            train if train == "train" else f"shuffled {train}",
            valid if valid != "train" else "unshuffled train",
        )
        self._loaders += zip(loaders, kinds, strict=False)
        return loaders

    def role(self, loader: Any) -> str:
        """Which loader this is: "train", "valid" and "test" are those that they should be."""
        for known, role in self._loaders:
            if known is loader:
                return role
        shard = getattr(loader, "dataset", None)
        if type(shard).__name__ == "ValidationShard" and self._part(getattr(shard, "dataset", None)) == "test":
            return "test"
        return f"a {type(loader).__name__}"

    def _part(self, dataset: Any) -> str:
        parts = ("train", "valid", "test")
        found = (part for part in parts if dataset is not None and getattr(self._datasets, part) is dataset)
        return next(found, "other")

    def build_model(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        for name, kind in (("name", str), ("num_classes", int)):
            if not isinstance(arguments[name], kind):
                raise WrongArgumentsError(f"build_model() got {in_words(arguments[name])} in place of {name}")
        known, seed = ("name", "num_classes"), torch.initial_seed()
        right = arguments["name"] == self.given["model"]  # else the options would be another network's
        model = original(**{name: value for name, value in arguments.items() if right or name in known})
        weights = [
            parameter.detach().cpu().contiguous() for parameter in model.parameters() if not parameter.is_meta
        ]
        digest = hashlib.sha256(b"".join(weight.numpy().tobytes() for weight in weights)).hexdigest()
        self.note(
            "build_model",
            name=str(arguments.get("name")),
            num_classes=int(arguments.get("num_classes", -1)),
            options={name: repr(value) for name, value in arguments.items() if name not in known},
            digest=digest,
            weight=float(weights[0].flatten()[0]) if weights else 0.0,
            seed=seed,
        )
        return model

    def wrap_model(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Asks for another device and precision too, to see what is handed on, and what comes of an error."""
        self.note("wrap_model")
        model, args = original(**arguments), arguments.get("args")
        if isinstance(args, argparse.Namespace) and args.strategy != "none":
            other = copy.copy(args)
            if args.strategy != "ddp":
                other.precision = "bf16" if args.precision == "fp32" else "fp32"
            self._asked = other.precision
            changed = arguments | {"model": nn.Linear(1, 1), "device": META, "args": other}
            # Whatever else it does there, with a model and a device that are made up, says nothing.
            runs_elsewhere(functools.partial(original, **changed))
        failing = nn.Linear(1, 1)
        if isinstance(args, argparse.Namespace) and args.strategy == "none":
            failing.to = failing.cuda = no_memory  # type: ignore[method-assign]
        self._asked = FAILING
        instead = swallowed(functools.partial(original, **arguments | {"model": failing, "device": META}))
        self.note("wrap_failed", instead=instead)
        self._asked = ""
        return model

    def wrap(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        if self._asked == FAILING:
            no_memory()
        if self._asked:
            precision, device = str(arguments.get("precision", "")), str(arguments["device"])
            self.note("asked", by=original.__name__, asked=self._asked, precision=precision, device=device)
            return arguments["model"]
        self.note("wrap", by=original.__name__, precision=str(arguments.get("precision", "")))
        if self.given["meta_device"]:
            raise NeedlessWrapperError(f"{original.__name__}() was called")
        return original(**arguments)

    def train(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        self._need_the_group("train")
        model, optimizer, run = (arguments[name] for name in ("model", "optimizer", "run"))
        begun = getattr(run, "begun", None) or (None, None)
        self._trained = model
        self.note(
            "train",
            loaders=[self.role(arguments[name]) for name in ("train_loader", "valid_loader")],
            made_by=[known is arguments["train_loader"] for known, _ in self._loaders[::2]],
            run=isinstance(run, Run),
            same_model=begun[0] is model,
            same_optimizer=begun[1] is optimizer,
            **describe(model, optimizer),
        )
        if self.given["fails"]:
            raise RehearsedError("the loss is not a number any more")
        return self.records

    def evaluate(self, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        self._need_the_group("evaluate")
        model, loader, device = (arguments[name] for name in ("model", "loader", "device"))
        if not isinstance(model, nn.Module):
            raise WrongArgumentsError(f"evaluate() got {in_words(model)} in place of the model")
        if self._trained is not None and model is not self._trained:
            raise WrongArgumentsError("evaluate() got another model than train()")
        if self._device is not None and str(device) != str(self._device):
            raise WrongArgumentsError(f"evaluate() got {in_words(device)}, not the device that setup() returned")
        self.note("evaluate", on=self.role(loader))
        loss, accuracy = self.given["test"]
        return self._evaluation(loss=loss, accuracy=accuracy)

    def _need_the_group(self, call: str) -> None:
        if not dist.is_initialized() and any(event["call"] == "setup" for event in self.events):
            raise GroupLeftError(f"the process group was gone when {call}() was called")

    # ---- how they come between

    def _record(self, module: types.ModuleType, name: str, recorder: Callable[..., Any], *names: str) -> None:
        if hasattr(module, name):  # else main.py cannot be imported, and that is what the student should see
            setattr(module, name, stand_in(getattr(module, name), recorder, names))
