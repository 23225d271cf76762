"""lab reset: bring an exercise, or a whole file, back to how it was at the beginning."""

import argparse
import os
from pathlib import Path

from lab.base.errors import UsageError
from lab.student import hints
from lab.syllabus.package import reset_exercise, reset_file
from lab.syllabus.paths import find_code, student_folder
from lab.syllabus.syllabus import syllabus

HELP = "bring an exercise back to how it was at the beginning, and keep a backup"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="exercises, e.g. 3.2")
    parser.add_argument("--file", metavar="NAME", help="the whole file instead, e.g. data.py")
    parser.add_argument("--code", metavar="DIR", help="the folder of your exercises (default: found from here)")


def run(args: argparse.Namespace) -> int:
    if bool(args.ids) == bool(args.file):
        raise UsageError("say either which exercise to reset (lab reset 3.2) or which file (--file data.py)")
    code = find_code(args.code)
    if args.file:
        _say(args.file, reset_file(code, args.file))
        hints.forget(student_folder(code), [e for e in syllabus().every if e.file == args.file])
        return 0
    for exercise in syllabus().select(args.ids):
        backup, names = reset_exercise(code, exercise)
        hints.forget(student_folder(code), [exercise])
        _say(f"{exercise.id} ({', '.join(names)} in {exercise.file})", backup)
    return 0


def _say(what: str, backup: Path | None) -> None:
    if backup is None:
        print(f"{what} is as it was at the beginning already")
    else:
        print(f"{what} is as it was at the beginning; yours is kept in {os.path.relpath(backup)}")
