"""For observers: a student's function as if the model were on a GPU.

It is on PyTorch's meta device, where tensors have a shape and a type and no numbers: what mixes devices fails
there too, and a collective shows whether it was given a tensor of the device. Numbers that are read are made up.
"""

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.fx.experimental import _config as of_pytorch
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from lab.ranks.environment import ONE_NODE

META = torch.device("meta")

_IN_PLACE = ("all_reduce", "reduce", "broadcast")


def _references(*args: Any) -> int:
    return sys.getrefcount(args[0])


_OF_NOBODY = (
    _references(torch.zeros(1)) + 1
)  # to what the caller does not keep; in the list of leaves there is one more

_COLLECTIVES = ("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "gather")


def runs_elsewhere(
    function: Callable[..., object],
    *args: object,
    lines: list[int] | None = None,
    brought: Callable[[int], None] | None = None,
) -> str:
    """What goes wrong on another device than the CPU, in words; "" where nothing does, or that cannot be told.

    Args:
        lines: gets the line of each collective that goes wrong, in the function's own file.
        brought: is called with the line of each to() that brings a tensor to the CPU.
    """
    problems: list[str] = []
    file = getattr(inspect.unwrap(function), "__code__", None)
    try:
        with pretending(problems, file and file.co_filename, lines, brought), _answering_as_a_gpu():
            function(*args)
    except RuntimeError as error:
        if "expected device" in str(error) or "on the same device" in str(error):
            return f"it raised: {str(error).replace('meta', 'cuda').rstrip('!.')}"[:200]
    except Exception:  # noqa: BLE001 - made-up numbers lead anywhere
        pass
    return problems[0] if problems else ""


def put_on_meta(model: nn.Module, optimizer: Optimizer) -> None:
    """Move a model, and all that tells where it is: the wrapper's own note, and what the optimizer holds."""
    model.to(META)
    if hasattr(model, "device"):
        model.device = META  # type: ignore[assignment]
    optimizer.param_groups[0]["params"] = list(model.parameters())


@contextmanager
def _answering_as_a_gpu() -> Iterator[None]:
    """Tell the student's code that tensors on META are on a GPU, that there is one, and that nccl reduces."""
    is_cuda = Tensor.is_cuda.__get__  # type: ignore[attr-defined]
    of_students = {
        (torch.accelerator, "current_accelerator"): META,
        (dist, "get_backend"): "nccl",
    }
    with ExitStack() as stack:
        told = property(lambda tensor: tensor.is_meta or is_cuda(tensor))
        stack.enter_context(mock.patch.object(Tensor, "is_cuda", told))
        for (module, name), value in of_students.items():
            real = getattr(module, name)
            stack.enter_context(mock.patch.object(module, name, _for_students(real, value)))
        yield


@contextmanager
def seeing_a_gpu() -> Iterator[None]:
    """Tell the student's code, and nobody else, that there is a GPU."""
    with ExitStack() as stack:
        for module in (torch.cuda, torch.accelerator):
            stack.enter_context(
                mock.patch.object(module, "is_available", _for_students(module.is_available, True))
            )
        yield


@contextmanager
def one_gpu_a_node(*, seen: bool = True) -> Iterator[None]:
    """Tell the student's code, and nobody else, that each rank is on a node of its own, which has one GPU.

    Args:
        seen: whether CUDA says that it is there; what asks how many there are is told so in any case.
    """
    known: dict[str, Any] = {"device_count": gpus_of_a_node(1)}
    counting = _for_students(torch.accelerator.device_count, known["device_count"])
    if seen:
        known |= {"current_device": 0, "set_device": None, "synchronize": None, "empty_cache": None}
    with ExitStack() as stack:
        for name, value in known.items():
            stack.enter_context(
                mock.patch.object(torch.cuda, name, _for_students(getattr(torch.cuda, name), value))
            )
        stack.enter_context(mock.patch.object(torch.accelerator, "device_count", counting))
        if seen:
            stack.enter_context(seeing_a_gpu())
        yield


def gpus_of_a_node(count: int) -> int:
    """So many; or as many as there are ranks, where a wrong answer is tried again with all of them on one node."""
    return dist.get_world_size() if ONE_NODE in os.environ else count


def line_in(file: str | None) -> int:
    """The innermost line of a file that is being run; 0 where there is none."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0


def _for_students(real: Callable[..., Any], value: Any) -> Callable[..., Any]:
    @functools.wraps(real)
    def told(*args: Any, **kwargs: Any) -> Any:
        ours = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] in ("torch", "lab")
        return real(*args, **kwargs) if ours else value

    return told


@contextmanager
def pretending(
    problems: list[str] | None,
    file: str | None = None,
    lines: list[int] | None = None,
    brought: Callable[[int], None] | None = None,
) -> Iterator[None]:
    """Make numbers up, and have collectives do nothing but look at the device of their tensors.

    Args:
        problems: gets what was given a tensor on the CPU. None: the collectives stay as they are.
        file, lines: the second gets the line of the first that led to it.
        brought: is called with the line of each to() that brings a tensor to the CPU.
    """
    to = Tensor.to
    copies: list[int] = []  # of tensors on the CPU

    def on_cpu(tensor: Tensor) -> Tensor:
        return torch.zeros(tensor.shape, dtype=tensor.dtype)

    @functools.wraps(to)  # a TorchFunctionMode tells it by its name
    def moved(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        target = torch._C._nn._parse_to(*args, **kwargs)[0]
        to_cpu = tensor.is_meta and target is not None and target.type == "cpu"
        if to_cpu and brought:
            brought(line_in(file))
        result = on_cpu(tensor) if to_cpu else to(tensor, *args, **kwargs)
        if result.is_meta and not tensor.is_meta:
            copies.append(id(result))
        return result

    def noting(name: str) -> Callable[..., Any]:
        def collective(*args: Any, **kwargs: Any) -> Any:
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            if problems is not None and any(not tensor.is_meta for tensor in tensors):
                problems.append(f"{name} was given a tensor on the CPU")
                if lines is not None:
                    lines.append(line_in(file))
            elif problems is not None and name in _IN_PLACE and args and not kwargs.get("async_op"):
                kept = sys.getrefcount(args[0]) > _OF_NOBODY
                if id(args[0]) in copies and not kept:
                    problems.append(f"{name} was given a copy, which nobody reads afterwards")
            return mock.Mock() if kwargs.get("async_op") else None

        return collective

    def made_up(real: Callable[..., Any], value: Callable[..., Any]) -> Callable[..., Any]:
        def told(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            return (value if tensor.is_meta else real)(tensor, *args, **kwargs)

        return told

    fakes: dict[str, Callable[..., Any]] = {
        "item": lambda tensor: 1.0 if tensor.is_floating_point() else 1,
        "tolist": lambda tensor: on_cpu(tensor).add(1).tolist(),
        "cpu": lambda tensor, **_: on_cpu(tensor),
        "numpy": lambda tensor, **_: on_cpu(tensor).numpy(),
        "__float__": lambda tensor: 1.0,
        "__int__": lambda tensor: 1,
        "__bool__": lambda tensor: True,
        "__index__": lambda tensor: 1,
    }
    of_two: dict[str, Callable[..., Any]] = {
        "masked_select": lambda tensor, mask: tensor[mask.expand_as(tensor)],
        "equal": lambda tensor, other: True,
        "allclose": lambda tensor, other, **tolerances: True,
    }
    with ExitStack() as stack:
        if problems is not None:
            stack.enter_context(seeing_a_gpu())
        stack.enter_context(of_pytorch.patch(meta_nonzero_assume_all_nonzero=True))  # type: ignore[attr-defined]
        for module in (torch, Tensor):
            for name, value in of_two.items():
                stack.enter_context(mock.patch.object(module, name, made_up(getattr(module, name), value)))
        for name, value in fakes.items():
            stack.enter_context(mock.patch.object(Tensor, name, made_up(getattr(Tensor, name), value)))
        stack.enter_context(mock.patch.object(Tensor, "to", moved))
        for name in _COLLECTIVES if problems is not None else ():
            stack.enter_context(mock.patch.object(dist, name, noting(name)))
        yield
