"""MNIST's files: where they may lie, in what form, and that none is believed before it is whole."""

from pathlib import Path

import numpy as np
import pytest
import torch
from file_server import FileServer
from mnist_files import checksums, tiny_mnist, write, zipped

from lab.base.errors import UserError
from lab.ranks.rank import Rank
from lab.ranks.server import server
from lab.training.data.datasets import load_datasets
from lab.training.data.mnist import load_mnist

CODE = Path(__file__).resolve().parent.parent.parent / "solutions"


@pytest.fixture
def no_network(monkeypatch):
    monkeypatch.setattr("torchvision.datasets.MNIST.mirrors", ["http://127.0.0.1:9/"])  # nobody listens there


@pytest.fixture
def mirror(monkeypatch):
    """A server with the four archives, of which torchvision knows the checksums."""
    files = zipped(tiny_mnist())
    with FileServer(files) as mirror:
        monkeypatch.setattr("torchvision.datasets.MNIST.mirrors", [mirror.url])
        monkeypatch.setattr("torchvision.datasets.MNIST.resources", checksums(files))
        yield mirror


# Files that are there ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["MNIST/raw", "."])
@pytest.mark.parametrize("form", [dict, zipped])
def test_files_are_read_zipped_or_not_from_torchvisions_folder_or_the_data_directory(tmp_path, folder, form):
    write(tmp_path / folder, form(tiny_mnist()))
    splits = load_mnist(tmp_path)
    assert splits["train"].images.shape == (40, 1, 28, 28)
    assert splits["test"].images.shape == (10, 1, 28, 28)
    assert splits["test"].labels.tolist() == list(range(10))
    expected = np.frombuffer(tiny_mnist()["train-images-idx3-ubyte"][16:], np.uint8)
    assert torch.equal(splits["train"].images.flatten(), torch.from_numpy(expected.copy()))


def test_torchvision_reads_the_same(tmp_path, monkeypatch):
    from torchvision.datasets import MNIST

    write(tmp_path / "MNIST" / "raw", tiny_mnist())
    for split, data in load_mnist(tmp_path).items():
        theirs = MNIST(tmp_path, train=split == "train")
        assert torch.equal(theirs.data, data.images[:, 0])
        assert torch.equal(theirs.targets, data.labels)


def test_a_tenth_of_the_training_images_is_held_back_always_the_same_or_the_test_images_serve(tmp_path):
    write(tmp_path, tiny_mnist())
    split = load_datasets("mnist", tmp_path, cache_dir=tmp_path)
    assert [len(part) for part in (split.train, split.valid, split.test)] == [36, 4, 10]
    again = load_datasets("mnist", tmp_path, cache_dir=tmp_path)
    assert torch.equal(split.valid.images, again.valid.images)
    whole = load_datasets("mnist", tmp_path, cache_dir=tmp_path, validation="test")
    assert [len(part) for part in (whole.train, whole.valid)] == [40, 10]
    assert whole.test is None
    image, label = whole.valid[3]
    assert (image.shape, image.dtype, label) == ((1, 28, 28), torch.float32, 3)


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("train-images-idx3-ubyte", lambda content: content[:-1], "its length is wrong"),
        ("train-images-idx3-ubyte", lambda content: content[:9], "its length is wrong"),
        ("train-images-idx3-ubyte", lambda content: b"", "does not begin like an idx file"),
        ("t10k-labels-idx1-ubyte", lambda content: content + b"x", "its length is wrong"),
        ("t10k-labels-idx1-ubyte.gz", lambda content: content[:-9], "end-of-stream"),
        ("t10k-labels-idx1-ubyte.gz", lambda content: b"<html>no</html>", "Not a gzipped file"),
        ("t10k-labels-idx1-ubyte.gz", lambda content: content[:30] + b"x" + content[31:], "it is damaged"),
    ],
)
def test_a_damaged_file_is_named_and_not_used(tmp_path, no_network, capsys, name, damage, reason):
    files = tiny_mnist() if not name.endswith(".gz") else zipped(tiny_mnist())
    write(tmp_path / "MNIST" / "raw", files | {name: damage(files[name])})
    with pytest.raises(UserError, match="could not be downloaded"):
        load_mnist(tmp_path)
    said = capsys.readouterr().err
    assert f"{name}: it is damaged" in said
    assert reason in said


def test_files_that_do_not_fit_each_other_are_an_error(tmp_path):
    files = tiny_mnist()
    files["train-labels-idx1-ubyte"] = files["t10k-labels-idx1-ubyte"]
    write(tmp_path, files)
    with pytest.raises(UserError, match=r"do not fit each other: images \[40, 28, 28\], labels \[10\]"):
        load_mnist(tmp_path)


# Downloads --------------------------------------------------------------------------------------------------


def test_what_is_missing_is_downloaded_and_only_that(tmp_path, mirror):
    write(tmp_path / "MNIST" / "raw", {name: tiny_mnist()[name] for name in ["train-images-idx3-ubyte"]})
    assert load_mnist(tmp_path)["train"].images.shape == (40, 1, 28, 28)
    assert mirror.requests == {
        "train-labels-idx1-ubyte.gz": 1,
        "t10k-images-idx3-ubyte.gz": 1,
        "t10k-labels-idx1-ubyte.gz": 1,
    }
    load_mnist(tmp_path)
    assert mirror.requests.total() == 3


@pytest.mark.parametrize("announce_length", [True, False])
def test_a_download_that_breaks_off_leaves_nothing_and_the_next_one_succeeds(tmp_path, mirror, announce_length):
    mirror.break_off_after, mirror.announce_length = 100, announce_length
    with pytest.raises(
        UserError, match=r"train-images-idx3-ubyte.gz is not in .* could not be downloaded"
    ) as error:
        load_mnist(tmp_path)
    assert f"lab fetch mnist --data-dir {tmp_path}" in str(error.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    mirror.break_off_after = None
    assert len(load_mnist(tmp_path)["test"].labels) == 10


def test_a_file_with_another_checksum_is_refused_and_the_next_mirror_asked(tmp_path, mirror, monkeypatch):
    with FileServer(dict.fromkeys(mirror.files, b"a captive portal's page")) as other:
        monkeypatch.setattr("torchvision.datasets.MNIST.mirrors", [other.url, mirror.url])
        load_mnist(tmp_path)
        assert other.requests == mirror.requests == dict.fromkeys(mirror.files, 1)


def test_a_server_that_says_no_is_quoted(tmp_path, mirror):
    mirror.files.clear()
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte.gz: 404 Not Found\)"):
        load_mnist(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path, mirror):
    (tmp_path / "MNIST").write_text("a file, not a folder")
    with pytest.raises(UserError, match=r"Cannot write .*train-images-idx3-ubyte.gz .*choose a --data-dir"):
        load_mnist(tmp_path)


def load_on_ranks(rank: Rank) -> int:
    """The ranks share a file system: is_first_on_filesystem chooses one of them, as main.py has it."""
    from torchvision.datasets import MNIST

    from lab.base.files import is_first_on_filesystem

    load_once = rank.student("data").load_once
    given = rank.receive()
    MNIST.mirrors, MNIST.resources = given["mirrors"], given["resources"]
    folder = Path(given["folder"])
    splits = load_once(lambda: load_mnist(folder), is_first_on_filesystem(folder))
    return len(splits["train"].labels)


def test_three_ranks_download_each_file_once(tmp_path, mirror):
    inputs = {"mirrors": [mirror.url], "resources": checksums(mirror.files), "folder": str(tmp_path / "data")}
    assert server().run(load_on_ranks, 3, code=CODE, inputs=inputs, timeout=60).values == [40] * 3
    assert mirror.requests == dict.fromkeys(mirror.files, 1)


# The real thing ---------------------------------------------------------------------------------------------


def test_the_real_files_are_read_as_they_are(shared):
    data = load_datasets("mnist", shared / "data" / "mnist", cache_dir=Path())
    assert [len(part) for part in (data.train, data.valid, data.test)] == [54_000, 6_000, 10_000]
    pixels = torch.cat([data.train.images, data.valid.images]).float() / 255
    assert pixels.mean().item() == pytest.approx(data.train.mean.item(), abs=1e-4)
    assert pixels.std().item() == pytest.approx(data.train.std.item(), abs=1e-4)
