"""In a rank: who uses what a collective is still filling, because nobody has waited for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lab.checks.from_scratch.origin import lines_on_the_way
from lab.checks.from_scratch.traffic import ASKED, ONE_TO_ONE


class UsedEarly(TorchDispatchMode):
    """Notes the lines of a file that use a result in its context which may not be there.

    copied  copy_() from what another rank broadcasts
    begun   a collective of what another collective makes
    """

    def __init__(self, file: str | None) -> None:
        super().__init__()
        self.copied: list[int] = []
        self.begun: list[int] = []
        self._file = file
        self._busy: list[tuple[Any, list[tuple[int, int]]]] = []  # (the handle, the memory that it fills)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if func.namespace != "c10d" or name in ONE_TO_ONE:
            if name == "copy_" and self._is_busy(args[1]):
                self.copied += [line for _, line in lines_on_the_way(self._file)[:1]]
            return func(*args, **(kwargs or {}))
        tensors = [one for one in tree_leaves(args) if isinstance(one, Tensor)]
        if any(map(self._is_busy, tensors)):
            self.begun += [line for _, line in lines_on_the_way(self._file)[:1]]
        result = func(*args, **(kwargs or {}))
        handles = [c10d.Work.unbox(one) for one in tree_leaves(result) if isinstance(one, torch.ScriptObject)]
        own = name == "broadcast_" and args[2] == dist.get_rank()  # it has what it sends
        filled = [_memory(one) for one in tree_leaves(args[0]) if isinstance(one, Tensor) and not own]
        self._busy += [(one, filled) for one in handles]
        return result

    def _is_busy(self, tensor: Any) -> bool:
        if not isinstance(tensor, Tensor) or not tensor.numel():
            return False
        first, end = _memory(tensor)
        return any(first < last and begin < end for _, every in self._busy for begin, last in every)

    def asked(self, original: Any) -> Any:
        def call(work: Any, *args: Any, **kwargs: Any) -> Any:
            if any(one is work for one, _ in self._busy):
                self._busy = [one for one in self._busy if one[0] is not work]
            else:  # that of several at once
                self._busy.clear()
            return original(work, *args, **kwargs)

        return call


def _memory(tensor: Tensor) -> tuple[int, int]:
    first = tensor.data_ptr()
    return first, first + tensor.numel() * tensor.element_size()


@contextmanager
def used_early(file: str | None) -> Iterator[UsedEarly]:
    noted = UsedEarly(file)
    asking = {name: noted.asked(getattr(c10d.Work, name)) for name in ASKED}
    with noted, mock.patch.multiple(c10d.Work, **asking):
        yield noted
