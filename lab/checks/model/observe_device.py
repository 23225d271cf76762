"""Where the network computes: on a GPU that is only pretended, and on a device without numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lab.checks.common.attempt import attempt
from lab.checks.common.meta_device import META, runs_elsewhere
from lab.ranks.rank import Rank

IMAGE = (3, 32, 32)


class Destinations(TorchFunctionMode):
    """Notes on which devices, other than the images', tensors are made or to which they are sent by name."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        device = _named_device(getattr(function, "__name__", ""), args, kwargs or {})
        if device is not None and device.type != META.type:
            self.found.append(str(device))
        return function(*args, **(kwargs or {}))


def _named_device(name: str, args: Any, kwargs: dict[str, Any]) -> torch.device | None:
    """The device that a call of PyTorch's names; None where it names none."""
    if name == "to":
        target: torch.device | None = torch._C._nn._parse_to(*args[1:], **kwargs)[0]
        return target
    if name in ("cuda", "cpu"):
        number = args[1] if len(args) > 1 else kwargs.get("device")
        return torch.device(name, number) if isinstance(number, int) else torch.device(number or name)
    device = kwargs.get("device")
    return None if device is None else torch.device(device)


def elsewhere(cnn: nn.Module) -> str:
    """What goes wrong where network and images are on a GPU, in words; "" where nothing does."""
    destinations = Destinations()
    said = runs_elsewhere(lambda: _on_device(cnn, destinations))
    return f"a tensor is sent to {destinations.found[0]}" if destinations.found else said


def _on_device(cnn: nn.Module, destinations: Destinations) -> None:
    """Raises RuntimeError where something of the network's is on another device than its images."""
    images, network = torch.zeros(2, *IMAGE, device=META), deepcopy(cnn).to(META)
    try:
        with destinations:
            logits = network(images)
    except NotImplementedError as error:
        if "copy out of meta" in str(error):
            raise RuntimeError(
                "a result is copied to the CPU, and is not on the same device as the images"
            ) from None
        raise
    if isinstance(logits, Tensor) and logits.device != META:
        raise RuntimeError(f"the logits are on the {logits.device}, and not on the same device as the images")


def without_numbers(rank: Rank, cnn: nn.Module, size: int) -> dict[str, Any]:
    """What comes of so many images, {"shape", "error"}: larger than a CPU can take, without any numbers in it."""
    network = deepcopy(cnn).to(META)
    with torch.no_grad():
        result = attempt(rank, network, torch.zeros(size, *IMAGE, device=META))
    value = result["value"]
    return {"shape": list(value.shape) if isinstance(value, Tensor) else [], "error": result["error"]}


@contextmanager
def noting_autocast() -> Iterator[list[str]]:
    """The kinds of device for which the network enters autocast by itself."""
    kind, noted = torch.autocast, list[str]()
    enter = kind.__enter__

    def noting(self: Any) -> Any:
        noted.append(str(self.device))
        return enter(self)

    with mock.patch.object(kind, "__enter__", noting):
        yield noted


def computed_in(cnn: nn.Module, images: Tensor) -> list[str]:
    """The types in which the convolutions compute where the caller has asked autocast for bfloat16."""
    noted: set[str] = set()

    def note(_module: nn.Module, _images: Any, result: object) -> None:
        if isinstance(result, Tensor):
            noted.add(str(result.dtype).removeprefix("torch."))

    hooks = [one.register_forward_hook(note) for one in cnn.modules() if isinstance(one, nn.Conv2d)]
    try:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            cnn(images)
    finally:
        for hook in hooks:
            hook.remove()
    return sorted(noted)
