"""Image folders: read as torchvision reads them, decoded once, and one clear sentence for what is wrong."""

import os
import re
import subprocess
import sys

import data_observers
import numpy as np
import pytest
import torch
from image_helpers import make_image_folder, open_folder, picture, without_privileges
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.transforms import CenterCrop, Resize

from lab.grading.ranks import server
from lab.training import imagefolder
from lab.training.datasets import load_datasets
from lab.training.errors import UserError
from lab.training.imagefolder import load_imagefolder


@pytest.fixture
def folder(tmp_path):
    """Two splits of two classes."""
    return make_image_folder(tmp_path / "data", train={"cat": 3, "dog": 2}, test={"cat": 1, "dog": 2})


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def decoded(monkeypatch):
    """The splits that were decoded since the last decoded.clear()."""
    splits, decode = [], imagefolder.decode

    def count(files, split):
        splits.append(split)
        return decode(files, split)

    monkeypatch.setattr(imagefolder, "decode", count)
    return splits


def same(one, two):
    return all(torch.equal(one[split].images, two[split].images) for split in one) and all(
        torch.equal(one[split].labels, two[split].labels) for split in one
    )


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
    assert same(splits, expected[1])


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


# ---- the cache


def test_images_are_decoded_once(folder, cache, decoded):
    first = load_imagefolder(folder, cache)
    assert decoded == ["train", "test"]
    decoded.clear()
    second = load_imagefolder(folder, cache)
    assert decoded == []
    assert second[0] == first[0]
    assert same(second[1], first[1])
    assert sorted(path.name for path in (folder / ".decoded").iterdir()) == ["test-32.images", "train-32.images"]
    assert not cache.exists()


def add(cat):
    picture(50).save(cat / "new.png")


def remove(cat):
    (cat / "0.png").unlink()


def rename(cat):
    (cat / "0.png").rename(cat / "9.png")


def overwrite(cat):
    """Same name and size, other pixels, a later time."""
    old = (cat / "0.png").stat()
    data = bytearray((cat / "0.png").read_bytes())
    (cat / "0.png").write_bytes(data)
    os.utime(cat / "0.png", ns=(old.st_atime_ns, old.st_mtime_ns + 1))


@pytest.mark.parametrize("change", [add, remove, rename, overwrite])
def test_a_change_in_the_folder_is_noticed(folder, cache, decoded, capfd, change):
    load_imagefolder(folder, cache)
    decoded.clear()
    change(folder / "train" / "cat")
    load_imagefolder(folder, cache)
    assert decoded == ["train"]
    assert "the images have changed" in capfd.readouterr().err
    decoded.clear()
    load_imagefolder(folder, cache)
    assert decoded == []


def damage(content: bytes) -> dict[str, bytes]:
    line_end = content.index(b"\n") + 1
    flip = lambda i: content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :]  # noqa: E731
    return {
        "empty": b"",
        "cut in the first line": content[:20],
        "cut after the first line": content[:line_end],
        "last byte missing": content[:-1],
        "one byte too many": content + b"x",
        "other label": flip(line_end),
        "other pixel": flip(len(content) - 1),
        "other shape": content.replace(b"[5, 3, 32, 32]", b"[5, 3, 16, 64]"),
        "huge shape": content.replace(b"[5, 3, 32, 32]", b"[5, 3, 32, 999999999999]"),
        "shape of text": content.replace(b"[5, 3, 32, 32]", b'["5", 3, 32, 32]'),
        "no shape": content.replace(b'"shape"', b'"shame"'),
        "a list": b"[]\n" + content,
        "not ours": b"\x80\x04" + content,
    }


def test_a_damaged_cache_is_never_believed_and_built_again(folder, cache, decoded, capfd):
    expected = load_imagefolder(folder, cache)[1]
    path = folder / ".decoded" / "train-32.images"
    whole = path.read_bytes()
    for name, content in damage(whole).items():
        assert content != whole, name
        path.write_bytes(content)
        decoded.clear()
        capfd.readouterr()
        assert same(load_imagefolder(folder, cache)[1], expected), name
        assert decoded == ["train"], name
        assert f"Not using {path}: it is damaged" in capfd.readouterr().err, name
        assert path.read_bytes() == whole, name


def test_a_read_only_folder_is_cached_elsewhere(decoded, capfd):
    with open_folder() as base:
        folder = make_image_folder(base / "data", train={"cat": 2})
        other = make_image_folder(base / "other" / "data", train={"cat": 3})
        (base / "results").mkdir()
        (base / "results").chmod(0o777)
        folder.chmod(0o555)
        other.chmod(0o555)
        with without_privileges():
            for _ in range(2):
                assert len(load_imagefolder(folder, base / "results")[1]["train"].images) == 2
                assert len(load_imagefolder(other, base / "results")[1]["train"].images) == 3
        assert decoded == ["train", "train"], "each folder once"
        assert re.search("Keeping the decoded images in .*results.*Permission denied", capfd.readouterr().err)
        folder.chmod(0o755)
        other.chmod(0o755)


def test_nowhere_to_keep_the_decoded_images():
    with open_folder() as base:
        folder = make_image_folder(base / "data", train={"cat": 2})
        folder.chmod(0o555)
        with without_privileges(), pytest.raises(UserError) as error:
            load_imagefolder(folder, base / "results")
        folder.chmod(0o755)
    assert "can be kept neither in" in str(error.value)
    assert f"{folder / '.decoded'} (Permission denied)" in str(error.value)
    assert "--output-dir" in str(error.value)


def test_ranks_that_start_at_once_all_get_the_whole(tmp_path, cache):
    folder = make_image_folder(tmp_path / "data", train={"cat": 100, "dog": 100}, test={"cat": 50, "dog": 50})
    inputs = {"name": "imagefolder", "data_dir": str(folder), "cache_dir": str(cache)}
    result = server().run(data_observers.load, 4, code=None, inputs=inputs, set_up_process_group=False, timeout=60)
    expected = data_observers.digest(load_datasets("imagefolder", folder, cache_dir=cache))
    assert result.values == [expected] * 4
    assert sorted(path.name for path in (folder / ".decoded").iterdir()) == ["test-32.images", "train-32.images"]


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
