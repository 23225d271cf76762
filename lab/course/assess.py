"""One submission, from its files to its record: the way that `lab grade` and `nbgrader autograde` share."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from lab.base.source import MAX_SOURCE_BYTES
from lab.base.words import encodable
from lab.course.folders import came
from lab.course.marks import ExerciseMark, OutcomeRecord, SubmissionRecord
from lab.course.modules import DEADLINE, TimedServer, check_modules
from lab.course.notebooks import all_answers
from lab.course.sent.contents import as_few
from lab.course.sent.measured import MOST, SECONDS, tables
from lab.course.sent.shown import AS_SENT
from lab.course.submissions import Submission
from lab.grading.diagnosis import LabError
from lab.grading.reach import reaches
from lab.grading.unreadable import NO_FILE
from lab.syllabus.syllabus import syllabus


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
    books = [f"{encodable(path)} {said}" for path, book in submission.notebooks.items() for said in book.look]
    return SubmissionRecord(
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
    )


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
