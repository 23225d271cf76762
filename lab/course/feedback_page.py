"""The feedback page of one student: points, what each check found, remarks, and the answers as they were read."""

from __future__ import annotations

import re

from lab.base.html import render
from lab.course.books import Books
from lab.course.grafting import answer, structure
from lab.course.marks import SubmissionRecord
from lab.course.people.lateness import ClassRules
from lab.course.sent.pictures import PICTURES
from lab.course.tables import lateness
from lab.grading.looks import LOOKS

CODE = re.compile(r"`([^`]+)`")


def feedback_page(record: SubmissionRecord, books: Books, rules: ClassRules | None = None) -> str:
    """The whole page."""
    rules = rules or ClassRules()
    person = rules.roster.person(record.student, record.name)
    late = lateness(record, rules)
    cells = {name: [cell.grade_id for cell in book] for name, book in books.items()}
    # (pieces of the question, every second of them code; notebook; what was answered, None for nothing; pictures)
    answers = [
        (
            CODE.split(" ".join(cell.question.split())),
            book,
            answer(record, cell.grade_id, book, cell.placeholder),
            _pictures(record, cell.grade_id),
        )
        for book, cells_of_book in books.items()
        for cell in cells_of_book
        if cell.is_answer
    ]
    return render(
        "feedback.html",
        title=f"Feedback for {person.name}",
        record=record,
        person=person,
        late=late,
        penalty=late.penalty(record.points),
        of=sum(mark.of for mark in record.exercises),
        passed=sum(mark.passed for mark in record.exercises),
        remarks=list(dict.fromkeys([*record.to_look, *record.remarks, *structure(record, cells)])),
        answers=answers,
        answered=sum(said is not None for _, _, said, _ in answers),
        looks=LOOKS,
    )


def _pictures(record: SubmissionRecord, name: str) -> list[tuple[str, str]]:
    """Name and address of each picture that was pasted into an answer; only types that a browser draws."""
    pictures = record.pictures.get(name, {}).items()
    return [
        (title, f"data:{kind};base64,{data}")
        for title, types in pictures
        for kind, data in types.items()
        if kind in PICTURES
    ]
