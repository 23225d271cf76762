"""The embedded data set: the same bytes everywhere, ten kinds, nothing to download."""

import hashlib

import numpy as np
import pytest
import torch

from lab.training.data import shapes

GOLDEN = "6f5e412114a9f6cfa551b5a0f28b2fa056184bc6817c49f5a883eb35959ed914"


def test_images_and_labels():
    images, labels = shapes.draw(300, 5)
    assert (images.shape, images.dtype) == ((300, 3, 32, 32), torch.uint8)
    assert (labels.shape, labels.dtype) == ((300,), torch.int64)
    assert set(labels.tolist()) == set(range(10))
    assert len(shapes.CLASSES) == 10


def test_the_bytes_are_the_same_on_every_machine():
    images, labels = shapes.draw(64, shapes.TRAIN_SEED)
    assert hashlib.sha256(images.numpy().tobytes() + labels.numpy().tobytes()).hexdigest() == GOLDEN


def test_an_image_does_not_depend_on_how_many_follow():
    few, some = shapes.draw(3, 7), shapes.draw(2 * shapes.CHUNK + 3, 7)
    many = shapes.draw(4 * shapes.CHUNK, 7)
    for part in (few, some):
        for one, two in zip(part, many, strict=True):
            assert torch.equal(one, two[: len(one)])


def test_training_and_validation_images_differ():
    train, _ = shapes.draw(512, shapes.TRAIN_SEED)
    valid, _ = shapes.draw(512, shapes.VALID_SEED)
    keys = {image.numpy().tobytes() for image in torch.cat([train, valid])}
    assert len(keys) == 1024


def test_classes_are_about_equally_frequent():
    _, labels = shapes.draw(shapes.TRAIN_IMAGES, shapes.TRAIN_SEED)
    assert torch.bincount(labels, minlength=10).min() > 400


@pytest.mark.parametrize("name", shapes.CLASSES)
def test_outlines_are_shapes_of_radius_one_around_the_middle(name):
    line = np.linspace(-1.6, 1.6, 161, dtype=np.float32)
    x, y = np.meshgrid(line, line)
    distance = shapes.OUTLINES[name](x, y)
    assert distance.dtype == np.float32, "float64 would be rounded differently"
    inside = distance < 0
    assert 0.9 < inside.mean() * 3.2**2 < 3.2, "its area; a disc of radius one has 3.14"
    assert not inside[(np.abs(x) > 1.1) | (np.abs(y) > 1.1)].any()
    # A signed distance changes by no more than the way walked, so that edges are one pixel wide.
    steps = np.abs(np.diff(distance, axis=0)) / 0.02
    assert steps.max() < 1.01


def test_no_two_outlines_are_alike():
    line = np.linspace(-1.2, 1.2, 121, dtype=np.float32)
    x, y = np.meshgrid(line, line)
    inside = [outline(x, y) < 0 for outline in shapes.OUTLINES.values()]
    for i, one in enumerate(inside):
        for two in inside[:i]:
            assert (one != two).sum() > 0.15 * (one | two).sum()
