"""lab trace: draw the collectives of an exercise's checks, rank beside rank."""

import argparse
import sys
from pathlib import Path

from lab.base.errors import UserError
from lab.base.terminal import can_write
from lab.grading.diagnosis import Passed, exit_code
from lab.grading.feedback import Feedback
from lab.syllabus.paths import find_code
from lab.syllabus.syllabus import syllabus

HELP = "draw which collectives the ranks called in an exercise's checks, and where one did not come"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the exercise, such as 6.2")
    parser.add_argument("--code", metavar="DIR", help="the folder of your exercises (default: found from here)")
    parser.add_argument(
        "--svg", metavar="FILE", type=Path, help="also write the picture of the collectives to FILE, as SVG"
    )


def run(args: argparse.Namespace) -> int:
    """0: the exercise passed; 1: it did not; 3: the lab itself failed."""
    exercise = syllabus().one(args.id, f"{args.id} is a section; trace one of its exercises")
    code = find_code(args.code)
    feedback = Feedback(sys.stdout, code)
    feedback.running(exercise)
    from lab.grading.trace.picture import picture, trace_exercise
    from lab.grading.trace.svg import trace_svg
    from lab.grading.trace.text import UNICODE, trace_text
    from lab.grading.trace.timeline import record

    traced = trace_exercise(exercise, code)
    feedback.terminal.show("")
    feedback.say(f"{exercise.id}  {exercise.title}", bold=True)
    unicode = can_write(sys.stdout, UNICODE)
    sections = []
    for check in traced:
        feedback.details(check.result)
        for group in check.groups:
            drawn = picture(group, code)
            number = len(group.reports)
            heading = f"{number} rank{'s' * (number != 1)}"
            feedback.blank()
            feedback.say(f"{heading}: {drawn.summary}")
            if drawn.rows:
                print(trace_text(drawn, width=feedback.width, unicode=unicode, colour=feedback.colour))
            sections.append((f"{heading}, {check.title}", drawn))
        feedback.blank()
    if traced and isinstance(traced[-1].result.outcome, Passed):
        for timeline in record(exercise, code):
            print(timeline.text(feedback.width))
            feedback.blank()
    if args.svg:
        _write(args.svg, trace_svg(sections, f"Collectives in exercise {exercise.id}, {exercise.title}"))
        feedback.say(f"The picture is in {args.svg}.")
    return exit_code(check.result.outcome for check in traced)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None
