"""The progress strip: all exercises in a row, from the cache of what was found last."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from lab.grading.diagnosis import Blocked, Failed, NotStarted, Passed
from lab.grading.looks import LOOKS, TO_CHECK
from lab.notebook.card import file_of, framed
from lab.notebook.show import Card
from lab.student import outcomes
from lab.syllabus.syllabus import Exercise, Syllabus, syllabus

FOUND = {Passed.word, Failed.word, NotStarted.word, Blocked.word}  # the lab's own fault is to be checked again


def states(code: Path, of: Syllabus) -> dict[str, str]:
    """Exercise id -> passed, failed, blocked, not started, to check."""
    entries = outcomes.read(code)
    return {exercise.id: _state(exercise, code, entries.get(exercise.id, {})) for exercise in of.every}


def strip_card(code: Path, of: Syllabus | None = None) -> Card:
    """All exercises, how many have passed, and which is next; below them those of part two, once it was begun."""
    of = of or syllabus()
    state = states(code, of)
    passed = [exercise for exercise in of.exercises if state[exercise.id] == Passed.word]
    points = outcomes.points(code, Syllabus(of.exercises))
    summary = f"{len(passed)} of {len(of.exercises)} exercises passed, {points} of {of.points} points"
    lines = [summary]
    lines += [_line(exercise, state[exercise.id]) for exercise in of.exercises]
    more = outcomes.begun(code, of)
    more_summary = ""
    if more.exercises:
        earned = [exercise for exercise in more.exercises if state[exercise.id] == Passed.word]
        points = outcomes.points(code, more)
        more_summary = f"Part two: {len(earned)} of {len(more.exercises)}, {points} of {more.points} points"
        lines.append(more_summary)
        lines += [_line(exercise, state[exercise.id]) for exercise in more.exercises]
    following = outcomes.unfinished(code, of)
    if following:
        lines.append(f"Next: {following.id} {following.title}, in {file_of(following, code).name}")
    return framed(
        "strip.html",
        "progress",
        "\n".join(lines),
        summary=summary,
        exercises=of.exercises,
        more=more.exercises,
        more_summary=more_summary,
        states=state,
        following=following,
        file_of=partial(file_of, code=code),
    )


def _line(exercise: Exercise, word: str) -> str:
    return f"{exercise.id:4} {exercise.title:33} {LOOKS[word].sign} {word}"


def _state(exercise: Exercise, code: Path, entry: dict[str, str]) -> str:
    if outcomes.is_stub(exercise, code):
        return NotStarted.word
    if entry.get("outcome") in FOUND and outcomes.is_of_now(entry, exercise, code):
        return entry["outcome"]
    return TO_CHECK
