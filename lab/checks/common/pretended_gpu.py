"""For observers: a student's function as if on one GPU of eight. All is on the CPU in truth, numbers included.

What meta_device.py cannot tell is seen here: which GPU somebody asks for who does not take the one that is given,
and which line makes the CPU wait for the GPU.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from lab.base.paths import PACKAGE

GPU = torch.device("cuda", 5)  # no rank's number in any check

_COLLECTIVES = ("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "gather", "barrier")

# What needs a tensor's numbers on the CPU, which waits for them. Not a condition: to stop at a nan is right.
_READING = {
    "cpu": ".cpu()", "item": ".item()", "tolist": ".tolist()", "numpy": ".numpy()", "__array__": "numpy",
    "__float__": "float()", "__int__": "int()", "__index__": "int()",
    "__repr__": "its text", "__format__": "its text",
}  # fmt: skip


@dataclass(frozen=True)
class Wait:
    """How numbers came to the CPU, and the student's line that has asked for them."""

    by: str
    line: int


class Devices(TorchFunctionMode):
    """Says that all tensors are on a GPU, has them on the CPU, and notes which GPU is asked for.

    waits: by which of the lines of `file` the CPU waits for the GPU.
    reduced: for each tensor that came to a collective, whether it was on a GPU.
    """

    def __init__(self, file: str = "") -> None:
        super().__init__()
        self.asked: list[torch.device] = []
        self.waits: list[Wait] = []
        self.reduced: list[bool] = []
        self._left: dict[int, Tensor] = {}  # those on the CPU in earnest, by id; kept, so that none gets the same
        self._file = file

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == Tensor.device.__get__:
            return GPU
        if func == Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return True
        if func is torch.device:  # no tensor yet: it counts where one is asked for
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in _READING:
            self.waited(_READING[name])
        elif func is Tensor.to and any(map(_is_cpu, (*args[1:], *kwargs.values()))):
            self.waited(".to('cpu')")
        if func is Tensor.cuda:
            self._on_cpu(
                torch.device("cuda", *(one for one in (*args[1:2], *kwargs.values()) if type(one) is int))
            )
            return args[0].clone()
        if func is Tensor.to and type(args[1:2][0] if args[1:2] else None) is int:
            args = (args[0], torch.device("cuda", args[1]), *args[2:])
        leaves, asked = tree_leaves((args, kwargs)), len(self.asked)
        to_cpu = name == "cpu" or any(map(_is_cpu, leaves))
        result = func(*tree_map(self._on_cpu, args), **tree_map(self._on_cpu, kwargs))
        if not isinstance(result, Tensor):
            return result
        given = [one for one in leaves if isinstance(one, Tensor)]
        moves = to_cpu or len(self.asked) > asked
        if given and result is given[0]:
            if not moves:
                return result  # changed in place, it is where it was
            result = result.clone()
        if to_cpu or (not moves and all(id(one) in self._left for one in given)):
            self._left[id(result)] = result
        return result

    def collective(self, *args: Any, **kwargs: Any) -> Any:
        """Does nothing, and notes where its tensors are."""
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        self.reduced += [id(one) not in self._left for one in tensors]
        return mock.Mock() if kwargs.get("async_op") else None

    def waited(self, by: str) -> None:
        """Note it where a line of the student's has done it, not the run's own."""
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self._file:
            ours = Path(frame.f_code.co_filename).is_relative_to(PACKAGE) and frame.f_code.co_filename != __file__
            frame = None if ours else frame.f_back
        if frame is not None:
            self.waits.append(Wait(by, frame.f_lineno))

    def synchronize(self, *_: object, **__: object) -> None:
        self.waited("synchronize()")

    def _on_cpu(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith("cuda"):
            value = torch.device(value)
        if not isinstance(value, torch.device) or value.type != "cuda":
            return value
        self.asked.append(value)
        return torch.device("cpu")


class Placed(TorchFunctionMode):
    """Says that a model's parameters and buffers are on `device`, wherever they are; who moves it sets that."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.device = torch.device("cpu")
        self._own = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if args and id(args[0]) in self._own:
            if func == Tensor.device.__get__:
                return self.device
            if func == Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
                return self.device.type == "cuda"
            if func is Tensor.get_device:
                return -1 if self.device.index is None else self.device.index
        return func(*args, **(kwargs or {}))


def _is_cpu(value: Any) -> bool:
    return value == "cpu" if isinstance(value, str) else isinstance(value, torch.device) and value.type == "cpu"


def another_of(devices: Devices) -> str:
    """The first GPU that was asked for and is not GPU, "cuda:1"; "" where there is none."""
    return next((str(device) for device in devices.asked if device.index not in (None, GPU.index)), "")


def asks_for_another(function: Callable[..., object], *args: object) -> str:
    """The same of what a function asks for."""
    with pretended_gpu() as devices, suppress(Exception):  # what needs a real GPU fails here
        function(*args)
    return another_of(devices)


@contextmanager
def pretended_gpu(file: str = "") -> Iterator[Devices]:
    """In here PyTorch has eight GPUs, of which GPU is the current one; collectives do nothing.

    Args:
        file: in which of the student's files to note what waits for the GPU.
    """
    devices = Devices(file)
    with ExitStack() as stack:
        known = {"is_available": True, "current_device": GPU.index, "device_count": 8}
        for name, value in known.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, return_value=value))
        for module in (torch.cuda, torch.accelerator):
            stack.enter_context(mock.patch.object(module, "synchronize", devices.synchronize))
        for name, answer in (("is_available", True), ("current_accelerator", GPU)):
            stack.enter_context(mock.patch.object(torch.accelerator, name, return_value=answer))
        for name in _COLLECTIVES:
            stack.enter_context(mock.patch.object(dist, name, devices.collective))
        stack.enter_context(devices)
        yield devices
