"""The feedback page of one student: points, what each check found, remarks, and the answers as they were read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lab.base.html import render
from lab.base.source import source_lines
from lab.course.books import Books, assignment_of
from lab.course.grafting import answer, structure
from lab.course.marks import SubmissionRecord
from lab.course.people.lateness import ClassRules
from lab.course.sent.pictures import PICTURES
from lab.course.tables import lateness
from lab.grading.looks import LOOKS

CODE = re.compile(r"`([^`]+)`")
PLACE = re.compile(r"(\w{1,40}\.py):(\d{1,6})\b")  # in what a diagnosis says about where to look


@dataclass(frozen=True)
class Listing:
    """A module of a student's, to be shown beside its marks.

    lines  number, text, and what the checks say about it
    notes  the lines that they say something about
    """

    name: str
    lines: list[tuple[int, str, list[str]]]

    @property
    def notes(self) -> list[int]:
        return [number for number, _, said in self.lines if said]


def listings(record: SubmissionRecord) -> list[Listing]:
    """The modules in the syllabus's order, each failed check at its line."""
    said: dict[tuple[str, int], list[str]] = {}
    for mark in record.exercises:
        for finding in mark.diagnoses:
            if place := PLACE.match(finding.look):
                notes = said.setdefault((place[1], int(place[2])), [])
                notes.append(f"{mark.exercise} {finding.title}: {finding.saw}")
    files = [f"{name}.py" for name in assignment_of([record]).modules]
    return [
        Listing(
            name,
            [
                (number, line.rstrip("\r\n"), list(dict.fromkeys(said.get((name, number), []))))
                for number, line in enumerate(source_lines(record.code[name]), 1)
            ],
        )
        for name in files
        if name in record.code
    ]


def in_code(text: str) -> list[str]:
    """The text in pieces, of which every second stood in `backticks`."""
    return CODE.split(" ".join(text.split()))


def feedback_page(record: SubmissionRecord, books: Books, rules: ClassRules | None = None) -> str:
    """The whole page."""
    rules = rules or ClassRules()
    person = rules.roster.person(record.student, record.name)
    late = lateness(record, rules)
    cells = {name: [cell.grade_id for cell in book] for name, book in books.items()}
    # (pieces of the question, every second of them code; notebook; what was answered, None for nothing; pictures)
    answers = [
        (
            in_code(cell.question),
            book,
            answer(record, cell.grade_id, book, cell.placeholder),
            pictures_of(record, cell.grade_id),
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
        modules=listings(record),
        looks=LOOKS,
    )


def pictures_of(record: SubmissionRecord, name: str) -> list[tuple[str, str]]:
    """Name and address of each picture that was pasted into an answer; only types that a browser draws."""
    pictures = record.pictures.get(name, {}).items()
    return [
        (title, f"data:{kind};base64,{data}")
        for title, types in pictures
        for kind, data in types.items()
        if kind in PICTURES
    ]
