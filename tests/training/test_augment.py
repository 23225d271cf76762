"""Augmentation is a pure function of (seed, epoch, index), however the work is shared out."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset

from lab.ranks.rank import Rank
from lab.ranks.server import server
from lab.training.data.augment import Pipeline, set_epoch, uniform
from lab.training.data.images import ImageDataset

CODE = Path(__file__).resolve().parent.parent.parent / "solutions"
EPOCHS = (1, 2, 3)


def images(count: int = 24, size: int = 8, channels: int = 3) -> torch.Tensor:
    return torch.randint(0, 256, (count, channels, size, size), generator=torch.manual_seed(0), dtype=torch.uint8)


def data_set(**settings) -> ImageDataset:
    """24 images, of which each has its index as its label."""
    data = ImageDataset(images(), torch.arange(24), ("a",), [0.5] * 3, [0.25] * 3)
    return data.through(Pipeline(8, padding=4, flip=True, seed=5, **settings))


def collect(loader: DataLoader, dataset: object) -> dict[tuple[int, int], torch.Tensor]:
    """(epoch, index) -> image, over some epochs of a loader."""
    found = {}
    for epoch in EPOCHS:
        set_epoch(dataset, epoch)
        for batch, labels in loader:
            found |= {(epoch, label): image for image, label in zip(batch, labels.tolist(), strict=True)}
    return found


def assert_same(ours: dict, theirs: dict) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(image, theirs[key]) for key, image in ours.items())


# The random numbers -----------------------------------------------------------------------------------------


def test_uniform_numbers_are_spread_and_independent():
    numbers = uniform(0, 1, range(20_000), 4)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert np.allclose(numbers.mean(axis=0), 0.5, atol=0.01)
    assert np.allclose(numbers.std(axis=0), 12**-0.5, atol=0.01)
    neighbours = [numbers[:-1, 0], numbers[1:, 0], numbers[:-1, 1]]  # the next sample, the next number
    others = [uniform(*key, range(19_999), 1)[:, 0] for key in ((0, 2), (1, 1), (1, 0), (2**63, 1))]
    correlations = np.corrcoef(neighbours + others) - np.eye(7)
    assert abs(correlations).max() < 0.03


def test_a_number_does_not_depend_on_its_company():
    assert (uniform(3, 2, [7, 1, 7], 4)[2] == uniform(3, 2, [7], 4)[0]).all()


# The pipeline -----------------------------------------------------------------------------------------------


def test_a_random_crop_is_a_window_of_the_padded_image_mirrored_half_of_the_time():
    pipeline = Pipeline(8, padding=2, flip=True, seed=0)
    source = images(80) // 2 + 100  # no black inside
    padded = torch.nn.functional.pad(source, [2] * 4)
    found = []
    for original, changed in zip(padded, pipeline(source, range(80)), strict=True):
        windows = {
            (top, left, flipped): original[:, top : top + 8, left : left + 8].flip([-1] * flipped)
            for top, left, flipped in product(range(5), range(5), (False, True))
        }
        (place,) = [place for place, window in windows.items() if torch.equal(changed, window)]
        found.append(place)
    tops, lefts, flips = zip(*found, strict=True)
    assert set(tops) == set(lefts) == set(range(5))
    assert 25 < sum(flips) < 55


def test_without_a_seed_the_middle_is_cut_out():
    source = images(2, size=10)
    assert torch.equal(Pipeline(6)(source, [0, 1]), source[:, :, 2:8, 2:8])
    assert torch.equal(Pipeline(8)(images(), range(24)), images())


def test_imagenets_pipeline_resizes_the_shorter_side_and_crops():
    source = images(2, size=32)[:, :, :, :20]
    pipeline = Pipeline(224, resize=256, flip=True, seed=1)
    assert pipeline(source, [0, 1]).shape == (2, 3, 224, 224)
    resized = Pipeline(224, resize=256)(source, [0, 1])
    assert resized.shape == (2, 3, 224, 224)
    # The shorter side of 20 becomes 256, so the middle 224 show the columns from 1.25 to 18.75.
    centre = source[:, :, 16 - 7 : 16 + 7, 1:19].float().mean()
    assert resized.float().mean() == pytest.approx(centre.item(), abs=3)


def test_digits_are_moved_but_not_mirrored():
    source = torch.zeros(64, 1, 8, 8, dtype=torch.uint8)
    source[:, :, 3:5, 2] = 1
    source[:, :, 4, 3:5] = 1  # an L
    moved = Pipeline(8, padding=2, seed=0)(source, range(64))
    upright = torch.tensor([[1, 0], [1, 1]], dtype=torch.uint8)
    for digit in moved[:, 0]:
        rows, columns = digit.nonzero().min(dim=0).values.tolist()
        assert torch.equal(digit[rows : rows + 2, columns : columns + 2], upright)


# Purity -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("randaugment", [False, True])
def test_the_same_seed_epoch_and_index_give_the_same_image(randaugment):
    data = data_set(randaugment=randaugment)
    expected = collect(DataLoader(data, batch_size=24), data)
    changed = [not torch.equal(expected[1, i], expected[2, i]) for i in range(24)]
    assert sum(changed) > 20  # another crop in another epoch
    generator = torch.Generator().manual_seed(9)
    loaders = {
        "shuffled": {"shuffle": True, "generator": generator, "batch_size": 5},
        "workers": {"num_workers": 2, "batch_size": 4, "prefetch_factor": 3},
        "persistent": {"num_workers": 2, "batch_size": 4, "persistent_workers": True},
    }
    for name, settings in loaders.items():
        other = data_set(randaugment=randaugment)
        torch.manual_seed(hash(name))  # what else is random must not matter
        assert_same(collect(DataLoader(other, **settings), other), expected)
        assert_same(collect(DataLoader(Subset(other, range(24)), **settings), Subset(other, [])), expected)


def test_single_samples_and_batches_are_the_same():
    data = data_set()
    set_epoch(data, 4)
    for i, (image, label) in enumerate(data.__getitems__(range(24))):
        assert label == i
        assert torch.equal(image, data[i][0])


def test_workers_that_are_spawned_see_the_epoch_too():
    data = data_set()
    loader = DataLoader(
        data, batch_size=12, num_workers=1, persistent_workers=True, multiprocessing_context="spawn"
    )
    assert_same(collect(loader, data), collect(DataLoader(data, batch_size=12), data))


def test_randaugment_leaves_the_random_generator_alone():
    data = data_set(randaugment=True)
    before = torch.get_rng_state()
    data.__getitems__(range(24))
    assert torch.equal(torch.get_rng_state(), before)


def draw_on_ranks(rank: Rank) -> dict[str, torch.Tensor]:
    """This rank's share of three epochs, by epoch and index, through the student's loaders and run.batches()."""
    from lab.runs import options
    from lab.training.run import Run

    train_set, plain = data_set(), data_set()
    plain.pipeline = None
    run = Run(options.parse(["--dry-run", "--epochs", "3", "--global-batch-size", "12"]), torch.device("cpu"))
    loader, _ = rank.student("data").get_dataloaders(
        train_set, plain, 12, num_workers=1, seed=rank.receive(), persistent_workers=True
    )
    found = {}
    for epoch in run.epochs():
        loader.sampler.set_epoch(epoch)
        for batch, labels in run.batches(loader):  # which tells the data set the epoch
            found |= {f"{epoch} {label}": image for image, label in zip(batch, labels.tolist(), strict=True)}
    return found


@pytest.mark.parametrize("world_size", [1, 3])
def test_the_number_of_ranks_does_not_matter(world_size):
    data = data_set()
    expected = {f"{epoch} {i}": image for (epoch, i), image in collect(DataLoader(data, 24), data).items()}
    found = {}
    for share in server().run(draw_on_ranks, world_size, code=CODE, inputs=1, timeout=60).values:
        found |= share
    assert_same(found, expected)
