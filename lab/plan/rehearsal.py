"""One training step on tensors without memory: what autograd keeps, and what is alive at every operator.

A FakeTensor has the shape and the storage size that a real one would have. So the forward and the backward pass
can be gone through for any network on any machine, and at each operator the storages be summed up that are alive.
"""

import copy
import math
import weakref
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

ROOT = "root"


@dataclass
class Rehearsal:
    """Of each unit ("blocks.0", ..., or ROOT for all that is outside of blocks), in bytes.

    kept       that autograd keeps for the backward pass, each storage once, parameters not counted
    entering   numbers in a block's input, and their bytes
    alive      one entry an operator, of both passes: the unit that it belongs to, and what was alive after it
               besides the parameters, the images and the gradients of other blocks
    work       of the operators that do some, and not only view what is there: the unit, FLOPs in products, and the
               bytes of what goes in and comes out
    """

    kept: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    entering: dict[str, tuple[int, int]] = field(default_factory=dict)
    alive: list[tuple[str, int]] = field(default_factory=list)
    work: list[tuple[str, float, float]] = field(default_factory=list)


class _Watch(TorchDispatchMode):
    """Sums up the storages that are alive, as operators make them and as they are let go; notes the operators."""

    def __init__(self, found: Rehearsal) -> None:
        super().__init__()
        self.unit = ROOT
        self._found = found
        self._bytes = 0
        self._known: dict[int, Any] = {}  # weak references: theirs is the moment at which a storage is let go

    def ignore(self, *tensors: Tensor) -> None:
        """Do not count these, which were there before."""
        for tensor in tensors:
            self._note(tensor, counted=False)

    def _note(self, tensor: Tensor, *, counted: bool = True) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes() if counted else 0

        def let_go(_: object) -> None:
            del self._known[key]
            self._bytes -= size

        self._known[key] = weakref.ref(storage, let_go)
        self._bytes += size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given, made = _tensors((args, kwargs)), _tensors(result)
        for tensor in made:
            self._note(tensor)
        self._found.alive.append((self.unit, self._bytes))
        there = {one.untyped_storage()._cdata for one in given}
        if func._schema.is_mutable or not there.issuperset(one.untyped_storage()._cdata for one in made):
            formula = flop_registry.get(func.overloadpacket)
            flops = formula(*args, **(kwargs or {}), out_val=result) if formula else 0
            moved = {id(one): one.numel() * one.itemsize for one in (*given, *made)}
            self._found.work.append((self.unit, flops, sum(moved.values())))
        return result


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor)]


def rehearse(
    network: nn.Module, image: tuple[int, ...], batch: int, half: torch.dtype | None, *, cast: bool = False
) -> Rehearsal:
    """A step of `batch` images.

    Args:
        network: with `.blocks`, on any device.
        half: computed in under autocast; None in fp32.
        cast: the parameters themselves are 16 bits wide, as with FSDP's mixed precision, instead of autocast; a
            block's gradients then stay until all of it has been computed, when FSDP reduces them. Without, each
            goes as soon as it is there, as into DDP's buckets.
    """
    narrow = half if cast else None
    copied: Any = copy.deepcopy(network)
    found = Rehearsal()
    alive = _Watch(found)
    found.entering[ROOT] = (batch * math.prod(image), 4 * batch * math.prod(image))
    seen: dict[int, Tensor] = {}  # keeps them alive, so that no storage's number is given twice

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in seen:
            seen[storage._cdata] = tensor
            found.kept[alive.unit] += storage.nbytes()
        return tensor

    def enter(name: str, x: Tensor) -> None:
        alive.unit = name
        found.entering[name] = (x.numel(), x.nbytes)

    def leave() -> None:
        alive.unit = ROOT

    def enter_backward(name: str) -> None:
        for other in copied.blocks:
            other.zero_grad()
        alive.unit = name

    def give_away(parameter: Tensor) -> None:
        parameter.grad = None

    with FakeTensorMode():
        _faked(copied, narrow)
        images = torch.empty(batch, *image, dtype=narrow or torch.float32)
        labels = torch.empty(batch, dtype=torch.long)
        here = (*copied.parameters(), *copied.buffers())
        alive.ignore(images, labels, *here)
        for tensor in here:
            seen[tensor.untyped_storage()._cdata] = tensor
        for i, block in enumerate(copied.blocks):
            name = f"blocks.{i}"
            block.register_forward_pre_hook(lambda module, inputs, name=name: enter(name, inputs[0]))
            block.register_forward_hook(lambda module, inputs, output: leave())
            block.register_full_backward_pre_hook(lambda module, gradients, name=name: enter_backward(name))
        autocast = torch.autocast("cpu", dtype=half, enabled=half is not None and not cast)
        hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
        # A forward pass by itself: to note what is kept keeps it alive, through a backward pass too.
        with hooks, autocast:
            copied(images)
        seen.clear()
        if not cast:
            for parameter in copied.parameters():
                parameter.register_post_accumulate_grad_hook(give_away)
        with alive:
            with autocast:
                logits = copied(images)
            nn.functional.cross_entropy(logits.float(), labels).backward()
    return found


def _faked(network: nn.Module, half: torch.dtype | None) -> None:
    """Fake CPU tensors in the place of all parameters; half: in 16 bits, but for BatchNorm's, as FSDP has it."""
    for module in network.modules():
        dtype = None if isinstance(module, _BatchNorm) else half
        for name, parameter in list(module.named_parameters(recurse=False)):
            faked = torch.empty(parameter.shape, dtype=dtype or parameter.dtype)
            module._parameters[name] = nn.Parameter(faked)
        for name, buffer in list(module.named_buffers(recurse=False)):
            module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)
