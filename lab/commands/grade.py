"""lab grade: grade the submissions of a class."""

import argparse
import sys
from pathlib import Path

from lab.base.errors import UsageError
from lab.base.machine import usable_cores
from lab.syllabus.syllabus import syllabus

HELP = "grade the submissions of a class, each in a sandbox (for instructors)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "submissions",
        nargs="?",
        type=Path,
        metavar="SUBMISSIONS",
        help="a folder with one folder or one zip for each student, such as nbgrader's submitted/",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="default: grades (beside SUBMISSIONS, where that is here), or DIR/grades of a course",
    )
    parser.add_argument(
        "--course",
        type=Path,
        metavar="DIR",
        help="put the marks into the gradebook of this course, and the submissions into its submitted/ "
        "(known by itself where SUBMISSIONS is a course's submitted/)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="submissions graded at the same time (default: one a core it may use)",
    )
    parser.add_argument(
        "--deadline", type=float, metavar="SECONDS", help="for all checks of one submission (default: 180)"
    )
    parser.add_argument("--force", action="store_true", help="grade also what has not changed")
    parser.add_argument(
        "--hand-in", action="store_true", help="grade nothing: only put SUBMISSIONS into submitted/ of --course"
    )
    parser.add_argument(
        "--shard", metavar="i/n", help="grade only the i-th of n parts of the class; a student stays in a part"
    )
    parser.add_argument(
        "--merge",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="grade nothing: put together what runs with --shard have written to these folders",
    )


def run(args: argparse.Namespace) -> int:
    """0: all is graded; 1: an instructor has to look at some submission."""
    from lab.course import store
    from lab.course.batch import Shard, grade_class
    from lab.course.gradebook import Course, is_course
    from lab.course.marks import SubmissionRecord
    from lab.course.modules import DEADLINE
    from lab.course.outputs import write_all
    from lab.course.submissions import SUBMITTED, find_submissions

    if args.merge and (args.submissions or args.shard or args.force or args.jobs or args.deadline or args.hand_in):
        raise UsageError(
            "--merge takes folders of graded submissions, and of the other options only --out and --course"
        )
    if not args.merge and args.submissions is None:
        raise UsageError("say which submissions: lab grade SUBMISSIONS, a folder with one folder or zip a student")
    for name in ("jobs", "deadline"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            raise UsageError(f"--{name} {value}: expected more than 0")
    shard = Shard.parse(args.shard) if args.shard else None
    deadline = args.deadline or DEADLINE
    submissions = args.submissions.expanduser() if args.submissions else None
    home = args.course.expanduser() if args.course else is_course(submissions) if submissions else None
    course = Course(home) if home else None
    if course and args.course and args.out:
        raise UsageError(f"--out and --course: the grades of a course are in its own folder, {course.out}")
    elsewhere = course is not None and submissions is not None and not course.holds(submissions)
    if args.hand_in and not elsewhere:
        raise UsageError(
            "--hand-in is for submissions from elsewhere: add --course DIR, the course they belong to"
        )
    if args.shard and elsewhere:
        raise UsageError(
            "--shard: each part would write all of the course's submitted/. "
            f"First, once: lab grade {args.submissions} --course {args.course} --hand-in, "
            f"then lab grade {args.course / SUBMITTED} --shard {args.shard}"
        )
    out = args.out.expanduser() if args.out else course.out if course else default_out(submissions)
    if submissions and out.resolve().is_relative_to(submissions.resolve()):
        raise UsageError(
            f"{out} is inside {args.submissions}, and would be graded as a submission: name another --out"
        )
    of = syllabus().points

    def progress(record: SubmissionRecord, number: int, count: int) -> None:
        look = f"  to look at: {'; '.join(record.to_look)}" if record.to_look else ""
        print(f"{number:4}/{count}  {record.student:24} {record.points:6g} of {of}  {record.seconds:6.1f} s{look}")
        sys.stdout.flush()

    def booked(record: SubmissionRecord) -> None:
        print(f"  in the gradebook: {record.student}", flush=True)

    troubles: list[str] = []
    if args.merge:
        records = store.load_all([folder.expanduser() for folder in args.merge])
        for record in records:
            store.save(out, record)
    else:
        assert submissions is not None
        if course and elsewhere:
            for student in find_submissions(submissions):
                if (name := store.file_name(student, "")) != student:
                    print(f"  {student} is called {name} in the course")
            troubles += course.hand_in(submissions)
            submissions = course.submitted
            for said in troubles:
                print(f"  handed in, to look at: {said}")
            if args.hand_in:
                print(f"{submissions} holds the submissions now, which are not graded yet.")
                return 1 if troubles else 0
        batch = grade_class(
            submissions,
            out,
            jobs=args.jobs or usable_cores(),
            deadline=deadline,
            shard=shard,
            force=args.force,
            progress=progress,
        )
        records = batch.records
        kept = f", {batch.kept} had been graded before and have not changed" if batch.kept else ""
        print(f"{batch.graded} graded{kept}.")
    if shard and shard.count > 1:
        into = f" --course {course.folder}" if course else ""
        print(f"This was part {args.shard}. When all are done: lab grade --merge {out} [other folders]{into}")
        return 0
    former = write_all(out, records)
    print(
        f"{out}: marks.csv, answers.csv to mark by hand, feedback/ for the students, report.html about the class"
    )
    if former:
        print(f"{former.path}: the answers.csv that was there; {former.why}")
    if course and out == course.out:
        failed = course.book(records, deadline, force=args.force, booked=booked)
        troubles += failed
        print(f"Gradebook: {course.folder / 'gradebook.db'}; answers are marked in nbgrader's formgrader")
        for said in failed:
            print(f"  not in the gradebook: {said}")
    look = [record.student for record in records if record.to_look]
    if look:
        print(f"To look at (column to_look of marks.csv): {', '.join(look[:10])}{', ...' * (len(look) > 10)}")
    return 1 if troubles or look else 0


def default_out(submissions: Path | None) -> Path:
    """grades, here; beside the submissions where "here" is among them, so that no grades are graded next time."""
    here = Path("grades")
    if submissions and here.resolve().is_relative_to(submissions.resolve()):
        return submissions.resolve().with_name("grades")
    return here
