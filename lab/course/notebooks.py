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
from pathlib import Path
from typing import Any

from lab.base.paths import ROOT
from lab.base.words import encodable, one_line
from lab.course.folders import write_private
from lab.course.sent.contents import Unusable
from lab.course.sent.damaged import cells_of, without_outputs
from lab.course.sent.pictures import Pictures, lifted, new_name, pasted, with_names
from lab.course.sent.places import reference, source_of, strays
from lab.course.sent.shown import shown
from lab.ranks.environment import clean_environment

MAX_ANSWER = 30_000  # characters of one answer: a spreadsheet's cell holds 32,767, and cuts what it saves
MAX_TEXT = 2_000_000  # characters of all answers, of a notebook and of a submission
MAX_PICTURES = 6_000_000  # characters of all pictures in them, likewise, as a notebook has them
MAX_CELLS = 2_000
LONGEST_STRAY = 800  # characters of a text that belongs to no question
STAND_IN = "no-notebook-was-handed-in.ipynb"
ANSWER = "answer-"  # how the grade ids of the free-text answers begin

PLAIN = 1 << 20  # bytes of a notebook that are read at once, without a process of their own
MEMORY = 1 << 30  # bytes that this process may have
SECONDS = 60  # and how long it may take

MAX_VERSIONS = 10  # of one answer: of notebooks in several copies all are shown, up to these

Cells = dict[str, list[tuple[str, str]]]  # path of the notebook -> (grade id, type) of its graded cells
Answers = dict[str, list[tuple[str, str]]]  # grade id -> (path of the notebook, text)


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
    for stray in strays(cells[:MAX_CELLS], name, known, _grade_id) if known.books else ():
        if stray.answer:
            reader.take(stray.answer, stray.text, stray.cell)
        else:
            said = f"has text that belongs to no question: {one_line(encodable(stray.text), LONGEST_STRAY)}"
            found.remarks.append(said)
            if name not in known.books or _grade_id(stray.cell):
                found.look.append(said)
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


def all_answers(
    notebooks: Mapping[str, Notebook],
) -> tuple[Cells, Answers, dict[str, Pictures], list[str]]:
    """The graded cells and the answers of all notebooks, and remarks on what of them was left out.

    Args:
        notebooks: by path. Where there is more than a record can hold, the first ones count.
    """
    cells: Cells = {}
    answers: Answers = {}
    pictures: dict[str, Pictures] = {}
    remarks: list[str] = []
    left, room, pictured = 2 * MAX_CELLS, MAX_TEXT, MAX_PICTURES
    for path, notebook in notebooks.items():
        book = encodable(path)
        remarks += [f"{book} {remark}" for remark in notebook.remarks]
        if notebook.remarks and not (notebook.cells or notebook.answers):
            continue  # it cannot be read at all
        cells[book] = notebook.cells[:left]
        left -= len(cells[book])
        lost = len(notebook.cells) > len(cells[book])
        renamed: dict[str, dict[str, str]] = {}  # answer -> name of a picture -> in the record
        for name, found in notebook.pictures.items():
            there = pictures.get(name, {})
            new = {new_name(title, types, there): types for title, types in found.items()}
            renamed[name] = dict(zip(found, new, strict=True))
            costs = sum(len(data) for title in new.keys() - there.keys() for data in new[title].values())
            if costs > pictured:
                lost = True
            else:
                pictured -= costs
                pictures.setdefault(name, {}).update(new)
        for name, text in notebook.answers:
            known = answers.setdefault(name, [])
            if len(text) > room or len(known) >= MAX_VERSIONS:
                lost = True
            else:
                room -= len(text)
                known.append((book, with_names(text, renamed.get(name, {}))))
        if lost:
            remarks.append(f"{book} was left out in part: the notebooks hold more than all questions need")
    return cells, {name: sorted(said, key=lambda one: one[0]) for name, said in answers.items()}, pictures, remarks


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
