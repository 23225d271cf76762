"""Everything that `lab grade` writes from the records: tables, feedback pages, the class report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lab.course import store
from lab.course.books import assignment_of, released_books
from lab.course.feedback_page import feedback_page
from lab.course.marking_table import Former, write_answers
from lab.course.marks import SubmissionRecord
from lab.course.people.lateness import ClassRules
from lab.course.report_page import mistakes_csv, outcomes_csv, report_page
from lab.course.tables import marks_csv


def write_all(out: Path, records: Sequence[SubmissionRecord], rules: ClassRules | None = None) -> Former | None:
    """Write marks.csv, answers.csv, feedback/*.html and the class report.

    Returns:
        The former answers.csv, if something that somebody has marked in it is not in the new one.
    """
    rules = rules or ClassRules()
    books = released_books(assignment=assignment_of(records))
    store.write(out / "marks.csv", marks_csv(records, rules))
    kept = write_answers(out, records, books, rules.roster)
    for record in records:
        page = feedback_page(record, books, rules)
        store.write(out / "feedback" / store.file_name(record.student, ".html"), page)
    write_report(out, records, rules)
    return kept


def feedback_pages(out: Path, records: Sequence[SubmissionRecord]) -> dict[str, str]:
    """Student -> where in the folder the feedback page is, of those that have one."""
    named = {record.student: f"feedback/{store.file_name(record.student, '.html')}" for record in records}
    return {student: name for student, name in named.items() if (out / name).is_file()}


def write_report(out: Path, records: Sequence[SubmissionRecord], rules: ClassRules) -> None:
    """Write report.html, report.csv (the heat map) and mistakes.csv."""
    store.write(out / "report.html", report_page(records, rules, feedback_pages(out, records)))
    store.write(out / "report.csv", outcomes_csv(records, rules.roster))
    store.write(out / "mistakes.csv", mistakes_csv(records, rules.roster))
