"""In a rank: the collectives that it calls, in their order, and what it waits for.

They are seen as the operations that PyTorch dispatches. The flight recorder names what the backend was told to do,
and gloo does a reduce-scatter as an all-reduce of the whole: here the name is that of the call.
"""

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

ONE_TO_ONE = ("send", "recv_", "recv_any_source_")


class Traffic(TorchDispatchMode):
    """Notes the collectives called in its context.

    Each is {"name": "allreduce_", "bytes": those of its first tensors, "ranks": those of its group}.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d" and (name := func.overloadpacket.__name__) not in ONE_TO_ONE:
            tensors = [leaf for leaf in tree_leaves(args[0]) if isinstance(leaf, Tensor)] if args else []
            size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
            self.calls.append({"name": name, "bytes": size, "ranks": _ranks(args)})
        return func(*args, **(kwargs or {}))


def _ranks(args: Any) -> list[int]:
    """Of the process group among a collective's arguments, which is an object of TorchScript there."""
    for one in args:
        if isinstance(one, torch.ScriptObject) and "ProcessGroup" in str(one._type()):
            return dist.get_process_group_ranks(c10d.ProcessGroup.unbox(one))
    return []


@contextmanager
def waits_noted(*names: str) -> Iterator[list[int]]:
    """A list that gets an entry for each wait() for a collective or a message; or for each call of these names."""
    noted: list[int] = []

    def noting(original: Any) -> Any:
        def call(work: Any, *args: Any, **kwargs: Any) -> Any:
            noted.append(id(work))
            return original(work, *args, **kwargs)

        return call

    patches = {name: noting(getattr(c10d.Work, name)) for name in names or ("wait",)}
    with mock.patch.multiple(c10d.Work, **patches):
        yield noted


# What the handle of a collective is asked by those who want to know whether it has ended.
ASKED = ("wait", "is_completed", "get_future", "result", "synchronize")


class _Begun(TorchDispatchMode):
    """The collectives begun in its context that nobody has asked about: the line of the file, and the handle.

    PyTorch hands out a handle as the same object for as long as somebody keeps it, as is done here.
    """

    def __init__(self, file: str | None) -> None:
        super().__init__()
        self.left: list[tuple[int, Any]] = []
        self._every: list[Any] = []
        self._file = file

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace == "c10d" and func.overloadpacket.__name__ not in ONE_TO_ONE:
            boxed = [one for one in tree_leaves(result) if isinstance(one, torch.ScriptObject)]
            handles = [c10d.Work.unbox(one) for one in boxed]
            lines = lines_on_the_way(self._file)
            self._every += handles
            self.left += [(lines[0][1] if lines else 0, one) for one in handles]
        return result

    def asked(self, original: Any) -> Any:
        def call(work: Any, *args: Any, **kwargs: Any) -> Any:
            if any(one is work for one in self._every):
                self.left = [one for one in self.left if one[1] is not work]
            else:  # that of several at once, which are batched, is none of theirs: it stands for the last
                del self.left[-1:]
            return original(work, *args, **kwargs)

        return call


@contextmanager
def waited_for(file: str | None, lines: list[int]) -> Iterator[None]:
    """At its end nothing that was begun in its context is under way: else what was freed would be written to.

    lines: gets the lines of the file that began what nobody had waited for.
    """
    begun = _Begun(file)
    noting = {name: begun.asked(getattr(c10d.Work, name)) for name in ASKED}
    with begun, mock.patch.multiple(c10d.Work, **noting):
        yield
    for line, handle in begun.left:
        lines.append(line)
        handle.wait()
