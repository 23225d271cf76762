"""Cards: the result of an exercise, a hint, a note."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lab.base.html import render
from lab.base.terminal import Page
from lab.grading.diagnosis import Blocked, Failed, Outcome, Passed
from lab.grading.feedback import OUTPUT_CHARACTERS, OUTPUT_LINES, Feedback
from lab.grading.looks import LOOKS
from lab.grading.suite import CheckResult, ExerciseResult
from lab.grading.trace.why import left_out, told, write
from lab.notebook import session
from lab.notebook.show import Card
from lab.syllabus.syllabus import Exercise

TEXT_WIDTH = 88


class File(NamedTuple):
    """Where an exercise is, for a link that JupyterLab opens beside the notebook."""

    address: str
    name: str


def result_card(result: ExerciseResult, code: Path, following: Exercise | None) -> Card:
    """How the checks of one exercise ended.

    Args:
        code: the folder of the student's modules.
        following: the exercise that is next, if it is known.
    """
    exercise, outcome = result.exercise, result.outcome
    word = f"blocked: {outcome.by}" if isinstance(outcome, Blocked) else outcome.word
    text = _text(result, code)
    if isinstance(outcome, Failed):
        text += f'\nStuck? hint("{exercise.id}")'
    return framed(
        "result.html",
        f"{exercise.id}: {word}",
        text,
        outcome,
        exercise=exercise,
        word=word,
        seconds=result.seconds,
        checks=_checks(result),
        parts_text=result.parts_text,
        printed=_printed(result.checks),
        following=following if isinstance(outcome, Passed) else None,
        file_of=partial(file_of, code=code),
    )


def why_card(result: ExerciseResult, said: str = "") -> Card:
    """What the checks of an exercise did: given, compared, reported.

    Args:
        said: what to say first.
    """
    checks, sentences = told(result), [*filter(None, [said]), *left_out(result)]
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="utf-8")
    page = Page(stream, width=TEXT_WIDTH, colour=False)
    for sentence in sentences:
        page.say(sentence)
    write(page, checks)
    text = buffer.getvalue().decode("utf-8").strip("\n")
    label = f"{result.exercise.id}: what its checks did"
    return framed("why.html", label, text, exercise=result.exercise, checks=checks, sentences=sentences)


def hint_card(exercise: Exercise, numbers: Iterable[int]) -> Card:
    """Some hints of an exercise, counted from 1."""
    numbers, count = list(numbers), len(exercise.hints)
    lines = [f"{exercise.id}  {exercise.title}"]
    lines += [f"  hint {number} of {count}: {exercise.hints[number - 1]}" for number in numbers]
    more = ""
    if numbers[-1] < count:
        more = f'{count - numbers[-1]} more: run hint("{exercise.id}") again.'
        lines.append(more)
    label, text = f"hints for {exercise.id}", "\n".join(lines)
    return framed("hints.html", label, text, exercise=exercise, numbers=numbers, more=more)


def note_card(text: str) -> Card:
    """One line."""
    return framed("note.html", text, text)


def framed(template: str, label: str, text: str, outcome: Outcome | None = None, **values: object) -> Card:
    """A card from a template that extends card.html; the outcome gives the colour of its edge."""
    colour = LOOKS[outcome.word].colour if outcome else ""
    return Card(render(template, label=label, colour=colour, outcome=outcome, looks=LOOKS, **values), text)


def file_of(exercise: Exercise, code: Path) -> File:
    """The file of an exercise, as seen from the notebook."""
    return File(os.path.relpath(code / exercise.file, session.HERE), f"{code.name}/{exercise.file}")


def _checks(result: ExerciseResult) -> list[tuple[str, Outcome, bool]]:
    """For each check its title, its outcome, and whether that has been said before."""
    if not result.checks:
        outcome = result.outcome
        return [(outcome.word if isinstance(outcome, Failed) else "", outcome, False)]
    outcomes = [check.outcome for check in result.checks]
    return [
        (
            f"failed: {check.title}" if isinstance(check.outcome, Failed) else check.title,
            check.outcome,
            check.outcome in outcomes[:number],
        )
        for number, check in enumerate(result.checks)
    ]


def _printed(checks: Iterable[CheckResult]) -> str:
    """What the student's code has printed."""
    printed = []
    for check in checks:
        for rank, text in check.outputs:
            lines = text[-OUTPUT_CHARACTERS:].splitlines()[-OUTPUT_LINES:]
            cut = len(text) > OUTPUT_CHARACTERS or len(text.splitlines()) > OUTPUT_LINES
            printed.append(f"rank {rank}:{' (only the end is shown)' if cut else ''}")
            printed += lines
    return "\n".join(printed)


def _text(result: ExerciseResult, code: Path) -> str:
    """As in the terminal, for programs that show no HTML."""
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="utf-8")
    feedback = Feedback(stream, code, width=TEXT_WIDTH, colour=False, cwd=session.HERE)
    feedback.result(result)
    feedback.details(result)
    return buffer.getvalue().decode("utf-8").rstrip("\n")
