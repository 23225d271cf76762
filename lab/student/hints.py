"""How many hints of each exercise a student has had, in .lab/hints.json of their folder: {"3.2": 2}.

They begin anew when the exercise does (`lab reset`).
"""

from collections.abc import Iterable
from pathlib import Path

from lab.student.state import read_state, write_state
from lab.syllabus.syllabus import Exercise

FILE = "hints.json"


def had(folder: Path, exercise: Exercise) -> int:
    """How many hints of this exercise have been shown: 0 to all of them."""
    return min(_read(folder).get(exercise.id, 0), len(exercise.hints))


def store(folder: Path, exercise: Exercise, number: int) -> bool:
    """Remember that `number` hints have been shown. Tells whether that was possible."""
    return write_state(folder, FILE, {**_read(folder), exercise.id: number})


def forget(folder: Path, exercises: Iterable[Exercise]) -> None:
    """Begin these exercises' hints anew."""
    counts = _read(folder)
    left = {name: number for name, number in counts.items() if name not in [e.id for e in exercises]}
    if left != counts:
        write_state(folder, FILE, left)


def _read(folder: Path) -> dict[str, int]:
    content = read_state(folder, FILE)
    if not isinstance(content, dict):
        return {}
    return {name: number for name, number in content.items() if type(number) is int and number > 0}
