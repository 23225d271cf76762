"""Files that lie beside each other for the whole class, without a folder for each student: whose they are.

Learning platforms export them so: `alice.zip` and `alice.pdf`, or `alice_12345_67890_model.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import IO

from lab.base.words import encodable, visible
from lab.course.sent.contents import Unusable, no_ordinary_file
from lab.syllabus.package import package_files
from lab.syllabus.paid import PAID
from lab.syllabus.syllabus import ALL_MODULES

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".7z", ".rar")
PAPERS = (".pdf", ".docx", ".doc", ".odt", ".rtf", ".pages")  # answers may be in them, which a person reads
HANDED_IN = (*ARCHIVES, ".py", ".ipynb", PAID, *PAPERS)
AGAIN = re.compile(r" ?\(\d+\)$| - Copy$|-Copy\d+$")  # what a browser or a file manager adds to a name
NUMBERS = re.compile(r"(_\d+)_\d+$")  # Canvas: the student's, and that of the file


def suffix_of(name: str) -> str:
    """The longest of the endings above; "" for any other file."""
    return max((end for end in HANDED_IN if name.lower().endswith(end)), key=len, default="")


def is_archive(name: str) -> bool:
    """Whether a file is called like an archive, of a kind that can be read or not."""
    return suffix_of(name) in ARCHIVES


@cache
def _named() -> re.Pattern[str]:
    """A student's name before that of a file which students hand in or have been given: "alice_model-1.py"."""
    given = {path.stem for path in package_files() if path.suffix in (".py", ".ipynb")}
    given |= {name.rpartition(".")[2] for name in ALL_MODULES}
    stems = "|".join(map(re.escape, sorted(given, key=len, reverse=True)))
    file = rf"(?:{stems})(?:[ _-]*\(?\d+\)?)?\.(?:py|ipynb)|{re.escape(PAID)}"
    return re.compile(rf"(?:(?P<who>.+?)[-_ .]+)?(?P<file>{file})", re.I)


def _own(name: str) -> tuple[str, str]:
    """Student and file of a name that has both; "" for the student where there is none in it."""
    if found := _named().fullmatch(name):
        return found["who"] or "", found["file"]
    return name[: len(name) - len(suffix_of(name))], name


def student_of(name: str) -> str:
    """Whose a file in a class's folder is; "" where its name does not tell, or it is nothing to hand in."""
    if not suffix_of(name):
        return ""
    return visible(NUMBERS.sub(r"\1", _own(name)[0]))


def by_student(names: list[str]) -> dict[str, list[str]]:
    """Whose they are. "alice (1).zip" is alice's where there is an "alice.zip" too."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        if student := student_of(name):
            found.setdefault(student, []).append(name)
    for student in list(found):
        if (first := AGAIN.sub("", student)) != student and first in found:
            found[first] += found.pop(student)
    return found


def nobodys(folder: Path) -> list[str]:
    """Files among the submissions of a class that are not read: nobody's, or beside a folder of that name."""
    entries = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    names = [entry.name for entry in entries if not entry.is_dir()]
    taken = {visible(entry.name) for entry in entries if entry.is_dir()}
    read = {name for student, own in by_student(names).items() if student not in taken for name in own}
    return [visible(name) for name in names if name not in read]


def loose_files(path: Path) -> dict[PurePosixPath, Path]:
    """The files of the student `path.name` beside each other in the folder of the class, by their own names."""
    try:
        names = [entry.name for entry in os.scandir(path.parent) if not entry.is_dir(follow_symlinks=False)]
    except OSError:
        return {}
    own = by_student(names).get(visible(path.name), [])
    found: dict[PurePosixPath, Path] = {}
    for name in own:
        inner = PurePosixPath(_own(name)[1])
        found[PurePosixPath(name) if inner in found else inner] = path.parent / name
    return found


def only_zip(folder: Path) -> Path | None:
    """The zip that is all a folder holds, as learning platforms export what a student has uploaded."""
    try:
        inside = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return None  # reading it will say why
    if len(inside) != 1 or inside[0].suffix.lower() != ".zip" or inside[0].is_symlink():
        return None
    return inside[0] if inside[0].is_file() else None


class LooseContents:
    """Single files as if they lay in a folder of their own."""

    def __init__(self, files: Mapping[PurePosixPath, Path]) -> None:
        self.files = files
        self.remarks: list[str] = []
        self.look: list[str] = []
        self.passed: list[PurePosixPath] = []

    def names(self) -> list[PurePosixPath]:
        found = []
        for name, path in self.files.items():
            info = os.lstat(path)
            if what := no_ordinary_file(info, os.stat(path.parent).st_uid):
                self.look.append(f"{encodable(name)} is {what}, and was left out")
            else:
                found.append(name)
        return sorted(found)

    def time(self, name: PurePosixPath) -> float:
        try:
            return os.lstat(self.files[name]).st_mtime
        except OSError:  # reading it will say why
            return 0.0

    @contextmanager
    def open(self, name: PurePosixPath) -> Iterator[tuple[IO[bytes], int]]:
        try:
            fd = os.open(self.files[name], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(fd, "rb") as file:
                yield file, os.fstat(fd).st_size
        except OSError as error:
            raise Unusable(f"{encodable(name)} cannot be read: {error.strerror}") from error
