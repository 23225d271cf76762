"""lab grade: grade the submissions of a class."""

import argparse
import os
import sys
from pathlib import Path

from lab.grading.syllabus import syllabus
from lab.training.errors import UsageError

HELP = "grade the submissions of a class, each in a sandbox (for instructors)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "submissions",
        nargs="?",
        type=Path,
        metavar="SUBMISSIONS",
        help="a folder with one folder or one zip for each student, such as nbgrader's submitted/",
    )
    parser.add_argument("--out", type=Path, default=Path("grades"), metavar="DIR", help="default: grades")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="submissions graded at the same time (default: one for each core)"
    )
    parser.add_argument(
        "--deadline", type=float, metavar="SECONDS", help="for all checks of one submission (default: 180)"
    )
    parser.add_argument("--force", action="store_true", help="grade also what has not changed")
    parser.add_argument("--shard", metavar="i/n", help="grade only every n-th submission, beginning with the i-th")
    parser.add_argument(
        "--merge",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="grade nothing: put together what runs with --shard have written to these folders",
    )


def run(args: argparse.Namespace) -> int:
    """0: all is graded; 1: an instructor has to look at some submission."""
    from lab.grading.course import store, tables
    from lab.grading.course.batch import Shard, grade_class
    from lab.grading.course.marks import SubmissionRecord
    from lab.grading.course.modules import DEADLINE

    if args.merge and (args.submissions or args.shard or args.force or args.jobs or args.deadline):
        raise UsageError("--merge takes folders of graded submissions, and of the other options only --out")
    if not args.merge and args.submissions is None:
        raise UsageError("say which submissions: lab grade SUBMISSIONS, a folder with one folder or zip a student")
    for name in ("jobs", "deadline"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            raise UsageError(f"--{name} {value}: expected more than 0")
    shard = Shard.parse(args.shard) if args.shard else None
    out = args.out.expanduser()
    of = syllabus().points

    def progress(record: SubmissionRecord, number: int, count: int) -> None:
        look = f"  to look at: {'; '.join(record.to_look)}" if record.to_look else ""
        print(f"{number:4}/{count}  {record.student:24} {record.points:6g} of {of}  {record.seconds:6.1f} s{look}")
        sys.stdout.flush()

    if args.merge:
        records = store.load_all(folder.expanduser() for folder in args.merge)
        for record in records:
            store.save(out, record)
    else:
        batch = grade_class(
            args.submissions.expanduser(),
            out,
            jobs=args.jobs or os.cpu_count() or 1,
            deadline=args.deadline or DEADLINE,
            shard=shard,
            force=args.force,
            progress=progress,
        )
        records = batch.records
        kept = f", {batch.kept} had been graded before and have not changed" if batch.kept else ""
        print(f"{batch.graded} graded{kept}.")
    if shard and shard.count > 1:
        print(f"This was part {args.shard}. When all are done: lab grade --merge {out} [other folders] --out DIR")
        return 0
    store.write(out / "marks.csv", tables.marks_csv(records))
    print(f"Marks: {out / 'marks.csv'}")
    return 1 if any(record.to_look for record in records) else 0
