"""lab watch: check the next unfinished exercise whenever its file is saved."""

import argparse
import sys
from collections.abc import Iterator

from lab.grading.feedback import Feedback
from lab.grading.suite import ExerciseResult
from lab.ranks.server import server as shared_server
from lab.student.watch import Watch
from lab.syllabus.paths import find_code
from lab.syllabus.syllabus import Exercise, syllabus

HELP = "check the next unfinished exercise whenever you save, and go on when it passes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="exercises (3.2) or sections (3); none: all of them")
    parser.add_argument("--code", metavar="DIR", help="the folder of your exercises (default: found from here)")
    parser.add_argument("-v", "--verbose", action="store_true", help="also show what your code printed")


def run(args: argparse.Namespace) -> int:
    """Ends with 0: when all exercises have passed, or by Ctrl-C."""
    of = syllabus()
    exercises = of.select(args.ids) if args.ids else list(of.exercises)
    code = find_code(args.code)
    server = shared_server()  # it loads torch in the background from now on
    watch = Watch(exercises, code, of, server)
    try:
        _show(watch.begin(), watch, verbose=args.verbose)
        while watch.current is not None:
            _show(watch.after_save(watch.saves.take()), watch, verbose=args.verbose)
    except KeyboardInterrupt:
        server.close()
        print(f"\n{_tally(watch)}. Nothing was left running.")
    return 0


def _show(steps: Iterator[Exercise | ExerciseResult], watch: Watch, *, verbose: bool) -> None:
    """Write the results as they come, then the details of the last one and what it waits for."""
    feedback = Feedback(sys.stdout, watch.code)  # a new one each time: the window may have changed its size
    feedback.clear()
    if watch.current is not None or not watch.done:
        feedback.say(_tally(watch), bold=True)
    result: ExerciseResult | None = None
    for step in steps:
        if isinstance(step, Exercise):
            feedback.running(step)
            result = None
        else:
            feedback.result(step)
            result = step
    exercise = watch.current
    if exercise is None:
        feedback.blank()
        feedback.say(f"{_tally(watch)}.")
    elif result is None:
        feedback.terminal.show("")
    else:
        feedback.details(result, verbose=verbose)
        feedback.blank()
        feedback.say(f"Waiting until you save {feedback.path(exercise)}. Ctrl-C ends.")
        feedback.say(f"Stuck? In another terminal: lab hint {exercise.id}")


def _tally(watch: Watch) -> str:
    done, number = len(watch.done), len(watch.exercises)
    if done < number:
        return f"{done} of {number} passed"
    return f"All {number} exercises passed" if number > 1 else f"{watch.exercises[0].id} passed"
