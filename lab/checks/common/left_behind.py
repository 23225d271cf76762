"""For observers: what a student's function leaves behind. State that is changed, files that are written, and
errors that did not come out."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from lab.base.paths import PACKAGE
from lab.checks.common.tiny import weights_of
from lab.ranks.rank import Rank

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


COLLECTIVES: list[tuple[Any, str]] = [
    (dist, name)
    for name in ("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "all_gather_object")
]


class NoMemoryError(torch.OutOfMemoryError, ValueError, OSError):
    """An error that whoever catches one kind or another catches."""


NoMemoryError.__name__ = NoMemoryError.__qualname__ = "OutOfMemoryError"


def no_memory(*_: object, **__: object) -> Any:
    raise NoMemoryError("CUDA out of memory")


def swallowed(function: Callable[..., object], *args: object) -> str:
    """The type of what a function returned in which something raised; "" where that came out, or another error."""
    try:
        return type(function(*args)).__name__
    except Exception:  # noqa: BLE001 - to raise another one says it too
        return ""


def collectives_begun() -> int:
    """How many collectives this rank has begun, and groups it has made."""
    if not dist.is_initialized():
        return 0
    group: Any = dist.distributed_c10d._get_default_group()
    number: int = group._get_sequence_number_for_group()
    return number + int(dist.distributed_c10d._world.group_count)


@contextmanager
def collectives_skipped() -> Iterator[None]:
    """In here no rank waits for another."""
    with ExitStack() as stack:
        for module, name in COLLECTIVES:
            skipped = lambda *_, **kwargs: mock.Mock() if kwargs.get("async_op") else None  # noqa: E731
            stack.enter_context(mock.patch.object(module, name, skipped))
        yield


def swallowed_where(targets: Sequence[tuple[Any, str]], function: Callable[..., object], *args: object) -> str:
    """The same where these attributes of these objects raise; "" too where none of them was called.

    Other collectives do nothing: it may be that only some ranks fail.
    """
    called: list[None] = []

    def fail(*_: object, **__: object) -> Any:
        called.append(None)
        no_memory()

    with collectives_skipped(), ExitStack() as stack:
        for target, name in targets:
            stack.enter_context(mock.patch.object(target, name, fail))
        instead = swallowed(function, *args)
    return instead if called else ""


@contextmanager
def watched(
    rank: Rank, model: nn.Module, optimizer: Optimizer | None = None, *, weights: bool = True
) -> Iterator[dict[str, Any]]:
    """Filled at the end: {"changed": keys of what is no longer as it was, "files": those that were written}.

    Args:
        weights: whether these have to be what they were too. Those of FSDP come in other parts after each pass.
    """
    left: dict[str, Any] = {"changed": [], "files": []}
    before = _state(model, optimizer, weights)
    with _files_noted(rank.code, left["files"]):
        yield left
    after = _state(model, optimizer, weights)
    left["changed"] = [key for key, value in before.items() if after[key] != value]


def _state(model: nn.Module, optimizer: Optimizer | None, weights: bool) -> dict[str, Any]:
    groups = optimizer.param_groups if optimizer else []
    return {
        "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
        "types": [str(parameter.dtype) for parameter in model.parameters()],
        "weights": [value.tolist() for value in weights_of(model).values()] if weights else [],
        "hooks": [len(getattr(module, name, ())) for module in model.modules() for name in _HOOKS],
        "options": [
            {name: value for name, value in group.items() if isinstance(value, int | float)} for group in groups
        ],
        "gradients": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "default type": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "seed": torch.initial_seed(),
    }


@contextmanager
def _files_noted(code: Path | None, files: list[dict[str, Any]]) -> Iterator[None]:
    """Files that the student's own lines open for writing: name and line."""
    on = True

    def note(path: object) -> None:
        if not isinstance(path, str | os.PathLike) or "__pycache__" in str(path) or str(path).startswith("/dev/"):
            return
        frame: Any = sys._getframe(2)  # who opens it
        while frame is not None:
            file = Path(frame.f_code.co_filename)
            if code is not None and file.is_relative_to(code):
                files.append({"name": Path(path).name, "line": frame.f_lineno})
                return
            if file.is_relative_to(PACKAGE):
                return  # the run's own
            frame = frame.f_back

    def opened(event: str, args: tuple[Any, ...]) -> None:
        if on and event == "open":
            path, mode, flags = args
            writes = set(mode) & set("wax+") if isinstance(mode, str) else (flags or 0) & (os.O_WRONLY | os.O_RDWR)
            if writes:
                note(path)

    def saving(data: object, f: object, *args: Any, **kwargs: Any) -> None:
        note(f)  # PyTorch opens it outside of Python
        save(data, f, *args, **kwargs)

    save: Callable[..., None] = torch.save
    sys.addaudithook(opened)  # for good: there is no way to take one away
    try:
        with mock.patch.object(torch, "save", saving):
            yield
    finally:
        on = False
