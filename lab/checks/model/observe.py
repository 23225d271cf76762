"""What ranks observe of the student's CNN."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lab.checks.common.attempt import attempt
from lab.checks.common.pretended_gpu import pretended_gpu
from lab.checks.model.observe_device import IMAGE, computed_in, elsewhere, noting_autocast, without_numbers
from lab.ranks.rank import Rank

USUAL_BATCH_SIZES = (1, 2, 4, 8, 10, 16, 20, 32, 50, 64, 100, 128, 250, 256)

# What an assertion that refuses images of 3 x 32 x 32 may have been written for.
OTHER_IMAGES = ((32, 32, 3), (32, 3, 32), (1, 28, 28), (1, 32, 32), (3, 28, 28), (3, 64, 64), (3, 224, 224))

ROWS = 3  # of a batch are compared with what they give alone

# The pooling of the network rounds 33 and 34 down to 32's size, and 16 x 64 pixels are as many as 32 x 32: only an
# assertion notices these images. The last ones have one wrong size each.
WRONG_IMAGES = (
    *((3, 34, 33), (3, 28, 28), (1, 32, 32), (3, 64, 64), (32, 32, 3)),
    *((3, 34, 32), (3, 32, 34), (3, 28, 32), (3, 32, 28), (3, 16, 64), (4, 32, 32)),
)

ODD = ((3, 32, 32), (2, 3, 32, 32, 1), (2, 5), (2, 3, 32))  # no batches of images at all


def give_both_signs(cnn: nn.Module) -> None:
    """Let some logits be negative: as it is drawn, the last bias has ten positive numbers in one of 1024 nets."""
    biases = [parameter for parameter in cnn.parameters() if parameter.shape == (10,)]
    with torch.no_grad():
        for bias in biases[-1:]:
            bias.copy_(torch.linspace(-2, 2, 10))


def run_network(rank: Rank) -> dict[str, Any]:
    """Show the CNN batches of several sizes, images of wrong sizes, and one batch as a whole and row by row."""
    model = rank.student("model")
    given = rank.receive()
    torch.manual_seed(given["seed"])
    cnn = model.CNN()
    give_both_signs(cnn)
    originals = [batch.clone() for batch in given["batches"]]
    report: dict[str, Any] = {"usual": [], "lets_through": []}
    with noting_autocast() as report["autocast"]:
        report["batches"] = [forward(rank, cnn, images) for images in given["batches"]]
    if any(batch["error"] for batch in report["batches"]):
        # Which sizes does it want? Only asked when something is wrong.
        with torch.no_grad():
            for size in USUAL_BATCH_SIZES:
                if not attempt(rank, cnn, torch.zeros(size, *IMAGE))["error"]:
                    report["usual"].append(size)
            size = len(given["batches"][0])
            report["lets_through"] = [
                list(shape)
                for shape in OTHER_IMAGES
                if (error := attempt(rank, cnn, torch.zeros(size, *shape))["error"]) is None
                or "AssertionError" not in error["bases"]
            ]
        return report
    if not all(map(usable, given["batches"], [batch["value"] for batch in report["batches"]])):
        return report
    report["changed"] = any(not batch.equal(was) for batch, was in zip(given["batches"], originals, strict=True))
    report["elsewhere"] = elsewhere(cnn)
    report["large"] = without_numbers(rank, cnn, given["large"])
    report["computed_in"] = attempt(rank, computed_in, cnn, given["batches"][0])["value"] or []
    report["wrong"] = [forward_noting_entry(rank, cnn, torch.zeros(3, *shape)) for shape in WRONG_IMAGES]
    report["odd"] = [forward(rank, cnn, torch.zeros(shape)) for shape in ODD]
    report["blocks"] = describe_blocks(cnn)
    report["called"] = [] if report["blocks"] else times_called(rank, cnn, given["batches"][0])
    with torch.no_grad():
        cnn.eval()
        report["wrong_evaluated"] = [forward(rank, cnn, torch.zeros(3, *shape)) for shape in WRONG_IMAGES]
        cnn.train()
    with noting_autocast() as entered, pretended_gpu():
        report["on_gpu"] = forward(rank, cnn, given["batches"][0])
        report["wrong_on_gpu"] = [forward(rank, cnn, torch.zeros(3, *shape)) for shape in WRONG_IMAGES]
    report["autocast_on_gpu"] = entered
    report["modules"] = sorted({type(module).__name__ for module in cnn.modules()})
    report["classes"] = forward(rank, model.CNN(given["num_classes"]), given["batches"][0])
    report["without_gradient"] = without_gradient(cnn, given["batches"][0])

    cnn.double().train()
    images = given["batches"][-1].double()
    report["whole"] = forward(rank, cnn, images)
    report["again"] = forward(rank, cnn, images)
    report["rows"] = [forward(rank, cnn, images[i : i + 1]) for i in range(ROWS)]
    with torch.no_grad():
        report["evaluated"] = forward(rank, cnn.eval(), images)
    return report


def forward(rank: Rank, network: nn.Module, images: Tensor) -> dict[str, Any]:
    """{"value": the logits, or the name of the type that came instead, "error": ...}."""
    result = attempt(rank, network, images)
    value = result["value"]
    if not isinstance(value, Tensor):
        return {"value": type(value).__name__, "error": result["error"]}
    return {"value": value.detach(), "error": None}


def forward_noting_entry(rank: Rank, network: nn.Module, images: Tensor) -> dict[str, Any]:
    """The same with "entered": the shape in which the images came to the first convolution; [] if they did not."""
    with noting_entry(network) as shapes:
        return {**forward(rank, network, images), "entered": shapes[0] if shapes else []}


@contextmanager
def noting_entry(network: nn.Module) -> Iterator[list[list[int]]]:
    shapes: list[list[int]] = []

    def note(_module: nn.Module, args: tuple[Any, ...]) -> None:
        shapes.extend(list(value.shape) for value in args if isinstance(value, Tensor))

    first = next((module for module in network.modules() if isinstance(module, nn.Conv2d)), None)
    hook = first.register_forward_pre_hook(note) if first else None
    try:
        yield shapes
    finally:
        if hook:
            hook.remove()


def usable(images: Tensor, value: object) -> bool:
    """Whether this can be handed to a loss, with the images' labels."""
    return isinstance(value, Tensor) and value.is_floating_point() and value.shape == (len(images), 10)


def describe_blocks(cnn: nn.Module) -> str:
    """What is wrong with cnn.blocks, in a sentence; "" when nothing is."""
    blocks = getattr(cnn, "blocks", None)
    if blocks is None:
        return "the network has no attribute blocks."
    if not isinstance(blocks, nn.ModuleList | nn.Sequential):
        return f"blocks is a {type(blocks).__name__}, so PyTorch does not see the parameters in it."
    return "" if len(blocks) else "blocks is empty."


def times_called(rank: Rank, cnn: nn.Module, images: Tensor) -> list[int]:
    """How often one forward pass calls each block, as its hooks see it."""
    blocks = list(cnn.blocks)  # type: ignore[arg-type]
    counts: Counter[int] = Counter()
    hooks = [
        block.register_forward_pre_hook(lambda *_, number=number: counts.update([number]))
        for number, block in enumerate(blocks)
    ]
    try:
        forward(rank, cnn, images)
    finally:
        for hook in hooks:
            hook.remove()
    return [counts[number] for number in range(len(blocks))]


def without_gradient(cnn: nn.Module, images: Tensor) -> list[str]:
    """Names of the parameters that a backward pass leaves without gradient."""
    logits = cnn(images)
    if logits.requires_grad:
        F.cross_entropy(logits, torch.zeros(len(images), dtype=torch.int64)).backward()
    return [name for name, parameter in cnn.named_parameters() if parameter.grad is None]
