"""lab hint: the next hint for an exercise, one at a time."""

import argparse
import sys
from pathlib import Path

from lab.base.errors import UsageError
from lab.grading.feedback import Feedback
from lab.student import hints, outcomes
from lab.syllabus.paths import find_code, is_labs_own, student_folder
from lab.syllabus.syllabus import Exercise, syllabus

HELP = "the next hint for an exercise; the last one nearly is the answer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="the exercise (3.2); none: the first that has not passed"
    )
    parser.add_argument("--all", action="store_true", help="all hints of the exercise at once")
    parser.add_argument("--code", metavar="DIR", help="the folder of your exercises (default: found from here)")


def run(args: argparse.Namespace) -> int:
    code = find_code(args.code)
    exercise = _exercise(args.id, code)
    feedback = Feedback(sys.stdout, code)
    if args.all:
        feedback.hints(exercise, range(1, len(exercise.hints) + 1))
        return 0
    had = hints.had(student_folder(code), exercise)
    number = min(had + 1, len(exercise.hints))
    feedback.hints(exercise, [number])
    remembered = not is_labs_own(code) and hints.store(student_folder(code), exercise, number)
    feedback.hints_left(exercise, number, remembered=remembered, again=number == had)
    return 0


def _exercise(name: str | None, code: Path) -> Exercise:
    if name is not None:
        return syllabus().one(name, "one exercise at a time")
    exercise = None if is_labs_own(code) else outcomes.unfinished(code, syllabus())
    if exercise is None:
        raise UsageError("say for which exercise, for example lab hint 3.2")
    return exercise
