"""What was found last time, in .lab/progress.json of the student's folder. A cache, never the truth.

    {"exercises": {"3.2": {"outcome": "passed", "code": "<lab.student.depends>", "at": "2026-01-31T12:00:00",
                           "points": "10"}}}

An entry counts only as long as what the exercise depends on is what was checked. What had passed and has changed
since is checked again (`check_again`) before anybody is told a number.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from lab.base.source import MAX_MODULE_BYTES
from lab.grading.diagnosis import LabError
from lab.grading.suite import ExerciseResult, Suite
from lab.student.depends import code_hash
from lab.student.state import read_state, write_state
from lab.syllabus.package import is_todo
from lab.syllabus.paths import student_folder
from lab.syllabus.syllabus import Exercise, Syllabus

FILE = "progress.json"


def read(code: Path) -> dict[str, dict[str, str]]:
    """Exercise id -> its entry. Empty when there is no cache, or when it holds garbage."""
    try:
        entries = read_state(student_folder(code), FILE)["exercises"]
        return {
            str(name): {str(key): str(value) for key, value in entry.items()} for name, entry in entries.items()
        }
    except (KeyError, TypeError, AttributeError):
        return {}


def passed(code: Path, of: Syllabus) -> set[str]:
    """Ids of the exercises that had passed as they are now."""
    entries = read(code)
    return {
        exercise.id
        for exercise in of.every
        if (entry := entries.get(exercise.id))
        and entry.get("outcome") == "passed"
        and is_of_now(entry, exercise, code)
    }


def points(code: Path, of: Syllabus) -> int:
    """What the exercises gave as they are now: those that passed all, others what their parts have found."""
    entries, whole = read(code), passed(code, of)
    earned = 0
    for exercise in of.every:
        entry = entries.get(exercise.id, {})
        found = entry.get("points", "")
        if exercise.id in whole:
            earned += exercise.points
        elif re.fullmatch(r"\d{1,3}", found) and is_of_now(entry, exercise, code):
            earned += min(int(found), exercise.points)
    return earned


def is_of_now(entry: Mapping[str, str], exercise: Exercise, code: Path) -> bool:
    """Whether what was found is of the code as it is saved now."""
    return entry.get("code") == code_hash(exercise, code) != ""


def unfinished(code: Path, of: Syllabus, *, after: Exercise | None = None) -> Exercise | None:
    """The first exercise that has not passed, as far as we know.

    Writing 3.3 changes what 3.2 uses. Nobody wants to be sent back for that: exercises that only have to be
    checked again come last.

    Args:
        after: begin with those of its section that come after it, then those of other sections after it.
    """
    known = passed(code, of)
    left = [exercise for exercise in of.exercises if exercise.id not in known]
    if after in of.exercises:
        ids, place = [exercise.id for exercise in of.exercises], of.exercises.index(after)
        left.sort(key=lambda one: (ids.index(one.id) < place, one.section != after.section))
    again = to_check_again(code, of)
    return next((exercise for exercise in left if exercise.id not in again), next(iter(left), None))


def to_check_again(code: Path, of: Syllabus) -> set[str]:
    """Ids of the exercises that had passed before their code was changed, and are still written."""
    entries = read(code)
    return {
        exercise.id
        for exercise in of.every
        if entries.get(exercise.id, {}).get("outcome") == "passed"
        and code_hash(exercise, code)
        and not is_stub(exercise, code)
    } - passed(code, of)


def is_stub(exercise: Exercise, code: Path) -> bool:
    """Whether a TODO of the exercise still raises."""
    file = code / exercise.file
    try:
        if not file.is_file() or file.stat().st_size > MAX_MODULE_BYTES:
            return False
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(is_todo(line, exercise.id) and not line.lstrip().startswith("#") for line in text.splitlines())


def check_again(code: Path, of: Syllabus) -> Iterator[Exercise | ExerciseResult]:
    """Check what had passed and has changed since. Yields each exercise before it is checked, then its result."""
    suite = Suite(code, of=of)
    stale = to_check_again(code, of)
    for exercise in of.every:
        if exercise.id in stale:
            yield exercise
            result = suite.run(exercise)
            store(code, [result])
            yield result


def part_two(code: Path, of: Syllabus) -> Syllabus:
    """What there is of part two in this folder: a package from before section 9 was written has none of it."""
    return Syllabus(tuple(exercise for exercise in of.optional if (code / exercise.file).is_file()))


def begun(code: Path, of: Syllabus) -> Syllabus:
    """The same once any of it is no stub any more, and nothing before: what is optional is shown from then on."""
    there = part_two(code, of)
    return there if any(not is_stub(exercise, code) for exercise in there.exercises) else Syllabus(())


def store(code: Path, results: Iterable[ExerciseResult]) -> None:
    """Add results to the cache. A folder that cannot be written is no error: it is only a cache.

    The lab's own error says nothing about an exercise: what was found before stays.
    """
    entries = read(code)
    now = datetime.now().isoformat(timespec="seconds")
    for result in results:
        exercise = result.exercise
        if isinstance(result.outcome, LabError) and exercise.id in entries:
            continue
        entries[exercise.id] = {
            "outcome": result.outcome.word,
            "code": code_hash(exercise, code),
            "at": now,
            "points": str(result.points),
        }
    write_state(student_folder(code), FILE, {"exercises": entries})
