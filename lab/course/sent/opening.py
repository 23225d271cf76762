"""A submission opened, whatever it lies in: a folder, an archive, archives in these, files beside each other."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from lab.base.words import encodable
from lab.course.sent import archives
from lab.course.sent.archives import BoundedReader, Room, copied, packed
from lab.course.sent.contents import MAX_NAMES, PIECE, Contents, FolderContents, Unusable, few
from lab.course.sent.loose import LooseContents, is_archive, loose_files

MAX_ARCHIVE_BYTES = 1 << 30
MAX_INNER_BYTES, MAX_INNER, MAX_LEVELS = 64 << 20, 20, 2  # of archives in a submission: each, how many, how deep
MAX_INNER_DIRECTORY_BYTES = 1 << 20


@contextmanager
def opened(path: Path) -> Iterator[Contents]:
    """Read a submission: a folder, an archive, a single file; or, where `path` is none of them, a student's files.

    Raises Unusable.
    """
    with ExitStack() as stack:
        room = Room(archives.MAX_UNPACKED_BYTES)
        if path.is_dir():
            yield _Nested(FolderContents(path), stack, room)
        elif not path.exists() and (files := loose_files(path)):
            yield _Nested(LooseContents(files), stack, room)
        elif not path.is_file() or path.stat().st_size > MAX_ARCHIVE_BYTES:
            raise Unusable(f"{encodable(path.name)} is no zip file of less than {MAX_ARCHIVE_BYTES >> 30} GB")
        elif is_archive(path.name):
            # A copy that is swapped or grows meanwhile harms nothing: each read is bounded by itself.
            file = stack.enter_context(BoundedReader(io.FileIO(path)))
            yield _Nested(packed(file, encodable(path.name), stack, room), stack, room)
        else:
            yield LooseContents({PurePosixPath(path.name): path})


class _Nested:
    """A submission with the archives in it opened as if they were folders."""

    def __init__(self, outer: Contents, stack: ExitStack, room: Room, levels: int = MAX_LEVELS) -> None:
        self._outer = outer
        self._stack = stack
        self._room = room
        self._levels = levels
        self._inner: dict[PurePosixPath, Contents] = {}
        self.remarks = outer.remarks
        self.look = outer.look
        self.passed: list[PurePosixPath] = []

    def names(self) -> list[PurePosixPath]:
        found = self._outer.names()
        self.passed += self._outer.passed
        inside = [name for name in found if is_archive(name.name)]
        unopened = inside[MAX_INNER:] if self._levels else inside
        for name in inside[:MAX_INNER] if self._levels else []:
            if len(found) > MAX_NAMES:
                unopened.append(name)
                continue
            try:
                inner = self._opened(name)
            except Unusable as error:
                self.remarks.append(str(error))
                self.look.append(str(error))
                continue
            self._inner[name] = inner
            found += [name / one for one in inner.names()]
            self.passed += [name / one for one in inner.passed]
            self.remarks += [f"{encodable(name)}: {said}" for said in inner.remarks]
            self.look += [f"{encodable(name)}: {said}" for said in inner.look]
        if unopened:
            self.look.append(f"archives within archives that were not opened: {few(map(str, unopened))}")
        return sorted(found)

    def _opened(self, name: PurePosixPath) -> Contents:
        """An archive in the submission, copied out of it. Raises Unusable."""
        with self._outer.open(name) as (file, size):
            if size > MAX_INNER_BYTES:
                raise Unusable(f"{encodable(name)} has more than {MAX_INNER_BYTES >> 20} MB, and was not opened")
            try:
                copy = copied(iter(lambda: file.read(PIECE), b""), self._stack, self._room)
            except ValueError as error:
                raise Unusable(f"{encodable(name)} was not opened: {error}") from error
        copy.limit = MAX_INNER_DIRECTORY_BYTES
        inner = packed(copy, encodable(name), self._stack, self._room)
        return _Nested(inner, self._stack, self._room, self._levels - 1)

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
