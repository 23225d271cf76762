"""What was found last time, in .lab/progress.json of the student's folder. A cache, never the truth.

    {"exercises": {"3.2": {"outcome": "passed", "module": "<sha256 of data.py>", "at": "2026-01-31T12:00:00"}}}

An entry counts only as long as the module has the hash it was checked with.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from lab.grading.suite import ExerciseResult
from lab.grading.syllabus import Syllabus


def progress_file(folder: Path) -> Path:
    return folder / ".lab" / "progress.json"


def module_hash(file: Path) -> str:
    """sha256 of a module; "" when it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def read(folder: Path) -> dict[str, dict[str, str]]:
    """Exercise id -> its entry. Empty when there is no cache, or when it holds garbage."""
    try:
        stored = json.loads(progress_file(folder).read_text(encoding="utf-8"))
        entries = stored["exercises"]
        return {
            str(name): {str(key): str(value) for key, value in entry.items()} for name, entry in entries.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def passed(folder: Path, code: Path, of: Syllabus) -> set[str]:
    """Ids of the exercises that had passed with the module as it is now."""
    entries = read(folder)
    return {
        exercise.id
        for exercise in of.exercises
        if (entry := entries.get(exercise.id))
        and entry.get("outcome") == "passed"
        and entry.get("module") == module_hash(code / exercise.file)
    }


def store(folder: Path, code: Path, results: Iterable[ExerciseResult]) -> None:
    """Add results to the cache, atomically. A folder that cannot be written is no error: it is only a cache."""
    entries = read(folder)
    now = datetime.now().isoformat(timespec="seconds")
    for result in results:
        entries[result.exercise.id] = {
            "outcome": result.outcome.word,
            "module": module_hash(code / result.exercise.file),
            "at": now,
        }
    file = progress_file(folder)
    with contextlib.suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix="progress.", suffix=".tmp")
        try:
            with open(descriptor, "w", encoding="utf-8") as stream:
                json.dump({"exercises": entries}, stream, indent=1, sort_keys=True)
            os.replace(name, file)
        except OSError:
            os.unlink(name)
            raise
