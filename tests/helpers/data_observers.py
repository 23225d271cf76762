"""What the ranks do in the tests of the data sets."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

from lab.base.files import is_first_on_filesystem
from lab.ranks.rank import Rank
from lab.training.data.datasets import DataSets, load_datasets


def who_is_first(rank: Rank) -> dict[str, Any]:
    """Each rank's own folder is inputs["folders"][rank]; with "bound", as a user whom permissions bind."""
    inputs = rank.receive()
    folder = Path(inputs["folders"][rank.rank])
    if inputs.get("bound"):
        sys.path.insert(0, inputs["helpers"])
        from image_helpers import without_privileges

        with without_privileges():
            first = is_first_on_filesystem(folder)
    else:
        first = is_first_on_filesystem(folder)
    dist.barrier()
    return {"first": first, "left": sorted(path.name for path in folder.iterdir()) if folder.exists() else None}


def load(rank: Rank) -> str:
    """Load inputs["name"] without any order among the ranks; return a digest of everything."""
    inputs = rank.receive()
    return digest(_load(inputs))


def load_in_order(rank: Rank) -> dict[str, Any]:
    """The same through the student's load_once, as main.py does it."""
    data = rank.student("data")
    inputs = rank.receive()
    first = is_first_on_filesystem(Path(inputs["data_dir"]))
    return {"first": first, "digest": digest(data.load_once(lambda: _load(inputs), first))}


def _load(inputs: dict[str, Any]) -> DataSets:
    if "cifar10" in inputs:
        from torchvision.datasets import CIFAR10

        for name, value in inputs["cifar10"].items():
            setattr(CIFAR10, name, value)
    return load_datasets(inputs["name"], Path(inputs["data_dir"]), cache_dir=Path(inputs["cache_dir"]))


def digest(datasets: DataSets) -> str:
    total = hashlib.sha256(repr(datasets.classes).encode())
    for part in (datasets.train, datasets.valid, datasets.test):
        if part is not None:
            total.update(part.images.numpy().tobytes() + part.labels.numpy().tobytes())
    return total.hexdigest()
