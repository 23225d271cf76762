"""lab fetch: the same downloads as a run's, on a machine with internet."""

import hashlib
import io

import pytest
import torch
from file_server import FileServer
from image_helpers import make_cifar10_archive
from mnist_files import checksums, tiny_mnist, zipped
from torch import nn
from torchvision.datasets import CIFAR10
from torchvision.models import VGG19_Weights

from lab.base.errors import UserError
from lab.cli import main
from lab.runs import options
from lab.runs.options.model import VGG19_WEIGHTS, model_options
from lab.training.data.datasets import load_datasets
from lab.training.data.weights import fetch_weights


@pytest.fixture
def weights_server(monkeypatch):
    """Serves a state dict under a name that ends in its checksum, as torchvision's names do."""
    content = io.BytesIO()
    torch.save(nn.Linear(2, 2).state_dict(), content)
    name = f"vgg19-{hashlib.sha256(content.getvalue()).hexdigest()[:8]}.pth"
    with FileServer({name: content.getvalue()}) as server:
        server.name = name
        monkeypatch.setattr(type(VGG19_Weights.IMAGENET1K_V1), "url", server.url + name, raising=False)
        monkeypatch.setattr("lab.runs.options.model.VGG19_WEIGHTS", name)
        yield server


def load(args) -> None:
    load_datasets(args.dataset, args.data_dir, cache_dir=args.output_dir, **options.input_options(args))


def test_the_weights_are_called_as_torchvision_calls_them():
    assert VGG19_Weights.IMAGENET1K_V1.url.endswith(f"/{VGG19_WEIGHTS}")


def test_vgg19s_weights_are_fetched_once_and_checked(tmp_path, weights_server, capsys):
    folder = tmp_path / "data"
    for _ in range(2):
        assert main(["fetch", "vgg19", "--data-dir", str(folder)]) == 0
    path = folder / weights_server.name
    assert path.read_bytes() == weights_server.files[weights_server.name]
    assert weights_server.requests.total() == 1
    assert f"Train with --model vgg19 --pretrained --data-dir {folder}" in capsys.readouterr().out


def test_a_partial_weights_file_is_fetched_again(tmp_path, weights_server, capsys):
    path = tmp_path / weights_server.name
    path.write_bytes(weights_server.files[weights_server.name][:-1])
    assert fetch_weights(tmp_path) == path
    assert path.read_bytes() == weights_server.files[weights_server.name]
    assert "it is damaged (its checksum is not the" in capsys.readouterr().err


def test_without_internet_a_run_says_what_to_type_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(
        type(VGG19_Weights.IMAGENET1K_V1), "url", "http://127.0.0.1:9/vgg19-01234567.pth", raising=False
    )
    monkeypatch.setattr("torchvision.datasets.MNIST.mirrors", ["http://127.0.0.1:9/"])
    monkeypatch.setattr("torchvision.datasets.CIFAR10.url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    for argv, what in (
        (["--model", "vgg19", "--pretrained"], "vgg19"),
        (["--model", "mnist_cnn", "--dataset", "mnist"], "mnist"),
        (["--dataset", "cifar10"], "cifar10"),
    ):
        folder = tmp_path / "my data"
        args, _ = options.resolve(options.parse([*argv, "--data-dir", str(folder)]), 1)
        with pytest.raises(UserError, match=f"type `lab fetch {what} --data-dir '{folder}'`"):
            load(args)


def test_a_pretrained_run_builds_its_network_from_the_file_that_was_fetched(tmp_path, weights_server):
    args, _ = options.resolve(options.parse(["--model", "vgg19", "--pretrained", "--data-dir", str(tmp_path)]), 1)
    load(args)
    assert model_options(args) == {"weights": tmp_path / weights_server.name}
    assert (tmp_path / weights_server.name).is_file()


def test_mnist_is_fetched(tmp_path, monkeypatch, capsys):
    files = zipped(tiny_mnist())
    with FileServer(files) as mirror:
        monkeypatch.setattr("torchvision.datasets.MNIST.mirrors", [mirror.url])
        monkeypatch.setattr("torchvision.datasets.MNIST.resources", checksums(files))
        assert main(["fetch", "mnist", "--data-dir", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"mnist is in {tmp_path}: 40 training and 10 test images" in said
    assert f"--dataset mnist --data-dir {tmp_path} --model mnist_cnn" in said


def test_cifar10_is_fetched(tmp_path, monkeypatch, capsys):
    content, attributes = make_cifar10_archive()
    with FileServer({CIFAR10.filename: content}) as mirror:
        for name, value in {**attributes, "url": mirror.url + CIFAR10.filename}.items():
            monkeypatch.setattr(CIFAR10, name, value)
        for _ in range(2):
            assert main(["fetch", "cifar10", "--data-dir", str(tmp_path)]) == 0
    assert f"cifar10 is in {tmp_path}: 100 training and 20 test images" in capsys.readouterr().out
    # torchvision asks twice for a file: first it looks where a redirect leads.
    assert mirror.requests[CIFAR10.filename] <= 2


def test_a_failed_fetch_is_one_sentence_and_exit_code_1(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("torchvision.datasets.MNIST.mirrors", ["http://127.0.0.1:9/"])
    assert main(["fetch", "mnist", "--data-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("lab fetch: train-images-idx3-ubyte.gz is not in ")
