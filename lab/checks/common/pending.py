"""For observers: collectives that were started with async_op=True, and whether anybody waits for them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch.distributed as dist


class Handle:
    """Stands for the handle of a collective with async_op=True; notes whether anybody asks it for anything."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self.used = False

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._work)  # for isinstance(handle, dist.Work)

    def __getattr__(self, name: str) -> Any:
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
            pending.append(Handle(work))
            return pending[-1]

        return call

    names = ("all_reduce", "reduce", "broadcast", "all_gather")
    noted: dict[str, Any] = {name: noting(getattr(dist, name)) for name in names}
    with mock.patch.multiple(dist, **noted):
        yield
