"""A submission that was packed: zip and tar, archives within archives, and files without a folder around them.

No archive is ever unpacked to a folder: names first, then one file at a time. What Python cannot read, 7z and rar,
is a sentence for the student's row.
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
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any

from lab.base.words import encodable
from lab.course.sent.contents import MAX_NAMES, PIECE, Contents, FolderContents, Unusable, few, may_be_work, wanted
from lab.course.sent.loose import LooseContents, is_archive, loose_files

MAX_ARCHIVE_BYTES = 1 << 30
MAX_DIRECTORY_BYTES = 16 << 20  # of a zip's table of contents, which is read as a whole
MAX_PART_BYTES = 200  # of a folder's or file's name in an archive: file systems take 255, and we prefix some
MAX_UNPACKED_BYTES = 256 << 20  # of a compressed tar, which has no table of contents
MAX_INNER_BYTES, MAX_INNER, MAX_LEVELS = 64 << 20, 20, 2  # of archives in a submission: each, how many, how deep
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


@contextmanager
def opened(path: Path) -> Iterator[Contents]:
    """Read a submission: a folder, an archive, a single file; or, where `path` is none of them, a student's files.

    Raises Unusable.
    """
    with ExitStack() as stack:
        if path.is_dir():
            yield _Nested(FolderContents(path), stack)
        elif not path.exists() and (files := loose_files(path)):
            yield _Nested(LooseContents(files), stack)
        elif not path.is_file() or path.stat().st_size > MAX_ARCHIVE_BYTES:
            raise Unusable(f"{encodable(path.name)} is no zip file of less than {MAX_ARCHIVE_BYTES >> 30} GB")
        elif is_archive(path.name):
            # A copy that is swapped or grows meanwhile harms nothing: each read is bounded by itself.
            file = stack.enter_context(_BoundedReader(io.FileIO(path)))
            yield _Nested(_archive(file, encodable(path.name), stack), stack)
        else:
            yield LooseContents({PurePosixPath(path.name): path})


def _archive(file: _BoundedReader, called: str, stack: ExitStack) -> Contents:
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
                return TarContents(stack.enter_context(_untarred(_unpacked(reader(file), stack))))
        if begin[TAR_AT : TAR_AT + len(TAR)] == TAR:
            file.limit = MAX_UNPACKED_BYTES
            return TarContents(stack.enter_context(_untarred(file)))
        archive = stack.enter_context(zipfile.ZipFile(file))
        file.limit = None
        return ZipContents(archive)
    except DAMAGED as error:
        kind = "zip" if called.lower().endswith(".zip") else "archive"
        raise Unusable(f"{called} is no {kind} file that can be read: {error}") from error


def _untarred(file: IO[bytes]) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="r:")


def _unpacked(compressed: IO[bytes], stack: ExitStack) -> IO[bytes]:
    """A file on disk, without a name, that holds what was compressed. Raises ValueError where that is too much."""
    plain = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - it is used after this function
    with compressed:
        while part := compressed.read(PIECE):
            if plain.tell() + len(part) > MAX_UNPACKED_BYTES:
                raise ValueError(f"unpacked it has more than {MAX_UNPACKED_BYTES >> 20} MB")
            plain.write(part)
    plain.seek(0)
    return plain


class _BoundedReader(io.BufferedReader):
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
        self._members: dict[PurePosixPath, Any] = {}

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
            elif wanted(name):
                self._members[name] = member  # of two with one name the last, as unzip has it
        for folder in {parent for name in self._members for parent in name.parents} & self._members.keys():
            del self._members[folder]  # on a disk it could not be both, a file and a folder
            odd += 1
        if left_out:
            self.remarks.append(
                f"{len(left_out)} file{'s' * (len(left_out) > 1)} of the {self.kind} left out: "
                f"a link, encrypted, or with a name that leads out of it ({few(map(str, left_out))})"
            )
            if any(map(may_be_work, left_out)):
                self.look.append(self.remarks[-1])
        if odd:
            self.remarks.append(
                f"{odd} file{'s' * (odd > 1)} of the {self.kind} left out: with a name of over {MAX_PART_BYTES} "
                "bytes, or a folder's name"
            )
        return sorted(self._members)

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
        return self._sort(
            (member.filename, self._is_ordinary(member), member)
            for member in self.archive.infolist()
            if not member.is_dir()
        )

    @staticmethod
    def _is_ordinary(member: zipfile.ZipInfo) -> bool:
        kind = stat.S_IFMT(member.external_attr >> 16)
        return kind in (0, stat.S_IFREG) and not member.flag_bits & 1

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
            return self._sort((one.name, one.isreg(), one) for one in self.archive if not one.isdir())
        except DAMAGED as error:  # the rest of it; what came before can be read
            self.remarks.append(f"the tar is damaged, and what lies behind was lost: {error}")
            self.look.append(self.remarks[-1])
            return sorted(self._members)

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


class _Nested:
    """A submission with the archives in it opened as if they were folders."""

    def __init__(self, outer: Contents, stack: ExitStack, levels: int = MAX_LEVELS) -> None:
        self._outer = outer
        self._stack = stack
        self._levels = levels
        self._inner: dict[PurePosixPath, Contents] = {}
        self.remarks = outer.remarks
        self.look = outer.look

    def names(self) -> list[PurePosixPath]:
        found = self._outer.names()
        packed = [name for name in found if is_archive(name.name)]
        for name in packed[:MAX_INNER] if self._levels else []:
            try:
                inner = self._opened(name)
            except Unusable as error:
                self.remarks.append(str(error))
                self.look.append(str(error))
                continue
            if inner is None:
                self.remarks.append(
                    f"{encodable(name)} has more than {MAX_INNER_BYTES >> 20} MB, and was not opened"
                )
                continue
            self._inner[name] = inner
            found += [name / one for one in inner.names()]
            self.remarks += [f"{encodable(name)}: {said}" for said in inner.remarks]
            self.look += [f"{encodable(name)}: {said}" for said in inner.look]
        unopened = packed[MAX_INNER:] if self._levels else packed
        if unopened:
            self.look.append(f"archives within archives that were not opened: {few(map(str, unopened))}")
        return sorted(found)

    def _opened(self, name: PurePosixPath) -> Contents | None:
        """An archive in the submission, copied out of it; None where it is too large. Raises Unusable."""
        copy = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - as above
        with self._outer.open(name) as (file, _):
            while copy.tell() <= MAX_INNER_BYTES and (part := file.read(PIECE)):
                copy.write(part)
        if copy.tell() > MAX_INNER_BYTES:
            copy.truncate(0)
            return None
        copy.seek(0)
        reader = self._stack.enter_context(_BoundedReader(io.FileIO(os.dup(copy.fileno()))))
        return _Nested(_archive(reader, encodable(name), self._stack), self._stack, self._levels - 1)

    def _place(self, name: PurePosixPath) -> tuple[Contents, PurePosixPath]:
        for archive, contents in self._inner.items():
            if name != archive and name.is_relative_to(archive):
                return contents, name.relative_to(archive)
        return self._outer, name

    def time(self, name: PurePosixPath) -> float:
        contents, inner = self._place(name)
        return contents.time(inner)

    @contextmanager
    def open(self, name: PurePosixPath) -> Iterator[tuple[IO[bytes], int]]:
        contents, inner = self._place(name)
        with contents.open(inner) as opened:
            yield opened
