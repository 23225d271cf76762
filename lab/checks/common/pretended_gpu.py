"""For observers: a student's function as if on one GPU of eight. All is on the CPU in truth, numbers included.

What meta_device.py cannot tell is seen here: which GPU somebody asks for who does not take the one that is given.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

GPU = torch.device("cuda", 5)  # no rank's number in any check

_COLLECTIVES = ("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "gather", "barrier")


class Devices(TorchFunctionMode):
    """Says that all tensors are on a GPU, has them on the CPU, and notes which GPU is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[torch.device] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == Tensor.device.__get__:
            return GPU
        if func == Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return True
        if func is torch.device:  # no tensor yet: it counts where one is asked for
            return func(*args, **kwargs)
        if func is Tensor.cuda:
            self._on_cpu(
                torch.device("cuda", *(one for one in (*args[1:2], *kwargs.values()) if type(one) is int))
            )
            return args[0]
        if func is Tensor.to and type(args[1:2][0] if args[1:2] else None) is int:
            args = (args[0], torch.device("cuda", args[1]), *args[2:])
        return func(*tree_map(self._on_cpu, args), **tree_map(self._on_cpu, kwargs))

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


def asks_for_another(function: Callable[..., object], *args: object) -> str:
    """The first GPU that a function asks for which is not GPU, "cuda:1"; "" where there is none."""
    with pretended_gpu() as devices, suppress(Exception):  # what needs a real GPU fails here
        function(*args)
    return next((str(device) for device in devices.asked if device.index not in (None, GPU.index)), "")


@contextmanager
def pretended_gpu() -> Iterator[Devices]:
    """In here PyTorch has eight GPUs, of which GPU is the current one; collectives do nothing."""
    devices = Devices()
    with ExitStack() as stack:
        known = {"is_available": True, "current_device": GPU.index, "device_count": 8, "synchronize": None}
        for name, value in known.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, return_value=value))
        for name in _COLLECTIVES:
            stack.enter_context(
                mock.patch.object(dist, name, lambda *_, **kwargs: mock.Mock() if kwargs.get("async_op") else None)
            )
        stack.enter_context(devices)
        yield devices
