"""--dataset sample: photographs that come with the lab, whose they are, and how they are read."""

import re

import pytest
import torch
from PIL import Image

from lab.runs import options
from lab.training.data.datasets import SAMPLE, load_datasets

PHOTOS = sorted(SAMPLE.glob("*/*/*.jpg"))


def test_ten_classes_of_photographs_are_read_without_any_file_of_ones_own(tmp_path):
    before = sorted(SAMPLE.rglob("*"))
    data = load_datasets("sample", None, cache_dir=tmp_path / "cache")
    assert len(data.classes) == 10
    assert data.test is not None
    parts = {"train": data.train, "val": data.valid, "test": data.test}
    for split, images in parts.items():
        assert len(images) == len(list(SAMPLE.glob(f"{split}/*/*.jpg")))
        assert {int(label) for _, label in images} == set(range(10))
        assert {image.shape for image, _ in images} == {(3, 32, 32)}
    assert sorted(SAMPLE.rglob("*")) == before  # where the lab is installed nothing is written
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("size", [64, 224])
def test_they_are_as_large_as_asked(tmp_path, size):
    data = load_datasets("sample", None, cache_dir=tmp_path, network="resnet18", augment=True, image_size=size)
    assert {data.train[0][0].shape, data.valid[0][0].shape} == {(3, size, size)}


def test_test_images_can_be_the_validation(tmp_path):
    data = load_datasets("sample", None, cache_dir=tmp_path, validation="test")
    split = load_datasets("sample", None, cache_dir=tmp_path)
    assert data.test is None
    assert torch.equal(data.valid[0][0], split.test[0][0])


def test_every_photograph_has_its_author_licence_and_source():
    text = (SAMPLE / "SOURCES.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S+\.jpg) \| (.+) \| (public domain|CC0 1\.0) \| (https://\S+) \|$", text, re.M)
    assert [row[0] for row in rows] == [str(path.relative_to(SAMPLE)) for path in PHOTOS]
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*") if path.is_file()) < 1_000_000
    for path in PHOTOS:
        with Image.open(path) as image:
            assert (image.mode, image.format) == ("RGB", "JPEG")
            assert 100 < min(image.size) <= max(image.size) <= 192


def test_no_picture_is_in_two_splits():
    assert len({path.read_bytes() for path in PHOTOS}) == len(PHOTOS)


def test_a_run_needs_no_data_dir_and_takes_small_batches():
    args, warnings = options.resolve(options.parse(["--dataset", "sample", "--model", "resnet18"]), 2)
    assert (args.global_batch_size, args.augment, warnings) == (8, True, [])
    _, warnings = options.resolve(options.parse(["--dataset", "sample", "--data-dir", "elsewhere"]), 1)
    assert warnings == ["--data-dir has no effect: its photographs come with the lab"]
