"""What was packed: zip and tar, never unpacked to a folder, one file at a time.

What Python cannot read, 7z and rar, is a sentence for the student's row.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import IO, Any

from lab.base.words import encodable
from lab.course.sent.contents import (
    ENVIRONMENT,
    MAX_NAMES,
    PIECE,
    Contents,
    Unusable,
    few,
    may_be_work,
    passed_over,
    wanted,
)
from lab.course.sent.cut_off import salvaged

MAX_DIRECTORY_BYTES = 16 << 20  # of a zip's table of contents, which is read as a whole
MAX_PART_BYTES = 200  # of a folder's or file's name in an archive: file systems take 255, and we prefix some
MAX_READ_BYTES = 64 << 20  # of a tar at a time: more than any file that is read
MAX_UNPACKED_BYTES = 256 << 20  # of a submission: of tars, which have no table of contents, and archives in it
CLOSED = {b"7z\xbc\xaf\x27\x1c": "7z", b"Rar!": "RAR"}  # how files of these kinds begin
COMPRESSED: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}
TAR, TAR_AT = b"ustar", 257  # what every member of a tar says, and where
DAMAGED: tuple[type[Exception], ...] = (zipfile.BadZipFile, tarfile.TarError, OSError, ValueError, EOFError)
DAMAGED += (NotImplementedError, lzma.LZMAError, zlib.error)
READING: tuple[type[Exception], ...] = (*DAMAGED, RuntimeError)


@dataclass
class Room:
    """Bytes on disk that a submission may still take."""

    left: int

    def take(self, size: int) -> None:
        """Raises ValueError where that is too much."""
        self.left -= size
        if self.left < 0:
            raise ValueError(f"unpacked it has more than {MAX_UNPACKED_BYTES >> 20} MB")


def packed(file: BoundedReader, called: str, stack: ExitStack, room: Room) -> Contents:
    """What an archive holds; open until `stack` is closed. Raises Unusable."""
    try:
        begin = file.peek(TAR_AT + len(TAR))
        for sign, kind in CLOSED.items():
            if begin.startswith(sign):
                raise Unusable(
                    f"{called} is a {kind} archive, which is not read: unpack it into a folder, or ask for a zip"
                )
        for sign, reader in COMPRESSED.items():
            if begin.startswith(sign):
                return TarContents(stack.enter_context(_untarred(_unpacked(reader(file), stack, room))))
        if begin[TAR_AT : TAR_AT + len(TAR)] == TAR:
            file.limit = MAX_READ_BYTES
            return TarContents(stack.enter_context(_untarred(file)))
        try:
            archive = stack.enter_context(zipfile.ZipFile(file))
        except zipfile.BadZipFile as error:
            return _rest_of(file, f"{_no_zip(called)}: {error}", stack, room)
        file.limit = None
        return ZipContents(archive)
    except DAMAGED as error:
        raise Unusable(f"{_no_zip(called)}: {error}") from error


def _no_zip(called: str) -> str:
    kind = "zip" if called.lower().endswith(".zip") else "archive"
    return f"{called} is no {kind} file that can be read"


def _rest_of(file: BoundedReader, said: str, stack: ExitStack, room: Room) -> Contents:
    """What is whole of a zip without a table of contents. Raises Unusable: nothing is."""
    with tempfile.TemporaryFile() as target:
        whole, lost = salvaged(file, target, room.take)
        target.flush()
        again = stack.enter_context(io.FileIO(os.dup(target.fileno())))
    if not whole:
        raise Unusable(said)
    contents = ZipContents(stack.enter_context(zipfile.ZipFile(again)))
    told = f"{said}; what is whole of it was read: {few(whole)}"
    contents.remarks.append(told + f"; not {few([lost])}, and what came behind" * bool(lost))
    contents.look += contents.remarks
    return contents


def _untarred(file: IO[bytes]) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="r:")


def _unpacked(compressed: IO[bytes], stack: ExitStack, room: Room) -> BoundedReader:
    """A file on disk, without a name, that holds what was compressed. Raises ValueError where that is too much."""
    with compressed:
        plain = copied(iter(lambda: compressed.read(PIECE), b""), stack, room)
    plain.limit = MAX_READ_BYTES
    return plain


def copied(pieces: Iterable[bytes], stack: ExitStack, room: Room) -> BoundedReader:
    """A file on disk, without a name, of these bytes; open until `stack` is closed. Raises ValueError: no room."""
    with tempfile.TemporaryFile() as file:
        for piece in pieces:
            room.take(len(piece))
            file.write(piece)
        file.seek(0)
        return stack.enter_context(BoundedReader(io.FileIO(os.dup(file.fileno()))))


class BoundedReader(io.BufferedReader):
    """Refuses reads over `limit`: ZipFile reads all of a table of contents, of which a zip may have any amount."""

    limit: int | None = MAX_DIRECTORY_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        if self.limit is not None and size is not None and size > self.limit:
            raise zipfile.BadZipFile(f"its table of contents has more than {self.limit >> 20} MB")
        return super().read(size)


class _Packed:
    """An archive's members by their names: those that may be read, and what is said about the others."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.remarks: list[str] = []
        self.look: list[str] = []
        self.passed: list[PurePosixPath] = []
        self._members: dict[PurePosixPath, Any] = {}
        self._environments: set[PurePosixPath] = set()  # folders with Python itself

    def _sort(self, members: Iterable[tuple[str, bool, Any]]) -> list[PurePosixPath]:
        """Remember what may be read.

        Args:
            members: the files: name, whether it is an ordinary one, and what the archive knows it by.
        """
        odd = 0
        left_out: list[PurePosixPath] = []
        for number, (called, ordinary, member) in enumerate(members):
            if number >= MAX_NAMES:
                self.remarks.append(f"more than {MAX_NAMES} files: the rest was not looked at")
                break
            name = PurePosixPath(called.replace("\\", "/"))
            outside = name.is_absolute() or ".." in name.parts or ":" in str(name) or "\0" in called
            if outside or not ordinary:
                left_out.append(name)
            elif any(len(os.fsencode(part)) > MAX_PART_BYTES for part in name.parts):
                odd += 1
            elif wanted(name) or passed_over(name):
                self._members[name] = member  # of two with one name the last, as unzip has it
            if {name.name, name.parent.name} & {*ENVIRONMENT}:
                self._environments.add(name.parent if name.name in ENVIRONMENT else name.parent.parent)
        for folder in {parent for name in self._members for parent in name.parents} & self._members.keys():
            del self._members[folder]  # on a disk it could not be both, a file and a folder
            odd += 1
        if left_out:
            self.remarks.append(
                f"{len(left_out)} file{'s' * (len(left_out) > 1)} of the {self.kind} left out: "
                f"a link, or with a name that leads out of it ({few(map(str, left_out))})"
            )
            if any(map(may_be_work, left_out)):
                self.look.append(self.remarks[-1])
        if odd:
            self.remarks.append(
                f"{odd} file{'s' * (odd > 1)} of the {self.kind} left out: with a name of over {MAX_PART_BYTES} "
                "bytes, or a folder's name"
            )
        return self._wanted()

    def _wanted(self) -> list[PurePosixPath]:
        """Those that are to be read; the others are passed over."""
        others = sorted(name for name in self._members if not wanted(name))
        self.passed = [name for name in others if not self._environments.intersection(name.parents)]
        return sorted(self._members.keys() - set(others))

    @contextmanager
    def _reading(self, name: PurePosixPath) -> Iterator[None]:
        """What goes wrong meanwhile makes this file unusable."""
        try:
            yield
        except (zlib.error, lzma.LZMAError, MemoryError) as error:  # a zip says how much memory it needs
            raise Unusable(f"{encodable(name)} is damaged in the {self.kind}: {error}") from error
        except READING as error:
            raise Unusable(f"{encodable(name)} cannot be read from the {self.kind}: {error}") from error


class ZipContents(_Packed):
    """A zip file, read in memory, one member at a time."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        super().__init__("zip")
        self.archive = archive

    def names(self) -> list[PurePosixPath]:
        members = [member for member in self.archive.infolist() if not member.is_dir()]
        if locked := [member.filename for member in members if member.flag_bits & 1]:
            self.remarks.append(f"the zip needs a password, without which nobody reads {few(locked)}")
            self.look.append(self.remarks[-1])
        return self._sort(
            (member.filename, self._is_ordinary(member), member) for member in members if not member.flag_bits & 1
        )

    @staticmethod
    def _is_ordinary(member: zipfile.ZipInfo) -> bool:
        kind = stat.S_IFMT(member.external_attr >> 16)
        return kind in (0, stat.S_IFREG)

    def time(self, name: PurePosixPath) -> float:
        try:
            return datetime(*self._members[name].date_time).timestamp()
        except (ValueError, OverflowError):
            return 0.0

    @contextmanager
    def open(self, name: PurePosixPath) -> Iterator[tuple[IO[bytes], int]]:
        member = self._members[name]
        with self._reading(name), self.archive.open(member) as file:
            yield file, member.file_size


class TarContents(_Packed):
    """A tar file that is not compressed (any more), one member at a time."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        super().__init__("tar")
        self.archive = archive

    def names(self) -> list[PurePosixPath]:
        try:
            return self._sort((one.name, one.isreg(), one) for one in self._every() if not one.isdir())
        except DAMAGED as error:  # the rest of it; what came before can be read
            self.remarks.append(f"the tar is damaged, and what lies behind was lost: {error}")
            self.look.append(self.remarks[-1])
            return self._wanted()

    def _every(self) -> Iterator[tarfile.TarInfo]:
        for number, member in enumerate(self.archive):
            if number > 2 * MAX_NAMES:  # folders too
                raise tarfile.ReadError(f"it has more than {2 * MAX_NAMES} entries")
            yield member

    def time(self, name: PurePosixPath) -> float:
        return float(self._members[name].mtime)

    @contextmanager
    def open(self, name: PurePosixPath) -> Iterator[tuple[IO[bytes], int]]:
        member = self._members[name]
        with self._reading(name):
            file = self.archive.extractfile(member)
            if file is None:
                raise Unusable(f"{encodable(name)} is no ordinary file")
            with file:
                yield file, member.size
