"""MNIST in torchvision's layout: DIR/MNIST/raw/train-images-idx3-ubyte and three more files, or the same with .gz.

A file says itself whether it is whole: idx begins with its shape, gzip ends with its checksum.
"""

import gzip
import math
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from lab.base.errors import UserError
from lab.training.data.download import download
from lab.training.data.image_cache import LabelledImages, note

MEAN, STD = (0.1307,), (0.3081,)
CLASSES = tuple("0123456789")
FOLDER = Path("MNIST", "raw")
PARTS = {"train": "train", "test": "t10k"}
IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
UNSIGNED_BYTES = 8  # idx's code for the type


def load_mnist(data_dir: Path) -> dict[str, LabelledImages]:
    """The splits "train" and "test", uint8 [N, 1, 28, 28]; what is missing of them is downloaded first.

    Raises UserError when that fails, or the files do not fit each other.
    """
    splits = {}
    for split, prefix in PARTS.items():
        images = _load(data_dir, f"{prefix}-{IMAGES}")
        labels = _load(data_dir, f"{prefix}-{LABELS}")
        if images.ndim != 3 or labels.shape != images.shape[:1] or not (labels <= 9).all():
            raise UserError(
                f"The MNIST files {prefix}-* in {data_dir} do not fit each other: images {list(images.shape)}, "
                f"labels {list(labels.shape)}. Delete them to download them again."
            )
        splits[split] = LabelledImages(torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels).long())
    return splits


def _load(data_dir: Path, name: str) -> np.ndarray:
    found = _find(data_dir, name)
    if found is None:
        _fetch(data_dir, name)
        found = _find(data_dir, name)
    if found is None:
        raise UserError(f"{data_dir / FOLDER / name}.gz was downloaded but cannot be read.")
    return found


def _find(data_dir: Path, name: str) -> np.ndarray | None:
    """The array of the first whole file of this name; damaged ones are named on stderr and left alone."""
    for path in _places(data_dir, name):
        try:
            return _read(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (EOFError, zlib.error, gzip.BadGzipFile, _NotIdx) as error:
            note(f"Not using {path}: it is damaged ({error})")
        except OSError as error:
            raise UserError(f"Cannot read {path}: {error.strerror or error}.") from error
    return None


def _places(data_dir: Path, name: str) -> Iterator[Path]:
    """torchvision's folder first, then the data directory itself."""
    for folder in (data_dir / FOLDER, data_dir):
        yield folder / name
        yield folder / f"{name}.gz"


class _NotIdx(Exception):
    """Why a file is no whole idx file."""


def _read(path: Path) -> np.ndarray:
    """An idx file: two zeros, the type, the number of dimensions; each length as big-endian int32; the values."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    if len(content) < 4 or content[:3] != bytes([0, 0, UNSIGNED_BYTES]):
        raise _NotIdx("it does not begin like an idx file of bytes")
    start = 4 + 4 * content[3]
    shape = [int.from_bytes(content[i : i + 4], "big") for i in range(4, start, 4)]
    if len(content) != start + math.prod(shape):
        raise _NotIdx(f"its length is wrong: {len(content):,} bytes")
    return np.frombuffer(bytearray(content), np.uint8, offset=start).reshape(shape)


def _fetch(data_dir: Path, name: str) -> None:
    # Imported here, because torchvision takes a second and files that are there need none of it.
    from torchvision.datasets import MNIST

    archive = f"{name}.gz"
    download(
        [mirror + archive for mirror in MNIST.mirrors],
        data_dir / FOLDER / archive,
        algorithm="md5",
        digest=dict(MNIST.resources)[archive],
        what="mnist",
        data_dir=data_dir,
    )
