"""Where a run's batches come from: the loader, or with --input device the device, which holds all images.

The numbers are the same, to the last bit: every random choice is a function of (seed, epoch, index) that 64-bit
integers give alike everywhere (augment.uniform), and pixels are moved, divided and subtracted as IEEE 754 says.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from lab.base.errors import UserError
from lab.base.machine import free_memory
from lab.training.data.augment import FLIP, LEFT, TOP, Pipeline, epoch_key, resize_all
from lab.training.data.images import ImageDataset

Batch = tuple[Tensor, Tensor]
GIB = 2**30


class DeviceInputs:
    """A whole data set on the device, ready for the network: a batch is one gather, no loader is waited for.

    Raises UserError where the images do not fit.
    """

    def __init__(self, dataset: Dataset, device: torch.device) -> None:
        self._device = device
        count: int = len(dataset)  # type: ignore[arg-type]
        _check_room(count, dataset[0][0].nbytes, device)
        fetch = getattr(dataset, "__getitems__", lambda chosen: [dataset[i] for i in chosen])
        images, labels = default_collate(fetch(range(count)))
        self._images, self._labels = images.to(device), labels.to(device)

    def batches(self, order: Iterable[Sequence[int]], epoch: int) -> Iterator[Batch]:
        """A batch for each list of indices.

        Args:
            epoch: counted from 1, chooses what is random.
        """
        for chosen in self._send(order):
            yield self._images[chosen], self._labels[chosen]

    def _send(self, order: Iterable[Sequence[int]]) -> Sequence[Tensor]:
        """All of the order at once: to send a part of it in mid-window could make the CPU wait for the device."""
        parts = list(order)
        chosen = torch.tensor([index for part in parts for index in part]).to(self._device)
        return chosen.split([len(part) for part in parts])


class ChangingInputs(DeviceInputs):
    """The same with uint8 images that are cropped, mirrored and normalised when their turn comes.

    Args:
        dataset: its pipeline has a seed, and no randaugment.
    """

    def __init__(self, dataset: ImageDataset, device: torch.device) -> None:
        pipeline = dataset.pipeline
        assert pipeline is not None
        assert pipeline.seed is not None
        self._device = device
        self._pipeline, self._seed = pipeline, pipeline.seed
        images = dataset.images
        side = pipeline.resize
        bytes_each = images[0].nbytes if side is None else images.shape[1] * side * side
        _check_room(len(images), bytes_each, device)
        if side is not None:
            images = resize_all(images, side)
        self._images, self._labels = images.to(device), dataset.labels.to(device)
        # Tensors on the device: to divide by a number, CUDA would multiply by its inverse, which rounds otherwise.
        white = torch.tensor(255.0)
        self._white, self._mean, self._std = (
            values.view(-1, 1, 1).to(device) for values in (white, dataset.mean, dataset.std)
        )

    def batches(self, order: Iterable[Sequence[int]], epoch: int) -> Iterator[Batch]:
        for chosen in self._send(order):
            numbers = uniform(self._seed, epoch, chosen, 3)
            images = self._crop_and_flip(self._images[chosen], numbers)
            yield images.float().div_(self._white).sub_(self._mean).div_(self._std), self._labels[chosen]

    def _crop_and_flip(self, images: Tensor, numbers: Tensor) -> Tensor:
        """uint8 [B, C, H, W] -> uint8 [B, C, size, size], as Pipeline does it."""
        size = self._pipeline.size
        images = F.pad(images, [self._pipeline.padding] * 4)
        count, channels, height, width = images.shape
        along = torch.arange(size, device=self._device)
        rows = (numbers[:, TOP, None] * (height - size + 1)).long() + along
        lefts = (numbers[:, LEFT, None] * (width - size + 1)).long()
        if self._pipeline.flip:
            along = torch.where(numbers[:, FLIP, None] < 0.5, size - 1 - along, along)
        places = (rows[:, :, None] * width + (lefts + along)[:, None, :]).view(count, 1, size * size)
        pixels = images.view(count, channels, height * width)
        return pixels.gather(2, places.expand(-1, channels, -1)).view(count, channels, size, size)


def uniform(seed: int, epoch: int, indices: Tensor, count: int) -> Tensor:
    """augment.uniform() on the device of `indices`: float64 [len(indices), count].

    PyTorch computes with signed integers, which wrap around as unsigned ones do; only >> differs.
    """
    key = _mix(indices + _signed(int(epoch_key(seed, epoch)[0])))
    steps = torch.arange(1, count + 1, device=indices.device) * _GOLDEN
    words = _mix(key[:, None] + steps)
    return _shift(words, 11).double() * 2.0**-53


def _mix(z: Tensor) -> Tensor:
    z = z + _GOLDEN
    z = (z ^ _shift(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shift(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shift(z, 31)


def _shift(z: Tensor, bits: int) -> Tensor:
    """To the right, with zeros coming in."""
    return (z >> bits) & (2 ** (64 - bits) - 1)


def _signed(word: int) -> int:
    """The int64 with the bits of an uint64."""
    return word - 2**64 if word >= 2**63 else word


_GOLDEN = _signed(0x9E3779B97F4A7C15)


def put_on_device(dataset: Dataset, device: torch.device) -> DeviceInputs:
    """All images of a data set, for --input device.

    Raises:
        UserError: they do not fit, or their random changes cannot be made on the device.
    """
    pipeline = _random_pipeline(dataset)
    if pipeline is None:
        return DeviceInputs(dataset, device)
    if pipeline.randaugment:
        raise UserError("--input device cannot make the changes of --randaugment: use --input loader")
    if type(dataset) is not ImageDataset:
        raise UserError(
            "--input device with --augment needs the training set as load_datasets() returned it in the "
            f"DataLoader, which has a {type(dataset).__name__}: use --input loader, or add --no-augment"
        )
    return ChangingInputs(dataset, device)


def _random_pipeline(dataset: object) -> Pipeline | None:
    """The one that changes a data set's images at random, through whatever that is wrapped in."""
    while dataset is not None:
        pipeline = getattr(dataset, "pipeline", None)
        if isinstance(pipeline, Pipeline) and pipeline.seed is not None:
            return pipeline
        dataset = getattr(dataset, "dataset", None)
    return None


def _check_room(count: int, bytes_each: int, device: torch.device) -> None:
    needed = count * bytes_each
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()
    if free is not None and needed > free:
        raise UserError(
            f"--input device needs {needed / GIB:.1f} GiB on each device for {count:,} training images, and here "
            f"{free / GIB:.1f} GiB are free: use --input loader"
        )


def batch_source(loader: DataLoader, inputs: DeviceInputs | None, needed: int, epoch: int) -> Iterator[Batch]:
    """At least `needed` batches, in as many passes over the data as that takes.

    Args:
        inputs: from here where there are any, else from the loader.
        epoch: of the first pass; it stands for its order, and in all of them for what is random in the images.
    """
    passes = -(-needed // len(loader)) if len(loader) else 1
    if inputs is not None:
        order = (batch for one in _epochs(loader, passes, epoch) for batch in one.batch_sampler)
        return inputs.batches(order, epoch)
    if passes > 1:
        return itertools.chain.from_iterable(_epochs(loader, passes, epoch))
    return iter(loader)


def _epochs(loader: DataLoader, passes: int, first_epoch: int) -> Iterator[Any]:
    """The loader once for each pass, its sampler told which one it is."""
    for number in range(passes):
        if number and hasattr(loader.sampler, "set_epoch"):  # the first pass: train_one_epoch() has done it
            loader.sampler.set_epoch(first_epoch + number)
        yield loader
