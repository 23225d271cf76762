"""Decoded images on disk: decoded once, noticed when they change, never believed when damaged."""

import os
import re

import data_observers
import pytest
import torch
from image_helpers import make_image_folder, open_folder, picture, without_privileges

from lab.base.errors import UserError
from lab.ranks.server import server
from lab.training.data import imagefolder
from lab.training.data.datasets import load_datasets
from lab.training.data.imagefolder import load_imagefolder


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
