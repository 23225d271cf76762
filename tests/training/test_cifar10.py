"""CIFAR-10 through torchvision: one download, by one process, and never half of it."""

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import data_observers
import pytest
import torch
from image_helpers import make_cifar10_archive, open_folder, without_privileges
from torchvision.datasets import CIFAR10

from lab.base.errors import UserError
from lab.ranks.server import server
from lab.training.data.datasets import load_datasets


@contextlib.contextmanager
def serve(content: bytes, announced: int | None = None) -> Iterator[tuple[str, Counter]]:
    """Serve a file on loopback; yields its address and a count of the downloads."""
    requests: Counter = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            # Before it downloads, torchvision looks for redirects: a GET whose body it does not read, marked by a
            # header field that was meant to be the method.
            look = self.headers.get("Method") == "HEAD"
            requests["looks" if look else "downloads"] += 1
            self.send_response(200)
            self.send_header("Content-Length", str(announced or len(content)))
            self.end_headers()
            if not look:
                self.wfile.write(content)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/cifar-10-python.tar.gz", requests
        finally:
            http.shutdown()
            thread.join()


@pytest.fixture
def archive(monkeypatch) -> bytes:
    """A tiny archive, and torchvision's class in this process made to expect it from nowhere."""
    content, attributes = make_cifar10_archive()
    for name, value in attributes.items():
        monkeypatch.setattr(CIFAR10, name, value)
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:1/cifar-10-python.tar.gz")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return content


def ranks_load_cifar10(observe, world_size, url, data_dir, root, **options):
    inputs = {
        "name": "cifar10",
        "data_dir": str(data_dir),
        "cache_dir": str(data_dir),
        "cifar10": {**make_cifar10_archive()[1], "url": url},
    }
    environment = {"no_proxy": "127.0.0.1"}
    return server().run(
        observe, world_size, code=root / "solutions", inputs=inputs, env=environment, timeout=90, **options
    )


def test_cifar10_is_downloaded_by_the_first_process_only(tmp_path, root, archive):
    with serve(archive) as (url, requests):
        for _ in range(2):
            result = ranks_load_cifar10(data_observers.load_in_order, 2, url, tmp_path / "data", root)
            assert [value["first"] for value in result.values] == [True, False]
            assert len({value["digest"] for value in result.values}) == 1
            assert requests == {"looks": 1, "downloads": 1}, "one download, and none at the second start"
            assert "Downloading" not in result.reports[1].output
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar-10-batches-py"]


def test_cifar10_is_whole_when_all_ranks_load_at_once(tmp_path, root, archive):
    with serve(archive) as (url, _):
        result = ranks_load_cifar10(
            data_observers.load, 3, url, tmp_path / "data", root, set_up_process_group=False
        )
    assert len(set(result.values)) == 1
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar-10-batches-py"]


def put(archive: bytes, data_dir: Path) -> Path:
    """Have CIFAR-10 in data_dir from an archive that lies there, without any network."""
    data_dir.mkdir(parents=True, exist_ok=True)
    (data_dir / CIFAR10.filename).write_bytes(archive)
    load_datasets("cifar10", data_dir, cache_dir=data_dir)
    return data_dir


def test_cifar10_parts(tmp_path, archive):
    data_dir = put(archive, tmp_path)
    split = load_datasets("cifar10", data_dir, cache_dir=tmp_path)
    whole = load_datasets("cifar10", data_dir, cache_dir=tmp_path, validation="test")
    assert (len(split.train), len(split.valid), len(split.test)) == (90, 10, 20)
    assert (len(whole.train), len(whole.valid), whole.test) == (100, 20, None)
    expected = CIFAR10(tmp_path, train=False)
    assert torch.equal(whole.valid.images.permute(0, 2, 3, 1), torch.from_numpy(expected.data))
    assert whole.valid.labels.tolist() == expected.targets
    assert whole.classes == tuple(expected.classes)
    assert whole.train.mean.tolist() == pytest.approx([0.4914, 0.4822, 0.4465])


def test_files_that_are_whole_are_read_no_more_often_than_there_are_splits(tmp_path, archive, monkeypatch):
    """torchvision takes the checksums of all files for each split."""
    put(archive, tmp_path)
    check, checks = CIFAR10._check_integrity, []
    monkeypatch.setattr(CIFAR10, "_check_integrity", lambda self: checks.append(self.train) or check(self))
    load_datasets("cifar10", tmp_path, cache_dir=tmp_path)
    assert sorted(checks) == [False, True]


def test_an_archive_that_is_there_already_is_unpacked(tmp_path, archive, capfd):
    put(archive, tmp_path)
    assert f"Unpacking {tmp_path / CIFAR10.filename}" in capfd.readouterr().err
    assert (tmp_path / CIFAR10.filename).read_bytes() == archive


@pytest.mark.parametrize("name", ["data_batch_3", "test_batch", "batches.meta"])
@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_a_damaged_cifar10_is_replaced(tmp_path, archive, name, damage):
    put(archive, tmp_path)
    path = tmp_path / CIFAR10.base_folder / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1]) if damage == "cut" else path.unlink()
    load_datasets("cifar10", tmp_path, cache_dir=tmp_path)
    assert path.read_bytes() == whole


def download_error(data_dir: Path) -> str:
    with pytest.raises(UserError) as error:
        load_datasets("cifar10", data_dir, cache_dir=data_dir)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_without_a_network_the_sentence_says_what_to_do(tmp_path, archive, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/cifar-10-python.tar.gz"
        monkeypatch.setattr(CIFAR10, "url", url)
        said = download_error(tmp_path / "data")
    assert "could not be downloaded" in said
    assert "Connection refused" in said
    assert f"type `lab fetch cifar10 --data-dir {tmp_path / 'data'}`, or put {url} there by hand" in said
    assert "--dataset shapes" in said
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("broken", ["cut", "other"])
def test_a_broken_download_leaves_nothing_behind(tmp_path, archive, monkeypatch, broken):
    content = archive[:-100] if broken == "cut" else archive[:-1] + b"?"
    with serve(content, announced=len(archive)) as (url, _):
        monkeypatch.setattr(CIFAR10, "url", url)
        said = download_error(tmp_path / "data")
    assert "could not be downloaded" in said
    assert list((tmp_path / "data").iterdir()) == []


def test_a_server_that_never_answers_is_given_up(tmp_path, archive, monkeypatch):
    monkeypatch.setattr("lab.training.data.cifar10.NETWORK_TIMEOUT", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setattr(CIFAR10, "url", f"http://127.0.0.1:{silent.getsockname()[1]}/cifar-10-python.tar.gz")
        assert "timed out" in download_error(tmp_path / "data")
    assert socket.getdefaulttimeout() is None


def test_cifar10_cannot_be_downloaded_into_a_read_only_folder(archive):
    with open_folder() as folder:
        folder.chmod(0o555)
        with without_privileges():
            said = download_error(folder)
        folder.chmod(0o755)
    assert f"There is no whole CIFAR-10 in {folder}" in said
    assert "Permission denied" in said


def test_cifar10_is_read_from_a_read_only_folder(archive):
    with open_folder() as folder:
        put(archive, folder)
        folder.chmod(0o555)
        with without_privileges():
            assert len(load_datasets("cifar10", folder, cache_dir=folder).train) == 90
        (folder / CIFAR10.base_folder / "data_batch_1").chmod(0)
        with without_privileges():
            assert f"Cannot read CIFAR-10 in {folder}" in download_error(folder)
        folder.chmod(0o755)
