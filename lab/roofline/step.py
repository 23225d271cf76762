"""The step that is measured: eager, without a wrapper, on random images; each operator is marked, and counted.

A dispatch mode sees every operator below autograd, in the forward pass, the backward pass and the optimizer. It
counts FLOPs by torch.utils.flop_counter's formulas, one for each element of the output where there is none; its
bytes are those of the inputs and the outputs, each read or written once.
"""

import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from lab.base.errors import UserError
from lab.runs.options.own import load_own
from lab.training.networks import build_network
from lab.training.stepping.precision import autocast, wants_channels_last

WARM_UP = 5  # steps
CLASSES = 10
SHAPES = {"mnist_cnn": (1, 28, 28), "vgg19": (3, 224, 224)}  # of an image; 3x32x32 for the others
PARTS = {  # of an operator's name -> its kind; the first that fits
    "convolution_backward": "convolution, backward",
    "convolution": "convolution, forward",
    "attention": "attention",
    "norm": "normalisation",
    "mm": "matrix product",
    "_to_copy": "change of precision",
    "pool": "pooling",
    "softmax": "loss",
    "nll_loss": "loss",
}
OPTIMIZER, REST = "optimizer", "element by element"


@dataclass(frozen=True)
class Subject:
    """What is measured."""

    model: str  # a network of --model, or FILE:NAME
    precision: str  # fp32, bf16 or fp16, as main.py has it: TF32 in fp32's convolutions on a GPU
    batch: int  # images in the step
    options: Mapping[str, int] = field(default_factory=dict)  # of the network, such as its width
    code: str = ""  # the folder of model.py, which has the CNN, and of one's own FILE

    @property
    def name(self) -> str:
        """The network's, with its options."""
        return " ".join([self.model, *(f"{name}={value}" for name, value in self.options.items())])

    def network(self) -> nn.Module:
        if self.code and self.code not in sys.path:
            sys.path.append(self.code)  # behind all others: its modules can be imported, and hide nothing
        if self.model == "cnn":
            return load_own("--model cnn", "model:build_model")("cnn", CLASSES)
        return build_network(self.model, CLASSES, **self.options)

    @property
    def image(self) -> tuple[int, ...]:
        """The shape of one."""
        size = self.options.get("image_size", 32)
        return SHAPES.get(self.model, (3, size, size))


@dataclass(frozen=True)
class Operator:
    kind: str
    flops: float
    bytes: float
    written: float  # of the bytes


class Tally(TorchDispatchMode):
    """Notes what each operator costs at least, and puts a mark around it."""

    def __init__(self, mark: Callable[[int, str], AbstractContextManager[Any]] | None = None) -> None:
        """`mark` is given the operator's number and its kind."""
        super().__init__()
        self.mark = mark
        self.operators: list[Operator] = []
        self.in_optimizer = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        kind = OPTIMIZER if self.in_optimizer else kind_of(func.overloadpacket.__name__)
        with self.mark(len(self.operators), kind) if self.mark else nullcontext():
            out = func(*args, **kwargs)
        formula = flop_registry.get(func.overloadpacket)
        written = _elements(out)
        if not written and func.overloadpacket.__name__.startswith("_foreach"):
            written = _elements(args[0])  # in place, without a result
        flops = formula(*args, **kwargs, out_val=out) if formula else sum(one.numel() for one in written)
        output = _bytes(written)
        self.operators.append(Operator(kind, flops, _bytes(_elements((args, kwargs))) + output, output))
        return out


def kind_of(operator: str) -> str:
    """Of an ATen operator's name, such as convolution_backward."""
    return next((kind for part, kind in PARTS.items() if part in operator), REST)


def _elements(tree: Any) -> list[Tensor]:
    """The tensors in it, each once."""
    return list({id(one): one for one in tree_iter(tree) if isinstance(one, Tensor)}.values())


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(one.numel() * one.itemsize for one in tensors)


def prepare(subject: Subject, device: torch.device, tally: Tally) -> Callable[[], None]:
    """A training step of it, which `tally` follows where it is entered. Some steps have warmed the device up.

    Raises:
        UserError: the network cannot be built, or is a CNN that is not written yet.
    """
    torch.manual_seed(0)
    network = subject.network().to(device)
    images = torch.randn(subject.batch, *subject.image, device=device)
    labels = torch.randint(CLASSES, (subject.batch,), device=device)
    if wants_channels_last(network, device, "none"):
        network = network.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
    # fp16's scaler is left out: a multiplication, and a look at every gradient
    loss_of = nn.CrossEntropyLoss()

    def step() -> None:
        with autocast(device, subject.precision, "none"):
            loss = loss_of(network(images), labels)
        loss.backward()
        tally.in_optimizer = True
        optimizer.step()
        optimizer.zero_grad()
        tally.in_optimizer = False

    try:
        for _ in range(WARM_UP):
            step()
    except NotImplementedError as error:
        if subject.model != "cnn":
            raise
        raise UserError(f"{subject.code}/model.py: {error}; --code names another folder") from None
    return step


def too_large(subject: Subject, device: torch.device) -> UserError:
    return UserError(
        f"{subject.batch} images of {subject.name} in {subject.precision} do not fit in the memory of "
        f"{name_of(device)}: fewer with --per-device-batch-size"
    )


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU"
