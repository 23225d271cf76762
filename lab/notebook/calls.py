"""check, hint, question, trace and progress, as a notebook's cells call them."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

from lab.grading.diagnosis import Diagnosis, Failed, LabError, Passed
from lab.grading.suite import ExerciseResult, Suite
from lab.grading.trace.why import reported
from lab.notebook import session
from lab.notebook.card import framed, hint_card, note_card, result_card, why_card
from lab.notebook.show import Said, Shown, one_sentence
from lab.notebook.strip import strip_card
from lab.questions.asking import all_questions, answered, ask, judge
from lab.questions.question import PLACEHOLDER, Number
from lab.questions.words import list_lines, question_lines, verdict
from lab.student import hints as had_hints
from lab.student import outcomes
from lab.student.paying import IN_NOTEBOOK, Terms
from lab.syllabus.paths import is_labs_own, student_folder
from lab.syllabus.syllabus import Exercise, syllabus

STOPPED = "Stopped. Nothing was left running."


class CheckFailed(Said):
    """Tells nbgrader, which knows a failed cell by its error, that an exercise has not passed."""


@one_sentence
def check(*names: str, why: bool = False, pay: bool = False) -> None:
    """Check exercises ("3.2"), sections ("3") or all of them, on fresh ranks: what is saved is what is checked.

    Shows a card for each: what is right, what is wrong, what that means and where to look.

    Args:
        why: of those that pass, also what the check drew and compared, and what each rank reported.
        pay: that of one that has not passed, at the price that the course has set, if it has.
    """
    exercises = _select(names)
    if session.graded_elsewhere():
        print(
            f"{', '.join(exercise.id for exercise in exercises)}: checked by the grader, outside of this notebook."
        )
        return
    code = session.code()
    terms = Terms.of(code) if why or pay else None
    if terms and pay:
        terms.refuse_to_pay(exercises, why, IN_NOTEBOOK)
    suite = Suite(code)
    results = [_check(exercise, suite, last=exercise is exercises[-1]) for exercise in exercises]
    if terms:
        for result in results:
            shown, said = terms.ask(result, reported=reported(result), pay=pay, way=IN_NOTEBOOK)
            Shown(why_card(result, said) if shown else note_card(said))
    not_passed = [result for result in results if not isinstance(result.outcome, Passed)]
    if not_passed and session.judged_by_nbgrader():
        raise CheckFailed("; ".join(f"{result.exercise.id} {result.outcome.word}" for result in not_passed))


@one_sentence
def hint(name: str | None = None, *, all: bool = False) -> None:
    """The next hint for an exercise, by default for the first that has not passed; or all of its hints."""
    code = session.code()
    exercise = _next(code) if name is None else syllabus().one(str(name), "one exercise at a time")
    if exercise is None:
        raise Said('say for which exercise, for example hint("3.2")')
    number = min(had_hints.had(student_folder(code), exercise) + 1, len(exercise.hints))
    if not all and not is_labs_own(code):
        had_hints.store(student_folder(code), exercise, number)
    Shown(hint_card(exercise, range(1, len(exercise.hints) + 1) if all else [number]))


@one_sentence
def question(name: str | None = None, answer: object = None) -> None:
    """A small question with numbers of your own, and what an answer to it means; without a name: all of them."""
    if session.graded_elsewhere():
        print("Not asked while it is graded.")
        return
    code = session.code()
    folder = None if is_labs_own(code) else student_folder(code)
    if name is None:
        names, right = [(one.section, one.name) for one in all_questions()], answered(folder)
        text = "\n".join(list_lines(names, right))
        Shown(framed("question.html", "questions", text, names=names, right=right))
        return
    asked = ask(folder, name)
    judged = None if answer is None else judge(folder, name, answer)
    example = PLACEHOLDER if isinstance(asked, Number) else f'"{PLACEHOLDER}"'
    lines = [*question_lines(asked), verdict(judged) if judged else f'question("{name}", {example})']
    outcome = None
    if judged:
        outcome = Passed() if judged.right else Failed(Diagnosis(name, saw="", means=judged.sentence, look=""))
    unit = f", in {asked.unit}," if isinstance(asked, Number) and asked.unit else ""
    shown = {"names": (), "asked": asked, "judged": judged, "name": name, "example": example, "unit": unit}
    Shown(framed("question.html", f"question {name}", "\n".join(lines), outcome, **shown))


@one_sentence
def trace(name: str) -> None:
    """Draw the collectives that the ranks call in an exercise's checks, rank beside rank."""
    exercise = syllabus().one(str(name), f"{name} is a section; trace one of its exercises")
    if session.graded_elsewhere():
        print(f"{name}: not traced while it is graded.")
        return
    code = session.code()
    shown = Shown(note_card(f"{name}  {exercise.title}: running its checks, every collective recorded …"))
    try:
        session.warm()
        from lab.notebook.traced import trace_card  # these load what checks need

        shown.replace(trace_card(exercise, code))
    except KeyboardInterrupt:
        shown.replace(note_card(STOPPED))
        raise
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in here is never the student's fault
        result = ExerciseResult(exercise, LabError(f"no trace: {error}", traceback.format_exc()), (), 0.0)
        shown.replace(result_card(result, code, None))


@one_sentence
def progress() -> None:
    """All exercises at a glance, as far as they were checked. What has changed since it passed, is again."""
    code = session.code()
    runs = not (is_labs_own(code) or session.graded_elsewhere())
    changed = sorted(outcomes.to_check_again(code, syllabus())) if runs else []
    if not changed:
        Shown(strip_card(code))
        return
    shown = Shown(note_card(f"{', '.join(changed)}: changed since it passed; checking again …"))
    try:
        _check_again(code)
    except KeyboardInterrupt:
        shown.replace(note_card(STOPPED))
        raise
    shown.replace(strip_card(code))


def _check(exercise: Exercise, suite: Suite, *, last: bool) -> ExerciseResult:
    """Check one exercise, show its card and remember how it ended.

    Args:
        last: of those that the cell asks for: when it passes, what its code has changed besides is checked again.
    """
    code = suite.code
    broken: list[ExerciseResult] = []
    shown = Shown(note_card(f"{exercise.id}  {exercise.title}: running …"))
    try:
        session.warm()
        result = suite.run(exercise)
        if not is_labs_own(code):
            outcomes.store(code, [result])
            broken = _check_again(code) if last and isinstance(result.outcome, Passed) else []
    except KeyboardInterrupt:
        shown.replace(note_card(STOPPED))
        raise
    shown.replace(result_card(result, code, _next(code, exercise)))
    for other in broken:
        Shown(note_card(f"{other.exercise.id} had passed. As its code is now, it does not."))
        Shown(result_card(other, code, None))
    return result


def _check_again(code: Path) -> list[ExerciseResult]:
    """Check what had passed and has changed since. Returns what does not pass any more."""
    session.warm()
    results = [step for step in outcomes.check_again(code, syllabus()) if isinstance(step, ExerciseResult)]
    return [result for result in results if not isinstance(result.outcome, Passed)]


def _select(names: Sequence[str]) -> list[Exercise]:
    return syllabus().select([str(name) for name in names]) if names else list(syllabus().exercises)


def _next(code: Path, after: Exercise | None = None) -> Exercise | None:
    """The first exercise that has not passed, if that is known: nothing is remembered of the lab's own modules.

    Args:
        after: what was just checked; after one of part two comes another of these.
    """
    of = outcomes.part_two(code, syllabus()) if after in syllabus().optional else syllabus()
    return None if is_labs_own(code) else outcomes.unfinished(code, of)
