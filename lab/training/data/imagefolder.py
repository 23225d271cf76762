"""Image folders in torchvision's ImageFolder layout, decoded once into uint8 tensors.

The decoded images are kept in DIR/.decoded, one file a split, or in the cache folder where DIR is read-only.
"""

import hashlib
import os
import time
from collections import Counter
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

import numpy as np
import torch

from lab.base.machine import usable_cores
from lab.training.data.decoding import open_image
from lab.training.data.image_cache import LabelledImages, cached, note
from lab.training.data.layout import DECODED, REPORT_EVERY, ImageFile, Layout, find_imagefolder

SIZE = 32  # pixels, height and width
DECODING = 2  # counts on whenever the same file gives other pixels
CHUNK = 128  # images a thread decodes before it asks for more


def load_imagefolder(
    data_dir: Path, cache_dir: Path, layout: Layout | None = None
) -> tuple[tuple[str, ...], dict[str, LabelledImages]]:
    """Read the splits that are there, "train" and maybe "val" and "test"; return the classes and the splits.

    Args:
        layout: of data_dir, where it is known already.

    Raises UserError when the layout is wrong, the splits' classes differ or a file cannot be read or decoded.
    """
    layout = layout or find_imagefolder(data_dir)
    caches = [data_dir / DECODED, cache_dir / f"decoded-{_short_digest(str(data_dir.resolve()))}"]
    splits = {}
    for split, found in layout.files.items():
        paths = [folder / f"{split}-{SIZE}.images" for folder in caches]
        key = _fingerprint(layout.folders[split], layout.classes, found)
        splits[split] = cached(paths, key, partial(decode, found, split))
    return layout.classes, splits


def _fingerprint(folder: Path, classes: tuple[str, ...], images: list[ImageFile]) -> str:
    """Changes whenever a file is added, removed, renamed or written, or the decoding itself changes."""
    digest = hashlib.sha256(repr((DECODING, SIZE, classes)).encode())
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
    changes: list[str] = []  # of the images that were no 8-bit colours or greys
    labels = torch.tensor([file.label for file in files], dtype=torch.int64)

    def decode_chunk(start: int) -> int:
        chunk = files[start : start + CHUNK]
        for i, file in enumerate(chunk, start):
            pixels[i], changed = _decode_one(file.path)
            changes.extend(changed)
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
    for change, count in sorted(Counter(changes).items()):
        note(f"{split}: {count:,} image{'s' * (count > 1)} {change}")
    return LabelledImages(torch.from_numpy(pixels), labels)


def _decode_one(path: str) -> tuple[np.ndarray, list[str]]:
    """uint8 [3, SIZE, SIZE]: the shorter side resized, the middle cut out; and what open_image() changed."""
    from PIL import Image

    image, changed = open_image(path)
    if image.size != (SIZE, SIZE):
        # As torchvision's Resize and CenterCrop do it; Pillow's bilinear filter widens with the reduction, so it
        # does not alias.
        width, height = (int(SIZE * side / min(image.size)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = round((width - SIZE) / 2), round((height - SIZE) / 2)
        image = image.crop((left, top, left + SIZE, top + SIZE))
    return np.asarray(image).transpose(2, 0, 1), changed


def decode_full(path: str) -> np.ndarray:
    """uint8 [3, H, W] of one image as large as it is. Raises UserError when it cannot be read or decoded."""
    return np.array(open_image(path)[0]).transpose(2, 0, 1)
