"""The data sets by name: what a sample is, and how they are split."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from image_helpers import make_image_folder
from torch.utils.data import DataLoader

from lab.base.errors import UsageError, UserError
from lab.runs.options.data import DATASETS
from lab.training.data import shapes
from lab.training.data.datasets import channel_statistics, hold_back, load_datasets
from lab.training.data.images import ImageDataset


@pytest.fixture
def dataset():
    torch.manual_seed(0)
    images = torch.randint(0, 256, (40, 3, 32, 32), dtype=torch.uint8)
    return ImageDataset(images, torch.arange(40) % 4, ("a", "b", "c", "d"), *channel_statistics(images))


def pixels(dataset: ImageDataset) -> set[bytes]:
    return {image.numpy().tobytes() for image in dataset.images}


# ---- samples


def test_a_sample_is_a_normalised_image_and_an_int(dataset):
    image, label = dataset[6]
    assert (image.shape, image.dtype, type(label), label) == ((3, 32, 32), torch.float32, int, 2)
    expected = (dataset.images[6].double() / 255 - dataset.mean.view(3, 1, 1)) / dataset.std.view(3, 1, 1)
    torch.testing.assert_close(image.double(), expected, atol=1e-5, rtol=0)
    assert len(dataset) == 40
    with pytest.raises(IndexError):
        dataset[40]


def test_statistics_make_mean_zero_and_deviation_one(dataset):
    images = torch.stack([image for image, _ in dataset.__getitems__(range(40))])
    torch.testing.assert_close(images.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(images.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)


def test_images_of_one_colour_stay_finite():
    images = torch.full((4, 3, 8, 8), 7, dtype=torch.uint8)
    dataset = ImageDataset(images, torch.zeros(4, dtype=torch.int64), ("a",), *channel_statistics(images))
    assert torch.isfinite(dataset[0][0]).all()


def test_the_batched_path_gives_the_same_samples(dataset, monkeypatch):
    loader = DataLoader(dataset, batch_size=7)
    single = [dataset[i] for i in range(len(dataset))]
    monkeypatch.setattr(ImageDataset, "__getitem__", None)  # so that the loader cannot take the slow path
    images, labels = (torch.cat(column) for column in zip(*loader, strict=True))
    assert torch.equal(images, torch.stack([image for image, _ in single]))
    assert labels.dtype == torch.int64
    assert labels.tolist() == [label for _, label in single]


# ---- splits


def test_holding_back_is_fixed_by_its_seed(dataset):
    train, valid = hold_back(dataset, Path("data"), 0)
    assert (len(train), len(valid)) == (36, 4)
    assert pixels(train) | pixels(valid) == pixels(dataset)
    assert not pixels(train) & pixels(valid)
    assert torch.equal(valid.images, hold_back(dataset, Path("data"), 0)[1].images)
    assert not torch.equal(valid.images, hold_back(dataset, Path("data"), 1)[1].images)
    assert torch.equal(valid.mean, dataset.mean)
    by_image = {
        image.numpy().tobytes(): label for image, label in zip(dataset.images, dataset.labels, strict=True)
    }
    assert all(
        by_image[image.numpy().tobytes()] == label for image, label in zip(valid.images, valid.labels, strict=True)
    )


def test_cifar10_is_split_45000_to_5000():
    tiny = ImageDataset(
        torch.zeros(50_000, 1, 1, 1, dtype=torch.uint8), torch.zeros(50_000, dtype=torch.int64), ("a",), [0], [1]
    )
    assert [len(part) for part in hold_back(tiny, Path("data"), 0)] == [45_000, 5_000]


def test_shapes(tmp_path):
    data = load_datasets("shapes", None, cache_dir=tmp_path)
    assert (len(data.train), len(data.valid), data.test) == (5_120, 1_024, None)
    assert data.classes == data.train.classes == shapes.CLASSES
    assert torch.equal(data.valid.mean, data.train.mean)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="shapes has no test images"):
        load_datasets("shapes", None, cache_dir=tmp_path, validation="test")


@pytest.mark.parametrize(
    ("splits", "validation", "sizes"),
    [
        (["train"], "split", (36, 4, None)),
        (["train", "val"], "split", (40, 6, None)),
        (["train", "test"], "split", (36, 4, 8)),
        (["train", "val", "test"], "split", (40, 6, 8)),
        (["train", "val"], "test", (40, 6, None)),
        (["train", "test"], "test", (40, 8, None)),
        (["train", "val", "test"], "test", (40, 8, None)),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, list) else str(value),
)
def test_which_part_of_an_image_folder_validates(tmp_path, splits, validation, sizes):
    counts = {"train": {"a": 20, "b": 20}, "val": {"a": 3, "b": 3}, "test": {"a": 4, "b": 4}}
    folder = make_image_folder(tmp_path / "data", **{split: counts[split] for split in splits})
    data = load_datasets("imagefolder", folder, cache_dir=tmp_path, validation=validation)
    assert tuple(part if part is None else len(part) for part in (data.train, data.valid, data.test)) == sizes
    assert data.classes == ("a", "b")
    assert torch.equal(data.train.mean, data.valid.mean)


def test_an_image_folder_without_test_images(tmp_path):
    folder = make_image_folder(tmp_path / "data", train={"a": 10, "b": 10})
    with pytest.raises(UserError, match=rf"{folder} has neither test/ nor val/"):
        load_datasets("imagefolder", folder, cache_dir=tmp_path, validation="test")


def test_an_image_folder_too_small_to_split(tmp_path):
    folder = make_image_folder(tmp_path / "data", train={"a": 2, "b": 2})
    with pytest.raises(UserError, match=rf"{folder} holds only 4 training images"):
        load_datasets("imagefolder", folder, cache_dir=tmp_path)


def test_one_class_is_nothing_to_learn(tmp_path):
    folder = make_image_folder(tmp_path / "data", train={"cat": 20})
    with pytest.raises(
        UserError, match=rf"{folder}/train has one class only, cat: there is nothing to tell apart"
    ):
        load_datasets("imagefolder", folder, cache_dir=tmp_path)


def test_what_was_read_is_told(tmp_path):
    folder = make_image_folder(tmp_path / "data", train={"a": 20, "b": 20}, valid={"a": 3, "b": 3})
    (folder / "train" / "a" / "x.heic").write_bytes(b"")
    told = load_datasets("imagefolder", folder, cache_dir=tmp_path).train.about.lines()
    assert told == [
        "40 training, 6 validation images of 2 classes, 32x32",
        "validation: valid/",
        "skipped: 1 files that are no images by their names (.heic: 1)",
    ]
    (folder / "valid").rename(folder / "testing")
    told = load_datasets("imagefolder", folder, cache_dir=tmp_path, network="resnet18", image_size=64)
    assert told.train.about.lines()[:2] == [
        "36 training, 4 validation, 6 test images of 2 classes, 64x64",
        "validation: a tenth of the training images, held back",
    ]


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in ("shapes", "sample")])
def test_data_on_disk_needs_a_folder(tmp_path, name):
    with pytest.raises(UsageError, match=f"--dataset {name} needs --data-dir"):
        load_datasets(name, None, cache_dir=tmp_path)


def test_unknown_names(tmp_path):
    with pytest.raises(ValueError, match="no data set is called 'imagenet'"):
        load_datasets("imagenet", tmp_path, cache_dir=tmp_path)
    with pytest.raises(ValueError, match="not 'none'"):
        load_datasets("shapes", None, cache_dir=tmp_path, validation="none")


def test_torchvision_is_not_imported_before_it_is_needed():
    script = "import sys, lab.training.data.datasets; sys.exit('torchvision' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
