"""lab grade: grade the submissions of a class."""

import argparse
from pathlib import Path

from lab.course.config import ASSIGNMENT, ASSIGNMENT_TWO
from lab.course.people.options import add_class_arguments

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
        "--assignment",
        choices=(ASSIGNMENT, ASSIGNMENT_TWO),
        default=ASSIGNMENT,
        help=f"which part of the submissions: {ASSIGNMENT} (the default), or {ASSIGNMENT_TWO}, part two, whose "
        f"marks go into a folder of their own, {ASSIGNMENT_TWO} in the one above",
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
        "--student", nargs="+", metavar="NAME", help="grade only these: id, name or e-mail; the others' marks stay"
    )
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

    parser.add_argument(
        "--similar",
        action="store_true",
        help="also write similar.html and .csv: pairs of submissions whose code is alike, for you to look at",
    )
    add_class_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """0: all is graded; 1: something could not be graded, handed in or booked."""
    from lab.base.words import visible
    from lab.course.final.write import write_final
    from lab.course.grade import GradeChoices, grade_course
    from lab.course.similar.write import write_similar

    def say(line: str) -> None:  # with names and words of students in it
        print(visible(line), flush=True)

    choices = GradeChoices.from_args(args)
    code = grade_course(choices, say=say)
    if choices.shard.count == 1 and not choices.hand_in_only:
        write_final(choices.out, choices.books, say)
        if args.similar:
            write_similar(choices.out, say)
    elif args.similar:
        say("--similar: nothing is compared before the whole class is graded")
    return code
