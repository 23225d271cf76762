"""The class report: exercises x students at a glance, and the mistakes that most students made, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from lab.base.html import render
from lab.course.books import assignment_of
from lab.course.marks import ExerciseMark, SubmissionRecord
from lab.course.people.lateness import ClassRules
from lab.course.people.roster import Roster
from lab.course.tables import table, to_look, untimed
from lab.grading.looks import LOOKS


@dataclass(frozen=True)
class Mistake:
    """One diagnosis of one exercise, and who got it."""

    exercise: str
    name: str
    students: tuple[str, ...]
    means: str

    @property
    def words(self) -> str:
        """ "no-set-epoch" -> "no set epoch"."""
        return self.name.replace("-", " ")


def unreadable(record: SubmissionRecord) -> bool:
    """Whether nothing of its modules could be read: what its checks say then is about files, and no mistake."""
    return bool(record.unread) and not record.points


def mistakes(records: Sequence[SubmissionRecord]) -> list[Mistake]:
    """Every diagnosis that was given, the most frequent first; a student counts once for each."""
    who: dict[tuple[str, str], dict[str, str]] = {}
    for record in records:
        if unreadable(record):
            continue
        for mark in record.exercises:
            for finding in mark.diagnoses:
                who.setdefault((mark.exercise, finding.name), {}).setdefault(record.student, finding.means)
    found = [
        Mistake(exercise, name, tuple(students), next(iter(students.values())))
        for (exercise, name), students in who.items()
    ]
    order = {name: number for number, name in enumerate(assignment_of(records).of.ids)}
    return sorted(found, key=lambda one: (-len(one.students), order.get(one.exercise, 99), one.name))


def mistakes_csv(records: Sequence[SubmissionRecord], roster: Roster | None = None) -> str:
    """One row a mistake: exercise, diagnosis, how many of how many, what it means, who, by id and by name."""
    names = _names(records, roster)
    read = sum(not unreadable(record) for record in records)
    rows = []
    for one in mistakes(records):
        who = " ".join(one.students), "; ".join(names[student] for student in one.students)
        rows.append((one.exercise, one.name, len(one.students), read, one.means, *who))
    return table(("exercise", "diagnosis", "students", "of", "means", "who", "names"), rows)


def outcomes_csv(records: Sequence[SubmissionRecord], roster: Roster | None = None) -> str:
    """The heat map: one row a student, the outcome of each exercise, with the diagnoses' names; the name."""
    names = _names(records, roster)
    rows = [
        [record.student, *(mark.summary if mark else "" for mark in marks), names[record.student]]
        for record, marks in heat_map(records)
    ]
    return table(("student", *assignment_of(records).of.ids, "name"), rows)


def _names(records: Sequence[SubmissionRecord], roster: Roster | None) -> dict[str, str]:
    """Student -> what a person calls them."""
    known = roster or Roster()
    return {record.student: known.person(record.student, record.name).name for record in records}


def heat_map(records: Sequence[SubmissionRecord]) -> list[tuple[SubmissionRecord, list[ExerciseMark | None]]]:
    """Each student's mark of every exercise; None where there is none."""
    rows = []
    ids = assignment_of(records).of.ids
    for record in records:
        marks = {mark.exercise: mark for mark in record.exercises}
        rows.append((record, [marks.get(name) for name in ids]))
    return rows


def report_page(
    records: Sequence[SubmissionRecord], rules: ClassRules | None = None, pages: Mapping[str, str] | None = None
) -> str:
    """The whole page.

    Args:
        pages: student -> address of the feedback page, of those that have one.
    """
    rules = rules or ClassRules()
    of = assignment_of(records).of
    read = [record for record in records if not unreadable(record)]
    points = [record.points for record in read] or [0.0]
    everybody = untimed(records, rules)
    passed = Counter(mark.exercise for record in read for mark in record.exercises if mark.passed)
    return render(
        "class_report.html",
        title="Class report",
        records=records,
        median=median(points),
        lowest=min(points),
        highest=max(points),
        of=of.points,
        labs=", ".join(sorted({record.lab for record in records})),
        read=read,
        names=_names(records, rules.roster),
        pages=pages or {},
        changed=[record for record in records if record.changes],
        everybody=everybody,
        to_look=[
            (record.student, why) for record in records for why in to_look(record, rules, timed=not everybody)
        ],
        mistakes=mistakes(records),
        exercises=of.exercises,
        rows=heat_map(records),
        percent_passed=[round(100 * passed[name] / max(1, len(read))) for name in of.ids],
        looks=LOOKS,
    )
