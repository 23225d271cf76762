"""Grading a class: which submissions are still to be graded, and where the records go."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lab.base.errors import UsageError
from lab.course import store
from lab.course.marks import SubmissionRecord
from lab.course.modules import DEADLINE
from lab.course.pool import grade_all
from lab.course.submissions import find_submissions, read_submission
from lab.ranks.sandbox import Sandbox


@dataclass(frozen=True)
class Shard:
    """Part `number` of `count`, counted from 1. A student is always in the same part, whoever else hands in."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Raises UsageError unless it is i/n."""
        number, slash, count = text.partition("/")
        if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise UsageError(f"--shard {text}: expected i/n with 1 <= i <= n, such as 2/4")
        return cls(int(number), int(count))

    def has(self, student: str) -> bool:
        """Whether a student's submission is in this part."""
        digest = hashlib.sha256(student.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.number - 1


@dataclass
class Batch:
    """What a run has done."""

    records: list[SubmissionRecord] = field(default_factory=list)
    graded: int = 0
    kept: int = 0


def grade_class(
    folder: Path,
    out: Path,
    *,
    jobs: int,
    deadline: float = DEADLINE,
    shard: Shard | None = None,
    force: bool = False,
    progress: Callable[[SubmissionRecord, int, int], None] = lambda record, number, count: None,
) -> Batch:
    """Grade all submissions of a folder, or one shard of them, and write their records below `out`.

    Args:
        force: grade also what has not changed since it was graded.
        progress: called after each submission with its record, its number and how many are graded in this run.

    Raises:
        UserError: there is no submission, or no sandbox to run one in.
    """
    shard = shard or Shard()
    batch = Batch()
    mine = [(student, path) for student, path in find_submissions(folder).items() if shard.has(student)]
    work: list[tuple[str, Path]] = []  # not what is in them: a whole class would not fit into memory
    for student, path in mine:
        submission = read_submission(student, path)
        known = None if force else store.load(out, student)
        if known is not None and known.student == student and known.final(submission.key, deadline):
            batch.records.append(known)
            batch.kept += 1
        else:
            work.append((student, path))
    if work:
        Sandbox().require()

    def done(record: SubmissionRecord) -> None:
        store.save(out, record)
        batch.records.append(record)
        batch.graded += 1
        progress(record, batch.graded, len(work))

    (out / store.FOLDER).mkdir(parents=True, exist_ok=True)
    grade_all(work, jobs=jobs, deadline=deadline, done=done)
    batch.records.sort(key=lambda record: record.student)
    return batch
