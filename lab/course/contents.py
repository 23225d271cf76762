"""What is in a submission, read without trusting it: a folder, or a zip file that is never unpacked to disk.

Nothing is followed that leads out of the submission, nothing is read beyond a limit, and only what grading needs
is read at all: names first, then the modules and the notebooks. A zip of any size costs no more than that.
"""

from __future__ import annotations

import io
import lzma
import os
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from lab.base.source import MAX_MODULE_BYTES
from lab.base.words import encodable

MAX_NAMES = 20_000  # students hand in their results/ too
MAX_DEPTH = 12
MAX_ZIP_BYTES = 1 << 30
MAX_DIRECTORY_BYTES = 16 << 20  # of a zip's table of contents, which is read as a whole
MAX_PART_BYTES = 200  # of a folder's or file's name in a zip: file systems take 255, and we prefix some
MAX_NOTEBOOK_BYTES = 50 << 20  # mostly pictures that its cells have put out, which do not count
PIECE = 1 << 20  # bytes
SHOWN, LONGEST_SHOWN = 5, 150  # names in a remark, and characters of each
# Folders with nothing of the student's answers in them. Those whose name begins with a dot are left out as well:
# .lab holds backups of the modules, .ipynb_checkpoints old notebooks.
NO_WORK = {"__pycache__", "__MACOSX", "node_modules", "site-packages", "venv", "results"}


class Unusable(Exception):
    """A submission nothing can be read from; says why."""


class Contents(Protocol):
    """Names and bytes of the regular files of a submission.

    look  what was left out that may be work, and why: an instructor looks whether the marks are right without it
    """

    remarks: list[str]
    look: list[str]

    def names(self) -> list[PurePosixPath]:
        """All files that may be read, sorted."""

    def open(self, name: PurePosixPath) -> AbstractContextManager[tuple[IO[bytes], int]]:
        """A file and its size, to be read piece by piece. Raises Unusable, in the block too."""


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


@contextmanager
def opened(path: Path) -> Iterator[Contents]:
    """Read a submission: a folder, or a zip. Raises Unusable."""
    if path.is_dir():
        yield FolderContents(path)
        return
    if not path.is_file() or path.stat().st_size > MAX_ZIP_BYTES:
        raise Unusable(f"{encodable(path.name)} is no zip file of less than {MAX_ZIP_BYTES >> 30} GB")
    try:
        # A copy that is swapped or grows meanwhile harms nothing: each read is bounded by itself.
        with _ZipReader(io.FileIO(path)) as file, zipfile.ZipFile(file) as archive:
            file.limit = None
            yield ZipContents(archive)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
        raise Unusable(f"{encodable(path.name)} is no zip file that can be read: {error}") from error


class _ZipReader(io.BufferedReader):
    """Refuses reads over `limit`: ZipFile reads all of a table of contents, of which a zip may have any amount."""

    limit: int | None = MAX_DIRECTORY_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        if self.limit is not None and size is not None and size > self.limit:
            raise zipfile.BadZipFile(f"its table of contents has more than {self.limit >> 20} MB")
        return super().read(size)


class FolderContents:
    """A folder. Links, pipes and devices in it do not count, wherever they lead."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owner = os.stat(folder).st_uid
        self.remarks: list[str] = []
        self.look: list[str] = []

    def names(self) -> list[PurePosixPath]:
        found: list[PurePosixPath] = []
        left_out: list[tuple[PurePosixPath, str]] = []
        waiting = [PurePosixPath()]
        while waiting:
            parent = waiting.pop()
            try:
                entries = sorted(os.scandir(self.folder / parent), key=lambda entry: entry.name)
            except OSError:
                self.remarks.append(f"the folder {encodable(parent)} cannot be read")
                continue
            for entry in entries:
                name = parent / entry.name
                try:
                    info = entry.stat(follow_symlinks=False)
                except OSError as error:
                    left_out.append((name, f"unreadable: {error.strerror}"))
                    continue
                if what := no_ordinary_file(info, self.owner):
                    left_out.append((name, what))
                elif not stat.S_ISDIR(info.st_mode):
                    found.append(name)
                elif worth_reading(name):
                    waiting.append(name)
            if len(found) > MAX_NAMES:
                self.remarks.append(f"more than {MAX_NAMES} files: the rest was not looked at")
                break
        if left_out:
            self.remarks.append(f"left out: {_list(f'{name} ({what})' for name, what in sorted(left_out))}")
        self.look += [
            f"{encodable(name)} is {what}, and was left out"
            for name, what in sorted(left_out)
            if may_be_work(name)
        ]
        return sorted(found[:MAX_NAMES])

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


class ZipContents:
    """A zip file, read in memory, one member at a time."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.remarks: list[str] = []
        self.look: list[str] = []
        self._members: dict[PurePosixPath, zipfile.ZipInfo] = {}

    def names(self) -> list[PurePosixPath]:
        odd = 0
        left_out: list[PurePosixPath] = []
        for member in self.archive.infolist()[:MAX_NAMES]:
            name = PurePosixPath(member.filename.replace("\\", "/"))
            if member.is_dir():
                continue
            kind = stat.S_IFMT(member.external_attr >> 16)
            outside = name.is_absolute() or ".." in name.parts or ":" in str(name) or "\0" in member.filename
            if outside or kind not in (0, stat.S_IFREG) or member.flag_bits & 1:
                left_out.append(name)
            elif any(len(os.fsencode(part)) > MAX_PART_BYTES for part in name.parts):
                odd += 1
            elif worth_reading(name.parent):
                self._members[name] = member  # of two with one name the last, as unzip has it
        for folder in {parent for name in self._members for parent in name.parents} & self._members.keys():
            del self._members[folder]  # on a disk it could not be both, a file and a folder
            odd += 1
        if len(self.archive.infolist()) > MAX_NAMES:
            self.remarks.append(f"more than {MAX_NAMES} files: the rest was not looked at")
        if left_out:
            self.remarks.append(
                f"{len(left_out)} file{'s' * (len(left_out) > 1)} of the zip left out: "
                f"a link, encrypted, or with a name that leads out of it ({_list(map(str, left_out))})"
            )
            if any(map(may_be_work, left_out)):
                self.look.append(self.remarks[-1])
        if odd:
            self.remarks.append(
                f"{odd} file{'s' * (odd > 1)} of the zip left out: with a name of over {MAX_PART_BYTES} bytes, "
                "or a folder's name"
            )
        return sorted(self._members)

    @contextmanager
    def open(self, name: PurePosixPath) -> Iterator[tuple[IO[bytes], int]]:
        member = self._members[name]
        try:
            with self.archive.open(member) as file:
                yield file, member.file_size
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
            raise Unusable(f"{encodable(name)} cannot be read from the zip: {error}") from error
        except (zlib.error, lzma.LZMAError, MemoryError) as error:  # a zip says how much memory it needs
            raise Unusable(f"{encodable(name)} is damaged in the zip: {error}") from error


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
    """Whether it is called like a module, a notebook or their folder."""
    return name.suffix in (".py", ".ipynb") or name.name in ("exercises", "notebooks")


def _list(names: Iterable[str]) -> str:
    """No more than some of them: a student can make any number, as long as file systems allow."""
    shown = [encodable(name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}...") for name in names]
    return ", ".join(shown[:SHOWN]) + f" and {len(shown) - SHOWN} more" * (len(shown) > SHOWN)


def worth_reading(folder: PurePosixPath) -> bool:
    """Whether a folder can hold work of a student's."""
    parts = folder.parts
    return len(parts) <= MAX_DEPTH and not any(part in NO_WORK or part.startswith(".") for part in parts)


def limit_of(name: PurePosixPath) -> int:
    """How many bytes of a file are read."""
    return MAX_NOTEBOOK_BYTES if name.suffix == ".ipynb" else MAX_MODULE_BYTES
