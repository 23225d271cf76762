"""answers.csv: all answers, question by question, to mark without nbgrader. What a marker writes in it stays."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lab.base.errors import UserError
from lab.course import store
from lab.course.books import Books
from lab.course.grafting import answer
from lab.course.marks import SubmissionRecord
from lab.course.notebooks import ANSWER
from lab.course.people.csvfile import reader_of, text_of
from lab.course.people.roster import SAFE, Roster
from lab.course.tables import as_written, table

NAME = "answers.csv"
CHANGED = "some of what was marked in it is of answers that changed"
UNREAD = "it could not be read as CSV, and nothing that was marked in it was taken over"
HEAD = ("notebook", "question", "student", "points", "of", "answer")
NAMES = "name"  # a last column, where somebody is called other than by an id


class Former(NamedTuple):
    """Where an answers.csv is kept that was there before, and why."""

    path: Path
    why: str


def write_answers(
    out: Path, records: Sequence[SubmissionRecord], books: Books, roster: Roster | None = None
) -> Former | None:
    """Write answers.csv. From the one that is there come the points, and columns that the marker has added.

    They stay where a student's answer is the same as it was.

    Returns:
        The file that was there, if something that was written in it is not in the new one.
    """
    path = out / NAME
    before = _read(path)
    people = {one.student: (roster or Roster()).person(one.student, one.name) for one in records}
    rows = _rows(records, books)
    if any(person.name != student for student, person in people.items()):
        for row in rows:
            row[NAMES] = people[row["student"]].name
    head, rows = _with_marks(rows, before or [])
    former = None
    if before is None or not {_mark(row) for row in before if _mark(row)[3:]} <= {_mark(row) for row in rows}:
        kept = next(name for n in range(1, 1000) if not (name := out / f"answers-before-{n}.csv").exists())
        path.replace(kept)
        former = Former(kept, UNREAD if before is None else CHANGED)
    store.write(path, table(head, [[row.get(name, "") for name in head] for row in rows]))
    return former


def given_points(out: Path) -> tuple[dict[tuple[str, str], str], list[str]]:
    """(question, student as written) -> what the column points of answers.csv, or of a marker's own table, says.

    Where they do not agree, all that they say: no number, so that somebody decides.

    Returns:
        That, and what to say: marks of answers that have changed since do not count.

    Raises:
        UserError: a table cannot be read.
    """
    said = []
    rows = _rows_of(out / NAME)
    found = {_about(row)[:2]: [row["points"].strip()] for row in rows}
    answers = {_about(row) for row in rows}
    for file in _of_markers(out):
        marked = [row for row in _rows_of(file) if row["points"].strip()]
        for row in marked:
            if _about(row) in answers:
                found[_about(row)[:2]].append(row["points"].strip())
        if changed := sum(_about(row) not in answers for row in marked):
            said.append(f"{file}: {changed} of its marks are of answers that have changed, and do not count")
    points = {about: " / ".join(dict.fromkeys(filter(None, texts))) for about, texts in found.items()}
    return points, said


def deal(out: Path, markers: Sequence[str]) -> dict[Path, int]:
    """Write a table for each marker, of the answers that wait for a mark: all of a question have one marker.

    Returns:
        Each table, and how many answers it has.

    Raises:
        UserError: answers.csv cannot be read, a marker's name is none for a file, or has a table already.
    """
    waiting: dict[str, list[dict[str, str]]] = {}
    for row in _rows_of(out / NAME):
        if not row["points"].strip():
            waiting.setdefault(row["question"], []).append(row)
    dealt: dict[Path, list[dict[str, str]]] = {}
    for marker in markers:
        file = out / NAME.replace(".", f"-{marker}.")
        if not SAFE.fullmatch(marker) or marker.startswith("before-"):
            raise UserError(
                f"{marker} is no name for a file: letters without accents, digits, and . _ @ + - alone"
            )
        if file.exists() or file in dealt:
            raise UserError(f"{file} is there already: put its marks into {NAME}, and move it away")
        dealt[file] = []
    for question in sorted(waiting, key=lambda one: (-len(waiting[one]), one)):
        least = min(dealt, key=lambda file: len(dealt[file]))
        dealt[least] += waiting[question]
    for file, rows in dealt.items():
        head = list(dict.fromkeys(name for row in rows for name in row)) or list(HEAD)
        store.write(file, table(head, [[row[name] for name in head] for row in rows]))
    return {file: len(rows) for file, rows in dealt.items()}


def _of_markers(out: Path) -> list[Path]:
    tables = out.glob(NAME.replace(".", "-*."))
    return sorted(file for file in tables if not file.name.startswith(NAME.replace(".csv", "-before-")))


def _rows_of(path: Path) -> list[dict[str, str]]:
    """Raises UserError where they cannot be read."""
    rows = _read(path)
    if rows is None:
        raise UserError(f"{path} cannot be read as the table of answers: save it as CSV, with all of its columns")
    return rows


def _rows(records: Sequence[SubmissionRecord], books: Books) -> list[dict[str, str]]:
    """A row for each answer; only those that nobody wrote have points, 0."""
    rows = []
    for book, cells in books.items():
        for cell in cells:
            if cell.is_answer:
                for record in records:
                    said = answer(record, cell.grade_id, book, cell.placeholder)
                    mark = "" if said is not None else "0"
                    name = cell.grade_id.removeprefix(ANSWER)
                    values = (book, name, record.student, mark, f"{cell.points:g}", said or "")
                    rows.append(dict(zip(HEAD, values, strict=True)))
    return rows


def _with_marks(
    rows: list[dict[str, str]], before: Sequence[dict[str, str]]
) -> tuple[list[str], list[dict[str, str]]]:
    """The new rows with what the marker wrote in the old ones; the columns' names."""
    own = list(rows[0]) if rows else list(HEAD)
    added = list(dict.fromkeys(name for row in before for name in row if name not in (*own, NAMES)))
    old = {_about(row): row for row in before}
    for row in rows:
        marked = old.get(_about(row), {})
        row |= {name: marked[name] for name in ("points", *added) if marked.get(name)}
    return [*own, *added], rows


def _about(row: dict[str, str]) -> tuple[str, str, str]:
    """Question, student and answer, alike in our table and in one that a spreadsheet has saved."""
    return row["question"], as_written(row["student"]), as_written(row["answer"])


def _mark(row: dict[str, str]) -> tuple[object, ...]:
    """The answer, and what a person wrote about it; longer than 3 only where somebody did."""
    points = row["points"] if row["points"] != ("" if as_written(row["answer"]) else "0") else ""
    written = [(name, value) for name, value in sorted(row.items()) if name not in (*HEAD, NAMES) and value]
    return (*_about(row), *([("points", points)] if points else []), *written)


def _read(path: Path) -> list[dict[str, str]] | None:
    """The rows of the table that is there; None where it cannot be understood."""
    try:
        saved = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError:
        return None
    try:
        reader = reader_of(text_of(saved))
        rows = list(reader)
    except (ValueError, csv.Error):
        return None
    whole = all(None not in row for row in rows)  # fields left out at the end of a row are empty: Excel does that
    return rows if whole and set(HEAD) <= set(reader.fieldnames or ()) else None
