"""Copies of a submission's ordinary files: no link is followed, not even one swapped in meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath

from lab.base.source import MAX_MODULE_BYTES
from lab.base.words import printable
from lab.course.sent.contents import MAX_DEPTH, MAX_NAMES, MEASURED, may_hide, no_ordinary_file, passed_over

COPIED = 1 << 20  # bytes at a time


def copy_ordinary(
    source: Path,
    target: Path,
    *,
    ignored: Callable[[str, list[str]], Collection[str]] = lambda folder, names: (),
    largest: int,
    limit: int,
    shared: bool = False,
) -> list[str]:
    """Copy the folders and ordinary files below `source`; no link is followed, not even one swapped in meanwhile.

    Args:
        target: a folder that is not there yet; only its owner can read it, or the group too where it is `shared`.
        ignored: of what is in a folder. Of ignored folders what is called like work is copied alone.
        largest: bytes of one file, others are left out.
        limit: bytes of all files.

    Returns:
        What was left out, by name and with the reason.

    Raises:
        OSError: something cannot be read or written.
        ValueError: it is larger than `limit`.
    """
    left_out: list[str] = []
    owner = os.lstat(source).st_uid
    total = count = 0
    passed: set[PurePosixPath] = set()

    def unreadable(error: OSError) -> None:
        raise error

    for folder, folders, files, at in os.fwalk(source, onerror=unreadable, follow_symlinks=False):
        below = PurePosixPath(os.path.relpath(folder, source))
        place = target / below
        if passed & {below, *below.parents}:
            for name in filter(lambda name: passed_over(below / name), files):
                info = os.stat(name, dir_fd=at, follow_symlinks=False)
                room = info.st_size <= min(largest, limit - total) and count < MAX_NAMES
                if stat.S_ISREG(info.st_mode) and not no_ordinary_file(info, owner) and room:
                    count, total = count + 1, total + info.st_size
                    _make(place, target, shared)
                    _copy_file(name, at, place / name, info, mode_of(shared))
            folders[:] = [name for name in folders if may_hide(below / name)]
            continue
        place.mkdir(parents=True)
        place.chmod(0o2770 if shared else 0o700)
        skip = set(ignored(folder, [*folders, *files]))
        if len(below.parts) > MAX_DEPTH:
            left_out.append(f"{printable(str(below))} is too deep, and what is in it was left out")
            folders.clear()
            continue
        kept = []
        for name in [*folders, *files]:
            if name in skip:
                if name == MEASURED.parent.name:
                    _copy_measured(at, place, owner, mode_of(shared))
                if name in folders and may_hide(below / name):
                    passed.add(below / name)
                    kept.append(name)
                continue
            info = os.stat(name, dir_fd=at, follow_symlinks=False)
            if what := no_ordinary_file(info, owner):
                left_out.append(f"{printable(str(below / name))} is {what}, and was left out")
            elif stat.S_ISDIR(info.st_mode):
                kept.append(name)
            elif info.st_size > largest:
                left_out.append(
                    f"{printable(str(below / name))} is larger than {largest >> 20} MB, and was left out"
                )
            else:
                count += 1
                total += info.st_size
                if total > limit or count > MAX_NAMES:
                    raise ValueError(f"it has more than {limit >> 20} MB or {MAX_NAMES} files")
                _copy_file(name, at, place / name, info, mode_of(shared))
        folders[:] = kept
    return left_out


def _make(folder: Path, top: Path, shared: bool) -> None:
    """A folder below `top`, which is there, and those between them."""
    for place in reversed([one for one in (folder, *folder.parents) if one.is_relative_to(top)]):
        if not place.exists():
            place.mkdir()
            place.chmod(0o2770 if shared else 0o700)


def _copy_measured(at: int, place: Path, owner: int, mode: int) -> None:
    """Of the folder of runs, which may have any size, only what was measured; nothing where that is not there."""
    try:
        folder = os.open(MEASURED.parent.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
    except OSError:
        return
    try:
        info = os.stat(MEASURED.name, dir_fd=folder, follow_symlinks=False)
        is_file = stat.S_ISREG(info.st_mode) and not no_ordinary_file(info, owner)
        if is_file and info.st_size <= MAX_MODULE_BYTES:
            target = place / MEASURED
            target.parent.mkdir()
            target.parent.chmod(place.stat().st_mode & 0o7777)
            _copy_file(MEASURED.name, folder, target, info, mode)
    except FileNotFoundError:
        return
    finally:
        os.close(folder)


def _copy_file(name: str, at: int, target: Path, seen: os.stat_result, mode: int) -> None:
    """Raises OSError: it is no longer the file that was `seen`, or cannot be read or written."""
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    with open(source, "rb") as file:
        if not os.path.samestat(os.fstat(source), seen):
            raise OSError(f"{name} was replaced while it was copied")
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as copy:
            os.fchmod(descriptor, mode)
            left = seen.st_size
            while left and (part := file.read(min(left, COPIED))):
                copy.write(part)
                left -= len(part)


def mode_of(shared: bool) -> int:
    """Of a file that is its owner's alone, or the group's too."""
    return 0o660 if shared else 0o600
