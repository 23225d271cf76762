"""The submissions of a class: who has handed in what, as the few files that count."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from lab.base.errors import UserError
from lab.base.words import encodable, visible
from lab.course import store
from lab.course.books import ASSIGNMENTS, LAB, Assignment, book_names
from lab.course.contents import Contents, Unusable, limit_of, opened, pieces, read
from lab.course.folders import SUBMITTED, is_link, read_notes
from lab.course.notebooks import Notebook, read_notebook
from lab.course.version import fingerprint
from lab.ranks import confine
from lab.ranks.sandbox import MAX_BYTES, MAX_FILES

MAX_NOTEBOOKS = 40
MAX_NOTEBOOKS_BYTES = 200 << 20
MAX_REMARKS, LONGEST_REMARK = 30, 1000
MAX_SIZE = 64 << 20  # that a file too large to be read counts as: a zip may claim any
MAX_PARTS = 8  # of a path below the folder of the modules
MAX_MODULE_FILES = MAX_FILES // (MAX_PARTS + 1)  # with all their folders the sandbox still takes them


@dataclass(frozen=True)
class HandedInNotebook(Notebook):
    """A notebook, and where it lies.

    place   in the folder or zip
    digest  of its bytes; its size, where that is over the limit
    """

    place: PurePosixPath = field(kw_only=True)
    digest: bytes | int = field(kw_only=True)


@dataclass(frozen=True)
class Submission:
    """What one student has handed in.

    modules    path below the folder of the modules -> content; an int is the size of a file too large to be code
    notebooks  path in the submission -> what it holds, the notebooks with the released names first
    remarks    what an instructor should know: links, damaged files, nothing found
    unread     why modules could not be read, if so: a mark of 0 may then be nobody's fault but the file's
    look       what an instructor should look at, whatever the marks are: links, another's name
    assignment what of it is to be graded
    """

    student: str
    modules: Mapping[str, bytes | int]
    notebooks: Mapping[str, HandedInNotebook]
    remarks: tuple[str, ...] = ()
    unread: str = ""
    look: tuple[str, ...] = ()
    assignment: Assignment = LAB

    @property
    def key(self) -> str:
        """Changes with everything that counts, of the submission and of the lab."""
        digest = hashlib.sha256(fingerprint().encode())
        digests = {name: notebook.digest for name, notebook in self.notebooks.items()}
        for kind in (self.modules, digests):
            for name, content in sorted(kind.items()):
                data = content if isinstance(content, bytes) else str(content).encode()
                for part in (name.encode("utf-8", "surrogateescape"), data):
                    digest.update(len(part).to_bytes(8, "big") + part)
            digest.update(b"|")
        digest.update("\0".join(self.look).encode())
        digest.update(self.assignment.below.encode())
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


def find_submissions(folder: Path, assignment: Assignment = LAB) -> dict[str, Path]:
    """Student -> what they have handed in: every folder and every zip in `folder`, sorted by name.

    Raises:
        UserError: there is nothing there, a student is there twice, or the names of two become the same.
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
        if entry.is_symlink():
            student = entry.stem if entry.suffix.lower() == ".zip" else student  # reading it will say why not
        elif nbgraders and (entry / assignment.name).is_dir():
            path = entry / assignment.name  # nbgrader's: other assignments may lie beside it
        elif nbgraders and any((entry / name).is_dir() for name in ASSIGNMENTS):
            continue  # the other one is all that this student has handed in
        elif entry.is_dir():
            path = _only_zip(entry) or entry
        else:
            if entry.suffix.lower() != ".zip" or not entry.is_file():
                continue
            student = entry.stem
        student = visible(student)
        if student in found:
            both = ", ".join(visible(one.relative_to(folder)) for one in (found[student], path))
            raise UserError(f"{folder}: {student} is there twice ({both}); remove one of them")
        found[student] = path
    store.no_clash(found)
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


def read_submission(student: str, path: Path, *, parse: bool = True, assignment: Assignment = LAB) -> Submission:
    """What counts of a submission. Whatever is wrong with it is a remark; nothing that a student does raises.

    Args:
        parse: what the notebooks hold. Without it their bytes only pass by, and change the key alike.
    """
    try:
        noted = _noted(path)
        with opened(path) as contents:
            found = _read(student, contents, parse, assignment)
    except Unusable as error:
        return Submission(student, {}, {}, (str(error),), unread=str(error), assignment=assignment)
    return replace(found, look=_few([*noted, *found.look]))


def _noted(path: Path) -> tuple[str, ...]:
    """What was noted when it came into the course."""
    if is_link(path):
        raise Unusable(f"{encodable(path)} is a link, which is not followed: put a copy in its place")
    try:
        notes = read_notes(path)
    except ValueError as error:
        return (str(error),)
    return notes.look if notes else ()


def _read(student: str, contents: Contents, parse: bool, assignment: Assignment) -> Submission:
    names = contents.names()
    files = assignment.module_files
    modules: dict[str, bytes | int] = {}
    remarks: list[str] = []
    unread = ""
    home = _home(names, files)
    wrapper = _wrapper([name for name in names if name.suffix == ".ipynb" or _folder(name, files) is not None])
    if home is None:
        wanted = "the modules (model.py, data.py, ...)" if assignment is LAB else ", ".join(sorted(files))
        unread = f"no folder with {wanted} was found"
        remarks.append(unread)
    else:
        folders = [_folder(name, files) for name in names]
        others = sorted({str(folder) for folder in folders if folder is not None} - {str(home)})
        if others:
            used = encodable(home) if home.parts else "the top folder"
            remarks.append(
                f"modules in several folders: {used} was graded, not {encodable(', '.join(others[:3]))}"
            )
        total = 0
        beside = [name for name in names if name.is_relative_to(home) and name.suffix != ".ipynb"]
        # The modules first, then what lies beside them.
        beside.sort(key=lambda name: (str(name.relative_to(home)) not in files, name.parent != home))
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
        lost = [file for file in sorted(files) if home / file in names and file not in modules]
        unread = f"could not read {', '.join(lost)}" if lost else ""
    notebooks = _notebooks(contents, wrapper, [name for name in names if name.suffix == ".ipynb"], remarks, parse)
    remarks = [*contents.remarks, *remarks]
    return Submission(student, modules, notebooks, _few(remarks), unread, tuple(contents.look), assignment)


def _notebooks(
    contents: Contents, wrapper: PurePosixPath, names: list[PurePosixPath], remarks: list[str], parse: bool
) -> dict[str, HandedInNotebook]:
    """Those called like the released ones come first, so that no number of others takes their place."""
    found: dict[str, HandedInNotebook] = {}
    left = MAX_NOTEBOOKS_BYTES
    for name in sorted(names, key=lambda name: (name.name not in book_names(), len(name.parts), name)):
        if len(found) == MAX_NOTEBOOKS or left <= 0:
            most = f"{MAX_NOTEBOOKS} notebooks or {MAX_NOTEBOOKS_BYTES >> 20} MB of them"
            remarks.append(f"more than {most}: the rest was left out")
            break
        limit = limit_of(name)
        try:
            digest, size = _digest(contents, name, limit)
            left -= size
            holds = Notebook()
            if size > limit:
                holds.remarks.append(f"is too large to be read (over {limit >> 20} MB)")
                digest = MAX_SIZE
            elif parse:
                content = read(contents, name, limit)
                holds = read_notebook(content) if isinstance(content, bytes) else holds
        except Unusable as error:
            remarks.append(str(error))
            continue
        found[str(name.relative_to(wrapper))] = HandedInNotebook(**vars(holds), place=name, digest=digest)
    return found


def _digest(contents: Contents, name: PurePosixPath, limit: int) -> tuple[bytes | int, int]:
    """Of a file's bytes, and how many these are: those over the limit are not looked at."""
    digest = hashlib.sha256()
    size = 0
    for piece in pieces(contents, name, limit):
        digest.update(piece)
        size += len(piece)
    return digest.digest(), size


def _few(sentences: list[str]) -> tuple[str, ...]:
    """No more than a person reads: a student can cause any number."""
    shown = [one if len(one) <= LONGEST_REMARK else f"{one[:LONGEST_REMARK]}..." for one in sentences]
    more = [f"and {len(shown) - MAX_REMARKS} more remarks of this kind"] if len(shown) > MAX_REMARKS else []
    return (*shown[:MAX_REMARKS], *more)


def _content(contents: Contents, name: PurePosixPath, remarks: list[str]) -> bytes | int | None:
    try:
        content = read(contents, name, limit_of(name))
        return content if isinstance(content, bytes) else min(content, MAX_SIZE)
    except Unusable as error:
        remarks.append(str(error))
        return None


def _wrapper(names: list[PurePosixPath]) -> PurePosixPath:
    """The folder that all of it is in: whether it was handed in too makes no difference."""
    parts = [name.parent.parts for name in names] or [()]
    common = zip(*parts, strict=False)
    return PurePosixPath(*[level[0] for level in itertools.takewhile(lambda level: len(set(level)) == 1, common)])


def _folder(name: PurePosixPath, files: Collection[str]) -> PurePosixPath | None:
    """The folder below which a file would be one of the modules; None where it is none of them."""
    within = [file for file in map(PurePosixPath, files) if name.parts[-len(file.parts) :] == file.parts]
    return PurePosixPath(*name.parts[: -len(within[0].parts)]) if within else None


def _home(names: list[PurePosixPath], files: Collection[str]) -> PurePosixPath | None:
    """The folder below which the most modules are; of several that called exercises, then the topmost."""
    counts: dict[PurePosixPath, int] = {}
    for name in names:
        if (folder := _folder(name, files)) is not None:
            counts[folder] = counts.get(folder, 0) + 1
    if not counts:
        return None
    return min(counts, key=lambda folder: (-counts[folder], folder.name != "exercises", len(folder.parts), folder))
