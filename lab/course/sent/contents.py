"""What is in a submission, read without trusting it: here a folder, in archives.py what was packed.

Nothing is followed that leads out of the submission, nothing is read beyond a limit, and only what grading needs
is read at all: names first, then the modules, the notebooks and the measurements. Of any size, it costs no more.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from lab.base.source import MAX_MODULE_BYTES
from lab.base.words import encodable
from lab.syllabus.paid import PAID

MAX_NAMES = 20_000  # students hand in their results/ too
MAX_DEPTH = 12
MAX_NOTEBOOK_BYTES = 50 << 20  # mostly pictures that its cells have put out, which do not count
PIECE = 1 << 20  # bytes
MAX_REMARKS, LONGEST_REMARK = 30, 1000
SHOWN, LONGEST_SHOWN = 5, 150  # names in a remark, and characters of each
# Folders with nothing of the student's answers in them. Those whose name begins with a dot are left out as well:
# .lab holds backups of the modules, .ipynb_checkpoints old notebooks.
NO_WORK = {"__pycache__", "__MACOSX", "node_modules", "site-packages", "venv", "results"}
# They may be where somebody's work lies all the same, but for those that programs fill.
PROGRAMS = {"__pycache__", "__MACOSX", "node_modules", "site-packages", ".git"}
ENVIRONMENT = ("pyvenv.cfg", "conda-meta")  # in folders with Python itself
HIDDEN = (".py", ".ipynb", ".docx", ".doc", ".odt", ".zip")  # what is looked for there, by its name alone
MEASURED = PurePosixPath("results", "results.csv")  # of all that runs leave in that folder, what is read
FORK = "._"  # how macOS calls what it stores beside a file, in archives for others


class Unusable(Exception):
    """A submission nothing can be read from; says why."""


class Contents(Protocol):
    """Names and bytes of the regular files of a submission.

    look    what was left out that may be work, and why: an instructor looks whether the marks are right without it
    passed  files called like work in folders that are passed over: open() has them, names() does not
    """

    remarks: list[str]
    look: list[str]
    passed: list[PurePosixPath]

    def names(self) -> list[PurePosixPath]:
        """All files that may be read, sorted."""

    def open(self, name: PurePosixPath) -> AbstractContextManager[tuple[IO[bytes], int]]:
        """A file and its size, to be read piece by piece. Raises Unusable, in the block too."""

    def time(self, name: PurePosixPath) -> float:
        """When a file was last changed, in seconds, as far as anybody says."""


def read(contents: Contents, name: PurePosixPath, limit: int) -> bytes | int:
    """The bytes of a file; its size where that is over the limit. Raises Unusable."""
    with contents.open(name) as (file, size):
        content = file.read(limit + 1)
    return max(size, len(content)) if len(content) > limit else content


def pieces(contents: Contents, name: PurePosixPath, limit: int) -> Iterator[bytes]:
    """The bytes of a file up to the limit and one more, not all at once. Raises Unusable."""
    left = limit + 1
    with contents.open(name) as (file, _):
        while left and (piece := file.read(min(left, PIECE))):
            yield piece
            left -= len(piece)


def digest_of(contents: Contents, name: PurePosixPath, limit: int) -> tuple[bytes | int, int]:
    """Of a file's bytes, and how many these are: those over the limit are not looked at."""
    digest = hashlib.sha256()
    size = 0
    for piece in pieces(contents, name, limit):
        digest.update(piece)
        size += len(piece)
    return digest.digest(), size


class FolderContents:
    """A folder. Links, pipes and devices in it do not count, wherever they lead."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owner = os.stat(folder).st_uid
        self.remarks: list[str] = []
        self.look: list[str] = []
        self.passed: list[PurePosixPath] = []

    def names(self) -> list[PurePosixPath]:
        found: list[PurePosixPath] = []
        room = MAX_NAMES  # entries of folders that are passed over
        left_out: list[tuple[PurePosixPath, str]] = []
        waiting = [PurePosixPath()]
        while waiting:
            parent = waiting.pop()
            try:
                entries = sorted(os.scandir(self.folder / parent), key=lambda entry: entry.name)
            except OSError:
                self.remarks.append(f"the folder {encodable(parent)} cannot be read")
                continue
            if not (reads := worth_reading(parent)):
                room -= len(entries)
                if room < 0 or any(entry.name in ENVIRONMENT for entry in entries):
                    continue
            for entry in entries:
                name = parent / entry.name
                try:
                    info = entry.stat(follow_symlinks=False)
                except OSError as error:
                    left_out.append((name, f"unreadable: {error.strerror}"))
                    continue
                if what := no_ordinary_file(info, self.owner):
                    left_out += [(name, what)] if reads else []
                elif not stat.S_ISDIR(info.st_mode):
                    if wanted(name):
                        found.append(name)
                    elif passed_over(name):
                        self.passed.append(name)
                elif may_hide(name):
                    waiting.append(name)
            if len(found) > MAX_NAMES:
                self.remarks.append(f"more than {MAX_NAMES} files: the rest was not looked at")
                break
        if left_out:
            self.remarks.append(f"left out: {few(f'{name} ({what})' for name, what in sorted(left_out))}")
        self.look += [
            f"{encodable(name)} is {what}, and was left out"
            for name, what in sorted(left_out)
            if may_be_work(name)
        ]
        if room < 0:
            self.remarks.append(
                f"more than {MAX_NAMES} files in folders that are passed over: not all were looked at"
            )
        return sorted(found[:MAX_NAMES])

    def time(self, name: PurePosixPath) -> float:
        try:
            return os.lstat(self.folder / name).st_mtime
        except OSError:  # reading it will say why
            return 0.0

    @contextmanager
    def open(self, name: PurePosixPath) -> Iterator[tuple[IO[bytes], int]]:
        """Open every folder on the way by itself, so that none can be swapped for a link meanwhile."""
        folder = None
        try:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            for part in name.parts[:-1]:
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = inner
            fd = os.open(name.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            with open(fd, "rb") as file:
                info = os.fstat(fd)
                if not stat.S_ISREG(info.st_mode) or no_ordinary_file(info, self.owner):
                    raise Unusable(f"{encodable(name)} is no ordinary file")
                yield file, info.st_size
        except OSError as error:
            raise Unusable(f"{encodable(name)} cannot be read: {error.strerror}") from error
        finally:
            if folder is not None:
                os.close(folder)


def no_ordinary_file(info: os.stat_result, owner: int) -> str:
    """What is neither a folder nor a file of its own, in words; "" for those.

    Args:
        info: of what lies there itself, not of what it leads to.
        owner: the user whose submission it is: another's file is there by a hard link.
    """
    if stat.S_ISREG(info.st_mode):
        return "a hard link to another user's file" if info.st_nlink > 1 and info.st_uid != owner else ""
    kinds = {
        stat.S_IFDIR: "",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(info.st_mode), "a device")


def may_be_work(name: PurePosixPath) -> bool:
    """Whether it is called like a module, a notebook or their folder, or like what lies beside the modules."""
    return name.suffix in (".py", ".ipynb") or name.name in ("exercises", "notebooks", PAID)


def few(names: Iterable[str]) -> str:
    """No more than some of them: a student can make any number, as long as file systems allow."""
    shown = [encodable(name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}...") for name in names]
    return ", ".join(shown[:SHOWN]) + f" and {len(shown) - SHOWN} more" * (len(shown) > SHOWN)


def as_few(sentences: list[str]) -> tuple[str, ...]:
    """No more than a person reads: a student can cause any number."""
    shown = [one if len(one) <= LONGEST_REMARK else f"{one[:LONGEST_REMARK]}..." for one in sentences]
    more = [f"and {len(shown) - MAX_REMARKS} more remarks of this kind"] if len(shown) > MAX_REMARKS else []
    return (*shown[:MAX_REMARKS], *more)


def common_folder(names: list[PurePosixPath]) -> PurePosixPath:
    """The folder that all of it is in: whether it was handed in too makes no difference."""
    parts = [name.parent.parts for name in names] or [()]
    common = zip(*parts, strict=False)
    return PurePosixPath(*[level[0] for level in itertools.takewhile(lambda level: len(set(level)) == 1, common)])


def worth_reading(folder: PurePosixPath) -> bool:
    """Whether a folder can hold work of a student's."""
    parts = folder.parts
    return len(parts) <= MAX_DEPTH and not any(part in NO_WORK or part.startswith(".") for part in parts)


def wanted(name: PurePosixPath) -> bool:
    """Whether a file can be work of a student's, or what was measured with it."""
    if name.name.startswith(FORK):
        return False
    measured = name.parts[-2:] == MEASURED.parts and worth_reading(name.parent.parent)
    return measured or worth_reading(name.parent)


def may_hide(folder: PurePosixPath) -> bool:
    """Whether a student's work may lie in a folder, passed over or not."""
    return len(folder.parts) <= 2 * MAX_DEPTH and not any(part in PROGRAMS for part in folder.parts)


def passed_over(name: PurePosixPath) -> bool:
    """Whether a file is called like work, in a folder that is passed over."""
    if name.name.startswith(FORK) or worth_reading(name.parent):
        return False
    return name.suffix.lower() in HIDDEN and may_hide(name.parent)


def limit_of(name: PurePosixPath) -> int:
    """How many bytes of a file are read."""
    return MAX_NOTEBOOK_BYTES if name.suffix == ".ipynb" else MAX_MODULE_BYTES
