"""What a network asks of a device: parameters, FLOPs and kept activations, block by block, without numbers.

Nothing is estimated here. The network itself is built on PyTorch's device "meta"; its forward pass runs on fake
tensors, which have shapes and no memory, and every tensor that autograd keeps for the backward pass is noted
(torch.autograd.graph.saved_tensors_hooks). For a transformer block this is what Korthikanti et al. 2022 (Reducing
activation recomputation in large transformer models, arXiv:2205.05198, section 4) count by hand.
"""

import copy
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.flop_counter import FlopCounterMode

from lab.base.errors import UsageError
from lab.runs.options.model import DEFAULT_DEPTH, DEFAULT_WIDTH, MODELS
from lab.training.networks import build_network

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
CLASSES = 10
FEW, MORE = 2, 4  # images: what grows between them grows with the batch


@dataclass(frozen=True)
class Unit:
    """A block, or the root: what stands outside of all blocks. FSDP gathers a unit at a time.

    shapes     of its parameters; `norms` those of them that are BatchNorm's, which stay in fp32
    kept       bytes of activations an image that the backward pass needs, under autocast
    kept_cast  the same where the parameters themselves are 16 bits wide (FSDP's mixed precision)
    casts      bytes of 16-bit copies of the parameters that autocast makes and keeps, whatever the batch
    entering   numbers in an image's input of this block, which is all that activation checkpointing keeps; their
               bytes, under autocast
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    norms: tuple[tuple[int, ...], ...]
    kept: float
    kept_cast: float
    casts: float
    entering: int
    entering_bytes: float

    @property
    def parameters(self) -> int:
        return sum(map(math.prod, (*self.shapes, *self.norms)))


@dataclass(frozen=True)
class Network:
    """A network, as far as planning goes. `flops` are those of an image, forward and backward pass."""

    name: str
    precision: str
    blocks: tuple[Unit, ...]
    root: Unit
    flops: float
    width: int | None  # of a vit
    tokens: int  # of an image in a vit

    @property
    def units(self) -> tuple[Unit, ...]:
        return (*self.blocks, self.root)

    @property
    def parameters(self) -> int:
        return sum(unit.parameters for unit in self.units)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of all parameters."""
        return [shape for unit in self.units for shape in (*unit.shapes, *unit.norms)]

    @property
    def itemsize(self) -> int:
        """Bytes of a number that is computed with."""
        return 2 if self.precision in HALF else 4


class _CNN(nn.Module):
    """The network of exercise 1.1, as its contract has it: the student's own is imported in ranks only."""

    def __init__(self) -> None:
        super().__init__()
        pairs = ((3, 32), (32, 64), (64, 128))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)) for a, b in pairs
        )
        self.classifier = nn.Linear(128 * 4 * 4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.classifier(x.flatten(1))


def describe(
    model: str,
    precision: str,
    *,
    width: int | None = None,
    depth: int | None = None,
    image_size: int | None = None,
) -> Network:
    """Build and count a network.

    Args:
        model: one of MODELS.
        precision: fp32, bf16 or fp16.
        width, depth: of a vit, only.
        image_size: pixels; resnet18 and vit only.

    Raises:
        UsageError: the network has no such size, or has no such option.
    """
    if model != "vit" and (width is not None or depth is not None):
        raise UsageError(f"--width and --depth size the vit; --model {model} has one size only: leave them out")
    options: dict[str, Any] = {}
    if model == "vit":
        options = {"width": width or DEFAULT_WIDTH, "depth": depth or DEFAULT_DEPTH}
    if image_size is not None:
        if model not in ("vit", "resnet18"):
            raise UsageError(f"--image-size {image_size}: --model {model} has one size only; take resnet18 or vit")
        options["image_size"] = image_size
    # The blocks of a vit are alike: two of them are counted, and what the second has stands for all further ones.
    depth = options.get("depth", 0)
    if depth > 2:
        options = options | {"depth": 2}
    channels, side = {"mnist_cnn": (1, 28), "vgg19": (3, 224)}.get(model, (3, image_size or 32))
    image = (channels, side, side)
    network = build(model, options)
    flops = _flops(network, image)
    few, more = (_kept(network, image, batch, precision) for batch in (FEW, MORE))
    few_cast, more_cast = few, more
    if precision in HALF:
        few_cast, more_cast = (_kept(network, image, batch, precision, cast=True) for batch in (FEW, MORE))
    inside = {id(parameter) for block in network.blocks for parameter in block.parameters()}

    def unit(name: str, module: nn.Module, outside: set[int]) -> Unit:
        norms = {id(p) for m in module.modules() if isinstance(m, _BatchNorm) for p in m.parameters()}
        own = [p for p in module.parameters() if id(p) not in outside]
        slope = (more.kept[name] - few.kept[name]) / (MORE - FEW)
        return Unit(
            name,
            tuple(tuple(p.shape) for p in own if id(p) not in norms),
            tuple(tuple(p.shape) for p in own if id(p) in norms),
            kept=slope,
            kept_cast=(more_cast.kept[name] - few_cast.kept[name]) / (MORE - FEW),
            casts=max(0.0, few.kept[name] - FEW * slope),
            entering=few.entering[name][0] // FEW,
            entering_bytes=few.entering[name][1] / FEW,
        )

    blocks = [unit(f"blocks.{i}", block, set()) for i, block in enumerate(network.blocks)]
    if depth > 2:
        fewer = _flops(build(model, options | {"depth": 1}), image)
        flops += (depth - 2) * (flops - fewer)
        blocks += [replace(blocks[1], name=f"blocks.{i}") for i in range(2, depth)]
    tokens = network.position.shape[1] if model == "vit" else 0
    return Network(
        model,
        precision,
        tuple(blocks),
        unit("root", network, inside),
        flops,
        options.get("width"),
        tokens,
    )


def build(model: str, options: dict[str, Any]) -> Any:
    """A network without numbers: a module with `.blocks`.

    Raises:
        UsageError: there is none of this name, or a size does not fit it.
    """
    if model not in MODELS:
        raise UsageError(f"--model {model}: the planner knows {', '.join(MODELS)}; take one of them")
    with torch.device("meta"):
        return _CNN() if model == "cnn" else build_network(model, CLASSES, **options)


@dataclass
class _Kept:
    kept: dict[str, float]
    entering: dict[str, tuple[int, int]]


def _kept(network: nn.Module, image: tuple[int, ...], batch: int, precision: str, *, cast: bool = False) -> _Kept:
    """Bytes that autograd keeps in each unit for so many images, each storage once, parameters not counted."""
    bytes_of: dict[str, float] = defaultdict(float)
    entering: dict[str, tuple[int, int]] = {"root": (batch * math.prod(image), 4 * batch * math.prod(image))}
    at = ["root"]
    seen: dict[int, Tensor] = {}  # keeps them alive, so that no storage's number is given twice

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in seen:
            seen[storage._cdata] = tensor
            bytes_of[at[0]] += storage.nbytes()
        return tensor

    def enter(name: str, x: Tensor) -> None:
        at[0] = name
        entering[name] = (x.numel(), x.nbytes)

    def leave() -> None:
        at[0] = "root"

    half = HALF.get(precision)
    narrow = half if cast else None
    copied: Any = copy.deepcopy(network)
    with FakeTensorMode():
        _faked(copied, narrow)
        images = torch.empty(batch, *image, dtype=narrow or torch.float32)
        for tensor in (*copied.parameters(), *copied.buffers()):
            seen[tensor.untyped_storage()._cdata] = tensor
        for i, block in enumerate(copied.blocks):
            block.register_forward_pre_hook(lambda module, inputs, name=f"blocks.{i}": enter(name, inputs[0]))
            block.register_forward_hook(lambda module, inputs, output: leave())
        hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
        with hooks, torch.autocast("cpu", dtype=half, enabled=half is not None and not cast):
            copied(images)
    return _Kept(bytes_of, entering)


def _faked(network: nn.Module, half: torch.dtype | None) -> None:
    """Fake CPU tensors in the place of all parameters; half: in 16 bits, but for BatchNorm's, as FSDP has it."""
    for module in network.modules():
        dtype = None if isinstance(module, _BatchNorm) else half
        for name, parameter in list(module.named_parameters(recurse=False)):
            faked = torch.empty(parameter.shape, dtype=dtype or parameter.dtype)
            module._parameters[name] = nn.Parameter(faked)
        for name, buffer in list(module.named_buffers(recurse=False)):
            module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)


def _flops(network: nn.Module, image: tuple[int, ...]) -> float:
    """Of an image's forward and backward pass, in convolutions and matrix products."""
    with FlopCounterMode(display=False) as counter:
        network(torch.empty(FEW, *image, device="meta")).sum().backward()
    return counter.get_total_flops() / FEW
