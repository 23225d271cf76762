"""lab check: run the checks of exercises on real ranks."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.base.errors import UsageError
from lab.base.startup import no_collections
from lab.grading.diagnosis import Failed, NotStarted, Passed, exit_code
from lab.grading.feedback import Feedback
from lab.grading.suite import ExerciseResult, Suite
from lab.ranks.sandbox import Sandbox, copied
from lab.ranks.server import RankServer
from lab.student import outcomes
from lab.student.paying import IN_TERMINAL, Terms, taken
from lab.syllabus.paths import find_code, is_labs_own
from lab.syllabus.syllabus import Exercise, syllabus

HELP = "check your exercises and say what is right, what is wrong and why"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="exercises (3.2) or sections (3); none: all of them")
    parser.add_argument(
        "--code", metavar="DIR", help="the folder of your exercises (default: found from the current folder)"
    )
    parser.add_argument(
        "--sandbox", action="store_true", help="run the code where it can harm nothing (Linux, with bubblewrap)"
    )
    parser.add_argument(
        "--why",
        action="store_true",
        help="of an exercise that passes: what its check drew and compared, and what each rank reported",
    )
    parser.add_argument(
        "--pay",
        action="store_true",
        help="with --why: the same before it has passed, for some of its points, where your course has that",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="also show what your code printed")


def run(args: argparse.Namespace) -> int:
    """0: all passed; 1: some did not; 3: the lab itself failed."""
    of = syllabus()
    if args.why and not args.ids:
        raise UsageError("--why shows what the checks of single exercises did: lab check --why 6.1")
    exercises = of.select(args.ids) if args.ids else list(of.exercises)
    code = find_code(args.code)
    terms = Terms.of(code) if args.why or args.pay else None
    if terms and args.pay:
        if args.sandbox:
            raise UsageError(
                "--sandbox leaves nothing behind, and --pay a note of what you have paid: leave one out"
            )
        terms.refuse_to_pay(exercises, args.why, IN_TERMINAL)
    feedback = Feedback(sys.stdout, code)
    results: list[ExerciseResult] = []
    more: list[ExerciseResult] = []  # of part two, of which nothing is ever missing
    try:
        # Not much of it would be found: what the judges' torch is made of, a hundred times as much, stays.
        with _suite(code, in_sandbox=args.sandbox) as suite, no_collections():
            for number, exercise in enumerate(exercises):
                results.append(_check(suite, exercise, feedback))
                if args.ids:
                    feedback.details(results[-1], verbose=args.verbose)
                    if terms:
                        _why(feedback, results[-1], terms, pay=args.pay, whole=args.verbose)
                    if number < len(exercises) - 1:
                        feedback.blank()
            if not args.ids:
                feedback.failures(results, verbose=args.verbose)
                feedback.summary(results, of)
                if off := taken(code, results):
                    feedback.say(off)
                if (begun := outcomes.begun(code, of)).exercises:
                    feedback.part_two()
                    more += [_check(suite, exercise, feedback) for exercise in begun.exercises]
                    feedback.failures(more, verbose=args.verbose)
                    feedback.tally(more, begun)
    finally:
        if not is_labs_own(code) and not args.sandbox:  # which leaves nothing behind, not even a cache
            outcomes.store(code, results + more)
    if args.ids and not args.sandbox:
        _go_on(feedback, code, results)
    done = [result.outcome for result in more if not isinstance(result.outcome, NotStarted)]
    return exit_code([*(result.outcome for result in results), *done])


def _check(suite: Suite, exercise: Exercise, feedback: Feedback) -> ExerciseResult:
    """Run one exercise, with its line."""
    feedback.running(exercise)
    result = suite.run(exercise)
    feedback.result(result)
    return result


def _why(feedback: Feedback, result: ExerciseResult, terms: Terms, *, pay: bool, whole: bool) -> None:
    """What the checks did, where that gives away nothing any more, or is paid for."""
    from lab.grading.trace.why import left_out, reported, told, write

    shown, said = terms.ask(result, reported=reported(result), pay=pay)
    for sentence in [*filter(None, [said]), *(left_out(result) if shown else [])]:
        feedback.say(sentence, lead="  ")
    if shown:
        write(feedback, told(result, whole=whole))


@contextmanager
def _suite(code: Path, *, in_sandbox: bool) -> Iterator[Suite]:
    """In a sandbox, or none at all: never outside of one that was asked for."""
    if not in_sandbox:
        yield Suite(code)
        return
    sandbox = Sandbox()
    sandbox.require()
    with copied(code) as copy, RankServer(sandbox=sandbox) as server:
        yield Suite(copy, server=server)


def _go_on(feedback: Feedback, code: Path, results: list[ExerciseResult]) -> None:
    """After what was asked for: a hint where something is wrong, else the next exercise as far as we know.

    What had passed and has changed since, because the exercises share code, is checked again before that.
    """
    stuck = next((result for result in results if isinstance(result.outcome, Failed)), None)
    if stuck:
        feedback.blank()
        feedback.say(f"Stuck? lab hint {stuck.exercise.id}")
    if is_labs_own(code) or not all(isinstance(result.outcome, Passed) for result in results):
        return
    in_part_two = results[-1].exercise in syllabus().optional
    of = outcomes.part_two(code, syllabus()) if in_part_two else syllabus()
    for step in outcomes.check_again(code, of):
        if isinstance(step, Exercise):
            feedback.running(step)
        elif isinstance(step.outcome, Passed):
            feedback.terminal.show("")
        else:
            feedback.blank()
            feedback.say(f"{step.exercise.id} had passed. As its code is now, it does not:")
            feedback.result(step)
            feedback.details(step)
    if exercise := outcomes.unfinished(code, of, after=results[-1].exercise if in_part_two else None):
        feedback.blank()
        if exercise.id in outcomes.to_check_again(code, of):
            feedback.check_again(exercise)
        else:
            feedback.next_exercise(exercise)
