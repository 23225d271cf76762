"""The data sets that main.py offers by name, as uint8 images in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from lab.training import cifar10, shapes
from lab.training.errors import UsageError, UserError
from lab.training.imagefolder import load_imagefolder

DATASETS = ("shapes", "cifar10", "imagefolder")
SPLIT_SEED = 0
HELD_BACK = 0.1  # of the training images, for validation; 5,000 of CIFAR-10's 50,000


class ImageDataset(Dataset):
    """Images in memory. A sample is (image, label): float32 [C, H, W], normalised, and an int.

    Args:
        images: uint8 [N, C, H, W].
        labels: int64 [N], indices into `classes`.
        classes: the names.
        mean, std: of each channel over the training set, where pixels run from 0 to 1.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        classes: tuple[str, ...],
        mean: Sequence[float] | Tensor,
        std: Sequence[float] | Tensor,
    ) -> None:
        assert (images.dtype, images.ndim) == (torch.uint8, 4), (images.dtype, images.shape)
        assert (labels.dtype, labels.shape) == (torch.int64, images.shape[:1]), (labels.dtype, labels.shape)
        self.images = images
        self.labels = labels
        self.classes = classes
        self.mean = torch.as_tensor(mean, dtype=torch.float32)
        self.std = torch.as_tensor(std, dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self._normalise(self.images[index]), int(self.labels[index])

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, int]]:
        """The samples of a whole batch; a DataLoader calls this where it exists, and it is much faster."""
        chosen = torch.as_tensor(indices)
        return list(zip(self._normalise(self.images[chosen]), self.labels[chosen].tolist(), strict=True))

    def _normalise(self, images: Tensor) -> Tensor:
        shape = (-1, 1, 1)
        return (images.float() / 255).sub_(self.mean.view(shape)).div_(self.std.view(shape))

    def subset(self, indices: Tensor) -> "ImageDataset":
        """A copy of some of the samples, normalised in the same way."""
        return ImageDataset(self.images[indices], self.labels[indices], self.classes, self.mean, self.std)


@dataclass(frozen=True)
class DataSets:
    """The parts of one data set. `test` is None where there is none, or where it serves as `valid`."""

    train: ImageDataset
    valid: ImageDataset
    test: ImageDataset | None
    classes: tuple[str, ...]


def load_datasets(
    name: str,
    data_dir: Path | None,
    *,
    cache_dir: Path,
    validation: str = "split",
    seed_split: int = SPLIT_SEED,
) -> DataSets:
    """Load a data set, and download or decode it if nobody has yet.

    To be called on one process of each file system first, so that the others find what it has left there
    (is_first_on_filesystem, load_once). Without that order the result is the same and the work is done twice.

    Args:
        name: one of DATASETS.
        data_dir: where the data is, or will be downloaded to. Not used for shapes.
        cache_dir: where decoded images are kept if data_dir is read-only.
        validation: "split": the data set's own validation images, or else a fixed tenth of the training images
            (so CIFAR-10 is split 45,000 / 5,000). "test": the test images.
        seed_split: chooses that part.

    Raises:
        UserError: the data is missing, damaged or cannot be downloaded, or has no such part.
    """
    if validation not in ("split", "test"):
        raise ValueError(f'validation is "split" or "test", not {validation!r}')
    if name == "shapes":
        return _load_shapes(validation)
    if name not in DATASETS:
        raise ValueError(f"no data set is called {name!r}; there are {', '.join(DATASETS)}")
    if data_dir is None:
        raise UsageError(f"--dataset {name} needs --data-dir, the folder that holds the images.")
    if name == "cifar10":
        return _load_cifar10(data_dir, validation, seed_split)
    return _load_imagefolder(data_dir, cache_dir, validation, seed_split)


def channel_statistics(images: Tensor) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel of uint8 [N, C, H, W], scaled to 0..1; exact counts."""
    values = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for channel in images.unbind(1):
        share = torch.bincount(channel.flatten(), minlength=256).double() / channel.numel()
        mean = (share * values).sum()
        means.append(mean.item())
        # A channel of one colour has no deviation; it must not be divided by zero.
        deviations.append(max((share * (values - mean) ** 2).sum().sqrt().item(), 1 / 255))
    return means, deviations


def hold_back(dataset: ImageDataset, source: Path, seed: int) -> tuple[ImageDataset, ImageDataset]:
    """Part the training images into (nine tenths, one tenth), at random but alike for the same seed.

    Raises UserError, naming `source`, when there are too few.
    """
    count = round(len(dataset) * HELD_BACK)
    if count == 0:
        raise UserError(
            f"{source} holds only {len(dataset)} training images, too few to hold back a tenth for validation: "
            "add images, or a folder val/."
        )
    order = torch.from_numpy(np.random.RandomState(seed).permutation(len(dataset)))
    rest, chosen = (part.sort().values for part in (order[count:], order[:count]))
    return dataset.subset(rest), dataset.subset(chosen)


def _load_shapes(validation: str) -> DataSets:
    if validation == "test":
        raise UsageError("--dataset shapes has no test images: leave out --validation test.")
    images, labels = shapes.draw(shapes.TRAIN_IMAGES, shapes.TRAIN_SEED)
    mean, std = channel_statistics(images)
    train = ImageDataset(images, labels, shapes.CLASSES, mean, std)
    valid = ImageDataset(*shapes.draw(shapes.VALID_IMAGES, shapes.VALID_SEED), shapes.CLASSES, mean, std)
    return DataSets(train, valid, None, shapes.CLASSES)


def _load_cifar10(data_dir: Path, validation: str, seed: int) -> DataSets:
    classes, splits = cifar10.load_cifar10(data_dir)
    train, test = (ImageDataset(*splits[part], classes, cifar10.MEAN, cifar10.STD) for part in ("train", "test"))
    if validation == "test":
        return DataSets(train, test, None, classes)
    rest, valid = hold_back(train, data_dir, seed)
    return DataSets(rest, valid, test, classes)


def _load_imagefolder(data_dir: Path, cache_dir: Path, validation: str, seed: int) -> DataSets:
    classes, splits = load_imagefolder(data_dir, cache_dir)
    mean, std = channel_statistics(splits["train"].images)
    parts = {split: ImageDataset(*data, classes, mean, std) for split, data in splits.items()}
    train, valid, test = parts["train"], parts.get("val"), parts.get("test")
    if validation == "test":
        valid, test = test or valid, None
        if valid is None:
            raise UserError(
                f"{data_dir} has neither test/ nor val/: add one, or leave out --validation test to hold back a "
                "tenth of the training images."
            )
    elif valid is None:
        train, valid = hold_back(train, data_dir, seed)
    return DataSets(train, valid, test, classes)
