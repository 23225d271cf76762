"""For observers: collectives that were started with async_op=True, and whether anybody waits for them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch.distributed as dist
from torch import Tensor


class Handle:
    """Stands for the handle of a collective with async_op=True; notes whether anybody asks it for anything.

    Attributes:
        overtaken: whether the collective's tensor had been changed already when that was done first. Parts of one
            flat tensor are counted as one by PyTorch, so of these it is not known.
    """

    def __init__(self, work: Any, tensor: Any = None) -> None:
        self._work = work
        self.used = self.overtaken = False
        base = getattr(tensor, "_base", None)
        known = isinstance(tensor, Tensor) and (base is None or base.numel() == tensor.numel())
        self._tensor: Any = tensor if known else None
        self._version: int = tensor._version if known else 0

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._work)  # for isinstance(handle, dist.Work)

    def __getattr__(self, name: str) -> Any:
        if not self.used and self._tensor is not None:
            self.overtaken = self._tensor._version != self._version
        self.used = True
        return getattr(self._work, name)


@contextmanager
def handles_noted(pending: list[Handle]) -> Iterator[None]:
    """Put the handles of asynchronous collectives into `pending`."""

    def noting(collective: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            work = collective(*args, **kwargs)
            if not kwargs.get("async_op"):
                return work
            pending.append(Handle(work, args[0] if args else kwargs.get("tensor")))
            return pending[-1]

        return call

    names = ("all_reduce", "reduce", "broadcast", "all_gather")
    noted: dict[str, Any] = {name: noting(getattr(dist, name)) for name in names}
    with mock.patch.multiple(dist, **noted):
        yield
