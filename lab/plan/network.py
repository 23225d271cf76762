"""What a network asks of a device: parameters, FLOPs and kept activations, block by block, without numbers.

Nothing is estimated here. The network itself is built on PyTorch's device "meta", and a step of it rehearsed on
fake tensors (rehearsal.py), which have shapes and no memory. What a transformer block keeps is what Korthikanti
et al. 2022 (Reducing activation recomputation in large transformer models, arXiv:2205.05198, section 4) count by
hand.
"""

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.flop_counter import FlopCounterMode

from lab.base.errors import UsageError
from lab.plan.rehearsal import ROOT, Rehearsal, rehearse
from lab.runs.options.data import patch_size
from lab.runs.options.model import DEFAULT_DEPTH, DEFAULT_WIDTH, MODELS
from lab.training.networks import build_network

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
CLASSES = 10
FEW, MORE = 2, 4  # images: what grows between them grows with the batch


@dataclass(frozen=True)
class Amount:
    """Such as bytes: `fixed`, like a weight's new gradient, and `image` for each image."""

    fixed: float
    image: float

    def of(self, images: float) -> float:
        return self.fixed + self.image * images


@dataclass(frozen=True)
class Operator:
    """What one does in a step, for each image and whatever the batch: FLOPs in products, bytes in and out."""

    flops: Amount
    moved: Amount


@dataclass(frozen=True)
class Unit:
    """A block, or the root: what stands outside of all blocks. FSDP gathers a unit at a time.

    shapes     of its parameters; `norms` those of them that are BatchNorm's, which stay in fp32
    kept       bytes of activations an image that the backward pass needs, under autocast
    kept_cast  the same where the parameters themselves are 16 bits wide (FSDP's mixed precision)
    casts      bytes of 16-bit copies of the parameters that autocast makes and keeps, whatever the batch
    work       its operators, of both passes
    moments    of its backward pass, and of its forward pass: what is alive then besides all that this and the
               units before it keep; `moments_cast` where the parameters are 16 bits wide
    entering   numbers in an image's input of this block, which is all that activation checkpointing keeps; their
               bytes, under autocast
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    norms: tuple[tuple[int, ...], ...]
    kept: float
    kept_cast: float
    casts: float
    work: tuple[Operator, ...]
    moments: tuple[Amount, ...]
    moments_cast: tuple[Amount, ...]
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
    def operators(self) -> int:
        """Of a step's two passes."""
        return sum(len(unit.work) for unit in self.units)

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


@functools.cache
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
        if model == "vit" and image_size % patch_size(image_size):
            raise UsageError(
                f"--image-size {image_size}: a vit cuts it into patches of {patch_size(image_size)} pixels; "
                "take a multiple of that"
            )
        options["image_size"] = image_size
    # The blocks of a vit are alike: two of them are counted, and what the second has stands for all further ones.
    depth = options.get("depth", 0)
    if depth > 2:
        options = options | {"depth": 2}
    channels, side = {"mnist_cnn": (1, 28), "vgg19": (3, 224)}.get(model, (3, image_size or 32))
    image = (channels, side, side)
    network = build(model, options)
    flops = _flops(network, image)
    half = HALF.get(precision)
    few, more = (rehearse(network, image, batch, half) for batch in (FEW, MORE))
    few_cast, more_cast = (rehearse(network, image, batch, half, cast=True) for batch in (FEW, MORE))
    names = [*(f"blocks.{i}" for i in range(len(network.blocks))), ROOT]
    moments, moments_cast = _moments(few, more, names), _moments(few_cast, more_cast, names)
    work = _work(few, more, names)
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
            work=tuple(work[name]),
            moments=moments[name],
            moments_cast=moments_cast[name],
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
        unit(ROOT, network, inside),
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


def _moments(few: Rehearsal, more: Rehearsal, units: list[str]) -> dict[str, tuple[Amount, ...]]:
    """Of each unit, besides what it and the units before it keep; those that others exceed are left out."""
    found: dict[str, set[Amount]] = {unit: set() for unit in units}
    for (name, less), (_, alive) in zip(few.alive, more.alive, strict=True):
        before = units if name == ROOT else [*units[: units.index(name) + 1], ROOT]
        fewer, kept = (sum(one.kept[unit] for unit in before) for one in (few, more))
        found[name].add(_line(less - fewer, alive - kept))
    return {unit: _largest(moments) for unit, moments in found.items()}


def _work(few: Rehearsal, more: Rehearsal, units: list[str]) -> dict[str, list[Operator]]:
    found: dict[str, list[Operator]] = {unit: [] for unit in units}
    for (name, *less), (_, *much) in zip(few.work, more.work, strict=True):
        found[name].append(Operator(*(_line(one, two) for one, two in zip(less, much, strict=True))))
    return found


def _line(few: float, more: float) -> Amount:
    """Through what was counted with FEW and with MORE images."""
    slope = (more - few) / (MORE - FEW)
    return Amount(few - FEW * slope, slope)


def _largest(moments: Iterable[Amount]) -> tuple[Amount, ...]:
    """Those that no other exceeds whatever the batch."""
    left: list[Amount] = []
    for one in sorted(moments, key=lambda one: (-one.image, -one.fixed)):
        if not left or one.fixed > left[-1].fixed:
            left.append(one)
    return tuple(left)


def _flops(network: nn.Module, image: tuple[int, ...]) -> float:
    """Of an image's forward and backward pass, in convolutions and matrix products."""
    with FlopCounterMode(display=False) as counter:
        network(torch.empty(FEW, *image, device="meta")).sum().backward()
    return counter.get_total_flops() / FEW
