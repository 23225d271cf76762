"""Section 3: every rank its own part of the data."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

T = TypeVar("T")

IGNORED = -100  # the label that cross_entropy leaves out: its ignore_index


def load_once(load: Callable[[], T], is_first: bool) -> T:
    """Call `load` on every process, but on the first one of each file system before the others.

    The first call may download and unpack; the later ones only read what is there then.

    Args:
        load: loads the data set from the disk, and puts it there if it is missing.
        is_first: whether this process goes first: one does for each disk, so it need not be rank 0.
    """
    # TODO 3.1: let the first process load while the others wait, then let the others load. Every process must
    # come to the same barrier.
    raise NotImplementedError("Exercise 3.1 is not done yet: load_once() in data.py")


class ValidationShard(Dataset):
    """This rank's part of a data set: every sample is on exactly one rank, all ranks have the same length.

    Rank r holds the samples r, r + world_size, r + 2 * world_size, ... Where the samples run out, filler takes
    their place: an image of the size that the data set has (not all have 32 x 32), with the label IGNORED. It
    must not be counted, but it has to be there: a rank with fewer batches than the others would leave them
    waiting in FSDP's collectives for ever.
    """

    def __init__(self, dataset: Dataset, rank: int, world_size: int) -> None:
        self.dataset = dataset
        self.rank = rank
        self.world_size = world_size

    def __len__(self) -> int:
        # TODO 3.3a: the smallest number that leaves no sample out, the same on every rank.
        raise NotImplementedError("Exercise 3.3a is not done yet: ValidationShard.__len__() in data.py")

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        # TODO 3.3b: this rank's i-th sample, or filler past the end; nothing but i decides which.
        raise NotImplementedError("Exercise 3.3b is not done yet: ValidationShard.__getitem__() in data.py")


def get_dataloaders(
    train_set: Dataset,
    valid_set: Dataset,
    global_batch_size: int,
    *,
    num_workers: int = 0,
    seed: int = 0,
    **loader_options: Any,
) -> tuple[DataLoader, DataLoader]:
    """Loaders of (images [B, 3, 32, 32], labels [B]) for this rank, B = global_batch_size / world size.

    Training: this rank's part, in a new order each epoch (after loader.sampler.set_epoch), without the last
    partial batch. Validation: a ValidationShard, in order.

    Args:
        loader_options: for both DataLoaders, as they are: pin_memory and the like.

    Raises:
        ValueError: the global batch cannot be divided evenly, or is larger than the training set.
    """
    # TODO 3.2: check the global batch size, and give every rank its own part of the training set: use a
    # DistributedSampler with this seed, and drop what does not fill a batch on every rank. The validation loader
    # reads a ValidationShard (exercise 3.3), with the same batch size and no sampler. Pass num_workers and
    # **loader_options on to both DataLoaders.
    raise NotImplementedError("Exercise 3.2 is not done yet: get_dataloaders() in data.py")
