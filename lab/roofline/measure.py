"""One training step by kinds of kernel, measured: torch.profiler has the time, the operators' shapes the rest.

A dispatch mode sees every operator below autograd, in the forward pass, the backward pass and the optimizer. It
counts FLOPs by torch.utils.flop_counter's formulas, one for each element of the output where there is none; its
bytes are those of the inputs and the outputs, each read or written once. Around each operator it puts a range with
a number, by which the kernels that the operator launched are found again in the profile.
"""

import platform
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from lab.base.errors import UserError
from lab.roofline.kinds import COPY, PEAK, Kind
from lab.training.networks import build_network
from lab.training.stepping.precision import DTYPES, autocast, wants_channels_last

WARM_UP, STEPS = 5, 5
CLASSES = 10
SHAPES = {"mnist_cnn": (1, 28, 28), "vgg19": (3, 224, 224)}  # of an image; 3x32x32 for the others
MARK = "operator "  # and its number: the range around one
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
class Operator:
    kind: str
    flops: float
    bytes: float


class Tally(TorchDispatchMode):
    """Notes what each operator costs at least, and marks it for the profiler."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self.in_optimizer = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with record_function(f"{MARK}{len(self.operators)}"):
            out = func(*args, **kwargs)
        formula = flop_registry.get(func.overloadpacket)
        written = _elements(out)
        if not written and func.overloadpacket.__name__.startswith("_foreach"):
            written = _elements(args[0])  # in place, without a result
        flops = formula(*args, **kwargs, out_val=out) if formula else sum(one.numel() for one in written)
        moved = sum(one.numel() * one.itemsize for one in (*_elements((args, kwargs)), *written))
        kind = OPTIMIZER if self.in_optimizer else kind_of(func.overloadpacket.__name__)
        self.operators.append(Operator(kind, flops, moved))
        return out


def kind_of(operator: str) -> str:
    """Of an ATen operator's name, such as convolution_backward."""
    return next((kind for part, kind in PARTS.items() if part in operator), REST)


def _elements(tree: Any) -> list[Tensor]:
    """The tensors in it, each once."""
    return list({id(one): one for one in tree_iter(tree) if isinstance(one, Tensor)}.values())


def measure(
    model: str, precision: str, batch: int, device: torch.device, options: dict[str, Any] | None = None
) -> list[Kind]:
    """The kinds of kernel of an eager training step without a wrapper, and the device's peaks.

    Args:
        model: a network of --model; of SHAPES, or FILE:NAME.
        precision: fp32, bf16 or fp16, as main.py has it: TF32 in fp32's convolutions on a GPU.
        batch: images in the step.
        options: of the network, such as its width.

    Raises:
        UserError: the batch does not fit in the device's memory.
    """
    about = (model, precision, batch, name_of(device))
    try:
        parts = _step(model, precision, batch, device, options or {})
        peaks = list(_peaks(precision, device))
    except torch.OutOfMemoryError:
        raise UserError(
            f"{batch} images of {model} in {precision} do not fit in the memory of {about[3]}: fewer with "
            "--per-device-batch-size"
        ) from None
    return [Kind(*about, **asdict(costs)) for costs in (*parts, *peaks)]


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU"


@dataclass
class Costs:
    """A Kind's, without what it is of."""

    kind: str
    kernels: float = 0.0
    seconds: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0


def _step(model: str, precision: str, batch: int, device: torch.device, options: dict[str, Any]) -> list[Costs]:
    torch.manual_seed(0)
    network = build_network(model, CLASSES, **options).to(device)
    images = torch.randn(batch, *SHAPES.get(model, (3, 32, 32)), device=device)
    labels = torch.randint(CLASSES, (batch,), device=device)
    if wants_channels_last(network, device, "none"):
        network = network.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
    # fp16's scaler is left out: a multiplication, and a look at every gradient
    loss_of = nn.CrossEntropyLoss()
    tally = Tally()

    def step() -> None:
        with autocast(device, precision, "none"):
            loss = loss_of(network(images), labels)
        loss.backward()
        tally.in_optimizer = True
        optimizer.step()
        optimizer.zero_grad()
        tally.in_optimizer = False

    for _ in range(WARM_UP):
        step()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as profiler, tally:
        for _ in range(STEPS):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return _by_kind(profiler.events() or (), tally.operators, on_gpu=device.type == "cuda")


def _by_kind(events: Iterable[FunctionEvent], operators: list[Operator], *, on_gpu: bool) -> list[Costs]:
    """A step's sums for each kind; what launched nothing, such as a view, is in none."""
    launched: dict[int, list[float]] = {}  # of an operator: the kernels' seconds, on the CPU its own
    for event in events:
        if on_gpu:
            number = _operator(event)
            if number is not None:
                launched.setdefault(number, []).extend(1e-6 * kernel.duration for kernel in event.kernels)
        elif event.name.startswith(MARK) and not _is_view(event):
            launched[int(event.name.removeprefix(MARK))] = [1e-6 * event.cpu_time_total]
    sums: dict[str, Costs] = {}
    for number, kernels in launched.items():
        one = operators[number]
        if kernels:
            costs = sums.setdefault(one.kind, Costs(one.kind))
            costs.kernels += len(kernels) / STEPS
            costs.seconds += sum(kernels) / STEPS
            costs.flops += one.flops / STEPS
            costs.bytes += one.bytes / STEPS
    return list(sums.values())


def _operator(event: FunctionEvent) -> int | None:
    """The number of the operator in whose range a CPU event lies."""
    inside: FunctionEvent | None = event
    while inside is not None:
        if inside.name.startswith(MARK):
            return int(inside.name.removeprefix(MARK))
        inside = inside.cpu_parent
    return None


VIEWS = (
    "view",
    "t",
    "transpose",
    "permute",
    "expand",
    "detach",
    "slice",
    "select",
    "unsqueeze",
    "alias",
    "as_strided",
)


def _is_view(event: FunctionEvent) -> bool:
    return all(child.name.removeprefix("aten::") in VIEWS for child in event.cpu_children)


def _peaks(precision: str, device: torch.device) -> Iterator[Costs]:
    """Large matrix products, as the step's convolutions and products are computed, and one large copy."""
    on_gpu = device.type == "cuda"
    side = 8192 if on_gpu else 1024
    kinds = [(precision, DTYPES.get(precision, torch.float32), False)]
    if precision == "fp32" and on_gpu:
        kinds.append(("TF32", torch.float32, True))
    allowed = torch.backends.cuda.matmul.allow_tf32
    for name, dtype, tf32 in kinds:
        a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
        out = torch.empty_like(a)
        torch.backends.cuda.matmul.allow_tf32 = tf32
        try:
            seconds = _fastest(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), device)  # type: ignore[misc]
        finally:
            torch.backends.cuda.matmul.allow_tf32 = allowed
        yield Costs(f"{PEAK}{name}", 1.0, seconds, 2.0 * side**3, 3.0 * side**2 * out.itemsize)
    source = torch.empty((1 << 30) if on_gpu else (1 << 27), dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    yield Costs(COPY, 1.0, _fastest(lambda: target.copy_(source), device), 0.0, 2.0 * source.numel())


def _fastest(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of ten, after two others."""
    best = float("inf")
    for turn in range(12):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if turn >= 2:
            best = min(best, time.perf_counter() - began)
    return best
