"""The notebooks of a student as the little of them that counts: graded cells, answers, pictures in these.

A notebook is data here, never run. Cells are known by their grade id, wherever they have been moved and whatever
their type is now. A large one, mostly pictures that its cells have put out, is read in a process of its own whose
memory is limited (`python -m lab.course.notebooks BYTES`): 20 MB of brackets become a gigabyte of lists.
"""

from __future__ import annotations

import base64
import binascii
import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab.base.paths import ROOT
from lab.base.words import encodable
from lab.course.folders import write_private
from lab.course.sent.contents import Unusable
from lab.ranks.environment import clean_environment

MAX_ANSWER = 30_000  # characters of one answer: a spreadsheet's cell holds 32,767, and cuts what it saves
MAX_TEXT = 2_000_000  # characters of all answers, of a notebook and of a submission
MAX_PICTURES = 6_000_000  # characters of all pictures in them, likewise, as a notebook has them
MAX_CELLS = 2_000
STAND_IN = "no-notebook-was-handed-in.ipynb"
ANSWER = "answer-"  # how the grade ids of the free-text answers begin

PLAIN = 1 << 20  # bytes of a notebook that are read at once, without a process of their own
MEMORY = 1 << 30  # bytes that this process may have
SECONDS = 60  # and how long it may take
# What a file that is one begins with, whatever it says that it is.
PICTURES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}

MAX_VERSIONS = 10  # of one answer: of notebooks in several copies all are shown, up to these

Cells = dict[str, list[tuple[str, str]]]  # path of the notebook -> (grade id, type) of its graded cells
Answers = dict[str, list[tuple[str, str]]]  # grade id -> (path of the notebook, text)
Pictures = dict[str, dict[str, str]]  # name of the picture -> type -> base64, as in a cell's `attachments`


@dataclass(frozen=True)
class Notebook:
    """What a notebook holds.

    cells     grade id and type of each graded cell
    answers   grade id and text of each answer
    pictures  grade id -> the PNG and JPEG pictures pasted into its answer
    remarks   what of it was left out, or why all of it
    """

    cells: list[tuple[str, str]] = field(default_factory=list)
    answers: list[tuple[str, str]] = field(default_factory=list)
    pictures: dict[str, Pictures] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def read_notebook(content: bytes) -> Notebook:
    """What a notebook holds. Whatever is wrong with it is a remark."""
    try:
        return parse(content) if len(content) <= PLAIN else _parse_apart(content)
    except Unusable as error:
        return Notebook(remarks=[str(error)])


def parse(content: bytes) -> Notebook:
    """The same at once, whatever memory that takes. Raises Unusable."""
    try:
        notebook = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise Unusable(f"is damaged: {str(error) or type(error).__name__}") from error
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise Unusable("is no notebook of the format 4")
    found = Notebook()
    room, pictured = MAX_TEXT, MAX_PICTURES
    for cell in cells[:MAX_CELLS]:
        name = _grade_id(cell) if isinstance(cell, dict) else None
        if name is None:
            continue
        found.cells.append((name, encodable(str(cell.get("cell_type"))[:20])))
        if not _is_answer(cell, name):
            continue
        text = _source(cell)
        if len(text) > room:
            found.remarks.append(f"has more than {MAX_TEXT} characters of answers: {name} was left out")
            continue
        room -= len(text)
        found.answers.append((name, text))
        pictures = _pictures(cell, name, pictured, found.remarks)
        pictured -= sum(len(data) for types in pictures.values() for data in types.values())
        if pictures:
            found.pictures[name] = pictures | found.pictures.get(name, {})
    return found


def stand_in(home: Path) -> None:
    """Give a submission without notebooks one without cells: nbgrader passes over those that have none."""
    if not any(home.glob("*.ipynb")):
        book = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        write_private(home / STAND_IN, json.dumps(book))


def _parse_apart(content: bytes) -> Notebook:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "lab.course.notebooks", str(MEMORY)],
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


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    return cut(encodable(source if isinstance(source, str) else "").replace("\r\n", "\n").replace("\x00", ""))


def _pictures(cell: dict[str, Any], grade_id: str, room: int, remarks: list[str]) -> Pictures:
    """The pictures pasted into an answer, and remarks on those that are left out."""
    found: Pictures = {}
    attachments = cell.get("attachments")
    for name, types in list(attachments.items())[:MAX_CELLS] if isinstance(attachments, dict) else []:
        types = types if isinstance(types, dict) else {}
        kind, data = next(((kind, _base64(data)) for kind, data in types.items() if kind in PICTURES), ("", ""))
        if not kind or not _is_picture(kind, data):
            remarks.append(f"{grade_id}: {encodable(name[:100])} is no PNG or JPEG picture, and was left out")
        elif len(data) > room or len(name) > 200:
            remarks.append(f"{grade_id}: the picture {encodable(name[:100])} was left out: {len(data) >> 10} KB")
        else:
            found[encodable(name)] = {kind: data}
            room -= len(data)
    return found


def _base64(data: Any) -> str:
    """Without line ends, which notebooks may have in it."""
    if isinstance(data, list):
        data = "".join(part for part in data if isinstance(part, str))
    return "".join(data.split()) if isinstance(data, str) else ""


def _is_picture(kind: str, data: str) -> bool:
    try:
        return base64.b64decode(data, validate=True).startswith(PICTURES[kind])
    except (binascii.Error, ValueError):
        return False


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
        if notebook.remarks and not notebook.cells:
            continue  # it cannot be read at all
        cells[book] = notebook.cells[:left]
        left -= len(cells[book])
        lost = len(notebook.cells) > len(cells[book])
        for name, text in notebook.answers:
            known = answers.setdefault(name, [])
            if len(text) > room or len(known) >= MAX_VERSIONS:
                lost = True
            else:
                room -= len(text)
                known.append((book, text))
        for name, found in notebook.pictures.items():
            new = {picture: types for picture, types in found.items() if picture not in pictures.get(name, {})}
            costs = sum(len(data) for types in new.values() for data in types.values())
            if costs > pictured:
                lost = True
            elif new:
                pictured -= costs
                pictures.setdefault(name, {}).update(new)
        if lost:
            remarks.append(f"{book} was left out in part: the notebooks hold more than all questions need")
    return cells, {name: sorted(said) for name, said in answers.items()}, pictures, remarks


def main() -> None:
    """Read a notebook from stdin, and write what it holds to stdout as JSON. Ends with 1 where memory is short."""
    memory = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        found = parse(sys.stdin.buffer.read())
    except Unusable as error:
        found = Notebook(remarks=[str(error)])
    except MemoryError:
        sys.exit(1)
    json.dump(asdict(found), sys.stdout)


if __name__ == "__main__":
    main()
