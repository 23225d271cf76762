"""--input device --augment: the images of --input loader --augment, bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_run import Stop, StopAt
from torch import nn
from torch.utils.data import Subset

from lab.base.errors import UserError
from lab.ranks.rank import Rank
from lab.ranks.server import server
from lab.runs import options
from lab.training.data import augment, batches
from lab.training.data.augment import Pipeline
from lab.training.data.batches import put_on_device
from lab.training.data.images import ImageDataset
from lab.training.data.inputs import IMAGENET, pipelines
from lab.training.run import Run

CODE = Path(__file__).resolve().parents[2] / "solutions"
CPU = torch.device("cpu")
IMAGES = 40


def images(pipeline: Pipeline | None, channels: int = 3, side: int = 32) -> ImageDataset:
    draw = torch.Generator().manual_seed(1)
    pixels = torch.randint(256, (IMAGES, channels, side, side), dtype=torch.uint8, generator=draw)
    names = ("a", "b")
    mean, std = (part[:channels] for part in IMAGENET)
    return ImageDataset(pixels, torch.arange(IMAGES) % 2, names, mean, std).through(pipeline)


# A data set alone -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2**31, -1, 2**63 + 5, 2**64 - 1])
def test_integers_of_the_device_draw_the_same_numbers(seed):
    indices = [0, 1, 2, 49_999, 2**31, 2**62]
    for epoch in (1, 2, 77):
        theirs = batches.uniform(seed, epoch, torch.tensor(indices), 4)
        assert np.array_equal(theirs.numpy(), augment.uniform(seed, epoch, indices, 4))


@pytest.mark.parametrize(
    ("dataset", "network", "size", "shape"),
    [
        ("shapes", "cnn", None, (3, 32)),
        ("mnist", "mnist_cnn", None, (1, 28)),
        ("cifar10", "vgg19", None, (3, 32)),
        ("shapes", "resnet18", 64, (3, 32)),
    ],
)
def test_every_pipeline_gives_the_same_images(dataset, network, size, shape):
    changing, _ = pipelines(dataset, network, augment=True, randaugment=False, seed=3, image_size=size)
    loaded = images(changing, *shape)
    inputs = put_on_device(loaded, CPU)
    order = [list(range(16)), [39, 7, 21], [20]]
    for epoch in (1, 2):
        loaded.set_epoch(epoch)
        for chosen, (pixels, labels) in zip(order, inputs.batches(order, epoch), strict=True):
            samples = loaded.__getitems__(chosen)
            assert torch.equal(pixels, torch.stack([image for image, _ in samples]))
            assert labels.tolist() == [label for _, label in samples]


def test_the_device_keeps_bytes_and_not_floats():
    inputs = put_on_device(images(pipelines("shapes", "cnn", augment=True, randaugment=False, seed=0)[0]), CPU)
    assert inputs._images.nbytes == IMAGES * 3 * 32 * 32


# Whole runs -------------------------------------------------------------------------------------------------


def train(rank: Rank) -> dict[tuple[int, int], tuple[bytes, list[int]]]:
    """Trains as main.py does; the images and labels of each step, by epoch and step."""
    given = rank.receive()
    args = options.parse([*given["argv"], "--augment", "--global-batch-size", "12", "--save-every-steps", "1"])
    seen = {}
    try:
        with Run(args, CPU) as run:
            args = run.args
            data = images(pipelines("shapes", "cnn", augment=True, randaugment=False, seed=args.seed)[0])
            loader, _ = rank.student("data").get_dataloaders(
                data, data, args.loader_batch_size, num_workers=args.num_workers, seed=args.seed
            )
            torch.manual_seed(args.seed)
            model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 2))
            optimizer = torch.optim.SGD(model.parameters(), 1e-3)
            if given["stop"]:
                run.watchers.append(StopAt(*given["stop"]))
            run.begin(model, optimizer, loader)
            for epoch in run.epochs():
                loader.sampler.set_epoch(epoch)
                for pixels, labels in run.batches(loader):
                    seen[epoch, run.progress.step] = pixels.numpy().tobytes(), labels.tolist()
                    run.backward(model(pixels).square().mean())
                    optimizer.step()
                run.record(epoch, 0.0, 0.0, 0.0)
    except Stop:
        pass
    return seen


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_run_sees_the_loaders_images_in_every_epoch_and_after_a_resume(world_size, tmp_path):
    def run(source: str, *argv: str, stop: tuple[int, int] | None = None) -> list[Any]:
        given = ["--input", source, "--output-dir", str(tmp_path), "--run-id", source, *argv]
        inputs = {"argv": given, "stop": stop}
        return server().run(train, world_size, code=CODE, inputs=inputs, timeout=120).values

    epochs = ("--epochs", "3")
    loaded = run("loader", *epochs, "--num-workers", "1")
    assert {key for rank in loaded for key in rank} == {(e, s) for e in (1, 2, 3) for s in (0, 1, 2)}
    assert len({pixels for rank in loaded for pixels, _ in rank.values()}) == 9 * world_size
    first = run("device", *epochs, stop=(2, 2))
    rest = run("device", *epochs, "--resume", "latest")
    for rank in range(world_size):
        assert min(rest[rank]) == (2, 2)
        assert first[rank] | rest[rank] == loaded[rank]
        assert all(first[rank][key] == loaded[rank][key] for key in first[rank])


def test_several_passes_of_a_measurement_see_the_same_too(tmp_path):
    def run(source: str) -> list[Any]:
        argv = ["--input", source, "--output-dir", str(tmp_path), "--run-id", source]
        return server().run(train_measured, 2, code=CODE, inputs=argv, timeout=60).values

    assert run("device") == run("loader")


def train_measured(rank: Rank) -> list[tuple[bytes, list[int]]]:
    """The batches of 8 steps, in passes of 3."""
    argv = ["--augment", "--global-batch-size", "12", "--measure-steps", "6", "--measure-warmup", "2"]
    args = options.parse([*rank.receive(), *argv])
    seen = []
    with Run(args, CPU, records=False) as run:
        data = images(pipelines("shapes", "cnn", augment=True, randaugment=False, seed=0)[0])
        loader, _ = rank.student("data").get_dataloaders(data, data, 12)
        model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 2))
        run.begin(model, torch.optim.SGD(model.parameters()), loader)
        for epoch in run.epochs():
            loader.sampler.set_epoch(epoch)
            seen += [(pixels.numpy().tobytes(), labels.tolist()) for pixels, labels in run.batches(loader)]
    assert len(seen) == 8
    return seen


# What cannot be had -----------------------------------------------------------------------------------------


def augmented(**more: bool) -> ImageDataset:
    return images(Pipeline(32, padding=4, flip=True, seed=1, **more))


class Own(ImageDataset):
    """A student's, that may do anything with an image."""


def own() -> Own:
    data = augmented()
    own = Own(data.images, data.labels, data.classes, data.mean, data.std)
    return own.through(data.pipeline)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: augmented(randaugment=True), "cannot make the changes of --randaugment"),
        (lambda: Subset(augmented(), range(8)), "which has a Subset: use --input loader"),
        (own, "which has a Own: use --input loader"),
    ],
)
def test_changes_that_the_device_cannot_make_are_refused(make, says):
    with pytest.raises(UserError, match=says):
        put_on_device(make(), CPU)


@pytest.mark.parametrize(("pipeline", "needed"), [(True, 40 * 3 * 32 * 32), (False, 4 * 40 * 3 * 32 * 32)])
def test_images_that_do_not_fit_are_refused_before_they_are_sent(pipeline, needed, monkeypatch):
    data = augmented() if pipeline else images(None)
    monkeypatch.setattr(batches, "free_memory", lambda: needed)
    put_on_device(data, CPU)
    monkeypatch.setattr(batches, "free_memory", lambda: needed - 1)
    with pytest.raises(UserError, match=r"for 40 training images, .* free: use --input loader"):
        put_on_device(data, CPU)
    monkeypatch.setattr(batches, "free_memory", lambda: None)  # nobody says: try it
    put_on_device(data, CPU)
