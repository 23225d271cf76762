"""answers.csv: all answers, question by question, to mark without nbgrader. What a marker writes in it stays."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lab.course import store
from lab.course.books import Books
from lab.course.grafting import answer
from lab.course.marks import SubmissionRecord
from lab.course.notebooks import ANSWER
from lab.course.tables import as_written, table

NAME = "answers.csv"
CHANGED = "some of what was marked in it is of answers that changed"
UNREAD = "it could not be read as CSV, and nothing that was marked in it was taken over"
HEAD = ("notebook", "question", "student", "points", "of", "answer")


class Former(NamedTuple):
    """Where an answers.csv is kept that was there before, and why."""

    path: Path
    why: str


def write_answers(out: Path, records: Sequence[SubmissionRecord], books: Books) -> Former | None:
    """Write answers.csv. From the one that is there come the points, and columns that the marker has added.

    They stay where a student's answer is the same as it was.

    Returns:
        The file that was there, if something that was written in it is not in the new one.
    """
    path = out / NAME
    before = _read(path)
    head, rows = _with_marks(_rows(records, books), before or [])
    former = None
    if before is None or not {_mark(row) for row in before if _mark(row)[3:]} <= {_mark(row) for row in rows}:
        kept = next(name for n in range(1, 1000) if not (name := out / f"answers-before-{n}.csv").exists())
        path.replace(kept)
        former = Former(kept, UNREAD if before is None else CHANGED)
    store.write(path, table(head, [[row.get(name, "") for name in head] for row in rows]))
    return former


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
    added = list(dict.fromkeys(name for row in before for name in row if name not in HEAD))
    old = {_about(row): row for row in before}
    for row in rows:
        marked = old.get(_about(row), {})
        row |= {name: marked[name] for name in ("points", *added) if marked.get(name)}
    return [*HEAD, *added], rows


def _about(row: dict[str, str]) -> tuple[str, str, str]:
    """Question, student and answer, alike in our table and in one that a spreadsheet has saved."""
    return row["question"], as_written(row["student"]), as_written(row["answer"])


def _mark(row: dict[str, str]) -> tuple[object, ...]:
    """The answer, and what a person wrote about it; longer than 3 only where somebody did."""
    points = row["points"] if row["points"] != ("" if as_written(row["answer"]) else "0") else ""
    written = [(name, value) for name, value in sorted(row.items()) if name not in HEAD and value]
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
        text = saved.decode("utf-8-sig")
    except UnicodeDecodeError:
        try:
            text = saved.decode("cp1252")  # Excel's "CSV" on Windows
        except UnicodeDecodeError:
            return None
    head = text.partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count), restval="")
    try:
        rows = list(reader)
    except csv.Error:
        return None
    whole = all(None not in row for row in rows)  # fields left out at the end of a row are empty: Excel does that
    return rows if whole and set(HEAD) <= set(reader.fieldnames or ()) else None
