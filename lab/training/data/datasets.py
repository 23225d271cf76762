"""The data sets that main.py offers by name, as uint8 images in memory."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from lab.base.errors import UsageError, UserError
from lab.base.paths import PACKAGE
from lab.base.startup import reaches
from lab.runs.options.data import DATASETS
from lab.runs.options.own import is_own, load_own
from lab.training.data import cifar10, mnist, shapes
from lab.training.data.about import About
from lab.training.data.imagefolder import decode, load_imagefolder
from lab.training.data.images import FileDataset, ImageDataset, Images
from lab.training.data.inputs import IMAGENET, pipelines, size_of, takes_imagenets_images
from lab.training.data.layout import find_imagefolder
from lab.training.data.weights import fetch_weights

SAMPLE = PACKAGE / "sample_photos"  # laid out as an image folder; SOURCES.md there says whose they are
SPLIT_SEED = 0
HELD_BACK = 0.1  # of the training images, for validation; 5,000 of CIFAR-10's 50,000

Kind = TypeVar("Kind", bound=Images)


@dataclass(frozen=True)
class DataSets:
    """The parts of one data set. `test` is None where there is none, or where it serves as `valid`."""

    train: Images
    valid: Images
    test: Images | None
    classes: tuple[str, ...]
    valid_from: str = ""  # where the validation images come from, for the start report
    skipped: tuple[str, ...] = ()  # what lies there and was not read, and why


HELD_BACK_WORDS = "a tenth of the training images, held back"


@reaches("data")
def load_datasets(
    name: str,
    data_dir: Path | None,
    *,
    cache_dir: Path,
    validation: str = "split",
    seed_split: int = SPLIT_SEED,
    network: str = "cnn",
    pretrained: bool = False,
    augment: bool = False,
    randaugment: bool = False,
    seed: int = 0,
    image_size: int | None = None,
    evaluated_by: int | None = None,
) -> DataSets:
    """Load a data set, and download or decode it if nobody has yet.

    To be called on one process of each file system first, so that the others find what it has left there
    (is_first_on_filesystem, load_once). Without that order the result is the same and the work is done twice.

    Args:
        name: one of DATASETS, or FILE:NAME for one's own: a function that is given data_dir and returns DataSets.
        data_dir: where the data is, or will be downloaded to. Not used for shapes and sample.
        cache_dir: where decoded images are kept if data_dir is read-only.
        validation: "split": the data set's own validation images, or else a fixed tenth of the training images
            (so CIFAR-10 is split 45,000 / 5,000). "test": the test images.
        seed_split: chooses that part.
        network: the one that gets the images. For vgg19 they are cropped to 224x224, and those of an image folder
            are left on the disk in their own sizes; for the others these are cut to 32x32 and kept in memory,
            unless image_size is another.
        pretrained: whether the network's weights are needed too, in data_dir.
        augment, randaugment: change the training images at random, as --augment and --randaugment say.
        seed: of these changes.
        image_size: pixels, height and width; None for 32 (28 for mnist, 224 for vgg19).
        evaluated_by: with --evaluate-only, images that a loader delivers at a time. get_dataloaders() refuses more
            of them than there are training images; as none of these is read then, they are repeated to so many.

    Raises:
        UserError: the data is missing, damaged or cannot be downloaded, or has no such part.
    """
    if validation not in ("split", "test"):
        raise ValueError(f'validation is "split" or "test", not {validation!r}')
    if is_own(name):
        return _at_least(evaluated_by, _load_own(name, data_dir, validation))
    if name not in DATASETS:
        raise ValueError(f"no data set is called {name!r}; there are {', '.join(DATASETS)}")
    imagenets = takes_imagenets_images(network)
    if pretrained:
        fetch_weights(_given(data_dir, "--pretrained"))
    if name == "shapes":
        datasets = _load_shapes(validation)
    elif name in ("imagefolder", "sample"):
        folder = SAMPLE if name == "sample" else _given(data_dir, f"--dataset {name}")
        full_size = size_of(network, image_size) is not None
        datasets = _load_imagefolder(folder, cache_dir, validation, seed_split, full_size=full_size)
    else:
        folder = _given(data_dir, f"--dataset {name}")
        datasets = _load_train_and_test(name, folder, validation, seed_split)

    changing, still = pipelines(
        name, network, augment=augment, randaugment=randaugment, seed=seed, image_size=image_size
    )
    normalisation = IMAGENET if imagenets else ()
    datasets = replace(
        datasets,
        train=datasets.train.through(changing, *normalisation),
        valid=datasets.valid.through(still, *normalisation),
        test=None if datasets.test is None else datasets.test.through(still, *normalisation),
    )
    parts = {"training": datasets.train, "validation": datasets.valid, "test": datasets.test}
    counts = {part: len(images) for part, images in parts.items() if images is not None}
    size = size_of(network, image_size) or (28 if name == "mnist" else 32)
    datasets.train.about = About(counts, len(datasets.classes), size, datasets.valid_from, datasets.skipped)
    return _at_least(evaluated_by, datasets)


def _at_least(count: int | None, datasets: DataSets) -> DataSets:
    """With the training images repeated until there are so many."""
    own = len(datasets.train)
    if count is None or not 0 < own < count:
        return datasets
    repeated: Any = Subset(datasets.train, [i % own for i in range(count)])
    return replace(datasets, train=repeated)


def _load_own(name: str, data_dir: Path | None, validation: str) -> DataSets:
    datasets = load_own("--dataset", name)(data_dir)
    if not isinstance(datasets, DataSets):
        raise UserError(
            f"--dataset {name} returned {type(datasets).__name__}: let it return DataSets(train, valid, ...)"
        )
    if validation == "split":
        return datasets
    if datasets.test is None:
        raise UsageError(f"--dataset {name} has no test images: leave out --validation test.")
    return replace(datasets, valid=datasets.test, test=None)


def _given(data_dir: Path | None, option: str) -> Path:
    if data_dir is None:
        raise UsageError(f"{option} needs --data-dir, the folder that holds its files.")
    return data_dir


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


def hold_back(dataset: Kind, source: Path, seed: int) -> tuple[Kind, Kind]:
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
    return DataSets(train, valid, None, shapes.CLASSES, "drawn apart")


def _load_train_and_test(name: str, data_dir: Path, validation: str, seed: int) -> DataSets:
    if name == "mnist":
        classes, splits = mnist.CLASSES, mnist.load_mnist(data_dir)
    else:
        classes, splits = cifar10.load_cifar10(data_dir)
    normalisation = (mnist.MEAN, mnist.STD) if name == "mnist" else (cifar10.MEAN, cifar10.STD)
    train, test = (ImageDataset(*splits[part], classes, *normalisation) for part in ("train", "test"))
    if validation == "test":
        return DataSets(train, test, None, classes, "the test images")
    rest, valid = hold_back(train, data_dir, seed)
    return DataSets(rest, valid, test, classes, HELD_BACK_WORDS)


def _load_imagefolder(data_dir: Path, cache_dir: Path, validation: str, seed: int, full_size: bool) -> DataSets:
    layout = find_imagefolder(data_dir)
    if len(layout.classes) < 2:
        raise UserError(
            f"{layout.folders['train']} has one class only, {layout.classes[0]}: there is nothing to tell apart. "
            "Make one folder for each class in it."
        )
    parts: dict[str, Images]
    if full_size:
        classes = layout.classes
        parts = {split: FileDataset(found, classes, *IMAGENET) for split, found in layout.files.items()}
    else:
        if data_dir == SAMPLE:  # so few that nothing is kept, and nothing written where the lab is installed
            classes, splits = (
                layout.classes,
                {split: decode(found, split) for split, found in layout.files.items()},
            )
        else:
            classes, splits = load_imagefolder(data_dir, cache_dir, layout)
        mean, std = channel_statistics(splits["train"].images)
        parts = {split: ImageDataset(*data, classes, mean, std) for split, data in splits.items()}
    train, valid, test = parts["train"], parts.get("val"), parts.get("test")
    chosen = "val"
    if validation == "test":
        chosen = "test" if test is not None else "val"
        valid, test = test or valid, None
        if valid is None:
            raise UserError(
                f"{data_dir} has neither test/ nor val/: add one, or leave out --validation test to hold back a "
                "tenth of the training images."
            )
    valid_from = f"{layout.folders[chosen].name}/" if chosen in layout.folders else HELD_BACK_WORDS
    if valid is None:
        train, valid = hold_back(train, data_dir, seed)
    return DataSets(train, valid, test, classes, valid_from, tuple(layout.skipped))
