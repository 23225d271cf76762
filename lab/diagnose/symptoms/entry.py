"""One row of the tables of symptoms."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Symptom:
    """What a log says when something goes wrong, and what it means.

    name     kebab-case id, e.g. "out-of-gpu-memory"
    order    0: the cause for certain; the higher, the likelier a consequence of something else (see finding.py)
    pattern  within one line; gaps in it are bounded, so that a long line costs no more than a short one
    unless   a line that holds this is another symptom's
    saw      the pattern's groups in braces, {rank} for who said it ("rank 3 " or nothing), {line} for the whole
             line; a group called ms is there as {seconds} too
    source   where it was reported or is documented; empty: seen in a job of this lab
    """

    name: str
    order: int
    pattern: re.Pattern[str]
    saw: str
    means: str
    do: tuple[str, ...]
    unless: re.Pattern[str] | None = None
    source: str = ""


def symptom(
    name: str, order: int, pattern: str, saw: str, means: str, *do: str, unless: str = "", source: str = ""
) -> Symptom:
    compiled = re.compile(unless) if unless else None
    return Symptom(name, order, re.compile(pattern, re.M), saw, means, do, compiled, source)
