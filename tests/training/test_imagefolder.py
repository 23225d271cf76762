"""Image folders: read as torchvision reads them, decoded once, and one clear sentence for what is wrong."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from image_helpers import make_image_folder, open_folder, picture, without_privileges
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.transforms import CenterCrop, Resize

from lab.base.errors import UserError
from lab.training.data import imagefolder, layout
from lab.training.data.imagefolder import load_imagefolder
from lab.training.data.layout import find_imagefolder


@pytest.fixture
def folder(tmp_path):
    """Two splits of two classes."""
    return make_image_folder(tmp_path / "data", train={"cat": 3, "dog": 2}, test={"cat": 1, "dog": 2})


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "results"


# ---- what is read


def test_images_labels_and_classes_are_torchvisions(folder, cache):
    (folder / "train" / "cat" / "nested").mkdir()
    picture(99).save(folder / "train" / "cat" / "nested" / "deep.BMP")
    picture(98).save(folder / "train" / "cat" / "zz.webp", lossless=True)
    (folder / "train" / "cat" / "notes.txt").write_text("no image")
    classes, splits = load_imagefolder(folder, cache)
    for split, data in splits.items():
        expected = ImageFolder(folder / split)
        assert classes == tuple(expected.classes)
        assert data.labels.tolist() == expected.targets
        pixels = np.stack([np.asarray(image) for image, _ in expected]).transpose(0, 3, 1, 2)
        assert data.images.dtype == torch.uint8
        assert np.array_equal(data.images.numpy(), pixels)
    assert len(splits["train"].images) == 7


def test_splits_are_those_that_are_there(tmp_path, cache):
    folder = make_image_folder(tmp_path / "data", train={"a": 1}, val={"a": 2}, other={"b": 1})
    assert {split: len(data.images) for split, data in load_imagefolder(folder, cache)[1].items()} == {
        "train": 1,
        "val": 2,
    }


def test_what_jupyter_and_macos_leave_behind_is_no_class_and_no_image(folder, cache):
    expected = load_imagefolder(folder, cache)
    (folder / "train" / ".ipynb_checkpoints").mkdir()
    (folder / "train" / "cat" / "._0.png").write_bytes(b"resource fork")
    (folder / "train" / "loose.png").write_bytes(b"not in a class")
    classes, splits = load_imagefolder(folder, cache)
    assert classes == expected[0]
    for split, data in expected[1].items():
        assert torch.equal(splits[split].images, data.images)


@pytest.mark.parametrize("size", [(32, 48), (49, 33), (7, 5), (200, 64), (31, 64)], ids=str)
def test_other_sizes_are_resized_and_cropped_as_torchvision_does_it(tmp_path, cache, size):
    image = picture(5, size)
    (tmp_path / "train" / "a").mkdir(parents=True)
    image.save(tmp_path / "train" / "a" / "0.png")
    expected = np.asarray(CenterCrop(32)(Resize(32)(image))).transpose(2, 0, 1)
    assert np.array_equal(load_imagefolder(tmp_path, cache)[1]["train"].images[0].numpy(), expected)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "CMYK"])
def test_other_modes_become_rgb(tmp_path, cache, mode):
    image = picture(6).convert(mode)
    (tmp_path / "train" / "a").mkdir(parents=True)
    image.save(tmp_path / "train" / "a" / "0.tif")
    expected = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    assert np.array_equal(load_imagefolder(tmp_path, cache)[1]["train"].images[0].numpy(), expected)


def test_progress_is_said_on_stderr(folder, cache, monkeypatch, capfd):
    monkeypatch.setattr(imagefolder, "REPORT_EVERY", 0)
    monkeypatch.setattr(layout, "REPORT_EVERY", 0)
    monkeypatch.setattr(imagefolder, "CHUNK", 1)
    load_imagefolder(folder, cache)
    said = capfd.readouterr().err
    assert "Decoding train: 5 of 5 images" in said
    assert "Looking through" in said


def test_real_jpegs(shared, tmp_path, cache):
    unpack = [sys.executable, shared / "data" / "unpack_cifar10.py", tmp_path / "data", "--per-class", "3"]
    subprocess.run(unpack, check=True, capture_output=True)
    classes, splits = load_imagefolder(tmp_path / "data", cache)
    assert (len(classes), splits["train"].images.shape, splits["test"].images.shape) == (
        10,
        (30, 3, 32, 32),
        (30, 3, 32, 32),
    )
    assert splits["train"].labels.tolist() == sorted(list(range(10)) * 3)


@pytest.mark.parametrize(("name", "split"), [("valid", "val"), ("Validation", "val"), ("testing", "test")])
def test_other_common_names_of_splits_are_understood(tmp_path, cache, name, split):
    folder = make_image_folder(tmp_path / "data", **{"Train": {"a": 2}, name: {"a": 1}})
    found = load_imagefolder(folder, cache)[1]
    assert {part: len(data.images) for part, data in found.items()} == {"train": 2, split: 1}


def test_copies_in_hidden_folders_are_read_at_no_depth(folder, cache):
    expected = load_imagefolder(folder, cache)
    for name in (".ipynb_checkpoints", "@eaDir", "deeper/.trash", "__MACOSX"):
        (folder / "train" / "cat" / name).mkdir(parents=True)
        picture(7).save(folder / "train" / "cat" / name / "0-checkpoint.png")
    (folder / "train" / "@eaDir").mkdir()
    picture(8).save(folder / "train" / "@eaDir" / "0.png")
    classes, splits = load_imagefolder(folder, cache)
    assert classes == expected[0]
    assert torch.equal(splits["train"].images, expected[1]["train"].images)


@pytest.mark.parametrize("suffix", ["jfif", "gif", "JPG", "jpe"])
def test_what_pillow_reads_is_read(folder, cache, suffix):
    before = len(load_imagefolder(folder, cache)[1]["train"].images)
    picture(9).save(folder / "train" / "cat" / f"more.{suffix}", "gif" if suffix == "gif" else "jpeg")
    assert len(load_imagefolder(folder, cache)[1]["train"].images) == before + 1


def test_what_is_left_out_is_counted_by_its_reason(folder):
    cat = folder / "train" / "cat"
    for name in ("a.heic", "b.HEIC", "c.txt", "._0.png"):
        (cat / name).write_bytes(b"")
    (cat / "@eaDir").mkdir()
    picture(1).save(folder / "train" / "loose.png")
    (folder / "val2").mkdir()
    (folder / ".decoded").mkdir()  # the lab's own
    assert find_imagefolder(folder).skipped == [
        "3 files that are no images by their names (.heic: 2, .txt: 1)",
        "2 hidden folders and files (._0.png: 1, @eaDir: 1)",
        "1 images that lie in no class folder",
        "folders whose names are no split's (val2)",
    ]
    (folder / "test" / "cat" / "0.png").rename(folder / "test" / "cat" / "0.heic")
    with pytest.raises(UserError, match="holds no images"):
        find_imagefolder(folder)


# ---- what is wrong, said in a sentence


def sentence(folder, cache) -> str:
    with pytest.raises(UserError) as error:
        load_imagefolder(folder, cache)
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def test_missing_folder(tmp_path, cache):
    assert f"{tmp_path / 'nope'} does not exist" in sentence(tmp_path / "nope", cache)


def test_a_file_instead_of_a_folder(tmp_path, cache):
    (tmp_path / "data").write_text("")
    assert f"Cannot read the folder {tmp_path / 'data'}: Not a directory" in sentence(tmp_path / "data", cache)


def test_no_train_folder(tmp_path, cache):
    folder = make_image_folder(tmp_path / "data", cat={"nested": 1})
    said = sentence(folder, cache)
    assert f"{folder} has no folder train/ (it holds cat)" in said
    assert "DIR/train/<class>/<image>" in said


def test_no_classes(tmp_path, cache):
    (tmp_path / "train").mkdir()
    picture(0).save(tmp_path / "train" / "loose.png")
    assert f"{tmp_path / 'train'} has no class folders" in sentence(tmp_path, cache)


def test_two_names_for_one_split(tmp_path, cache):
    folder = make_image_folder(tmp_path / "data", train={"a": 1}, val={"a": 1}, valid={"a": 1})
    assert "has val/ and valid/, which mean the same: leave one" in sentence(folder, cache)


def test_an_empty_class(folder, cache):
    (folder / "train" / "emu").mkdir()
    (folder / "test" / "emu").mkdir()
    (folder / "train" / "emu" / "notes.txt").write_text("")
    assert f"The class folder {folder / 'train' / 'emu'} holds no images" in sentence(folder, cache)


def test_classes_that_differ_between_splits(folder, cache):
    (folder / "test" / "cat").rename(folder / "test" / "emu")
    said = sentence(folder, cache)
    assert "only train has cat; only test has emu" in said
    assert str(folder / "test") in said


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not an image"),
        (b"this is no picture", "is not an image"),
        ("cut", "is damaged (image file is truncated"),
    ],
    ids=["empty", "text", "cut"],
)
def test_a_corrupt_image_is_named(folder, cache, content, says):
    path = folder / "train" / "dog" / "bad.jpg"
    if content == "cut":
        picture(1, (64, 64)).save(path, quality=95)
        content = path.read_bytes()[:-600]
    path.write_bytes(content)
    said = sentence(folder, cache)
    assert f"{path} {says}" in said
    assert "replace it or delete it" in said
    assert not (folder / ".decoded" / "train-32.images").exists()


def test_a_damaged_png_is_named(folder, cache):
    path = folder / "train" / "dog" / "0.png"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    assert f"The image {path} is damaged" in sentence(folder, cache)


def test_an_image_too_large_to_be_one(folder, cache, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert "is damaged (Image size (1024 pixels) exceeds limit" in sentence(folder, cache)


def test_a_link_to_nowhere(folder, cache):
    (folder / "train" / "cat" / "gone.png").symlink_to(folder / "nowhere.png")
    assert f"{folder / 'train' / 'cat' / 'gone.png'}: No such file" in sentence(folder, cache)


def test_no_permission():
    with open_folder() as base:
        folder = make_image_folder(base / "data", train={"cat": 2})
        image, cat = folder / "train" / "cat" / "1.png", folder / "train" / "cat"
        image.chmod(0)
        with without_privileges():
            assert f"Cannot read the image {image}: no permission" in sentence(folder, base)
        cat.chmod(0)
        with without_privileges():
            assert f"Cannot read the folder {cat}: Permission denied" in sentence(folder, base)
        cat.chmod(0o755)
        link = base / "linked"
        link.mkdir()
        (link / "train").symlink_to(folder / "train")
        folder.chmod(0)
        with without_privileges():
            assert f"Cannot read {link / 'train'}: Permission denied" in sentence(link, base)
        base.chmod(0)
        with without_privileges():
            assert f"Cannot read the folder {folder}: Permission denied" in sentence(folder, base)
        base.chmod(0o755)
        folder.chmod(0o755)
