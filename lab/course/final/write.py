"""final.html, final.csv and the platforms' tables, from what lies in the folder of grades and in the gradebook."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from pathlib import Path

from lab.base.html import render
from lab.course import store
from lab.course.books import ASSIGNMENTS, assignment_of, released_books
from lab.course.build import CONFIG
from lab.course.config import GRADES
from lab.course.final.marking import FOLDER, guide_of, marking_page
from lab.course.final.rows import FinalRow, final_rows
from lab.course.final.tables import final_csv, platform_tables
from lab.course.gradebook import Course
from lab.course.marking_table import given_points
from lab.course.notebooks import ANSWER
from lab.course.outputs import feedback_pages
from lab.course.people.weights import refuse_unknown

TITLE = "Scaling Lab"
PLATFORMS = "platforms"


def write_final(out: Path, course: Course | None, say: Callable[[str], None], column: str = "") -> list[FinalRow]:
    """Write the final table as it is today.

    Args:
        course: whose gradebook has marks, if `out` is its own.
        column: the title of the grades' column for platforms.

    Raises:
        UserError: nothing was graded, or answers.csv cannot be read.
    """
    records = store.records(out)
    assignment = assignment_of(records)
    rules, _ = store.class_rules(out, {})
    books = released_books(assignment=assignment)
    questions = [
        cell.grade_id.removeprefix(ANSWER) for cells in books.values() for cell in cells if cell.is_answer
    ]
    refuse_unknown(rules.points, [*assignment.of.ids, *questions], assignment.name)
    given, sentences = given_points(out)
    for sentence in sentences:
        say(sentence)
    rows = final_rows(records, books, rules, given, course.marks() if course else {})
    # By the mark at its beginning, spreadsheets see that it is UTF-8.
    store.write(out / "final.csv", codecs.BOM_UTF8.decode() + final_csv(rows))
    guide = guide_of(assignment)
    by_student = {row.student: row for row in rows}
    marking = {one.student: f"{FOLDER}/{store.file_name(one.student, '.html')}" for one in records}
    for one in records:
        store.write(out / marking[one.student], marking_page(one, by_student[one.student], books, guide))
    title = f"Final table: {assignment.name}"
    shown = {"rows": rows, "pages": feedback_pages(out, records), "marking": marking, "due": rules.due}
    store.write(out / "final.html", render("final.html", title=title, **shown))
    if rules.roster.people:
        name = column or f"{TITLE} ({assignment.name})"
        for platform, text in platform_tables(rows, name).items():
            store.write(out / PLATFORMS / f"{platform}.csv", text)
    done = sum(row.is_final for row in rows)
    missing = sum(not row.handed_in for row in rows)
    said = f"; {missing} of the roster {'has' if missing == 1 else 'have'} not handed in" if missing else ""
    also = f", {PLATFORMS}/ for Moodle, Canvas and Blackboard" if rules.roster.people else ""
    count = f"{done} of {len(records)} totals are final{said}"
    say(f"{out}: final.html and final.csv, {FOLDER}/ to mark by{also}: {count}")
    return rows


def course_with(out: Path) -> Course | None:
    """The course whose own folder of grades this is, if it is one's."""
    for home, assignment in ((out.resolve().parents[bool(one.below)], one) for one in ASSIGNMENTS.values()):
        if (home / CONFIG).is_file() and home / GRADES / assignment.below == out.resolve():
            return Course(home, assignment)
    return None
