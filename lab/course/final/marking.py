"""A page for whoever marks: one student's code with its marks, and each answer beside the marking guide.

The guide is in a clone of the lab alone, and the page stays in the folder of grades: no student gets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.base.html import render
from lab.base.paths import checkout
from lab.course.books import Assignment, Books
from lab.course.feedback_page import in_code, listings, pictures_of
from lab.course.final.rows import FinalRow
from lab.course.grafting import answer
from lab.course.guide import read_guide
from lab.course.marks import SubmissionRecord
from lab.course.notebooks import ANSWER
from lab.grading.looks import LOOKS

FOLDER = "marking"


@dataclass(frozen=True)
class ToMark:
    """One answer, and what the guide says about it.

    question  in pieces, of which every second is code
    entry     answer, full and half of the guide, in such pieces; empty where there is no guide
    said      None where nobody wrote anything
    """

    name: str
    question: list[str]
    points: float
    entry: Mapping[str, list[str]]
    said: str | None
    pictures: list[tuple[str, str]]


def guide_of(assignment: Assignment) -> dict[str, dict[str, Any]]:
    """The marking guide; empty where the lab is installed without its sources. Raises UserError: it is damaged."""
    root = checkout()
    file = root / "notebooks" / "source" / assignment.guide if root else None
    return read_guide(file) if file is not None and file.is_file() else {}


def marking_page(
    record: SubmissionRecord, row: FinalRow, books: Books, guide: Mapping[str, Mapping[str, Any]]
) -> str:
    """The whole page."""
    answers = []
    for book, cells in books.items():
        for cell in cells:
            if cell.is_answer:
                name = cell.grade_id.removeprefix(ANSWER)
                entry = {part: in_code(guide[name][part]) for part in ("answer", "full", "half") if name in guide}
                said = answer(record, cell.grade_id, book, cell.placeholder)
                pictures = pictures_of(record, cell.grade_id)
                answers.append(ToMark(name, in_code(cell.question), cell.points, entry, said, pictures))
    return render(
        "marking.html",
        title=f"To mark: {row.person.name}",
        record=record,
        row=row,
        modules=listings(record),
        answers=answers,
        guided=bool(guide),
        looks=LOOKS,
    )
