"""What the ranks of an exercise did when, as they noted it themselves: one line for each rank, boxes on it.

An exercise has it whose checks' room has a timeline.py, with a function `record(group) -> list[Timeline]`.
"""

from __future__ import annotations

import importlib
import importlib.util
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lab.base.errors import UserError
from lab.grading.check import Group
from lab.grading.diagnosis import CheckEnded, Diagnosis
from lab.syllabus.syllabus import Exercise

STEPS, MILLISECONDS = "steps", "ms"


@dataclass(frozen=True)
class Span:
    """One thing that was done: from `begin` to `end`, on the line `lane`. Those of one kind are drawn alike."""

    lane: str
    label: str
    kind: int
    begin: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """What happened in one run, from 0 on, in `unit`: milliseconds, or steps where the order is all that counts.

    said  what there is to see, in a sentence or two
    """

    name: str
    lanes: tuple[str, ...]
    spans: tuple[Span, ...]
    said: str
    unit: str = MILLISECONDS

    @property
    def end(self) -> float:
        return max((span.end for span in self.spans), default=0.0)

    def of(self, lane: str) -> list[Span]:
        return sorted((span for span in self.spans if span.lane == lane), key=lambda span: span.begin)

    def text(self, width: int = 80) -> str:
        """In lines of at most `width` columns: "rank 0  F0--F1--....B0--B1--"."""
        head = max(map(len, self.lanes)) + 2
        room = max(20, width - head)
        lines = [f"{self.name}, 0 to {self.end:.0f} {self.unit}"]
        for lane in self.lanes:
            row = ["."] * room
            for span in self.of(lane):
                first, last = (round(time / self.end * room) for time in (span.begin, span.end))
                row[first:last] = list(f"{span.label[: last - first - 1]:-<{last - first}}")
            lines.append(f"{lane:{head}}{''.join(row)[:room]}")
        return "\n".join([*lines, *textwrap.wrap(self.said, width)])


def from_first(name: str, spans: Iterable[Span], said: str) -> Timeline:
    """With times in seconds on any clock made milliseconds since the first of them."""
    every = list(spans)
    start = min(span.begin for span in every)
    return Timeline(
        name,
        tuple(dict.fromkeys(span.lane for span in every)),
        tuple(
            Span(span.lane, span.label, span.kind, 1000 * (span.begin - start), 1000 * (span.end - start))
            for span in every
        ),
        said,
    )


def record(exercise: Exercise, code: Path) -> list[Timeline]:
    """Run an exercise that has passed once more, in a form that shows when what happens; [] if it has none.

    Raises:
        UserError: that run did not come to its end.
    """
    module = f"lab.checks.{exercise.module}.timeline"
    if importlib.util.find_spec(module) is None:
        return []
    group = Group(code, exercise.id)
    try:
        found: list[Timeline] = importlib.import_module(module).record(group)
        return found
    except (Diagnosis, CheckEnded) as error:
        why = error.saw if isinstance(error, Diagnosis) else type(error.outcome).__name__
        raise UserError(
            f"{exercise.id} has passed, but the run for its picture has not ended well: {why}"
        ) from None
    finally:
        group.close()
