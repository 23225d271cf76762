"""Decoded images in one file on disk, believed only when it is whole and made from the same source.

The file is one line of JSON (format, key, number, shape, digest), then the labels as little-endian int64, then
the pixels as uint8 [N, C, H, W].
"""

import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lab.base.errors import UserError
from lab.base.files import atomic_write

FORMAT = "scaling-lab images 1"
HEADER_LIMIT = 4096  # bytes


class LabelledImages(NamedTuple):
    images: Tensor  # uint8 [N, C, H, W]
    labels: Tensor  # int64 [N]


def cached(paths: Sequence[Path], key: str, build: Callable[[], LabelledImages]) -> LabelledImages:
    """Return what `build()` returns, from the first of the files `paths` that holds it.

    Without such a file the images are built and kept in the first one that can be written. Processes that do
    this at the same moment each build and write the whole file, which is wasteful but right.

    Args:
        key: changes whenever build() would return something else.

    Raises:
        UserError: the images can be kept nowhere.
    """
    for path in paths:
        found = read(path, key)
        if found is not None:
            return found
    built = build()
    problems = []
    for path in paths:
        try:
            write(path, key, built)
        except OSError as error:
            problems.append(f"{path.parent} ({error.strerror or error})")
            continue
        if problems:
            note(f"Keeping the decoded images in {path}, since they cannot be kept in {', '.join(problems)}")
        return built
    size = built.images.numel() / 2**20
    raise UserError(
        f"The decoded images ({size:,.0f} MiB) can be kept neither in {' nor in '.join(problems)}: free some "
        "space, or choose an --output-dir that you may write to."
    )


def write(path: Path, key: str, data: LabelledImages) -> None:
    """Write the file, whole or not at all. Raises OSError when it cannot."""
    labels, pixels = data.labels.numpy().astype("<i8"), data.images.contiguous().numpy()
    head = {"format": FORMAT, "key": key, "shape": list(pixels.shape)}
    line = json.dumps({**head, "sha256": _digest(head, labels, pixels)}).encode() + b"\n"
    with atomic_write(path) as file:
        file.write(line)
        file.write(labels.data)
        file.write(pixels.data)


def read(path: Path, key: str) -> LabelledImages | None:
    """The images in the file; None when there is no such file, or it is damaged or was written for another key.

    The last two are said on stderr.
    """
    try:
        return _read(path, key)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, _Unusable) as error:
        note(f"Not using {path}: {error}; decoding again")
        return None


class _Unusable(Exception):
    """Why a file cannot be used."""


def _read(path: Path, key: str) -> LabelledImages:
    with open(path, "rb") as file:
        line = file.readline(HEADER_LIMIT)
        head = _parse(line)
        if head["key"] != key:
            raise _Unusable("the images have changed since")
        digest, shape = head.pop("sha256"), head["shape"]
        if os.fstat(file.fileno()).st_size != len(line) + 8 * shape[0] + math.prod(shape):
            raise _Unusable("it is damaged (its length is wrong)")
        labels, pixels = np.empty(shape[0], "<i8"), np.empty(shape, np.uint8)
        file.readinto(labels.data)
        file.readinto(pixels.data)
    if _digest(head, labels, pixels) != digest:
        raise _Unusable("it is damaged (its checksum is wrong)")
    return LabelledImages(torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64, copy=False)))


def _parse(line: bytes) -> dict[str, Any]:
    """The first line's fields, with the types that write() gives them."""
    try:
        head = json.loads(line)
        shape = head["shape"]
        right = head["format"] == FORMAT and {type(head["key"]), type(head["sha256"])} == {str}
        if right and len(shape) == 4 and all(type(length) is int and length >= 0 for length in shape):
            return head
    except (ValueError, KeyError, TypeError) as error:
        raise _Unusable("it is damaged (its first line is not one of ours)") from error
    raise _Unusable("it is damaged (its first line is not one of ours)")


def _digest(head: dict[str, Any], labels: np.ndarray, pixels: np.ndarray) -> str:
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    digest.update(labels.data)
    digest.update(pixels.data)
    return digest.hexdigest()


def note(text: str) -> None:
    """Tell the user something on stderr, in one line."""
    print(text, file=sys.stderr, flush=True)
