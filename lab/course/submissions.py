"""The submissions of a class: who has handed in what, as the few files that count."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from lab.base.errors import UserError
from lab.base.words import encodable
from lab.course.config import ASSIGNMENT
from lab.course.contents import Contents, Unusable, limit_of, opened
from lab.course.version import fingerprint
from lab.ranks import confine
from lab.ranks.sandbox import MAX_BYTES, MAX_FILES
from lab.syllabus.syllabus import MODULES

SUBMITTED = "submitted"  # nbgrader's name of the folder that it collects into
MAX_NOTEBOOKS = 40
MAX_SIZE = 64 << 20  # that a file too large to be read counts as: a zip may claim any
MAX_PARTS = 8  # of a path below the folder of the modules
MAX_MODULE_FILES = MAX_FILES // (MAX_PARTS + 1)  # with all their folders the sandbox still takes them
MODULE_FILES = {f"{name}.py" for name in MODULES}


@dataclass(frozen=True)
class Submission:
    """What one student has handed in.

    modules    path below the folder of the modules -> content; an int is the size of a file too large to be code
    notebooks  path in the submission -> content, likewise
    remarks    what an instructor should know: links, damaged files, nothing found
    unread     why modules could not be read, if so: a mark of 0 may then be nobody's fault but the file's
    """

    student: str
    modules: Mapping[str, bytes | int]
    notebooks: Mapping[str, bytes | int]
    remarks: tuple[str, ...] = ()
    unread: str = ""

    @property
    def key(self) -> str:
        """Changes with everything that counts, of the submission and of the lab."""
        digest = hashlib.sha256(fingerprint().encode())
        for kind in (self.modules, self.notebooks):
            for name, content in sorted(kind.items()):
                data = content if isinstance(content, bytes) else str(content).encode()
                for part in (name.encode("utf-8", "surrogateescape"), data):
                    digest.update(len(part).to_bytes(8, "big") + part)
            digest.update(b"|")
        return digest.hexdigest()

    @contextmanager
    def code(self) -> Iterator[Path]:
        """The modules in a scratch folder, for as long as they are checked."""
        with TemporaryDirectory(prefix="lab-submission-") as place:
            code = Path(place) / "exercises"
            files: dict[str, bytes | int | None] = {}
            for name, content in self.modules.items():
                for parent in reversed(PurePosixPath(name).parents[:-1]):
                    files.setdefault(str(parent), None)
                files[name] = content
            confine.unpack(code, files)
            for name, content in self.modules.items():
                if isinstance(content, int):  # the checks say that it is too large, and how large
                    with open(code / name, "wb") as stand_in:
                        stand_in.truncate(content)
            yield code


def find_submissions(folder: Path) -> dict[str, Path]:
    """Student -> what they have handed in: every folder and every zip in `folder`, sorted by name.

    Raises:
        UserError: there is nothing there, or a student is there twice.
    """
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    except NotADirectoryError:
        raise UserError(f"{folder} is a file; name the folder that holds one folder or zip a student") from None
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}") from error
    nbgraders = Path(os.path.abspath(folder)).name == SUBMITTED  # abspath: `lab grade .` has no name yet
    found: dict[str, Path] = {}
    for entry in entries:
        if entry.name.startswith("."):
            continue
        student = entry.name
        path = entry
        if nbgraders and (entry / ASSIGNMENT).is_dir():
            path = entry / ASSIGNMENT  # nbgrader's: other assignments may lie beside it
        elif entry.is_dir():
            path = _only_zip(entry) or entry
        else:
            if entry.suffix.lower() != ".zip" or not entry.is_file():
                continue
            student = entry.stem
        student = encodable(student)
        if student in found:
            both = ", ".join(encodable(str(one.relative_to(folder))) for one in (found[student], path))
            raise UserError(f"{folder}: {student} is there twice ({both}); remove one of them")
        found[student] = path
    if not found:
        raise UserError(f"{folder} holds no submission: expected one folder or one .zip for each student")
    return found


def _only_zip(folder: Path) -> Path | None:
    """The zip that is all a folder holds, as learning platforms export what a student has uploaded."""
    try:
        inside = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return None  # reading it will say why
    if len(inside) != 1 or inside[0].suffix.lower() != ".zip" or inside[0].is_symlink():
        return None
    return inside[0] if inside[0].is_file() else None


def read_submission(student: str, path: Path) -> Submission:
    """What counts of a submission. Whatever is wrong with it is a remark; nothing that a student does raises."""
    try:
        with opened(path) as contents:
            return _read(student, contents)
    except Unusable as error:
        return Submission(student, {}, {}, (str(error),), unread=str(error))


def _read(student: str, contents: Contents) -> Submission:
    names = contents.names()
    modules: dict[str, bytes | int] = {}
    notebooks: dict[str, bytes | int] = {}
    remarks: list[str] = []
    unread = ""
    home = _home(names)
    wrapper = _wrapper([name for name in names if name.suffix == ".ipynb" or name.name in MODULE_FILES])
    if home is None:
        unread = "no folder with the modules (model.py, data.py, ...) was found"
        remarks.append(unread)
    else:
        others = sorted({str(name.parent) for name in names if name.name in MODULE_FILES} - {str(home)})
        if others:
            used = encodable(home) if home.parts else "the top folder"
            remarks.append(
                f"modules in several folders: {used} was graded, not {encodable(', '.join(others[:3]))}"
            )
        total = 0
        beside = [name for name in names if name.is_relative_to(home) and name.suffix != ".ipynb"]
        beside.sort(key=lambda name: (name.parent != home, name.name not in MODULE_FILES))  # the modules first
        for name in beside:
            if len(name.parts) - len(home.parts) > MAX_PARTS:
                continue
            if not home.parts and len(name.parts) > 1 and name.suffix != ".py":
                continue  # the modules lie at the top, beside everything else: only what could be imported
            if len(modules) >= MAX_MODULE_FILES or total > MAX_BYTES // 2:
                remarks.append(
                    f"more than {MAX_MODULE_FILES} files or {MAX_BYTES >> 21} MB beside the modules: rest left out"
                )
                break
            content = _content(contents, name, remarks)
            if content is not None:
                modules[str(name.relative_to(home))] = content
                total += len(content) if isinstance(content, bytes) else 0
        lost = [file for file in sorted(MODULE_FILES) if home / file in names and file not in modules]
        unread = f"could not read {', '.join(lost)}" if lost else ""
    for name in [name for name in names if name.suffix == ".ipynb"]:
        if len(notebooks) == MAX_NOTEBOOKS:
            remarks.append(f"more than {MAX_NOTEBOOKS} notebooks: the rest was left out")
            break
        content = _content(contents, name, remarks)
        if content is not None:
            notebooks[str(name.relative_to(wrapper))] = content
    return Submission(student, modules, notebooks, (*contents.remarks, *remarks), unread)


def _content(contents: Contents, name: PurePosixPath, remarks: list[str]) -> bytes | int | None:
    try:
        content = contents.read(name, limit_of(name))
        return content if isinstance(content, bytes) else min(content, MAX_SIZE)
    except Unusable as error:
        remarks.append(str(error))
        return None


def _wrapper(names: list[PurePosixPath]) -> PurePosixPath:
    """The folder that all of it is in: whether it was handed in too makes no difference."""
    parts = [name.parent.parts for name in names] or [()]
    common = zip(*parts, strict=False)
    return PurePosixPath(*[level[0] for level in itertools.takewhile(lambda level: len(set(level)) == 1, common)])


def _home(names: list[PurePosixPath]) -> PurePosixPath | None:
    """The folder with the most modules; of several the one called exercises, then the one nearest to the top."""
    counts: dict[PurePosixPath, int] = {}
    for name in names:
        if name.name in MODULE_FILES:
            counts[name.parent] = counts.get(name.parent, 0) + 1
    if not counts:
        return None
    return min(counts, key=lambda folder: (-counts[folder], folder.name != "exercises", len(folder.parts), folder))
