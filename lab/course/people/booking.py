"""What nbgrader's gradebook knows of people: their names, and what being late costs them, taken once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.course.people.lateness import Lateness
from lab.course.people.roster import Person

LOCKED = "database is locked"


def book_people(
    db_url: str, assignment: str, people: Mapping[str, tuple[Person, Lateness]], *, late: bool
) -> None:
    """Write the names of these students, and their penalties as of today: an extension counts at once.

    Args:
        people: student in the gradebook -> who it is, and how late.
        late: whether the lab decides what being late costs; else penalties stay as they are.

    Raises:
        sqlalchemy.exc.SQLAlchemyError: the gradebook cannot be written; telling() makes a sentence of it.
    """
    from nbgrader.api import Gradebook, MissingEntry

    with Gradebook(db_url) as gradebook:
        for student, (person, lateness) in people.items():
            known = {"email": person.email, "lms_user_id": person.platform_id}
            if person.name != student or any(known.values()):
                known |= {"first_name": person.first, "last_name": person.last}
            known = {name: value for name, value in known.items() if value}
            if known:
                gradebook.update_or_create_student(student, **known)
            if late:
                try:
                    submission = gradebook.find_submission(assignment, student)
                except MissingEntry:
                    continue
                take_once(submission, lateness.penalty(float(submission.score)))
        gradebook.db.commit()


@dataclass(frozen=True)
class Booked:
    """What the gradebook has of one cell. waits: a person has to mark it; by_hand: a person has."""

    points: float
    of: float
    by_hand: bool
    waits: bool


def booked_marks(db_url: str, assignment: str) -> dict[str, dict[str, Booked]]:
    """Student -> grade id -> what is there; nothing where there is no gradebook yet."""
    from nbgrader.api import Gradebook, MissingEntry

    file = db_url.removeprefix("sqlite:///")
    if file != db_url and not Path(file).is_file():  # it would be made
        return {}
    with Gradebook(db_url) as gradebook:
        try:
            submissions = gradebook.assignment_submissions(assignment)
        except MissingEntry:
            return {}
        return {
            submission.student.id: {
                grade.name: Booked(
                    float(grade.score or 0.0),
                    float(grade.max_score),
                    grade.manual_score is not None,
                    bool(grade.needs_manual_grade),
                )
                for notebook in submission.notebooks
                for grade in notebook.grades
            }
            for submission in submissions
        }


def take_once(submission: Any, penalty: float) -> None:
    """Spread a submission's penalty over its notebooks, from none of which nbgrader takes more than it has."""
    left = max(0.0, penalty)
    for notebook in sorted(submission.notebooks, key=lambda one: str(one.name)):
        taken = min(left, float(notebook.score))
        notebook.late_submission_penalty = taken or None
        left -= taken


def telling(said: Sequence[str]) -> str:
    """The line of a long message that says what went wrong: SQLAlchemy's last one is only a link."""
    if any(LOCKED in line for line in said):
        return (
            "gradebook.db is locked by another program: close the formgrader's pages, end other commands of "
            "nbgrader, and type the same again"
        )
    plain = [line.strip() for line in said if line.strip() and "https://sqlalche.me" not in line]
    return plain[-1] if plain else "no reason given"
