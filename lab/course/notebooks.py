"""The notebooks of a student as the little of them that counts: graded cells, answers, pictures in these.

A notebook is data here, never run. Cells are known by their grade id, wherever they have been moved and whatever
their type is now. A large one, mostly pictures that its cells have put out, is read in a process of its own whose
memory is limited (`python -m lab.course.notebooks BYTES`): 20 MB of brackets become a gigabyte of lists.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from lab.base.paths import ROOT
from lab.base.words import encodable, one_line
from lab.course.books import book_names
from lab.course.folders import write_private
from lab.course.sent.contents import Contents, Unusable, digest_of, limit_of, read
from lab.course.sent.damaged import cells_of, without_outputs
from lab.course.sent.hidden import book_of, is_kept
from lab.course.sent.pictures import Pictures, lifted, new_name, pasted, with_names
from lab.course.sent.places import is_own, only_put_out, plain, reference, source_of, strays
from lab.course.sent.shown import shown
from lab.ranks.environment import clean_environment

MAX_ANSWER = 30_000  # characters of one answer: a spreadsheet's cell holds 32,767, and cuts what it saves
MAX_TEXT = 2_000_000  # characters of all answers, of a notebook and of a submission
MAX_PICTURES = 6_000_000  # characters of all pictures in them, likewise, as a notebook has them
MAX_CELLS = 2_000
MAX_NOTEBOOKS = 40
MAX_NOTEBOOKS_BYTES = 200 << 20
MAX_SIZE = 64 << 20  # that a file too large to be read counts as: a zip may claim any
LONGEST_STRAY = 800  # characters of a text that belongs to no question
STAND_IN = "no-notebook-was-handed-in.ipynb"
ANSWER = "answer-"  # how the grade ids of the free-text answers begin

PLAIN = 1 << 20  # bytes of a notebook that are read at once, without a process of their own
MEMORY = 1 << 30  # bytes that this process may have
SECONDS = 60  # and how long it may take


@dataclass(frozen=True)
class Notebook:
    """What a notebook holds.

    cells     grade id and type of each graded cell
    answers   grade id and text of each answer
    pictures  grade id -> the PNG and JPEG pictures pasted into its answer
    remarks   what of it was left out, or why all of it
    look      those of them that a person has to know of: text that was lost, or that belongs to no question
    shown     folder of runs -> what its cells have shown of the measurements
    """

    cells: list[tuple[str, str]] = field(default_factory=list)
    answers: list[tuple[str, str]] = field(default_factory=list)
    pictures: dict[str, Pictures] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    look: list[str] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HandedInNotebook(Notebook):
    """A notebook, and where it lies.

    place   in the folder or zip
    digest  of its bytes; its size, where that is over the limit
    """

    place: PurePosixPath = field(kw_only=True)
    digest: bytes | int = field(kw_only=True)


def read_notebook(content: bytes, name: str = "", given: tuple[Path, ...] = ()) -> Notebook:
    """What a notebook holds. Whatever is wrong with it is a remark.

    Args:
        name: of its file.
        given: the folders with the notebooks as they were given out.
    """
    try:
        return parse(content, name, given) if len(content) <= PLAIN else _parse_apart(content, name, given)
    except Unusable as error:
        return Notebook(remarks=[str(error)], look=[str(error)])


def parse(content: bytes, name: str = "", given: tuple[Path, ...] = ()) -> Notebook:
    """The same at once, whatever memory that takes. Raises Unusable."""
    try:
        cells, wrong = cells_of(content)
    except ValueError as error:
        raise Unusable(str(error)) from error
    found = Notebook(remarks=[wrong] if wrong else [], look=[wrong] if wrong.startswith("is damaged") else [])
    found.shown.update({encodable(folder): encodable(text) for folder, text in shown(cells[:MAX_CELLS]).items()})
    reader = _Reader(found, MAX_TEXT, MAX_PICTURES)
    known = reference(given)
    for cell in cells[:MAX_CELLS]:
        graded = _grade_id(cell)
        if graded is None:
            continue
        found.cells.append((graded, encodable(str(cell.get("cell_type"))[:20])))
        if _is_answer(cell, graded) and (graded in known.grade_ids or not known.grade_ids):
            reader.take(graded, source_of(cell), cell)
    every = list(strays(cells[:MAX_CELLS], name, known, _grade_id)) if known.books else []
    for stray in [one for one in every if not one.put_out]:
        if stray.answer:
            reader.take(stray.answer, stray.text, stray.cell)
        else:
            said = f"has text that belongs to no question: {one_line(encodable(stray.text), LONGEST_STRAY)}"
            found.remarks.append(said)
            if name not in known.books or _grade_id(stray.cell):
                found.look.append(said)
    found.look.extend(only_put_out(every, found.answers, known.lines))
    return found


@dataclass
class _Reader:
    """Takes answers and the pictures in them, up to the limits."""

    found: Notebook
    room: int
    pictured: int

    def take(self, name: str, text: str, cell: dict[str, Any]) -> None:
        """Add what a cell says to the answer `name`."""
        cell, text = lifted(cell, text)
        text = _clean(text)
        if len(text) > self.room:
            self.found.remarks.append(f"has more than {MAX_TEXT} characters of answers: {name} was left out")
            return
        pictures = pasted(cell, name, self.pictured, self.found.remarks)
        self.pictured -= sum(len(data) for types in pictures.values() for data in types.values())
        there = self.found.pictures.setdefault(name, {}) if pictures else {}
        new = {title: new_name(title, types, there) for title, types in pictures.items()}
        there |= {new[title]: types for title, types in pictures.items()}
        self.room -= len(text)
        self.found.answers.append((name, with_names(text, new)))


def stand_in(home: Path) -> None:
    """Give a submission without notebooks one without cells: nbgrader passes over those that have none."""
    if not any(home.glob("*.ipynb")):
        book = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        write_private(home / STAND_IN, json.dumps(book))


def _parse_apart(content: bytes, name: str, given: tuple[Path, ...]) -> Notebook:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "lab.course.notebooks", str(MEMORY), encodable(name), *map(str, given)],
            input=content,
            capture_output=True,
            cwd=ROOT,
            env=clean_environment(),
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Unusable(f"could not be read in {SECONDS} s") from None
    if done.returncode != 0:
        raise Unusable(
            f"is too large to be read: its {len(content) >> 20} MB take over {MEMORY >> 20} MB of memory"
        )
    known = json.loads(done.stdout)
    pairs = {name: [(first, second) for first, second in known[name]] for name in ("cells", "answers")}
    return Notebook(**{**known, **pairs})


def _grade_id(cell: dict[str, Any]) -> str | None:
    metadata = cell.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
    if not isinstance(name, str) or not name:
        # A cell pasted without its metadata keeps its own id, which is the grade id.
        name = cell.get("id")
        if not isinstance(name, str) or not name.startswith(ANSWER):
            return None
    return encodable(name[:100])


def _is_answer(cell: dict[str, Any], grade_id: str) -> bool:
    metadata = cell.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    return grade_id.startswith(ANSWER) or (isinstance(nbgrader, dict) and nbgrader.get("solution") is True)


def _clean(text: str) -> str:
    return cut(encodable(text).replace("\r\n", "\n").replace("\x00", ""))


def cut(said: str) -> str:
    """No more of an answer than MAX_ANSWER."""
    return said if len(said) <= MAX_ANSWER else said[:MAX_ANSWER] + "\n\n(the rest was cut off)"


def read_notebooks(
    contents: Contents, wrapper: PurePosixPath, names: list[PurePosixPath], given: tuple[Path, ...]
) -> tuple[dict[str, HandedInNotebook], list[str]]:
    """The notebooks, and which were left out. Those called like the released ones come first: no number of others
    takes their place.

    Args:
        given: see read_notebook(); without these folders it is not asked what they hold.
    """
    found: dict[str, HandedInNotebook] = {}
    lost: list[str] = []
    left = MAX_NOTEBOOKS_BYTES
    for name in sorted(names, key=lambda name: (name.name not in book_names(), len(name.parts), name)):
        if len(found) == MAX_NOTEBOOKS or left <= 0:
            most = f"{MAX_NOTEBOOKS} notebooks or {MAX_NOTEBOOKS_BYTES >> 20} MB of them"
            lost.append(f"more than {most}: the rest was left out")
            break
        try:
            book, size = _read_one(contents, name, name.name, given)
        except Unusable as error:
            lost.append(str(error))
            continue
        left -= size
        found[str(name.relative_to(wrapper))] = book
    return found, lost


def _read_one(
    contents: Contents, place: PurePosixPath, name: str, given: tuple[Path, ...]
) -> tuple[HandedInNotebook, int]:
    """A notebook of a submission, and how many bytes it has. Raises Unusable."""
    limit = limit_of(place)
    digest, size = digest_of(contents, place, limit)
    holds = Notebook()
    if size > limit:
        said = f"is too large to be read (over {limit >> 20} MB)"
        holds = Notebook(remarks=[said], look=[said])
        digest = MAX_SIZE
    elif given and isinstance(content := read(contents, place, limit), bytes):
        holds = read_notebook(content, name, given)
    return HandedInNotebook(**vars(holds), place=place, digest=digest), size


def read_hidden(
    contents: Contents, used: Mapping[str, HandedInNotebook], given: tuple[Path, ...]
) -> dict[str, HandedInNotebook]:
    """Notebooks in folders that are passed over, by their place: of answers in them only `look` tells.

    Args:
        used: the notebooks that are read; what they say too is not told.
        given: as for read_notebooks().
    """
    found: dict[str, HandedInNotebook] = {}
    lines = reference(given).lines
    known: dict[str, set[str]] = {}  # answer -> what is said
    for book in used.values():
        for name, text in book.answers:
            if is_own(text, lines):
                known.setdefault(name, set()).add(plain(text))
    left = MAX_NOTEBOOKS_BYTES
    for place in [name for name in contents.passed if name.suffix == ".ipynb"][:MAX_NOTEBOOKS]:
        kept = is_kept(place)
        try:
            book, size = _read_one(contents, place, book_of(place), given)
        except Unusable:
            continue  # nobody counts on it
        if (left := left - size) < 0:
            break
        look = [] if kept else book.look
        for name, text in book.answers:
            said = known.get(name, set())
            if is_own(text, lines) and plain(text) not in said and not (kept and said):
                known.setdefault(name, set()).add(plain(text))
                text = one_line(encodable(text), LONGEST_STRAY)
                look.append(f"lies in a folder that is passed over; it alone answers {name}: {text}")
        found[encodable(place)] = HandedInNotebook(look=look, place=place, digest=book.digest)
    return found


def main() -> None:
    """Read a notebook from stdin, and write what it holds to stdout as JSON. Ends with 1 where memory is short."""
    memory = int(sys.argv[1])
    name, given = sys.argv[2], tuple(map(Path, sys.argv[3:]))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        content = sys.stdin.buffer.read()
        try:
            found = parse(content, name, given)
        except MemoryError:  # mostly what its cells have put out
            found = parse(without_outputs(content), name, given)
    except Unusable as error:
        found = Notebook(remarks=[str(error)], look=[str(error)])
    except MemoryError:
        sys.exit(1)
    json.dump(asdict(found), sys.stdout)


if __name__ == "__main__":
    main()
