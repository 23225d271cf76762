"""Marks and answers of a class as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from lab.course.books import assignment_of
from lab.course.marks import SubmissionRecord

BEGINS = (
    "-=+@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)
# Each run of what may stand before a formula matches as a whole, so that no text takes long.
BEFORE = r"(^[\s\";]*+|[\s\";]++)"
FORMULA = re.compile(f"{BEFORE}([{BEGINS}]?)")
KEPT_FORMULA = re.compile(f"{BEFORE}('?)([{BEGINS}]?)")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def marks_csv(records: Iterable[SubmissionRecord]) -> str:
    """One row a student: points of each exercise, their sum, what to look at, remarks, the lab's version.

    A mark that is open is empty, and `to_look` says why.
    """
    records = list(records)
    of = assignment_of(records).of
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
    writer.writerow(map(harmless, head))
    for row in rows:
        writer.writerow(map(harmless, row))
    return stream.getvalue()


def harmless(value: object) -> object:
    """A cell without control characters, and with a ' before whatever begins a formula.

    Also within a text: where a list is separated by ; or tabs, a spreadsheet splits our rows there, and at line
    ends, as it then does not see our quotes.
    """
    if not isinstance(value, str):
        return value
    text = CONTROL.sub("\N{REPLACEMENT CHARACTER}", value.replace("\r\n", "\n").replace("\r", "\n"))
    return FORMULA.sub(lambda found: f"{found[1]}'{found[2]}" if found[2] and _begins(found) else found[0], text)


def as_written(text: str) -> str:
    """A cell's text before harmless() and a spreadsheet had it, but for white space and control characters."""
    kept = KEPT_FORMULA.sub(
        lambda found: f"{found[1]}{found[3]}" if found[3] and _begins(found) else found[0], str(harmless(text))
    )
    return " ".join(kept.split())


def _begins(found: re.Match[str]) -> bool:
    """Whether a cell may begin behind what was found: at a text's start, or where a spreadsheet may split it."""
    return found.start() == 0 or any(sign in found[1] for sign in ";\t\n")
