"""Exercises + written answers - lateness = total, of each student; and who has not handed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.course.books import Books
from lab.course.grafting import CHECK
from lab.course.marks import SubmissionRecord
from lab.course.notebooks import ANSWER
from lab.course.people.booking import Booked
from lab.course.people.lateness import ClassRules, Lateness
from lab.course.people.roster import Person
from lab.course.tables import as_written, lateness, to_look

GivenPoints = Mapping[tuple[str, str], str]  # (question, student) -> what a person wrote into answers.csv
GradebookMarks = Mapping[str, Mapping[str, Booked]]  # student -> cell -> what the gradebook has


@dataclass(frozen=True)
class FinalRow:
    """One student.

    exercises, answers  points; what is open or not marked is in none of them
    of                  all points that there are
    waits               what a person has to do before the total is final
    notes               what else to know
    """

    person: Person
    student: str = ""
    exercises: float = 0.0
    answers: float = 0.0
    of: float = 0.0
    late: Lateness | None = None
    waits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def handed_in(self) -> bool:
        return bool(self.student)

    @property
    def earned(self) -> float:
        return round(self.exercises + self.answers, 2)

    @property
    def penalty(self) -> float:
        return self.late.penalty(self.earned) if self.late else 0.0

    @property
    def total(self) -> float:
        return round(self.earned - self.penalty, 2)

    @property
    def is_final(self) -> bool:
        return self.handed_in and not self.waits


def final_rows(
    records: Sequence[SubmissionRecord],
    books: Books,
    rules: ClassRules,
    given: GivenPoints,
    gradebook: GradebookMarks,
) -> list[FinalRow]:
    """A row for everybody who handed in or is in the roster, by last name."""
    rows = [_row(record, books, rules, given, gradebook.get(record.student, {})) for record in records]
    there = {row.person.id for row in rows}
    rows += [FinalRow(person) for person in rules.roster.people.values() if person.id not in there]
    return sorted(rows, key=lambda row: (row.person.last.casefold(), row.person.first.casefold(), row.person.id))


def _row(
    record: SubmissionRecord, books: Books, rules: ClassRules, given: GivenPoints, booked: Mapping[str, Booked]
) -> FinalRow:
    notes = []
    exercises = 0.0
    undecided = []
    for mark in record.exercises:
        by_hand = booked.get(f"{CHECK}{mark.exercise.replace('.', '-')}")
        points = mark.points
        if by_hand is not None and by_hand.by_hand and not by_hand.waits:
            if by_hand.points != points:
                notes.append(f"{mark.exercise} was changed in the gradebook to {by_hand.points:g}")
            points = by_hand.points
        if points is None:
            undecided.append(mark.exercise)
        exercises += (points or 0.0) * _weight(rules, mark.exercise, mark.of)
    answers = 0.0
    unmarked = 0
    of = sum(mark.of * _weight(rules, mark.exercise, mark.of) for mark in record.exercises)
    questions = {cell.grade_id: cell.points for cells in books.values() for cell in cells if cell.is_answer}
    own = {name: one.of for name, one in booked.items() if not name.startswith(CHECK)}  # an instructor's, too
    for name, most in (questions | own).items():
        question = name.removeprefix(ANSWER)
        weight = _weight(rules, question, most)
        of += most * weight
        points, said = _points(question, record.student, most, given, booked.get(name))
        notes += said
        unmarked += points is None
        answers += (points or 0.0) * weight
    waits = [f"{', '.join(undecided)} could not be checked"] if undecided else []
    waits += [f"{unmarked} answer{'s' * (unmarked > 1)} to mark"] if unmarked else []
    late = lateness(record, rules)
    waits += filter(None, [late.unknown])
    notes = [*record.charges, *notes, *(one for one in to_look(record, rules) if one != late.unknown)]
    person = rules.roster.person(record.student, record.name)
    return FinalRow(
        person, record.student, round(exercises, 2), round(answers, 2), of, late, tuple(waits), tuple(notes)
    )


def _weight(rules: ClassRules, name: str, of: float) -> float:
    """What a point of an exercise or question counts, where a course has points of its own for it."""
    return rules.points[name] / of if of and name in rules.points else 1.0


def _points(
    question: str, student: str, most: float, given: GivenPoints, booked: Booked | None
) -> tuple[float | None, list[str]]:
    """What an answer has, None where nobody has marked it, and what is odd about that.

    A mark in the gradebook counts before one in answers.csv.
    """
    text = given.get((question, as_written(student)), "")
    table: float | None = None
    notes = []
    if text:
        try:
            table = float(text.replace(",", "."))
        except ValueError:
            return None, [f"answers.csv: {text} is no number of points for {question}"]
        if not 0 <= table <= most:
            notes.append(f"answers.csv: {table:g} points of {most:g} for {question}")
    if booked is None or booked.waits or not (booked.by_hand or table is None):
        return table, notes
    if table is not None and table != booked.points:
        notes.append(f"{question}: {booked.points:g} in the gradebook, {table:g} in answers.csv; the first counts")
    return booked.points, notes
