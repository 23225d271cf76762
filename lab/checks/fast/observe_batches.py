"""What ranks observe of batches that are picked on the device."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import TensorDataset
from torch.utils.data.distributed import DistributedSampler

from lab.checks.common.attempt import attempt, dtype
from lab.checks.common.meta_device import META, line_in
from lab.checks.common.tiny import CPU
from lab.ranks.rank import Rank


class Moves(TorchDispatchMode):
    """Notes what is copied from the CPU to the pretended GPU: the type and number of dimensions.

    And of how many numbers the largest tensor of floats was: images, as nothing else is of this size.
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
            line = line_in(self._file)
            self.noted.append({"type": dtype(here[-1]), "dimensions": here[-1].dim(), "line": line})
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
    report["length"] = len(batches)
    report["even"] = attempt(rank, even_epoch, fast, given)
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


def even_epoch(fast: Any, given: dict[str, Any]) -> list[int]:
    """The sizes of an epoch's batches where all are whole: of the first images only."""
    count = given["even"]
    images, labels = given["images"][:count], given["labels"][:count]
    sampler: DistributedSampler[int] = DistributedSampler(TensorDataset(labels), drop_last=True)
    return [len(batch[1]) for batch in fast.DeviceBatches(images, labels, sampler, given["batch_size"], CPU)]


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
        }
    with Moves(str(fast.__file__)) as later:
        took = attempt(rank, lambda: [on_devices(*batch) for batch in made["value"]])
    return {
        "error": took["error"],
        "first": first.noted,
        "later": later.noted,
        "floats": {"first": first.floats // pixels, "later": later.floats // pixels},
        "devices": took["value"] or [],
    }


def on_devices(images: Tensor, labels: Tensor) -> dict[str, str]:
    return {"images": images.device.type, "labels": labels.device.type}
