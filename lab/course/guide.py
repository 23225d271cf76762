"""The marking guide as a page: the questions in the notebooks' order, with model answers, for instructors only."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.base.errors import UserError

FIELDS = {"points": int, "question": str, "answer": str, "full": str, "half": str}
ANSWER_CELL = re.compile(r'^# %% \[markdown\].*\banswer="([^"]+)"', re.MULTILINE)

INTRODUCTION = """\
# Marking guide

For instructors only: this page is in no release and no student's package. {count} questions, {points} points,
marked by hand in nbgrader's formgrader (or from answers.csv, which `lab grade` writes). Accept every answer that
is right, in whatever words; figures from a student's own runs need not agree with yours. An answer that nobody
wrote is given 0 by nbgrader and does not come up for marking.
"""


def read_guide(file: Path) -> dict[str, dict[str, Any]]:
    """Name of the answer -> its entry. Raises UserError naming the entry that is wrong."""
    try:
        guide = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file.name} cannot be read: {error}") from error
    for name, entry in guide.items():
        for field, kind in FIELDS.items():
            if not isinstance(entry, dict) or type(entry.get(field)) is not kind or not entry[field]:
                raise UserError(f"{file.name}: [{name}]: {field} must be {kind.__name__} and not empty")
    return guide


def guide_text(file: Path, books: Sequence[Path]) -> str:
    """The page.

    Args:
        file: marking_guide.toml.
        books: the notebooks' sources, in order.

    Raises:
        UserError: a question is without an entry, or an entry without a question.
    """
    guide = read_guide(file)
    asked = {book: ANSWER_CELL.findall(book.read_text(encoding="utf-8")) for book in books}
    names = [name for found in asked.values() for name in found]
    if unmatched := sorted(set(names) ^ set(guide)):
        raise UserError(f"{file.name} and the notebooks' questions differ in {', '.join(unmatched)}")
    parts = [INTRODUCTION.format(count=len(names), points=sum(entry["points"] for entry in guide.values()))]
    for book, found in asked.items():
        if found:
            parts.append(f"## {book.stem}\n")
        for name in found:
            entry = guide[name]
            parts.append(
                f"### {entry['question']}\n\n`answer-{name}`, {entry['points']} points\n\n{entry['answer']}\n\n"
                f"- **all points**: {entry['full']}\n- **half of them**: {entry['half']}\n"
            )
    return "\n".join(parts)
