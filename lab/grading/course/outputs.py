"""Everything that `lab grade` writes from the records: tables, feedback pages, the class report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lab.grading.course import store
from lab.grading.course.books import Books, released_books
from lab.grading.course.feedback_page import feedback_page
from lab.grading.course.grafting import answer
from lab.grading.course.marks import SubmissionRecord
from lab.grading.course.report_page import mistakes_csv, outcomes_csv, report_page
from lab.grading.course.tables import marks_csv, table


def write_all(out: Path, records: Sequence[SubmissionRecord]) -> None:
    """Write marks.csv, answers.csv, feedback/*.html and the class report."""
    books = released_books()
    store.write(out / "marks.csv", marks_csv(records))
    store.write(out / "answers.csv", answers_csv(records, books))
    for record in records:
        store.write(out / "feedback" / store.file_name(record.student, ".html"), feedback_page(record, books))
    write_report(out, records)


def write_report(out: Path, records: Sequence[SubmissionRecord]) -> None:
    """Write report.html, report.csv (the heat map) and mistakes.csv."""
    store.write(out / "report.html", report_page(records))
    store.write(out / "report.csv", outcomes_csv(records))
    store.write(out / "mistakes.csv", mistakes_csv(records))


def answers_csv(records: Sequence[SubmissionRecord], books: Books) -> str:
    """One row for each answer, question by question, to be marked by hand; `points` is for the marker."""
    rows = []
    for book, cells in books.items():
        for cell in cells:
            if cell.is_answer:
                for record in records:
                    said = answer(record, cell.grade_id, book, cell.placeholder)
                    mark = "" if said is not None else "0"
                    name = cell.grade_id.removeprefix("answer-")
                    rows.append((book, name, record.student, mark, f"{cell.points:g}", said or ""))
    return table(("notebook", "question", "student", "points", "of", "answer"), rows)
