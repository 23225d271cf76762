"""Own points for exercises and questions: a table of a course's, which an update of the lab leaves alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.base.errors import UsageError, UserError
from lab.course.people.csvfile import first_of, read_table

NAMES = ("id", "exercise", "question")
POINTS = ("points", "of", "max points")


def read_points(path: Path) -> dict[str, float]:
    """Exercise ("6.1") or question ("why-shape") -> what it is worth in the final table.

    Raises:
        UserError: it cannot be read, or a line names nothing, or something twice, or is worth no number.
    """
    found: dict[str, float] = {}
    for line, row in read_table(path):
        name, text = first_of(row, NAMES).removeprefix("answer-"), first_of(row, POINTS)
        if not name or not text:
            raise UserError(f"{path}:{line}: columns id and points are needed, such as 6.1 and 12")
        try:
            points = float(text.replace(",", "."))
        except ValueError:
            points = math.nan
        if not 0 <= points < 1000:
            raise UserError(f"{path}:{line}: {text} is no number of points for {name}")
        if name in found:
            raise UserError(f"{path}:{line}: {name} is there twice")
        found[name] = points
    return found


def share_typed(text: str) -> float:
    """From --why-costs, as `lab grade` and `lab course build` have it; 0 takes it out. Raises UsageError."""
    try:
        share = float(text.replace(",", "."))
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise UsageError(
            f"--why-costs {text}: expected a share of an exercise's points, such as 0.25 (0 for none)"
        )
    return share


def refuse_unknown(own: Mapping[str, float], known: Iterable[str], assignment: str) -> None:
    """Raises UserError: points are given to what the assignment does not have."""
    known = list(known)
    if unknown := [name for name in own if name not in known]:
        raise UserError(f"--points: {assignment} has no {', '.join(unknown)}; it has {', '.join(known)}")
