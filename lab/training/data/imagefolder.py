"""Image folders in torchvision's ImageFolder layout, decoded once into uint8 tensors.

    DIR/train/<class>/*.jpg    and, where there are any, DIR/val/<class>/..., DIR/test/<class>/...

Classes are the sorted folder names and images are in the sorted order of their paths, as in torchvision. The
decoded images are kept in DIR/.decoded, one file a split, or in the cache folder where DIR is read-only.
"""

import hashlib
import os
import struct
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lab.base.errors import UserError
from lab.base.machine import usable_cores
from lab.training.data.image_cache import LabelledImages, cached, note

SIZE = 32  # pixels, height and width
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's
LAYOUT = "expected DIR/train/<class>/<image> and, if you have them, DIR/val/ and DIR/test/ alike"
REPORT_EVERY = 5.0  # seconds between two lines of progress
CHUNK = 128  # images a thread decodes before it asks for more


@dataclass(frozen=True)
class ImageFile:
    """One image of a split: its path, the index of its class, and what tells that it has changed."""

    path: str
    label: int
    size: int  # bytes
    modified: int  # ns


def find_imagefolder(data_dir: Path) -> tuple[tuple[str, ...], dict[str, list[ImageFile]]]:
    """The classes, and the images of the splits that are there: "train" and maybe "val" and "test".

    Raises UserError when the layout is wrong, the splits' classes differ or a folder cannot be read.
    """
    folders = _find_splits(data_dir)
    classes = {split: _find_classes(folder) for split, folder in folders.items()}
    for split, names in classes.items():
        _check_same_classes(data_dir, classes["train"], split, names)
    files = {split: _find_images(folder, classes[split]) for split, folder in folders.items()}
    return tuple(classes["train"]), files


def load_imagefolder(data_dir: Path, cache_dir: Path) -> tuple[tuple[str, ...], dict[str, LabelledImages]]:
    """Read the splits that are there, "train" and maybe "val" and "test"; return the classes and the splits.

    Raises UserError when the layout is wrong, the splits' classes differ or a file cannot be read or decoded.
    """
    classes, files = find_imagefolder(data_dir)
    caches = [data_dir / ".decoded", cache_dir / f"decoded-{_short_digest(str(data_dir.resolve()))}"]
    splits = {}
    for split, found in files.items():
        paths = [folder / f"{split}-{SIZE}.images" for folder in caches]
        key = _fingerprint(data_dir / split, classes, found)
        splits[split] = cached(paths, key, partial(decode, found, split))
    return classes, splits


# ---- finding the images


def _find_splits(data_dir: Path) -> dict[str, Path]:
    entries = {entry.name for entry in _list(data_dir) if _is_folder(entry)}
    if "train" not in entries:
        found = ", ".join(sorted(entries)[:5]) or "no folders"
        raise UserError(f"{data_dir} has no folder train/ (it holds {found}): {LAYOUT}.")
    return {split: data_dir / split for split in ("train", "val", "test") if split in entries}


def _find_classes(folder: Path) -> list[str]:
    # Hidden folders are no classes: Jupyter leaves its .ipynb_checkpoints wherever it has been.
    names = sorted(entry.name for entry in _list(folder) if _is_folder(entry) and not entry.name.startswith("."))
    if not names:
        raise UserError(f"{folder} has no class folders: {LAYOUT}.")
    return names


def _check_same_classes(data_dir: Path, expected: list[str], split: str, names: list[str]) -> None:
    if names == expected:
        return
    differences = [
        f"only {where} has {', '.join(only[:5])}{', ...' if len(only) > 5 else ''}"
        for where, only in (
            ("train", sorted(set(expected) - set(names))),
            (split, sorted(set(names) - set(expected))),
        )
        if only
    ]
    raise UserError(
        f"The class folders of {data_dir / 'train'} and {data_dir / split} differ "
        f"({'; '.join(differences)}): give every split the same classes."
    )


def _find_images(folder: Path, classes: list[str]) -> list[ImageFile]:
    images: list[ImageFile] = []
    reported = time.monotonic()
    for label, name in enumerate(classes):
        if time.monotonic() - reported > REPORT_EVERY:
            note(f"Looking through {folder}: {len(images):,} images so far")
            reported = time.monotonic()
        found = [_image_file(entry, label) for entry in _walk(folder / name) if _is_image(entry.name)]
        if not found:
            raise UserError(
                f"The class folder {folder / name} holds no images: fill it, or remove it from every split "
                f"(images end in {', '.join(EXTENSIONS)})."
            )
        images += found
    return images


def _is_image(name: str) -> bool:
    # Hidden files are none: macOS leaves a "._cat.jpg" beside a copied "cat.jpg".
    return name.lower().endswith(EXTENSIONS) and not name.startswith(".")


def _image_file(entry: os.DirEntry[str], label: int) -> ImageFile:
    try:
        status = entry.stat()
    except OSError as error:  # a link to nowhere
        raise UserError(f"Cannot read the image {entry.path}: {error.strerror}.") from error
    return ImageFile(entry.path, label, status.st_size, status.st_mtime_ns)


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """The files below a folder; the files of each folder come before its subfolders, both sorted by name."""
    entries = _list(folder)
    yield from (entry for entry in entries if not _is_folder(entry))
    for entry in entries:
        if _is_folder(entry):
            yield from _walk(Path(entry.path))


def _list(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError as error:
        raise UserError(f"The folder {folder} does not exist: {LAYOUT}.") from error
    except OSError as error:
        raise UserError(f"Cannot read the folder {folder}: {error.strerror}.") from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:  # a link below a folder that one may not enter
        raise UserError(f"Cannot read {entry.path}: {error.strerror}.") from error


def _fingerprint(folder: Path, classes: tuple[str, ...], images: list[ImageFile]) -> str:
    """Changes whenever a file is added, removed, renamed or written, or the decoding itself changes."""
    digest = hashlib.sha256(repr((SIZE, classes)).encode())
    for image in images:
        name = image.path.removeprefix(str(folder))
        digest.update(os.fsencode(f"{name}\0{image.size}\0{image.modified}\n"))
    return digest.hexdigest()


def _short_digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


# ---- decoding


def decode(files: list[ImageFile], split: str) -> LabelledImages:
    """Decode the files, in a few threads: Pillow releases the interpreter's lock while it decodes.

    Says on stderr how far it is, every few seconds. Raises UserError naming a file that cannot be decoded.
    """
    pixels = np.empty((len(files), 3, SIZE, SIZE), np.uint8)
    labels = torch.tensor([file.label for file in files], dtype=torch.int64)

    def decode_chunk(start: int) -> int:
        chunk = files[start : start + CHUNK]
        for i, file in enumerate(chunk, start):
            pixels[i] = _decode_one(file.path)
        return len(chunk)

    begin = time.monotonic()
    with ThreadPoolExecutor(max_workers=min(8, usable_cores())) as threads:
        waiting = {threads.submit(decode_chunk, start) for start in range(0, len(files), CHUNK)}
        done = 0
        try:
            while waiting:
                finished, waiting = wait(waiting, timeout=REPORT_EVERY, return_when=FIRST_EXCEPTION)
                done += sum(chunk.result() for chunk in finished)
                seconds = time.monotonic() - begin
                if waiting or seconds > REPORT_EVERY:
                    note(f"Decoding {split}: {done:,} of {len(files):,} images, {seconds:.0f} s")
        finally:
            threads.shutdown(cancel_futures=True)
    return LabelledImages(torch.from_numpy(pixels), labels)


def _decode_one(path: str) -> np.ndarray:
    """uint8 [3, SIZE, SIZE]: the shorter side resized to SIZE, the middle cut out."""
    from PIL import Image

    image = _open(path)
    if image.size != (SIZE, SIZE):
        # As torchvision's Resize and CenterCrop do it; Pillow's bilinear filter widens with the reduction, so it
        # does not alias.
        width, height = (int(SIZE * side / min(image.size)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = round((width - SIZE) / 2), round((height - SIZE) / 2)
        image = image.crop((left, top, left + SIZE, top + SIZE))
    return np.asarray(image).transpose(2, 0, 1)


def decode_full(path: str) -> np.ndarray:
    """uint8 [3, H, W] of one image as large as it is. Raises UserError when it cannot be read or decoded."""
    return np.array(_open(path)).transpose(2, 0, 1)


def _open(path: str) -> Any:
    """A Pillow image in RGB."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as opened:
            return opened.convert("RGB")
    except PermissionError as error:
        raise UserError(f"Cannot read the image {path}: no permission.") from error
    except UnidentifiedImageError as error:
        raise UserError(f"{path} is not an image: replace it or delete it.") from error
    except (OSError, ValueError, SyntaxError, struct.error, zlib.error, Image.DecompressionBombError) as error:
        raise UserError(f"The image {path} is damaged ({error}): replace it or delete it.") from error
