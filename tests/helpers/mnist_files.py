"""MNIST's four files with a few made-up images, as its servers and torchvision's folder have them."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np

COUNTS = {"train": 40, "t10k": 10}


def idx(array: np.ndarray) -> bytes:
    return (
        struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    )


def tiny_mnist() -> dict[str, bytes]:
    """The four files, with few images."""
    random = np.random.RandomState(0)
    files = {}
    for prefix, count in COUNTS.items():
        files[f"{prefix}-images-idx3-ubyte"] = idx(random.randint(0, 256, (count, 28, 28)).astype(np.uint8))
        files[f"{prefix}-labels-idx1-ubyte"] = idx((np.arange(count) % 10).astype(np.uint8))
    return files


def zipped(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(content) for name, content in files.items()}


def write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def checksums(files: dict[str, bytes]) -> list[list[str]]:
    """As MNIST.resources has them."""
    return [[name, hashlib.md5(content).hexdigest()] for name, content in files.items()]
