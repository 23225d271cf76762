"""Labelled images as the samples that a network takes: in memory, or on the disk."""

import copy
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor
from torch.utils.data import Dataset

from lab.training.data.about import About
from lab.training.data.augment import Pipeline
from lab.training.data.imagefolder import decode_full
from lab.training.data.layout import ImageFile


class Images(Dataset):
    """A sample is (image, label): float32 [C, H, W], normalised, and an int.

    Args:
        labels: int64 [N], indices into `classes`.
        classes: the names.
        mean, std: of each channel over the training set, where pixels run from 0 to 1.
        pipeline: what happens to an image before it is normalised.
    """

    is_pure = True  # a sample depends on its index and the epoch alone: a resume need not read those before

    def __init__(
        self,
        labels: Tensor,
        classes: tuple[str, ...],
        mean: Sequence[float] | Tensor,
        std: Sequence[float] | Tensor,
        pipeline: Pipeline | None = None,
    ) -> None:
        assert (labels.dtype, labels.ndim) == (torch.int64, 1), (labels.dtype, labels.shape)
        self.labels = labels
        self.classes = classes
        self.mean = torch.as_tensor(mean, dtype=torch.float32)
        self.std = torch.as_tensor(std, dtype=torch.float32)
        self.pipeline = pipeline
        self.about: About | None = None  # of the data set that this is the training part of

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, int]]:
        """The samples of a whole batch; a DataLoader calls this where it exists."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """The epoch for which samples are drawn from now on, in the loaders' processes too."""
        if self.pipeline is not None:
            self.pipeline.set_epoch(epoch)

    def subset(self, indices: Tensor) -> Self:
        """Some of the samples, normalised in the same way."""
        other = copy.copy(self)
        other.labels = self.labels[indices]
        return other

    def through(self, pipeline: Pipeline | None, *normalisation: Sequence[float]) -> Self:
        """The same images through a pipeline, and with another (mean, std) if these are given."""
        other = copy.copy(self)
        other.pipeline = pipeline
        if normalisation:
            other.mean, other.std = map(torch.as_tensor, normalisation)
        return other

    def _finish(self, images: Tensor, indices: Sequence[int]) -> Tensor:
        """uint8 [B, C, H, W] -> float32 [B, C, H', W'], through the pipeline and normalised."""
        if self.pipeline is not None:
            images = self.pipeline(images, indices)
        shape = (-1, 1, 1)
        return (images.float() / 255).sub_(self.mean.view(shape)).div_(self.std.view(shape))


class ImageDataset(Images):
    """Images in memory.

    Args:
        images: uint8 [N, C, H, W].
        others: see Images.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        classes: tuple[str, ...],
        mean: Sequence[float] | Tensor,
        std: Sequence[float] | Tensor,
    ) -> None:
        assert (images.dtype, images.ndim) == (torch.uint8, 4), (images.dtype, images.shape)
        assert labels.shape == images.shape[:1], (labels.shape, images.shape)
        super().__init__(labels, classes, mean, std)
        self.images = images

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, int]]:
        """The samples of a whole batch; a DataLoader calls this where it exists, and it is much faster."""
        chosen = torch.as_tensor(indices)
        finished = self._finish(self.images[chosen], indices)
        return list(zip(finished, self.labels[chosen].tolist(), strict=True))

    def subset(self, indices: Tensor) -> Self:
        """A copy of some of the samples, normalised in the same way."""
        other = super().subset(indices)
        other.images = self.images[indices]
        return other


class FileDataset(Images):
    """Images on the disk, of any sizes, decoded each time they are asked for: for a pipeline that crops them.

    Raises, for each image, UserError when it cannot be decoded.
    """

    def __init__(
        self,
        files: list[ImageFile],
        classes: tuple[str, ...],
        mean: Sequence[float] | Tensor,
        std: Sequence[float] | Tensor,
    ) -> None:
        super().__init__(torch.tensor([file.label for file in files], dtype=torch.int64), classes, mean, std)
        self.files = files

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, int]]:
        samples = []
        for index in indices:
            file = self.files[index]
            image = torch.from_numpy(decode_full(file.path)).unsqueeze(0)
            samples.append((self._finish(image, [index])[0], file.label))
        return samples

    def subset(self, indices: Tensor) -> Self:
        """Some of the samples, normalised in the same way."""
        other = super().subset(indices)
        other.files = [self.files[i] for i in indices.tolist()]
        return other
