"""A graph of operations on the CPU, with the rules of a CUDA graph: recorded once, replayed on the same tensors.

While it records, it notes every operation with its tensors. A replay repeats the operations in their order and
writes what each returns into the tensors of the recording: who holds one holds what the last replay left in it.

As with a CUDA graph:

- Numbers of the CPU, such as a learning rate that is a float, are part of the graph and stay what they were.
- Nothing is computed while it records. Here it is, but all that was there before is put back afterwards, and what
  the recording has made holds NaN until the first replay.
- To read a number on the CPU while it records is an error: the numbers are not there yet.

Other than there, it is slower than the step itself: this graph is for learning, and for checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

# Methods that need a tensor's numbers on the CPU, and that PyTorch does not dispatch for a tensor that is there.
READS: dict[Callable[..., Any], str] = {
    Tensor.item: ".item()",
    Tensor.tolist: ".tolist()",
    Tensor.numpy: ".numpy()",
    Tensor.__array__: "NumPy",
    Tensor.cpu: ".cpu()",
    Tensor.__bool__: "an if or while on a tensor",
    Tensor.__float__: "float() of a tensor",
    Tensor.__int__: "int() of a tensor",
    Tensor.__format__: "a tensor in an f-string",
    Tensor.__repr__: "the text of a tensor",
}

_OF_LISTS = (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)


class RecordingError(RuntimeError):
    """Something cannot be part of a graph; the message says what, and why."""


class CPUGraph:
    """Has what a torch.cuda.CUDAGraph has: replay() and reset()."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._recorded = False

    def replay(self) -> None:
        """Repeat the recorded operations, collectives too: so all ranks must replay.

        Raises:
            RecordingError: nothing was recorded.
        """
        if not self._recorded:
            raise RecordingError("this graph has recorded nothing yet, so there is nothing to replay")
        with torch.no_grad():
            for call in self._calls:
                call.repeat()

    def reset(self) -> None:
        """Forget the recording, and the memory that it holds."""
        self._calls, self._recorded = [], False

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is done inside. A recording that fails leaves an empty graph.

        Raises:
            RecordingError: what is done inside needs a number on the CPU; or there was a recording already.
        """
        if self._recorded:
            raise RecordingError("this graph has been recorded already: make another with new_graph()")
        recorder = _Recorder()
        try:
            with _Refusal(), recorder:
                yield
        finally:
            recorder.put_back()
        self._calls, self._recorded = recorder.calls, True


def is_recording() -> bool:
    """Whether a graph of the CPU records what this thread does."""
    modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    return any(isinstance(mode, _Recorder) for mode in modes)


class _Call:
    """One operation: what was called, and the tensors that it made, which its repetitions write into."""

    def __init__(self, function: Any, args: Any, kwargs: Any, made: Sequence[Tensor | None]) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._made = made  # by the place among the leaves of what it returned; None: not to be written

    def repeat(self) -> None:
        returned = tree_leaves(self._function(*self._args, **self._kwargs))
        for target, leaf in zip(self._made, returned, strict=True):
            if target is not None:
                target.copy_(leaf)
            elif _is_work(leaf):  # of a collective: without the wait, the ranks would drift apart
                torch._C._distributed_c10d.Work.unbox(leaf).wait()


def _is_work(leaf: object) -> bool:
    return isinstance(leaf, torch.ScriptObject) and str(leaf._type()).endswith("c10d.Work")


class _Recorder(TorchDispatchMode):
    """Sees every operation below autograd: forward and backward pass, DDP's collectives, the optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []
        self._before: dict[int, tuple[Tensor, Tensor]] = {}  # storage -> a tensor of it, a copy of its bytes
        self._made: dict[int, Tensor] = {}  # storage that the recording has made -> a tensor of it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        _refuse_numbers(func, given)
        for tensor in given:
            if (key := _storage(tensor)) not in self._made and key not in self._before:
                self._before[key] = tensor, _bytes(tensor).clone()
                if not tensor.is_floating_point():
                    tensor.zero_()  # a static input may hold anything yet, and a label is an index
        # A graph knows memory: to give a tensor other memory later (tensor.data = other) changes nothing in it.
        known_args, known_kwargs = tree_map(
            lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, (args, kwargs)
        )
        result = func(*args, **kwargs)
        made: list[Tensor | None] = []
        for leaf in tree_leaves(result):
            is_new = isinstance(leaf, Tensor) and _storage(leaf) not in {_storage(tensor) for tensor in given}
            made.append(leaf if is_new else None)
            if is_new:
                self._made[_storage(leaf)] = leaf
        self.calls.append(_Call(func, known_args, known_kwargs, made))
        return result

    def put_back(self) -> None:
        """Undo what the recording has computed: a graph's first numbers are those of its first replay."""
        with torch.no_grad():
            for tensor, content in self._before.values():
                _bytes(tensor).copy_(content)
            for tensor in self._made.values():
                if tensor.is_floating_point():
                    tensor.fill_(float("nan"))


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _bytes(tensor: Tensor) -> Tensor:
    """All bytes of a tensor's storage, also those of which it is no view."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _refuse_numbers(function: Any, given: Sequence[Tensor]) -> None:
    """Raise where the CPU would have to know a tensor's numbers: their values, or how many come out."""
    tags = getattr(function, "tags", ())
    by_mask = any(tensor.dtype in (torch.bool, torch.uint8) for tensor in given[1:])
    indexes = function is torch.ops.aten.index.Tensor
    if torch.Tag.data_dependent_output in tags:
        raise _refused(".item(), or what calls it,")
    if torch.Tag.dynamic_output_shape in tags and (by_mask or not indexes):
        raise _refused(f"{function.__name__.split('.')[0]}(), for the shape of what it returns,")


def _refused(what: str) -> RecordingError:
    return RecordingError(
        f"{what} needs a tensor's numbers, and while a graph is recorded there are none: "
        "nothing is computed before the first replay"
    )


class _Refusal(TorchFunctionMode):
    """Refuses the methods that read numbers on the CPU, by the name that a student has written."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if read := word_for_read(func, args, kwargs or {}):
            raise _refused(read)
        return func(*args, **(kwargs or {}))


def word_for_read(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """What a call is named that needs a tensor's numbers on the CPU; "" for all others."""
    # tensor.to(...) that names the CPU in so many letters. The tensor's own device in a variable is not meant.
    if function is Tensor.to and "cpu" in (*args[1:2], kwargs.get("device")):
        return ".to('cpu')"
    # A tensor made of a list takes the numbers of the tensors in it, one by one; of a tensor, it is a copy.
    if function in _OF_LISTS:
        given = [one for one in (*args, kwargs.get("data"), kwargs.get("obj")) if isinstance(one, list | tuple)]
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(given)):
            return f"{function.__name__}() of a list with a tensor in it"
    return READS.get(function, "")
