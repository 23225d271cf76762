"""What happens to an image between the data set and the network: resized, cropped, and changed at random.

Every random choice is a pure function of (seed, epoch, index of the sample). So the image does not depend on how
many ranks or loader processes share the work, nor on where a run was interrupted and went on.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

TOP, LEFT, FLIP, RANDAUGMENT = range(4)  # which number decides on what


def uniform(seed: int, epoch: int, indices: Sequence[int], count: int) -> np.ndarray:
    """`count` numbers in [0, 1) for each index, float64 [len(indices), count].

        key = mix(mix(mix(seed) + epoch) + index);  number_i = mix(key + i * GOLDEN) / 2^64

    with mix and GOLDEN of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
    generators"): no state, so any of them can be had alone, and a whole batch in one go.
    """
    key = _mix(epoch_key(seed, epoch) + np.asarray(indices, np.uint64))
    words = _mix(key[:, None] + np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN)
    return (words >> np.uint64(11)) * 2.0**-53  # as many bits as a float64 holds


def epoch_key(seed: int, epoch: int) -> np.ndarray:
    """mix(mix(seed) + epoch), what all samples of an epoch share: uint64 [1]."""
    return _mix(_mix(np.array([seed % 2**64], np.uint64)) + np.array([epoch], np.uint64))


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: np.ndarray) -> np.ndarray:
    """SplitMix64's output function: uint64 -> uint64, one to one, every bit depends on all."""
    z = z + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Pipeline:
    """uint8 images [B, C, H, W] -> uint8 images [B, C, size, size].

    Without a seed nothing is random and the middle is cut out, as for evaluation.

    Args:
        size: pixels, height and width of what comes out.
        resize: length to which the shorter side is resized first; None leaves it.
        padding: black pixels on each side, from where a random crop may begin.
        flip: mirror half of the images, left to right.
        randaugment: two random changes of shape or colour more for each image (Cubuk et al. 2020,
            arXiv:1909.13719), with the settings of torchvision.transforms.v2.RandAugment.
        seed: of all random choices.
    """

    def __init__(
        self,
        size: int,
        *,
        resize: int | None = None,
        padding: int = 0,
        flip: bool = False,
        randaugment: bool = False,
        seed: int | None = None,
    ) -> None:
        self.size = size
        self.resize = resize
        self.padding = padding
        self.flip = flip
        self.seed = seed
        self.randaugment = randaugment
        self._randaugment = _make_randaugment() if randaugment else None
        # In shared memory: loader processes that live on from epoch to epoch look at the same number.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """The epoch, counted from 1, for which this process and its loader processes draw from now on."""
        self._epoch.fill_(epoch)

    def __call__(self, images: Tensor, indices: Sequence[int]) -> Tensor:
        """`indices`: of these images in the data set; they choose what is random."""
        if self.resize is not None:
            images = resize_all(images, self.resize)
        if self.seed is None:
            top, left = (images.shape[2] - self.size) // 2, (images.shape[3] - self.size) // 2
            return images[:, :, top : top + self.size, left : left + self.size]
        numbers = uniform(self.seed, int(self._epoch), indices, 4)
        images = self._crop_and_flip(images, numbers)
        if self._randaugment is not None:
            changed = [self._change(*pair) for pair in zip(images, numbers[:, RANDAUGMENT], strict=True)]
            images = torch.stack(changed)
        return images

    def _crop_and_flip(self, images: Tensor, numbers: np.ndarray) -> Tensor:
        padded = F.pad(images, [self.padding] * 4).numpy()
        windows = np.lib.stride_tricks.sliding_window_view(padded, (self.size, self.size), axis=(2, 3))
        tops = (numbers[:, TOP] * windows.shape[2]).astype(int)
        lefts = (numbers[:, LEFT] * windows.shape[3]).astype(int)
        cropped = windows[np.arange(len(images)), :, tops, lefts]
        if self.flip:
            mirrored = numbers[:, FLIP] < 0.5
            cropped[mirrored] = cropped[mirrored, :, :, ::-1]
        return torch.from_numpy(cropped)

    def _change(self, image: Tensor, number: float) -> Tensor:
        """torchvision draws from torch's own generator, so that is seeded for each image and restored."""
        assert self._randaugment is not None
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(number * 2**53))
            return self._randaugment(image)


def set_epoch(dataset: object, epoch: int) -> None:
    """Tell a data set which epoch it is, through whatever it is wrapped in (a Subset, a class of one's own)."""
    while dataset is not None:
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(epoch)
            return
        dataset = getattr(dataset, "dataset", None)


def resize_all(images: Tensor, shorter: int) -> Tensor:
    """Bilinear and anti-aliased, as torchvision does it for its ImageNet weights."""
    # Imported here, because torchvision takes a second and most runs do without it.
    from torchvision.transforms.v2.functional import resize

    return resize(images, [shorter], antialias=True)


def _make_randaugment() -> Callable[[Tensor], Tensor]:
    from torchvision.transforms.v2 import RandAugment

    return RandAugment()
