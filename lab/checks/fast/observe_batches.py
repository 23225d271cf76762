"""What ranks observe of batches that are picked on the device."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import TensorDataset
from torch.utils.data.distributed import DistributedSampler

from lab.checks.common.attempt import attempt, dtype, stepped
from lab.checks.common.meta_device import META, line_in
from lab.checks.common.tiny import CPU
from lab.checks.fast.draw import LARGE, other_data
from lab.ranks.rank import Rank


class Moves(TorchDispatchMode):
    """Notes what is copied from the CPU to the pretended GPU: the type and number of dimensions.

    And whether that was only to pick something with it; and of how many numbers the largest tensor of floats was:
    images, as nothing else is of this size.
    """

    def __init__(self, file: str) -> None:
        super().__init__()
        self.noted: list[dict[str, Any]] = []
        self.floats = 0
        self._file = file

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.floats = max([self.floats, *(leaf.numel() for leaf in made if leaf.is_floating_point())])
        here = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and not leaf.is_meta]
        if here and any(leaf.is_meta for leaf in made):
            line, picks = line_in(self._file), "index" in func._schema.name and here[-1].dim() > 0
            move = {"type": dtype(here[-1]), "dimensions": here[-1].dim(), "picks": picks, "line": line}
            self.noted.append(move)
        return result


def take_batches(rank: Rank) -> dict[str, Any]:
    """Two epochs of this rank's batches of images that can be told apart, as they come out."""
    fast = rank.student("fast")
    given = rank.receive()
    images, labels = given["images"], given["labels"]
    sampler: DistributedSampler[int] = DistributedSampler(
        TensorDataset(labels), seed=given["seed"], drop_last=True
    )
    made = attempt(rank, fast.DeviceBatches, images, labels, sampler, given["batch_size"], CPU)
    report: dict[str, Any] = {
        "error": made["error"],
        "epochs": [],
        "length": -1,
        "set": [],
        "kept": "",
        "same": {},
        "odd_at": 0,
    }
    if made["error"]:
        return report
    batches = made["value"]
    report["kept"] = dtype(getattr(batches, "labels", None))
    report["same"] = {
        which: is_kept(getattr(batches, which, None), given[which]) for which in ("images", "labels")
    }
    for epoch in given["epochs"]:
        sampler.set_epoch(epoch)
        with epochs_noted(sampler, str(fast.__file__), report["set"]):
            epoch_report = attempt(rank, epoch_of, batches)
        report["epochs"].append(epoch_report)
        if epoch_report["error"]:
            return report
    report["odd_at"] = odd_at(fast, batches, given["images"], [epoch["value"] for epoch in report["epochs"]])
    report["length"] = len(batches)
    report["even"] = attempt(rank, even_epoch, fast, given)
    report["large"] = attempt(rank, large_epoch, fast)
    report["elsewhere"] = on_pretended_gpu(rank, fast, given)
    return report


@contextmanager
def epochs_noted(sampler: DistributedSampler[int], file: str, noted: list[dict[str, int]]) -> Iterator[None]:
    """Note each set_epoch() in here: the student's."""
    real = sampler.set_epoch

    def set_epoch(epoch: int) -> None:
        noted.append({"epoch": int(epoch), "line": line_in(file)})
        real(epoch)

    with mock.patch.object(sampler, "set_epoch", set_epoch):
        yield


def epoch_of(batches: Any) -> list[dict[str, Any]]:
    """One epoch as plain data, each batch when it comes; "kept" tells whether it is the same after the last."""
    kept, told = [], []
    for batch in batches:
        kept.append(batch)
        told.append(described(batch))
    return [then | {"kept": described(batch) == then} for then, batch in zip(told, kept, strict=True)]


def even_epoch(fast: Any, given: dict[str, Any]) -> list[list[int]]:
    """The sizes of an epoch's batches where all are whole; and the images, and the labels, as they are in them.

    It is another data set, of as many images as three whole batches have.
    """
    images, labels = other_data(given)
    sampler: DistributedSampler[int] = DistributedSampler(TensorDataset(labels), drop_last=True)
    batches = list(fast.DeviceBatches(images, labels, sampler, given["batch_size"], CPU))
    told = [described(batch) for batch in batches]
    return [
        [len(batch[1]) for batch in batches],
        [round(pixel * 255) for batch in told for pixel in batch["pixels"]],
        [label for batch in told for label in batch["labels"]],
    ]


def large_epoch(fast: Any) -> list[int]:
    """Of a data set whose numbers int16 does not hold: one that the sampler said, and the one that came; or []."""
    indices = torch.arange(LARGE)
    images = torch.stack([indices % 200, indices // 200, indices % 7], dim=1).to(torch.uint8)[..., None, None]
    sampler: DistributedSampler[int] = DistributedSampler(TensorDataset(indices), drop_last=True)
    batches = fast.DeviceBatches(images, indices % 10, sampler, LARGE // 10, CPU)
    pixels = torch.cat([batch[0].double().reshape(-1, 3).mul(255).round().long() for batch in batches])
    pairs = zip(sampler, (pixels[:, 0] + 200 * pixels[:, 1]).tolist(), strict=False)
    return next(([said, label] for said, label in pairs if said != label), [])


def odd_at(fast: Any, batches: Any, images: Tensor, epochs: list[Any]) -> int:
    """The first line of an epoch that makes images of pixels which they do not have; 0 where none does.

    Args:
        epochs: as they came: only where these have such pixels it is looked for.
    """
    scaled = {round(pixel / 255, 3) for pixel in images.flatten().tolist()}
    known = scaled | {float(pixel) for pixel in images.flatten().tolist()}

    def odd(value: Any) -> bool:
        floats = isinstance(value, Tensor) and value.is_floating_point() and value.dim() == 4
        return floats and not {round(pixel, 3) for pixel in value.double()[:, 0, 0, 0].tolist()} <= known

    if all(round(pixel, 3) in scaled for batches in epochs for batch in batches for pixel in batch["pixels"]):
        return 0
    return first_line(fast, batches, odd)


def first_line(fast: Any, batches: Any, of_interest: Callable[[Any], bool]) -> int:
    """The first line of an epoch after which a variable or attribute of `batches` is of interest, or 0.

    What `batches` has held since before this epoch is not.
    """
    before = tree_leaves(attributes(batches))
    held_before = set(map(id, before))

    def probe(frame: Any, result: Any) -> bool:
        held = [*frame.f_locals.values(), *attributes(batches), result]
        new = [leaf for value in held for leaf in tree_leaves(value) if id(leaf) not in held_before]
        return any(map(of_interest, new))

    with stepped(fast.__file__, probe, results=True) as notes:
        list(batches)
    return next((line for line, found in notes if found), 0)


def attributes(one: Any) -> list[Any]:
    """What an object holds; a class with __slots__ has no __dict__."""
    slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*getattr(one, "__dict__", {}).values(), *(getattr(one, name, None) for name in slots)]


def is_kept(value: Any, given: Tensor) -> bool:
    """Whether a tensor holds what was handed in, in whichever type; what is kept under another name does, too."""
    return not isinstance(value, Tensor) or torch.equal(value.double(), given.double())


def described(batch: Any) -> dict[str, Any]:
    """A batch as plain data; the first pixel of each image tells which one it is."""
    images, labels = batch
    tensors = isinstance(images, Tensor) and isinstance(labels, Tensor)
    return {
        "type": type(images).__name__,
        "dtype": dtype(images),
        "label dtype": dtype(labels),
        "label shape": list(labels.shape) if tensors else [],
        "shape": list(images.shape) if tensors else [],
        "pixels": images.double().flatten(1)[:, 0].tolist() if tensors and images.dim() == 4 else [],
        "flat": bool((images == images[:, :1, :1, :1]).all()) if tensors and images.dim() == 4 else False,
        "labels": [int(label) for label in labels.double().flatten().nan_to_num()] if tensors else [],
    }


def on_pretended_gpu(rank: Rank, fast: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Where tensors are when the device is another one, and what is copied there, before and in an epoch."""
    sampler: DistributedSampler[int] = DistributedSampler(
        TensorDataset(given["labels"]), seed=given["seed"], drop_last=True
    )
    pixels = given["images"][0].numel()
    with Moves(str(fast.__file__)) as first:
        made = attempt(
            rank, fast.DeviceBatches, given["images"], given["labels"], sampler, given["batch_size"], META
        )
    if made["error"]:
        return {
            "error": made["error"],
            "first": [],
            "later": [],
            "floats": dict.fromkeys(("first", "later"), 0),
            "devices": [],
            "order_at": 0,
            "kept_on": {"images": "", "labels": ""},
        }
    with Moves(str(fast.__file__)) as later:
        took = attempt(rank, lambda: [on_devices(*batch) for batch in made["value"]])
    return {
        "error": took["error"],
        "first": first.noted,
        "later": later.noted,
        "floats": {"first": first.floats // pixels, "later": later.floats // pixels},
        "devices": took["value"] or [],
        "order_at": order_at(fast, made["value"]) if any(move["picks"] for move in later.noted) else 0,
        "kept_on": {which: device_of(getattr(made["value"], which, None)) for which in ("images", "labels")},
    }


def device_of(value: Any) -> str:
    """ "cpu"; "" for what is no tensor."""
    return value.device.type if isinstance(value, Tensor) else ""


def order_at(fast: Any, batches: Any) -> int:
    """The first line of an epoch that makes a tensor of integers on the CPU, where the images are elsewhere."""

    def is_order(value: Any) -> bool:
        return (
            isinstance(value, Tensor) and value.device == CPU and value.dim() > 0 and not value.is_floating_point()
        )

    return first_line(fast, batches, is_order)


def on_devices(images: Tensor, labels: Tensor) -> dict[str, str]:
    return {"images": images.device.type, "labels": labels.device.type}
