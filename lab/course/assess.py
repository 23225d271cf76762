"""One submission, from its files to its record: the way that `lab grade` and `nbgrader autograde` share."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lab.base.errors import UserError
from lab.base.paths import student_sources
from lab.base.source import MAX_SOURCE_BYTES
from lab.base.words import encodable, one_line
from lab.course import store
from lab.course.books import Assignment, released_books
from lab.course.folders import came
from lab.course.grafting import answer
from lab.course.marks import ExerciseMark, OutcomeRecord, SubmissionRecord
from lab.course.modules import DEADLINE, TimedServer, check_modules
from lab.course.notebooks import MAX_CELLS, MAX_PICTURES, MAX_TEXT, Notebook
from lab.course.sent.comments import answers_in
from lab.course.sent.contents import as_few
from lab.course.sent.measured import MOST, SECONDS, tables
from lab.course.sent.pictures import Pictures, new_name, with_names
from lab.course.sent.places import plain
from lab.course.sent.shown import AS_SENT
from lab.course.submissions import Submission
from lab.grading.diagnosis import LabError
from lab.grading.reach import reaches
from lab.grading.unreadable import NO_FILE
from lab.syllabus.given_before import given_before
from lab.syllabus.paid import PAID, paid_by_a_stranger, points_off
from lab.syllabus.syllabus import syllabus

LONGEST = 800  # characters of a comment that is told
MAX_VERSIONS = 10  # of one answer: of notebooks in several copies all are shown, up to these

Cells = dict[str, list[tuple[str, str]]]  # path of the notebook -> (grade id, type) of its graded cells
Answers = dict[str, list[tuple[str, str]]]  # grade id -> (path of the notebook, text)


def assess(submission: Submission, server: TimedServer, deadline: float = DEADLINE) -> SubmissionRecord:
    """Check the modules in the sandbox, read the notebooks, and say what was found."""
    begin = time.monotonic()
    with submission.code() as code:
        exercises = check_modules(code, server, deadline, submission.assignment.of)
    exercises = [_not_sent(mark, submission) for mark in exercises]
    found = reaches(submission.modules)
    ended = record(submission, exercises, deadline, time.monotonic() - begin)
    server.begin(SECONDS)  # of the lab's own time
    server.allow(1.0)
    measured = {folder: f"{AS_SENT}\n{text}" for folder, text in ended.measured.items()}
    measured |= tables(submission.results, server)
    return replace(ended, reaches=found, measured=measured)


def not_assessed(submission: Submission, why: str, deadline: float) -> SubmissionRecord:
    """The lab failed on this submission as a whole: every mark is open."""
    lost = OutcomeRecord.of("", LabError(why))
    exercises = [ExerciseMark(e.id, e.title, None, e.points, lost) for e in submission.assignment.of.exercises]
    return record(submission, exercises, deadline, 0.0)


def _not_sent(mark: ExerciseMark, submission: Submission) -> ExerciseMark:
    """The mark of an exercise whose module is not there, in words for one who has handed it in, or thought so."""
    file = syllabus()[mark.exercise].file
    if mark.outcome.name != NO_FILE or file in submission.modules:
        return mark
    told = replace(
        mark.outcome,
        saw=f"{file} was not found in what was handed in.",
        means="Only what was handed in can be checked.",
        look="hand in the whole folder of the lab, or a zip of it",
    )
    return replace(mark, outcome=told)


def record(
    submission: Submission, exercises: list[ExerciseMark], deadline: float, seconds: float
) -> SubmissionRecord:
    """Put together what is known."""
    cells, answers, pictures, remarks = all_answers(submission.notebooks)
    seen = {folder: text for book in submission.notebooks.values() for folder, text in book.shown.items()}
    books = [
        f"{encodable(path)} {said}"
        for path, book in {**submission.notebooks, **submission.hidden}.items()
        for said in book.look
    ]
    asked, odd = paid_by_a_stranger(submission.modules.get(PAID))
    found = SubmissionRecord(
        submission.student,
        submission.key,
        tuple(exercises),
        notebooks=cells,
        answers=answers,
        pictures=pictures,
        remarks=(*submission.remarks, *remarks),
        deadline=deadline,
        seconds=round(seconds, 2),
        unread=submission.unread,
        look=as_few([*submission.look, *books]),
        measured=dict(list(seen.items())[:MOST]),
        code=_code(submission),
        paid=asked,
        paid_odd=odd,
    )
    said = _in_comments(found, submission.assignment)
    return replace(found, look=as_few([*submission.look, *books, *said])) if said else found


def _in_comments(record: SubmissionRecord, assignment: Assignment) -> list[str]:
    """Comments in modules that may be answers, where the section of the module has a question without one."""
    books = released_books(assignment=assignment)
    asks = {
        book.partition("_")[0]
        for book, cells in books.items()
        for cell in cells
        if cell.is_answer and answer(record, cell.grade_id, book, cell.placeholder) is None
    }
    said = []
    for file in sorted(
        {one.file for one in assignment.of.exercises if str(one.section) in asks} & record.code.keys()
    ):
        stub = (student_sources() / "exercises" / file).read_text(encoding="utf-8").splitlines()
        said += [
            f"{file} has text that may be an answer: {one_line(text, LONGEST)}"
            for text in answers_in(record.code[file], {plain(line) for line in (*stub, *given_before())})
        ]
    return said


def all_answers(
    notebooks: Mapping[str, Notebook],
) -> tuple[Cells, Answers, dict[str, Pictures], list[str]]:
    """The graded cells and the answers of all notebooks, and remarks on what of them was left out.

    Args:
        notebooks: by path. Where there is more than a record can hold, the first ones count.
    """
    cells: Cells = {}
    answers: Answers = {}
    pictures: dict[str, Pictures] = {}
    remarks: list[str] = []
    left, room, pictured = 2 * MAX_CELLS, MAX_TEXT, MAX_PICTURES
    for path, notebook in notebooks.items():
        book = encodable(path)
        remarks += [f"{book} {remark}" for remark in notebook.remarks]
        if notebook.remarks and not (notebook.cells or notebook.answers):
            continue  # it cannot be read at all
        cells[book] = notebook.cells[:left]
        left -= len(cells[book])
        lost = len(notebook.cells) > len(cells[book])
        renamed: dict[str, dict[str, str]] = {}  # answer -> name of a picture -> in the record
        for name, found in notebook.pictures.items():
            there = pictures.get(name, {})
            new = {new_name(title, types, there): types for title, types in found.items()}
            renamed[name] = dict(zip(found, new, strict=True))
            costs = sum(len(data) for title in new.keys() - there.keys() for data in new[title].values())
            if costs > pictured:
                lost = True
            else:
                pictured -= costs
                pictures.setdefault(name, {}).update(new)
        for name, text in notebook.answers:
            known = answers.setdefault(name, [])
            if len(text) > room or len(known) >= MAX_VERSIONS:
                lost = True
            else:
                room -= len(text)
                known.append((book, with_names(text, renamed.get(name, {}))))
        if lost:
            remarks.append(f"{book} was left out in part: the notebooks hold more than all questions need")
    return cells, {name: sorted(said, key=lambda one: one[0]) for name, said in answers.items()}, pictures, remarks


def _code(submission: Submission) -> dict[str, str]:
    """The modules as text: to be shown beside their marks, and compared with others'."""
    found = {}
    for name in sorted(submission.assignment.module_files):
        content = submission.modules.get(name)
        if isinstance(content, bytes) and len(content) <= MAX_SOURCE_BYTES:
            found[name] = encodable(content.decode("utf-8", "replace").removeprefix("\ufeff"))
    return found


def dated(record: SubmissionRecord, path: Path, submissions: Path) -> SubmissionRecord:
    """With the name by which it came into the folder of all submissions, and when."""
    name, handed_in = came(path, submissions)
    return replace(record, name="" if name == record.student else name, handed_in=handed_in)


def charged(record: SubmissionRecord, share: float) -> SubmissionRecord:
    """With the points that are left where `share` is taken of those that were asked about, whatever was before."""
    marks = tuple(_charged(mark, share if mark.exercise in record.paid else 0.0) for mark in record.exercises)
    return replace(record, exercises=marks, why_costs=share)


def _charged(mark: ExerciseMark, share: float) -> ExerciseMark:
    if mark.points is None:
        return mark
    off = points_off(mark.earned, share)
    return replace(mark, points=round(mark.earned - off, 2), off=off)


def merged(records: Sequence[SubmissionRecord], share: float, *, decided: bool) -> list[SubmissionRecord]:
    """Parts of a class put together.

    Args:
        decided: `share` holds, and not what each part was graded with.

    Raises:
        UserError: nothing is decided, and the parts differ.
    """
    shares = sorted({record.why_costs for record in records})
    if decided:
        return [charged(record, share) for record in records]
    if len(shares) > 1:
        raise UserError(f"graded with --why-costs {' and '.join(f'{one:g}' for one in shares)}: say which holds")
    return list(records)


def charge_all(out: Path, records: Sequence[SubmissionRecord], share: float) -> list[SubmissionRecord]:
    """The same for all of a class, whenever they were graded; what that changes is written."""
    now = [charged(record, share) for record in records]
    return [new if new == old else store.save(out, new) for new, old in zip(now, records, strict=True)]
