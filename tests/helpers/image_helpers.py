"""Small image folders, a small CIFAR-10 and folders that the process may not write to."""

import contextlib
import gzip
import hashlib
import io
import os
import pickle
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

NOBODY = 65534


def picture(seed: int, size: tuple[int, int] = (32, 32)) -> Image.Image:
    """A smooth random picture, so that JPEG keeps it recognisable."""
    coarse = np.random.RandomState(seed).randint(0, 256, (4, 4, 3), np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BILINEAR)


def make_image_folder(root: Path, **splits: dict[str, int]) -> Path:
    """make_image_folder(root, train={"cat": 3, "dog": 2}) writes root/train/cat/0.png and so on."""
    seed = 0
    for split, classes in splits.items():
        for name, count in classes.items():
            folder = root / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                seed += 1
                picture(seed).save(folder / f"{i}.png")
    return root


def make_cifar10_archive(per_batch: int = 20) -> tuple[bytes, dict[str, Any]]:
    """An archive in CIFAR-10's format with 5 + 1 batches, and the attributes of torchvision's class to match."""
    random = np.random.RandomState(0)
    files: dict[str, bytes] = {}
    for i, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        labels = [(i + j) % 10 for j in range(per_batch)]
        pixels = random.randint(0, 256, (per_batch, 3072), np.uint8)
        files[name] = pickle.dumps({"data": pixels, "labels": labels, "batch_label": name})
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    files["batches.meta"] = pickle.dumps({"label_names": names, "num_vis": 3072})

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    content = gzip.compress(buffer.getvalue(), mtime=0)  # the same bytes at every call
    md5 = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    return content, {
        "tgz_md5": hashlib.md5(content).hexdigest(),
        "train_list": [[f"data_batch_{n}", md5[f"data_batch_{n}"]] for n in range(1, 6)],
        "test_list": [["test_batch", md5["test_batch"]]],
        "meta": {"filename": "batches.meta", "key": "label_names", "md5": md5["batches.meta"]},
    }


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that every user can reach; pytest's own cannot be."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """As a user whom file permissions bind, which they do not root. Import before what the block needs."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)
