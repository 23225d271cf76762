"""What the checks of an exercise did: what the ranks were given, what they reported, and what is right beside it.

It is made from what every check leaves: the orders of its groups of ranks, their reports, and what its judge has
compared. A value is told in a few words; of tensors their shapes, and their norm, which tells them apart.

Of an exercise that has not passed, reports may be anything, or missing, which is told too. All that is shown are
values: no line of a solution is among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from reprlib import Repr
from typing import Any

from lab.base.terminal import Page
from lab.base.words import one_line, rank_list
from lab.grading.diagnosis import Blocked, Passed
from lab.grading.suite import CheckResult, ExerciseResult, checks_of
from lab.ranks.reports import RankReport

MOST = 12  # rows of a table
LONGEST = 200  # characters of a value
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = LONGEST


@dataclass(frozen=True)
class Row:
    """What some ranks have: "0, 1"; and what is right there, "" where nothing was compared."""

    what: str
    ranks: str
    has: str
    expected: str = ""


@dataclass(frozen=True)
class GroupTold:
    """One group of ranks. left_out: rows that are not shown."""

    heading: str
    given: list[tuple[str, str]]
    compared: list[Row]
    reported: list[Row]
    left_out: int


@dataclass(frozen=True)
class CheckTold:
    """missing: what is not there because the check ended early; "" where it came to its end."""

    title: str
    groups: list[GroupTold]
    missing: str = ""


def told(result: ExerciseResult, *, whole: bool = False) -> list[CheckTold]:
    """All checks of an exercise that were run.

    Args:
        whole: leave no row out.
    """
    most = None if whole else MOST
    return [CheckTold(check.title, list(_groups(check, most)), _missing(check)) for check in result.checks]


def reported(result: ExerciseResult) -> bool:
    """Whether any rank has reported a value where a check has not passed: nothing else is worth being paid for."""
    open_ = [check for check in result.checks if not isinstance(check.outcome, Passed)]
    reports = [report for check in open_ for _, group in check.groups for report in group.reports]
    return any(report.status == "ok" and report.value is not None for report in reports)


def left_out(result: ExerciseResult) -> list[str]:
    """Sentences on what the exercise's checks would show besides, had it not ended as it did."""
    if isinstance(result.outcome, Passed):
        return []
    by = result.outcome.by if isinstance(result.outcome, Blocked) else ""
    said = [f"It builds on {by}, which is not right yet: what is wrong below may come from there."] if by else []
    if (others := len(checks_of(result.exercise)) - len(result.checks)) > 0:
        said.append(
            f"Missing: {others} more check{'s' * (others > 1)}, told of only when those before have passed."
        )
    return said


def _missing(check: CheckResult) -> str:
    if isinstance(check.outcome, Passed):
        return ""
    silent = [
        f"{rank_list(ranks)} of {order.world_size}"
        for order, group in check.groups
        if (ranks := [report.rank for report in group.reports if report.status != "ok"])
    ]
    if silent:
        said = f"no report of {', nor of '.join(silent)}"
        return f"Missing: {said}, and all that would have been compared after that."
    return "" if check.compared else "Missing: what is right, for the check ended before it compared anything."


def _groups(check: CheckResult, most: int | None) -> Iterator[GroupTold]:
    for number, (order, result) in enumerate(check.groups):
        heading = f"{order.world_size} rank{'s' * (order.world_size != 1)}"
        heading += "" if order.set_up_process_group else ", without a process group"
        given = [(name, brief(value)) for name, value in _leaves(order.inputs)]
        given += [(name, "not set" if value is None else value) for name, value in order.env.items()]
        compared = [
            row
            for one in check.compared
            if one.group == number
            for row in _rows(
                one.what, one.observed, one.expected if one.each else [one.expected] * len(one.observed)
            )
        ]
        values = {report.rank: _values(report.value) for report in result.reports if report.status == "ok"}
        names = list(dict.fromkeys(name for own in values.values() for name in own))
        reported = _silent([report for report in result.reports if report.rank not in values])
        reported += [
            row
            for name in names
            for row in _rows(name, [own.get(name, "") for own in values.values()], ranks=values)
        ]
        left = sum(len(rows[most:]) for rows in (given, compared, reported)) if most else 0
        yield GroupTold(heading, given[:most], compared[:most], reported[:most], left)


def _rows(
    what: str, observed: Sequence[Any], expected: Sequence[Any] | None = None, ranks: Iterable[int] | None = None
) -> Iterator[Row]:
    """A row for all ranks that have the same. ranks: whose the values are; by default of 0, 1, and so on."""
    by_text: dict[tuple[str, str], list[int]] = {}
    whose = range(len(observed)) if ranks is None else ranks
    for rank, has, right in zip(
        whose, observed, [""] * len(observed) if expected is None else expected, strict=False
    ):
        by_text.setdefault((brief(has), brief(right)), []).append(rank)
    for number, ((has, right), same) in enumerate(by_text.items()):
        yield Row("" if number else one_line(what, LONGEST), ", ".join(map(str, same)), has, right)


def _silent(reports: Iterable[RankReport]) -> list[Row]:
    """A row for all ranks that have no value for the same reason."""
    reasons = {
        "exited": "its process ended itself",
        "killed": "its process was ended by a signal",
        "timeout": "it was still running when the check ended it",
    }
    by_reason: dict[str, list[str]] = {}
    for report in reports:
        why = f"it raised {report.error.type}" if report.status == "raised" and report.error else ""
        why = why or ("it was ended, for another one had failed" if report.cut_off else reasons[report.status])
        by_reason.setdefault(one_line(why, LONGEST), []).append(str(report.rank))
    return [Row("no report", ", ".join(ranks), why) for why, ranks in by_reason.items()]


def _values(value: Any) -> dict[str, Any]:
    """What a rank has reported, by names. Of an answer that is wrong it may be anything that can be sent."""
    try:
        return dict(_leaves(value))
    except RecursionError:
        return {"value": "nested too deeply to be shown"}


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """("steps[0].loss", its value): what is in dicts, and in lists of dicts, by its name."""
    if isinstance(value, Mapping) and value and not _is_tensors(value) and not _is_uniform(value):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and value and all(isinstance(one, Mapping) for one in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{name}[{number}]")
    else:
        yield name or "value", value


def brief(value: Any) -> str:
    """A value in a few words: "norm 3.2141 of [13, 48]", "2.3119", "norm 3.2141 of 6 tensors"."""
    try:
        return _brief(value)
    except (RecursionError, RuntimeError, TypeError, ValueError, OverflowError):  # what nobody has judged yet
        return f"a {type(value).__name__} that cannot be shown in a few words"


def _brief(value: Any) -> str:
    if isinstance(value, str):
        return one_line(value, LONGEST)
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:.5g}"
    if _is_tensor(value):
        if value.numel() == 1 and not value.shape:
            return f"{value.item():.5g}"
        return f"norm {_norm([value]):.5g} of {list(value.shape)}"
    if _is_tensors(value):
        return f"norm {_norm(value.values()):.5g} of {len(value)} tensors"
    if isinstance(value, Mapping):
        if _is_uniform(value):
            return one_line(f"{len(value)} x {next(iter(value.values()))}", LONGEST)
        return one_line(", ".join(f"{key} {brief(inner)}" for key, inner in value.items()), LONGEST)
    if isinstance(value, list | tuple):
        if value and all(_is_tensor(one) or isinstance(one, list | tuple) for one in value):
            return one_line(f"{len(value)} x ({brief(value[0])})", LONGEST)
        return one_line("[" + ", ".join(map(brief, value)) + "]", LONGEST)
    return one_line(_SHORT.repr(value), LONGEST)


def _is_uniform(value: Any) -> bool:
    """One word for many names."""
    return (
        len(value) > 1
        and len(set(map(str, value.values()))) == 1
        and all(isinstance(one, str) for one in value.values())
    )


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "numel") and hasattr(value, "shape")


def _is_tensors(value: Any) -> bool:
    return isinstance(value, Mapping) and len(value) > 0 and all(map(_is_tensor, value.values()))


def _norm(tensors: Iterable[Any]) -> float:
    real = (tensor.abs() if tensor.is_complex() else tensor for tensor in tensors)
    return math.sqrt(sum(tensor.double().pow(2).sum().item() for tensor in real))


def write(page: Page, checks: Sequence[CheckTold]) -> None:
    """As tables for a terminal, no wider than that."""
    for check in checks:
        page.line()
        page.say(check.title, bold=True)
        if check.missing:
            page.say(check.missing, lead="  ")
        for group in check.groups:
            page.line(f"  {group.heading}")
            _table(page, "given", [Row(name, "", text) for name, text in group.given])
            _table(page, "compared", group.compared, last="expected")
            _table(page, "reported", group.reported)
            if group.left_out:
                page.say(f"{group.left_out} more rows: with -v", lead="      ")


def _table(page: Page, head: str, rows: Sequence[Row], last: str = "") -> None:
    """Columns: what, which ranks, what they have, what is right."""
    if not rows:
        return
    what = max(12, min(max(len(row.what) for row in rows), 30))
    ranks = max([5, *(len(row.ranks) for row in rows)]) if any(row.ranks for row in rows) else 0
    room = page.width - 6 - what - 2 - (ranks + 2 if ranks else 0)
    has = (room - 2) // 2 if last else room

    def line(indent: int, *cells: tuple[str, int]) -> str:
        texts = [f"{one_line(text, width):{width}}" for text, width in cells if width]
        return (" " * indent + "  ".join(texts)).rstrip()

    heads = [(head, what + 2), ("ranks" if ranks else "", ranks), ("has" if ranks else "", has)]
    page.line(page.paint(line(4, *heads, *([(last, has)] if last else [])), "2"))
    for row in rows:
        right = ((row.expected, has),) if last else ()
        page.line(line(6, (row.what, what), (row.ranks, ranks), (row.has, has), *right))
