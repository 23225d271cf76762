"""Marks and answers of a class as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from lab.course.marks import SubmissionRecord
from lab.syllabus.syllabus import syllabus


def marks_csv(records: Iterable[SubmissionRecord]) -> str:
    """One row a student: points of each exercise, their sum, what to look at, remarks, the lab's version.

    A mark that is open is empty, and `to_look` says why.
    """
    of = syllabus()
    head = ["student", *of.ids, "points", "of", "to_look", "remarks", "seconds", "lab"]
    rows = []
    for record in records:
        marks = {mark.exercise: mark.points for mark in record.exercises}
        points = ["" if (found := marks.get(name)) is None else f"{found:g}" for name in of.ids]
        said = ["; ".join(record.to_look), "; ".join(record.remarks)]
        rows.append(
            [record.student, *points, f"{record.points:g}", of.points, *said, f"{record.seconds:.1f}", record.lab]
        )
    return table(head, rows)


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """CSV that a spreadsheet shows and does not compute: a text like =1+1 of a student's is a formula there."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_harmless(value) for value in row])
    return stream.getvalue()


def _harmless(value: object) -> object:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value
