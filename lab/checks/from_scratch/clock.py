"""In a rank: when it computes and communicates, on a clock that all processes of a machine share."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch._C._distributed_c10d as c10d
from torch import Tensor

Note = Callable[[str, float, float], None]  # "F" or "B", begin and end in seconds


class Busy(torch.autograd.Function):
    """Nothing, which takes `seconds` in each direction: so a picture does not depend on the machine's cores."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float, note: Note) -> Tensor:
        ctx.seconds, ctx.note = seconds, note
        busy("F", seconds, note)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        busy("B", ctx.seconds, ctx.note)
        return gradient, None, None


def busy(kind: str, seconds: float, note: Note) -> None:
    begin = time.monotonic()
    time.sleep(seconds)
    note(kind, begin, time.monotonic())


@contextmanager
def all_reduces() -> Iterator[list[dict[str, Any]]]:
    """A list that gets an entry for each all-reduce: {"bytes", "begin", "end"}; end is set when it is complete."""
    noted: list[dict[str, Any]] = []
    group: Any = c10d.ProcessGroup
    original = group.allreduce

    def allreduce(self: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        every = [tensors] if isinstance(tensors, Tensor) else tensors
        size = sum(tensor.numel() * tensor.element_size() for tensor in every)
        entry = {"bytes": size, "begin": time.monotonic(), "end": None}
        noted.append(entry)
        work = original(self, tensors, *args, **kwargs)
        work.get_future().then(lambda _: entry.update(end=time.monotonic()))
        return work

    with mock.patch.object(group, "allreduce", allreduce):
        yield noted


@contextmanager
def sends() -> Iterator[list[tuple[int, Tensor]]]:
    """A list that gets (peer, tensor) for each message that this rank begins to send."""
    noted: list[tuple[int, Tensor]] = []
    group: Any = c10d.ProcessGroup
    original = group.send

    def send(self: Any, tensors: Any, peer: int, *args: Any) -> Any:
        noted.append((peer, tensors[0]))
        return original(self, tensors, peer, *args)

    with mock.patch.object(group, "send", send):
        yield noted
