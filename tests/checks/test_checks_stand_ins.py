"""Every stand-in of the checks is what a student may rightly take it for: by class, by name, by attributes."""

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import SGD
from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler

from lab.checks.common.attempt import NumberedImages
from lab.checks.common.pending import Handle
from lab.checks.common.stand_in import stand_in
from lab.checks.common.tiny import TinyNet
from lab.checks.distributed_utils.observe_setup import SetupRecorder
from lab.checks.fast.observe_batches import attributes
from lab.checks.fast.observe_epoch import Started
from lab.checks.main.observe_run import recorded_run
from lab.checks.train.draw import LISTED
from lab.checks.train.observe_epochs import SamplerNotes
from lab.training.run import Run

CHECKS = Path(__file__).resolve().parents[2] / "lab" / "checks"

# Class of the checks -> what it stands for; by its own name where a student's code may look at that.
STAND_INS: dict[str, type] = {
    "NotedSGD": SGD,
    "NotedRun": Run,
    "CountedRun": Run,
    "RecordedRun": Run,
    "ValidationShard": Dataset,
    "NumberedImages": Dataset,
    "Loaded": Dataset,
    "Batches": Iterator,
    "Chain": nn.Module,
    "TinyNet": nn.Module,
}
NAMED_LIKE = ("NotedSGD", "NotedRun", "CountedRun", "RecordedRun")
OTHERWISE = ("Handle", "Started", "SamplerNotes", "device")  # looked at below
# What no student's code gets hold of: recorders, and what they raise where a student's code is wrong.
OUT_OF_SIGHT = {
    *("Board", "SetupRecorder", "CallRecorder", "Destinations", "AtExit", "PretendedGPU", "Moves", "Waits"),
    *("Descent", "Verdict", "Look", "LeftBehindError", "WrongGroupError", "OffloadError", "RehearsedError"),
    *("WrongSourceError", "UnresolvedOptionsError", "GroupLeftError", "NoTestImagesError"),
    *("NeedlessWrapperError", "WrongArgumentsError", "Calls", "_OnGpu", "_GlooGroup", "NoMemoryError", "Devices"),
    *("Placed", "SomeRanks", "Wait", "Reads", "Written", "Touched", "Scattered"),
}


def classes() -> list[tuple[str, str]]:
    """(module, class) of all classes that observers define, inside of functions too."""
    found = []
    for path in sorted([*CHECKS.rglob("observe*.py"), *CHECKS.glob("common/*.py")]):
        module = ".".join(("lab.checks", *path.relative_to(CHECKS).with_suffix("").parts))
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [(module, node.name) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return found


def the_class(module: str, name: str) -> type:
    if name == "RecordedRun":
        return recorded_run(lambda *_, **__: None, str, {})
    return getattr(importlib.import_module(module), name)


def test_every_class_is_known_here():
    assert {name for _, name in classes()} == {*STAND_INS, *OTHERWISE, *OUT_OF_SIGHT}


@pytest.mark.parametrize(("module", "name"), [pair for pair in classes() if pair[1] in STAND_INS], ids=str)
def test_a_stand_in_is_one_by_class_by_name_and_by_its_attributes(module: str, name: str):
    kind, real = the_class(module, name), STAND_INS[name]
    assert issubclass(kind, real)
    assert {one for one in dir(real) if not one.startswith("_")} <= set(dir(kind))
    if name in NAMED_LIKE:
        assert kind.__name__ == kind.__qualname__ == real.__name__
        own = [value for value in vars(kind).values() if inspect.isfunction(value)]
        assert own
        assert all("<locals>" not in function.__qualname__ for function in own)


def test_the_sampler_is_pytorchs_own(monkeypatch: pytest.MonkeyPatch):
    for name in ("set_epoch", "__iter__"):  # put back afterwards
        monkeypatch.setattr(DistributedSampler, name, getattr(DistributedSampler, name))
    notes = SamplerNotes()
    sampler = notes.sampler(NumberedImages(torch.zeros(19, dtype=torch.int64)), [3, 4, 5], 2, 1)
    assert type(sampler) is DistributedSampler
    assert (sampler.num_replicas, sampler.rank, sampler.shuffle, sampler.drop_last) == (2, 1, True, True)
    assert len(sampler) == LISTED, "more than come from it: a sampler's length is no count of samples"
    sampler.set_epoch(4)
    assert sampler.epoch == 4
    assert sorted(sampler) == [3, 4, 5]
    assert (notes.told, notes.used) == ([4], [4])
    with pytest.raises(TypeError, match=r"set_epoch\(\) takes 2 positional arguments"):
        sampler.set_epoch(4, 5)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", [Handle, lambda work: Started(work, torch.zeros(1), "all_reduce", 1)])
def test_a_handle_is_a_work(world_of_one: None, kind: Callable[[dist.Work], Handle]):
    handle = kind(dist.all_reduce(torch.zeros(1), async_op=True))
    assert isinstance(handle, dist.Work)
    assert not handle.used
    handle.wait()
    assert handle.used


def test_a_recorded_function_keeps_name_and_signature():
    def train(model: nn.Module, loader: Any, *, run: Any = None) -> None:
        """Says what it does."""

    recorded = stand_in(train, lambda original, given: original(**given), ["model"])
    assert (recorded.__name__, recorded.__doc__) == ("train", "Says what it does.")
    assert inspect.signature(recorded) == inspect.signature(train)


def test_the_context_of_a_gpu_is_a_class_of_pytorchs():
    recorder = SimpleNamespace(gpus=2, events=[])
    kind = SetupRecorder._device_context(recorder, torch.cuda.device)  # type: ignore[arg-type]
    assert issubclass(kind, torch.cuda.device)
    assert kind.__name__ == "device"
    with kind(1):
        assert recorder.events == [{"call": "device"}]


@dataclass(slots=True)
class Slotted:
    images: list[int]


def test_what_an_object_holds_is_read_with_and_without_slots():
    assert attributes(Slotted([1])) == [[1]]
    assert attributes(SimpleNamespace(images=[1], size=2)) == [[1], 2]


def test_tiny_networks_have_blocks_as_all_networks():
    assert isinstance(TinyNet().blocks, nn.ModuleList)
