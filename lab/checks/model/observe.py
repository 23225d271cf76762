"""What ranks observe of the student's CNN."""

from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lab.checks.common.attempt import attempt
from lab.checks.common.meta_device import META, runs_elsewhere
from lab.ranks.rank import Rank

IMAGE = (3, 32, 32)
USUAL_BATCH_SIZES = (1, 2, 4, 8, 10, 16, 20, 32, 50, 64, 100, 128, 250, 256)

# What an assertion that refuses images of 3 x 32 x 32 may have been written for.
OTHER_IMAGES = ((32, 32, 3), (32, 3, 32), (1, 28, 28), (1, 32, 32), (3, 28, 28), (3, 64, 64), (3, 224, 224))

ROWS = 3  # of a batch are compared with what they give alone

# The pooling of the network rounds 33 and 34 down to 32's size: only an assertion notices these images.
WRONG_IMAGES = ((3, 34, 33), (3, 28, 28), (1, 32, 32), (3, 64, 64), (32, 32, 3))

ODD = ((3, 32, 32), (2, 3, 32, 32, 1), (2, 5), (2, 3, 32))  # no batches of images at all


def run_network(rank: Rank) -> dict[str, Any]:
    """Show the CNN batches of several sizes, images of wrong sizes, and one batch as a whole and row by row."""
    model = rank.student("model")
    given = rank.receive()
    torch.manual_seed(given["seed"])
    cnn = model.CNN()
    originals = [batch.clone() for batch in given["batches"]]
    report: dict[str, Any] = {
        "batches": [forward(rank, cnn, images) for images in given["batches"]],
        "usual": [],
        "lets_through": [],
    }
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
    if not all(usable(batch["value"]) for batch in report["batches"]):
        return report
    report["changed"] = any(not batch.equal(was) for batch, was in zip(given["batches"], originals, strict=True))
    report["elsewhere"] = runs_elsewhere(lambda: on_device(cnn, META))
    report["wrong"] = [forward(rank, cnn, torch.zeros(3, *shape)) for shape in WRONG_IMAGES]
    report["odd"] = [forward(rank, cnn, torch.zeros(shape)) for shape in ODD]
    report["blocks"] = describe_blocks(cnn)
    report["modules"] = sorted({type(module).__name__ for module in cnn.modules()})
    report["classes"] = forward(rank, model.CNN(given["num_classes"]), given["batches"][0])
    report["without_gradient"] = without_gradient(cnn, given["batches"][0])

    cnn.double().train()
    images = given["batches"][-1].double()
    report["whole"] = forward(rank, cnn, images)
    report["again"] = forward(rank, cnn, images)
    report["rows"] = [forward(rank, cnn, images[i : i + 1]) for i in range(ROWS)]
    return report


def on_device(cnn: nn.Module, device: torch.device) -> None:
    """Raises RuntimeError where the network's results are on another device than its images."""
    logits = deepcopy(cnn).to(device)(torch.zeros(2, *IMAGE, device=device))
    if isinstance(logits, Tensor) and logits.device != device:
        raise RuntimeError(f"the logits are on the {logits.device}, and not on the same device as the images")


def forward(rank: Rank, network: nn.Module, images: Tensor) -> dict[str, Any]:
    """{"value": the logits, or the name of the type that came instead, "error": ...}."""
    result = attempt(rank, network, images)
    value = result["value"]
    if not isinstance(value, Tensor):
        return {"value": type(value).__name__, "error": result["error"]}
    return {"value": value.detach(), "error": None}


def usable(value: object) -> bool:
    """Whether this can be handed to a loss."""
    return isinstance(value, Tensor) and value.ndim == 2 and value.is_floating_point() and value.shape[1] == 10


def describe_blocks(cnn: nn.Module) -> str:
    """What is wrong with cnn.blocks, in a sentence; "" when nothing is."""
    blocks = getattr(cnn, "blocks", None)
    if blocks is None:
        return "the network has no attribute blocks."
    if not isinstance(blocks, nn.ModuleList | nn.Sequential):
        return f"blocks is a {type(blocks).__name__}, so PyTorch does not see the parameters in it."
    return "" if len(blocks) else "blocks is empty."


def without_gradient(cnn: nn.Module, images: Tensor) -> list[str]:
    """Names of the parameters that a backward pass leaves without gradient."""
    logits = cnn(images)
    if logits.requires_grad:
        F.cross_entropy(logits, torch.zeros(len(images), dtype=torch.int64)).backward()
    return [name for name, parameter in cnn.named_parameters() if parameter.grad is None]
