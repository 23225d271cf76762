"""One row of the tables of symptoms."""

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """What a symptom means where the log says more than its line: an errno, a limit's name, a tool.

    pattern   looked for in the line and those around it
    anywhere  looked for in all lines of the log that tell something
    saw       with the pattern's own groups too; empty: as the symptom has it
    """

    pattern: re.Pattern[str]
    means: str
    do: tuple[str, ...]
    saw: str = ""
    anywhere: bool = False


@dataclass(frozen=True)
class Symptom:
    """What a log says when something goes wrong, and what it means.

    name     kebab-case id, e.g. "out-of-gpu-memory"
    order    0: the cause for certain; the higher, the likelier a consequence of something else (see finding.py)
    pattern  within one line; gaps in it are bounded, so that a long line costs no more than a short one
    unless   a line that holds this is another symptom's
    when     what else must hold of the place that the pattern has found: of its numbers, say
    saw      the pattern's groups in braces, {rank} for who said it ("rank 3 " or nothing), {line} for the whole
             line; a group called ms is there as {seconds} too
    cases    the first that fits has better words than `means` and `do`, which are for all others
    source   where it was reported or is documented; empty: seen in a job of this lab
    """

    name: str
    order: int
    pattern: re.Pattern[str]
    saw: str
    means: str
    do: tuple[str, ...]
    unless: re.Pattern[str] | None = None
    when: Callable[[re.Match[str]], bool] | None = None
    cases: tuple[Case, ...] = ()
    source: str = ""


def case(pattern: str, means: str, *do: str, saw: str = "", anywhere: bool = False) -> Case:
    return Case(re.compile(pattern, re.M), means, do, saw, anywhere)


def symptom(
    name: str,
    order: int,
    pattern: str,
    saw: str,
    means: str,
    *do: str,
    unless: str = "",
    when: Callable[[re.Match[str]], bool] | None = None,
    cases: tuple[Case, ...] = (),
    source: str = "",
) -> Symptom:
    compiled = re.compile(unless) if unless else None
    return Symptom(name, order, re.compile(pattern, re.M), saw, means, do, compiled, when, cases, source)
