"""The final table as CSV: for people, and with the columns that learning platforms import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.course.final.rows import FinalRow
from lab.course.people.roster import Person
from lab.course.tables import table


def final_csv(rows: Sequence[FinalRow]) -> str:
    """One row a student. Empty: what is not known, and all points of who has not handed in."""
    head = ["student", "name", "last_name", "first_name", "email", "platform_id", "exercises", "answers"]
    head += ["handed_in", "late", "penalty", "total", "of", "waits_for", "notes"]
    return table(head, [_final(row) for row in rows])


def _final(row: FinalRow) -> list[str]:
    person = row.person
    who = [person.id, person.name, person.last, person.first, person.email, person.platform_id]
    if not row.handed_in:
        return [*who, "", "", "", "", "", "", "", "not handed in", ""]
    points = [f"{one:g}" for one in (row.exercises, row.answers)]
    time = row.late.handed_in.astimezone().strftime("%Y-%m-%d %H:%M") if row.late and row.late.handed_in else ""
    late = [time, row.late.words if row.late else "", f"{row.penalty:g}"]
    return [*who, *points, *late, f"{row.total:g}", f"{row.of:g}", "; ".join(row.waits), "; ".join(row.notes)]


def platform_tables(rows: Sequence[FinalRow], column: str) -> Mapping[str, str]:
    """Name of the platform -> CSV with its import columns. Only totals that are final have a grade, others none.

    Moodle: docs.moodle.org/en/Grade_import, where one column is chosen by which users are found. Canvas: the
    columns of its own export, with a row of points possible. Blackboard: users by name, columns by their titles.

    Args:
        column: the title of the column of grades.
    """
    of = max((row.of for row in rows), default=0.0)
    grades = [f"{row.total:g}" if row.is_final else "" for row in rows]
    people = [row.person for row in rows]
    return {
        "moodle": table(
            ["Username", "ID number", "Email address", "First name", "Last name", column],
            [
                [_login(one), _of(one, "id number") or one.platform_id, one.email, one.first, one.last, grade]
                for one, grade in zip(people, grades, strict=True)
            ],
        ),
        "canvas": table(
            ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", column],
            [
                ["    Points Possible", "", "", "", "", f"{of:g}"],
                *(
                    [
                        f"{one.last}, {one.first}".strip(", "),
                        one.platform_id,
                        _of(one, "sis user id"),
                        _of(one, "sis login id") or _login(one),
                        _of(one, "section"),
                        grade,
                    ]
                    for one, grade in zip(people, grades, strict=True)
                ),
            ],
        ),
        "blackboard": table(
            ["Last Name", "First Name", "Username", "Student ID", column],
            [
                [one.last, one.first, _login(one), _of(one, "student id") or one.platform_id, grade]
                for one, grade in zip(people, grades, strict=True)
            ],
        ),
    }


def _of(person: Person, column: str) -> str:
    """What the roster says in a column of the platform's own."""
    return person.row.get(column, "")


def _login(person: Person) -> str:
    return _of(person, "username") or _of(person, "user name") or person.id
