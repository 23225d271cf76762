"""The submissions of a class: who has handed in what, as the few files that count."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from lab.base.errors import UserError
from lab.base.source import as_utf8
from lab.base.words import encodable, visible
from lab.course import store
from lab.course.books import ASSIGNMENTS, LAB, Assignment, book_names, given_out
from lab.course.folders import SUBMITTED, is_link, read_notes
from lab.course.notebooks import MAX_SIZE, HandedInNotebook, read_hidden, read_notebooks
from lab.course.people.roster import Who, nfc
from lab.course.people.whose import is_for_others, refuse_one_students, refuse_twice
from lab.course.sent.choice import Read, choose
from lab.course.sent.contents import (
    MEASURED,
    Contents,
    Unusable,
    as_few,
    common_folder,
    few,
    limit_of,
    read,
)
from lab.course.sent.hidden import hidden
from lab.course.sent.loose import by_student, is_archive, only_zip
from lab.course.sent.opening import opened
from lab.course.sent.others import not_used
from lab.course.sent.shown import folder_of
from lab.course.version import fingerprint
from lab.ranks import confine
from lab.ranks.sandbox import MAX_BYTES, MAX_FILES
from lab.syllabus.paid import PAID

MAX_PARTS = 8  # of a path below the folder of the modules
MAX_MODULE_FILES = MAX_FILES // (MAX_PARTS + 1)  # with all their folders the sandbox still takes them


@dataclass(frozen=True)
class Submission:
    """What one student has handed in.

    modules    path below the folder of the modules -> content; an int is the size of a file too large to be code
    notebooks  path in the submission -> what it holds, the notebooks with the released names first
    remarks    what an instructor should know: links, damaged files, nothing found
    unread     why modules could not be read, if so: a mark of 0 may then be nobody's fault but the file's
    look       what an instructor should look at, whatever the marks are: links, another's name
    assignment what of it is to be graded
    results    folder of runs -> the results.csv in it
    hidden     path -> a notebook in a folder that is passed over: what it alone answers is told
    """

    student: str
    modules: Mapping[str, bytes | int]
    notebooks: Mapping[str, HandedInNotebook]
    remarks: tuple[str, ...] = ()
    unread: str = ""
    look: tuple[str, ...] = ()
    assignment: Assignment = LAB
    results: Mapping[str, bytes] = field(default_factory=dict)
    hidden: Mapping[str, HandedInNotebook] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Changes with everything that counts, of the submission and of the lab."""
        digest = hashlib.sha256(fingerprint().encode())
        digests = {name: notebook.digest for name, notebook in {**self.hidden, **self.notebooks}.items()}
        for kind in (self.modules, digests, self.results):
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


def find_submissions(folder: Path, assignment: Assignment = LAB, who: Who = nfc) -> dict[str, Path]:
    """Student -> what they have handed in: every folder, archive and other file of work in `folder`, by name.

    Where a student has several files there, it is a path that does not exist: opened() reads all of them.
    In a course the name is the id already, elsewhere `who` makes it.

    Raises:
        UserError: there is nothing, or one student's files, somebody is there twice, or two names become the same.
    """
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    except NotADirectoryError:
        raise UserError(f"{folder} is a file; name the folder that holds one folder or zip a student") from None
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}") from error
    whole = Path(os.path.abspath(folder))  # abspath: `lab grade .` has no name yet
    nbgraders = whole.name == SUBMITTED
    refuse_one_students(whole, assignment.module_files, ASSIGNMENTS, SUBMITTED)
    found: dict[str, Path] = {}
    files: list[str] = []
    for entry in entries:
        if entry.name.startswith((".", "__MACOSX")):
            continue
        path = entry
        if not entry.is_dir():
            files.append(entry.name)
            continue
        if entry.is_symlink():
            pass  # reading it will say why not
        elif nbgraders and (entry / assignment.name).is_dir():
            path = entry / assignment.name  # nbgrader's: other assignments may lie beside it
        elif nbgraders and any((entry / name).is_dir() for name in ASSIGNMENTS):
            continue  # the other one is all that this student has handed in
        elif nbgraders and is_for_others(entry, assignment.module_files | book_names()):
            continue
        else:
            path = only_zip(entry) or entry
        student = visible(entry.name if nbgraders else who(entry.name))
        if student in found:
            refuse_twice(folder, student, found[student], entry)
        found[student] = path
    for name, names in by_student(files).items():
        path = folder / (names[0] if len(names) == 1 else name)  # of several: see opened()
        student = visible(name if nbgraders else who(name))
        if student in found:
            if not any(is_archive(name) for name in names):
                continue  # a paper beside a folder
            refuse_twice(folder, student, found[student], folder / names[0])
        found[student] = path
    found = dict(sorted(found.items()))
    store.no_clash(found)
    if not found:
        raise UserError(f"{folder} holds no submission: expected one folder or one .zip for each student")
    return found


def read_submission(student: str, path: Path, *, parse: bool = True, assignment: Assignment = LAB) -> Submission:
    """What counts of a submission. Whatever is wrong with it is a remark; nothing that a student does raises.

    Args:
        parse: what the notebooks hold. Without it their bytes only pass by, and change the key alike.
    """
    try:
        noted = _noted(path)
        with opened(path) as contents:
            found = _read(student, contents, given_out(path) if parse else (), assignment)
    except Unusable as error:
        return Submission(student, {}, {}, (str(error),), unread=str(error), assignment=assignment)
    return replace(found, look=as_few(list(dict.fromkeys([*noted, *found.look]))))


def _noted(path: Path) -> tuple[str, ...]:
    """What was noted when it came into the course."""
    if is_link(path):
        raise Unusable(f"{encodable(path)} is a link, which is not followed: put a copy in its place")
    try:
        notes = read_notes(path)
    except ValueError as error:
        return (str(error),)
    return notes.look if notes else ()


def _read(student: str, contents: Contents, given: tuple[Path, ...], assignment: Assignment) -> Submission:
    names = contents.names()
    files = assignment.module_files
    modules: dict[str, bytes | int] = {}
    remarks: list[str] = []
    unread = ""

    def content(name: PurePosixPath) -> bytes | int | None:
        return _content(contents, name, remarks)

    choice = choose(names, files, content, contents.time)
    home = choice.home
    remarks += choice.remarks
    books = [name for name in names if name.suffix == ".ipynb"]
    wrapper = common_folder([*books, *(copy.place for copy in choice.files.values())])
    if home is None:
        wanted = "the modules (model.py, data.py, ...)" if assignment is LAB else ", ".join(sorted(files))
        unread = f"no folder with {wanted} was found"
        if not books:
            nothing = "nothing that can be read" if contents.look else "nothing"
            unread += f"; what was sent: {few(map(str, [*names, *contents.passed])) or nothing}"
        remarks.append(unread)
    else:
        modules = {file: copy.content for file, copy in choice.files.items() if copy.content is not None}
        total = sum(len(one) for one in modules.values() if isinstance(one, bytes))
        modules |= _paid(names, home, content, remarks)
        others = [name for name in names if name.suffix != ".ipynb" and name.name != PAID]
        beside = [name for name in others if name.is_relative_to(home)]
        beside.sort(key=lambda name: (name.parent != home, name))
        for name in beside:
            if len(name.parts) - len(home.parts) > MAX_PARTS or str(name.relative_to(home)) in choice.files:
                continue
            if not home.parts and len(name.parts) > 1 and name.suffix != ".py":
                continue  # the modules lie at the top, beside everything else: only what could be imported
            if len(modules) >= MAX_MODULE_FILES or total > MAX_BYTES // 2:
                remarks.append(
                    f"more than {MAX_MODULE_FILES} files or {MAX_BYTES >> 21} MB beside the modules: rest left out"
                )
                break
            found = content(name)
            if found is not None:
                modules[str(name.relative_to(home))] = found
                total += len(found) if isinstance(found, bytes) else 0
        lost = sorted(file for file, copy in choice.files.items() if copy.content is None)
        unread = f"could not read {', '.join(lost)}" if lost else ""
    notebooks, lost_books = read_notebooks(contents, wrapper, books, given)
    remarks += lost_books
    alone, more = hidden(contents.passed, choice.files, files, content)
    remarks += more
    graded = {copy.place for copy in choice.files.values()}
    unused = not_used([name for name in names if name not in graded], content)
    look = [*contents.look, *choice.look, *lost_books, *alone, *unused]
    results: dict[str, bytes] = {}
    for name in names:
        if name.name == MEASURED.name and isinstance(found := content(name), bytes):
            results.setdefault(encodable(folder_of(name)), found)
    remarks = [*contents.remarks, *remarks]
    books_there = read_hidden(contents, notebooks, given)
    return Submission(
        student, modules, notebooks, as_few(remarks), unread, tuple(look), assignment, results, books_there
    )


def _paid(
    names: list[PurePosixPath], home: PurePosixPath, content: Read, remarks: list[str]
) -> dict[str, bytes | int]:
    """The list of exercises whose checks were looked into: beside the modules, or where else it was put."""
    there = sorted((name for name in names if name.name == PAID), key=lambda name: (name.parent != home, name))
    found = content(there[0]) if there else None
    if found is not None and there[0].parent != home:
        remarks.append(f"{encodable(there[0])} was read, though it is not beside the modules")
    if others := there[1:]:
        remarks.append(f"{encodable(there[0])} was read; not {few(map(str, others))}")
    return {} if found is None else {PAID: found}


def _content(contents: Contents, name: PurePosixPath, remarks: list[str]) -> bytes | int | None:
    try:
        content = read(contents, name, limit_of(name))
        if not isinstance(content, bytes):
            return min(content, MAX_SIZE)
        if name.suffix == ".py" and (readable := as_utf8(content)) is not None:
            remarks.append(f"{encodable(name)} is in UTF-16, which Python does not read: it was graded as UTF-8")
            return readable
        return content
    except Unusable as error:
        remarks.append(str(error))
        return None
