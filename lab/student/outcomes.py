"""What was found last time, in .lab/progress.json of the student's folder. A cache, never the truth.

    {"exercises": {"3.2": {"outcome": "passed", "module": "<sha256 of data.py>", "at": "2026-01-31T12:00:00"}}}

An entry counts only as long as the module has the hash it was checked with.
"""

import hashlib
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from lab.base.source import MAX_MODULE_BYTES
from lab.grading.suite import ExerciseResult
from lab.student.state import read_state, write_state
from lab.syllabus.package import is_todo
from lab.syllabus.paths import student_folder
from lab.syllabus.syllabus import Exercise, Syllabus

FILE = "progress.json"


def module_hash(file: Path) -> str:
    """sha256 of a module; "" when it cannot be read, or is no ordinary file."""
    try:
        if not file.is_file() or file.stat().st_size > MAX_MODULE_BYTES:  # reading a pipe would wait for ever
            return ""
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


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
    """Ids of the exercises that had passed with the module as it is now."""
    entries = read(code)
    return {
        exercise.id
        for exercise in of.exercises
        if (entry := entries.get(exercise.id))
        and entry.get("outcome") == "passed"
        and entry.get("module") == module_hash(code / exercise.file)
    }


def unfinished(code: Path, of: Syllabus) -> Exercise | None:
    """The first exercise that has not passed, as far as we know.

    Writing 2.2 changes the file in which 2.1 has passed. Nobody wants to be sent back for that: exercises that
    only have to be checked again come last.
    """
    known = passed(code, of)
    left = [exercise for exercise in of.exercises if exercise.id not in known]
    again = to_check_again(code, of)
    return next((exercise for exercise in left if exercise.id not in again), next(iter(left), None))


def to_check_again(code: Path, of: Syllabus) -> set[str]:
    """Ids of the exercises that had passed before their module was changed, and are still written."""
    entries = read(code)
    return {
        exercise.id
        for exercise in of.exercises
        if entries.get(exercise.id, {}).get("outcome") == "passed"
        and module_hash(code / exercise.file)
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


def store(code: Path, results: Iterable[ExerciseResult]) -> None:
    """Add results to the cache. A folder that cannot be written is no error: it is only a cache."""
    entries = read(code)
    now = datetime.now().isoformat(timespec="seconds")
    for result in results:
        entries[result.exercise.id] = {
            "outcome": result.outcome.word,
            "module": module_hash(code / result.exercise.file),
            "at": now,
        }
    write_state(student_folder(code), FILE, {"exercises": entries})
