"""Which questions there are, which numbers a student has, and which answers were right, in .lab/questions.json.

{"seed": 12345, "right": ["ddp-sends"]}
"""

from __future__ import annotations

from pathlib import Path
from random import SystemRandom

from lab.base.errors import UsageError

# These two fill the bank.
from lab.questions import first_sections, later_sections  # noqa: F401
from lab.questions.question import BANK, Asked, Judged, Question
from lab.student.state import read_state, write_state

FILE = "questions.json"
ANYBODY = 0  # the seed where nothing can be remembered


def all_questions() -> list[Question]:
    """In the order of the sections."""
    return sorted(BANK.values(), key=lambda one: one.section)


def named(name: str) -> Question:
    """One question. Raises UsageError if there is no such one."""
    if name not in BANK:
        raise UsageError(f"there is no question {name!r}; choose from {', '.join(BANK)}")
    return BANK[name]


def ask(folder: Path | None, name: str) -> Asked:
    """The question with the numbers of the student whose folder this is; None: of nobody."""
    return named(name).for_student(_seed(folder))


def judge(folder: Path | None, name: str, answer: object) -> Judged:
    """Judge an answer, and remember it if it is right. Raises UsageError for what is no answer at all."""
    judged = ask(folder, name).judge(answer)
    if folder is not None and judged.right and name not in answered(folder):
        write_state(folder, FILE, {"seed": _seed(folder), "right": [*answered(folder), name]})
    return judged


def answered(folder: Path | None) -> list[str]:
    """The questions that were answered rightly."""
    known = _read(folder).get("right")
    return [name for name in known if name in BANK] if isinstance(known, list) else []


def _seed(folder: Path | None) -> int:
    known = _read(folder).get("seed")
    if folder is None or isinstance(known, int):
        return known if isinstance(known, int) else ANYBODY
    seed = SystemRandom().randrange(1, 1 << 30)
    return seed if write_state(folder, FILE, {"seed": seed, "right": []}) else ANYBODY


def _read(folder: Path | None) -> dict[str, object]:
    content = read_state(folder, FILE) if folder is not None else None
    return content if isinstance(content, dict) else {}
