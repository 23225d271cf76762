"""What an image folder holds: its splits, its classes, their images, and what is left out.

    DIR/train/<class>/*.jpg    and, where there are any, DIR/val/<class>/..., DIR/test/<class>/...

Classes are the sorted folder names and images are in the sorted order of their paths, as in torchvision.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lab.base.errors import UserError
from lab.training.data.image_cache import note

# torchvision's, and what else Pillow always reads.
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".jfif", ".jpe", ".gif")
SPLITS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
LAYOUT = "expected DIR/train/<class>/<image> and, if you have them, DIR/val/ and DIR/test/ alike"
# What file managers and archives leave, copies of images among it; besides all names that begin with a dot.
LEFTOVERS = {
    "@eaDir",
    "#recycle",
    "#snapshot",
    "__MACOSX",
    "$RECYCLE.BIN",
    "System Volume Information",
    "lost+found",
}
DECODED = ".decoded"  # the lab's own, in DIR
NAMED = 5  # names that a message lists
REPORT_EVERY = 5.0  # seconds between two lines of progress


@dataclass(frozen=True)
class ImageFile:
    """One image of a split: its path, the index of its class, and what tells that it has changed."""

    path: str
    label: int
    size: int  # bytes
    modified: int  # ns


@dataclass
class Skipped:
    """What was seen and left out."""

    suffixes: Counter[str] = field(default_factory=Counter)  # of files that are no images by their names
    hidden: Counter[str] = field(default_factory=Counter)  # names of folders and files
    loose: int = 0  # images beside the class folders
    folders: list[str] = field(default_factory=list)  # beside train/, and no split

    def lines(self) -> list[str]:
        """For people, one reason a line."""
        counted = (
            ("files that are no images by their names", self.suffixes),
            ("hidden folders and files", self.hidden),
        )
        lines = [f"{sum(found.values()):,} {what} ({_most(found)})" for what, found in counted if found]
        if self.loose:
            lines.append(f"{self.loose:,} images that lie in no class folder")
        if self.folders:
            lines.append(f"folders whose names are no split's ({_some(self.folders)})")
        return lines


@dataclass(frozen=True)
class Layout:
    """What is there."""

    classes: tuple[str, ...]
    files: dict[str, list[ImageFile]]  # of "train", and maybe "val" and "test"
    folders: dict[str, Path]  # of these splits: val may be called validation
    skipped: list[str]  # for people


def find_imagefolder(data_dir: Path) -> Layout:
    """The classes, and the images of the splits that are there.

    Raises UserError when the layout is wrong, the splits' classes differ or a folder cannot be read.
    """
    skipped = Skipped()
    folders = _find_splits(data_dir, skipped)
    classes = {split: _find_classes(folder, skipped) for split, folder in folders.items()}
    for split, names in classes.items():
        _check_same_classes(folders["train"], classes["train"], folders[split], names)
    files = {split: _find_images(folder, classes[split], skipped) for split, folder in folders.items()}
    return Layout(tuple(classes["train"]), files, folders, skipped.lines())


def _find_splits(data_dir: Path, skipped: Skipped) -> dict[str, Path]:
    entries = [entry.name for entry in _visible(data_dir, skipped) if _is_folder(entry)]
    folders = {}
    for split, names in SPLITS.items():
        found = [entry for entry in entries if entry.lower() in names]
        if len(found) > 1:
            raise UserError(
                f"{data_dir} has {' and '.join(f'{name}/' for name in found)}, which mean the same: leave one."
            )
        if found:
            folders[split] = data_dir / found[0]
    if "train" not in folders:
        raise UserError(f"{data_dir} has no folder train/ (it holds {_some(entries) or 'no folders'}): {LAYOUT}.")
    skipped.folders += [entry for entry in entries if data_dir / entry not in folders.values()]
    return folders


def _find_classes(folder: Path, skipped: Skipped) -> list[str]:
    entries = list(_visible(folder, skipped))
    names = sorted(entry.name for entry in entries if _is_folder(entry))
    if not names:
        raise UserError(f"{folder} has no class folders: {LAYOUT}.")
    skipped.loose += sum(_is_image(entry.name) for entry in entries if entry.name not in names)
    return names


def _check_same_classes(train: Path, expected: list[str], other: Path, names: list[str]) -> None:
    if names == expected:
        return
    differences = [
        f"only {where} has {_some(only)}"
        for where, only in (
            (train.name, sorted(set(expected) - set(names))),
            (other.name, sorted(set(names) - set(expected))),
        )
        if only
    ]
    raise UserError(
        f"The class folders of {train} and {other} differ ({'; '.join(differences)}): give every split the same "
        "classes."
    )


def _find_images(folder: Path, classes: list[str], skipped: Skipped) -> list[ImageFile]:
    images: list[ImageFile] = []
    reported = time.monotonic()
    for label, name in enumerate(classes):
        if time.monotonic() - reported > REPORT_EVERY:
            note(f"Looking through {folder}: {len(images):,} images so far")
            reported = time.monotonic()
        found = []
        for entry in _walk(folder / name, skipped):
            if _is_image(entry.name):
                found.append(_image_file(entry, label))
            else:
                skipped.suffixes[os.path.splitext(entry.name)[1].lower() or "no suffix"] += 1
        if not found:
            raise UserError(
                f"The class folder {folder / name} holds no images: fill it, or remove it from every split "
                f"(images end in {', '.join(EXTENSIONS)})."
            )
        images += found
    return images


def _is_image(name: str) -> bool:
    return name.lower().endswith(EXTENSIONS)


def _image_file(entry: os.DirEntry[str], label: int) -> ImageFile:
    try:
        status = entry.stat()
    except OSError as error:  # a link to nowhere
        raise UserError(f"Cannot read the image {entry.path}: {error.strerror}.") from error
    return ImageFile(entry.path, label, status.st_size, status.st_mtime_ns)


def _walk(folder: Path, skipped: Skipped) -> Iterator[os.DirEntry[str]]:
    """The files below a folder; the files of each folder come before its subfolders, both sorted by name."""
    entries = list(_visible(folder, skipped))
    yield from (entry for entry in entries if not _is_folder(entry))
    for entry in entries:
        if _is_folder(entry):
            yield from _walk(Path(entry.path), skipped)


def _visible(folder: Path, skipped: Skipped) -> Iterator[os.DirEntry[str]]:
    """What is in a folder, but for what is hidden: Jupyter's .ipynb_checkpoints, macOS's "._cat.jpg", ..."""
    for entry in _list(folder):
        if entry.name.startswith(".") or entry.name in LEFTOVERS:
            if entry.name != DECODED:
                skipped.hidden[entry.name] += 1
        else:
            yield entry


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


def _some(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + ", ..." * (len(names) > NAMED)


def _most(found: Counter[str]) -> str:
    return _some([f"{name}: {count:,}" for name, count in found.most_common()])
