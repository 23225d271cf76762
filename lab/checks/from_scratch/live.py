"""In a rank: the memory of the tensors that are alive, as operations are dispatched.

Resident memory would tell nothing: the allocator keeps what is freed.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lab.checks.from_scratch.origin import lines_on_the_way


class LiveBytes(TorchDispatchMode):
    """The largest sum of the storages that were made in its context and are alive: `peak`, in bytes.

    A storage whose size was set to 0 is alive and has none.

    file   the student's
    lines  storage's address -> the line of the file that made it; of functions in `within`, that of their caller
    """

    def __init__(self, file: str | None = None, *, within: Sequence[str] = ()) -> None:
        super().__init__()
        self.peak = 0
        self.lines: dict[int, int] = {}
        self._file, self._within = file, within
        self._known: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {
            StorageWeakRef(one.untyped_storage()).cdata
            for one in tree_leaves((args, kwargs))
            if isinstance(one, Tensor)
        }
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                reference = StorageWeakRef(leaf.untyped_storage())
                if reference.cdata not in given:  # a view of what was there before is nothing new
                    self._known.setdefault(reference.cdata, reference)
                    if self._file:
                        way = lines_on_the_way(self._file)
                        own = [line for function, line in way if function not in self._within]
                        self.lines[reference.cdata] = own[0] if own else 0
        self.peak = max(self.peak, self.now())
        return result

    def largest(self) -> int:
        """The line that made the largest storage that is alive; 0 where none is known."""
        self.now()
        return self.lines.get(max(self._known, key=_bytes), 0) if self._known else 0

    def now(self) -> int:
        """What is alive of them, in bytes."""
        self._known = {key: one for key, one in self._known.items() if not one.expired()}
        return sum(map(_bytes, self._known))


def _bytes(cdata: int) -> int:
    storage = torch.UntypedStorage._new_with_weak_ptr(cdata)
    return 0 if storage is None else storage.nbytes()
