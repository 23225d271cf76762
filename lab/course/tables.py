"""Marks and answers of a class as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from lab.course.books import assignment_of
from lab.course.marks import SubmissionRecord
from lab.course.people.lateness import ClassRules, Lateness

BEGINS = (
    "-=+@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)
# Each run of what may stand before a formula matches as a whole, so that no text takes long.
BEFORE = r"(^[\s\";]*+|[\s\";]++)"
FORMULA = re.compile(f"{BEFORE}([{BEGINS}]?)")
KEPT_FORMULA = re.compile(f"{BEFORE}('?)([{BEGINS}]?)")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def lateness(record: SubmissionRecord, rules: ClassRules) -> Lateness:
    """When it was handed in, and how late that is."""
    return rules.lateness(record.student, record.name, record.handed_in)


def to_look(record: SubmissionRecord, rules: ClassRules, *, timed: bool = True) -> list[str]:
    """Why an instructor has to look at a submission, its time and whose it is included.

    Args:
        timed: whether it is known of anybody when they handed in; if not, untimed() says so of all at once.
    """
    late = lateness(record, rules).unknown if timed else ""
    return [*record.to_look, *filter(None, [unclear(record, rules), late])]


def untimed(records: Sequence[SubmissionRecord], rules: ClassRules) -> str:
    """That it is known of nobody how late they are; "" where it is of somebody, or nothing is due."""
    known = [lateness(record, rules) for record in records]
    if len(known) < 2 or any(one.flagged or not one.unknown for one in known):
        return ""
    return (
        "It is not known of anybody when they handed in, so nobody is late, and no total is final: give a table "
        "for --times, or take the due date back with --due none"
    )


def unclear(record: SubmissionRecord, rules: ClassRules) -> str:
    """Why nobody of the roster has handed it in; "" where that is known, or it is none of them."""
    called, roster = record.name or record.student, rules.roster
    if roster.person(record.student, record.name).id in roster.people or not roster.several(called):
        return ""
    return f"several in the roster have the name in {called}: hand it in under the id of whoever it is of"


def marks_csv(records: Iterable[SubmissionRecord], rules: ClassRules | None = None) -> str:
    """One row a student: points of each exercise, their sum, what to look at, remarks, the lab's version; name.

    A mark that is open is empty, and `to_look` says why. Then when it was handed in and was due, how late that is,
    what this costs of these points, and what is left; empty where nothing is due.
    """
    records = list(records)
    rules = rules or ClassRules()
    of = assignment_of(records).of
    timed = not untimed(records, rules)
    head = ["student", *of.ids, "points", "of", "to_look", "remarks", "seconds", "lab"]
    head += ["name", "handed_in", "due", "late", "penalty", "points_left"]
    rows = []
    for record in records:
        marks = {mark.exercise: mark.points for mark in record.exercises}
        points = ["" if (found := marks.get(name)) is None else f"{found:g}" for name in of.ids]
        said = ["; ".join(to_look(record, rules, timed=timed)), "; ".join([*record.charges, *record.remarks])]
        row = [
            record.student,
            *points,
            f"{record.points:g}",
            of.points,
            *said,
            f"{record.seconds:.1f}",
            record.lab,
        ]
        late = lateness(record, rules)
        penalty = late.penalty(record.points)
        costs = [f"{penalty:g}", f"{record.points - penalty:g}"] if late.due else ["", ""]
        times = [
            when.astimezone().strftime("%Y-%m-%d %H:%M") if when else "" for when in (late.handed_in, late.due)
        ]
        rows.append([*row, rules.roster.person(record.student, record.name).name, *times, late.words, *costs])
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
