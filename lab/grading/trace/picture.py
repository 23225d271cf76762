"""The collectives of a group of ranks, side by side: which of them met, and where one did not come.

traced = trace_exercise(exercise, code)     # runs its checks, every collective recorded
for check in traced:
    for group in check.groups:
        picture(group, code)                # drawn by trace_text.py and trace_svg.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from lab.base.words import one_line, rank_list
from lab.collectives.conduct import FORCED
from lab.collectives.deadlock import disagreement
from lab.collectives.lanes import Collective
from lab.collectives.origin import ISSUERS, Origin, file_line, origin
from lab.grading.diagnosis import Passed
from lab.grading.explain import CHECKS
from lab.grading.hang import waiting
from lab.grading.suite import ExerciseResult, checks_of, run_exercise
from lab.ranks.reports import GroupResult, RankReport
from lab.ranks.server import RankServer
from lab.syllabus.syllabus import Exercise

# met: all ranks came; waits: it came, others did not; called: it came, others did not, and it went on; absent: it
# did not come; blank: it has no part in this.
Mark = Literal["met", "waits", "called", "absent", "blank"]

_SIZES_LIMIT = 24  # characters
_CALLS = 3  # different calls in a row that are listed one after the other
_HEAD, _TAIL = 15, 45  # rows of a long picture


@dataclass(frozen=True)
class Row:
    """One collective, or several from one place that all ranks came to: `first` to `last` of their group.

    `marks` has one for each rank; `calls` says what they were and how many in a row; `sizes` is the shape, if all
    have one; `where` tells who called them; `notes` what went wrong.
    """

    first: int
    last: int
    marks: tuple[Mark, ...]
    calls: tuple[tuple[str, int], ...]
    sizes: str
    where: str
    notes: tuple[str, ...] = ()
    place: tuple[str, ...] = ()

    @property
    def met(self) -> bool:
        return "met" in self.marks

    @property
    def number(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @property
    def what(self) -> str:
        """ "all_reduce [3]" or "all_gather x2, reduce_scatter x3"."""
        calls = ", ".join(name if count == 1 else f"{name} x{count}" for name, count in self.calls)
        return f"{calls} {self.sizes}".rstrip()


@dataclass(frozen=True)
class Picture:
    """The rows of one group of ranks, in the order of their calls.

    `met` counts the collectives that all ranks came to, `missed` the others. Of many rows `left_out` are not
    there, after the first `head`.
    """

    world_size: int
    rows: tuple[Row, ...]
    met: int
    missed: int
    head: int = 0
    left_out: int = 0

    @property
    def summary(self) -> str:
        if not self.rows:
            return "no collectives"
        every = f"{self.met} collective{'s' * (self.met != 1)}"
        if not self.missed:
            return f"{every}, all ranks came to each"
        return f"{every} that all ranks came to, {self.missed} that {'was' if self.missed == 1 else 'were'} missed"


@dataclass(frozen=True)
class TracedCheck:
    """One check: how it ended, and the groups of ranks that it ran."""

    title: str
    result: ExerciseResult
    groups: tuple[GroupResult, ...]


class Tracer(RankServer):
    """Records every collective of every group, and keeps the results, in the order in which they are judged."""

    several_at_once = False

    def __init__(self) -> None:
        super().__init__()
        self.results: list[GroupResult] = []

    def run(self, *args: Any, **options: Any) -> GroupResult:
        result = super().run(*args, **{**options, "trace": True})
        if FORCED not in options.get("env", {}):  # else tried out, with a condition that is not the student's
            self.results.append(result)
        return result


def trace_exercise(exercise: Exercise, code: Path) -> list[TracedCheck]:
    """Run the checks of one exercise, up to the first that does not pass."""
    traced: list[TracedCheck] = []
    with Tracer() as tracer:
        for check in checks_of(exercise):
            result = run_exercise(exercise, code, server=tracer, checks=[check])
            traced.append(TracedCheck(check.title, result, tuple(tracer.results)))
            tracer.results.clear()
            if not isinstance(result.outcome, Passed):
                break
    return traced


def picture(result: GroupResult, code: Path) -> Picture:
    """Put the ranks' collectives side by side."""
    code = code.resolve()
    lanes = {report.rank: report.collectives for report in result.reports}
    by_key: dict[tuple[str, int], dict[int, Collective]] = {}
    for rank, collectives in lanes.items():
        for one in collectives:
            by_key.setdefault((one.group, one.number), {})[rank] = one
    position = {
        (one.group, one.number): index
        for collectives in lanes.values()
        for index, one in reversed(list(enumerate(collectives)))
    }
    remembered = {group: _first(lanes.values(), group) for group, _ in by_key}
    rows: list[Row] = []
    met = missed = 0
    for key in sorted(by_key, key=lambda key: (position[key], key)):
        if key[1] < remembered[key[0]]:
            continue
        members = lanes if key[0] == "0" else {r: lane for r, lane in lanes.items() if _in_group(lane, key[0])}
        issued = by_key[key]
        if len(issued) == len(members) and disagreement(list(issued.values())) is None:
            met += 1
            _add(rows, _met(issued, len(lanes), code))
        else:
            missed += 1
            rows += _missed(issued, members, result.reports, code)
    left_out = max(0, len(rows) - _HEAD - _TAIL)
    if left_out:
        del rows[_HEAD : _HEAD + left_out]
    return Picture(len(lanes), tuple(rows), met, missed, _HEAD, left_out)


def _first(lanes: Iterable[Sequence[Collective]], group: str) -> int:
    """The first collective of a group that all its ranks remember."""
    return max(next((one.number for one in lane if one.group == group), 1) for lane in lanes)


def _in_group(lane: Sequence[Collective], group: str) -> bool:
    return any(one.group == group for one in lane)


def _add(rows: list[Row], row: Row) -> None:
    """Append a row that all ranks came to, or widen the last one by it."""
    last = rows[-1] if rows else None
    if not last or not last.met or (last.place, last.marks, last.last + 1) != (row.place, row.marks, row.first):
        rows.append(row)
        return
    (name, count), (new, _) = last.calls[-1], row.calls[0]
    calls = (*last.calls[:-1], (name, count + 1)) if name == new else (*last.calls, (new, 1))
    if len(calls) > _CALLS:  # the same in turn over and over: how many of each
        names = dict.fromkeys(name for name, _ in calls)
        calls = tuple((name, sum(count for other, count in calls if other == name)) for name in names)
    rows[-1] = replace(last, last=row.last, calls=calls, sizes=last.sizes if last.sizes == row.sizes else "")


def _met(issued: Mapping[int, Collective], world_size: int, code: Path) -> Row:
    first = next(iter(issued))
    marks: list[Mark] = ["met" if rank in issued else "blank" for rank in range(world_size)]
    return _row(issued[first], origin(issued[first], code), marks)


def _row(one: Collective, found: Origin, marks: Sequence[Mark], notes: Sequence[str] = ()) -> Row:
    where = file_line(found.frame) if found.frame else "in the check"
    if found.frame and found.frame.function != "<module>":
        where += f" in {found.frame.function}()"
    if found.issuer:
        where = f"{ISSUERS[found.issuer]}, {where}"
    return Row(
        first=one.number,
        last=one.number,
        marks=tuple(marks),
        calls=((found.call, 1),),
        sizes=one_line(one.elements, _SIZES_LIMIT) if one.sizes else "",
        where=one_line(where, 120),
        notes=tuple(notes),
        place=(one.group, where) if found.issuer else (one.group, where, found.call),
    )


def _missed(
    issued: Mapping[int, Collective],
    members: Mapping[int, Sequence[Collective]],
    reports: Sequence[RankReport],
    code: Path,
) -> list[Row]:
    """A row for each of the different things that ranks did here. The first one tells of those who did none."""
    sides: dict[tuple[str, ...], list[int]] = {}
    for rank, one in issued.items():
        found = origin(one, code)
        sides.setdefault((one.name, found.call, found.where, one.elements, *one.types), []).append(rank)
    rows: list[Row] = []
    own = [numbers for numbers in sides.values() if origin(issued[numbers[0]], code).frame]
    for numbers in sorted(sides.values(), key=lambda numbers: numbers not in own):
        one = issued[numbers[0]]
        waits = [rank for rank in numbers if waiting(reports[rank]) is issued[rank]]
        ended = [r for r in numbers if reports[r].status == "killed" and r not in waits and not issued[r].done]
        marks: list[Mark] = ["absent" if rank in members else "blank" for rank in range(len(reports))]
        for rank in numbers:
            marks[rank] = "waits" if rank in waits or rank in ended else "called"
        notes = [f"{rank_list(waits)} {'waits' if len(waits) == 1 else 'wait'} here"] if waits else []
        notes += [f"rank {rank}'s process was ended in here" for rank in ended]
        if not rows:
            # Of ranks that were at another line of the student's, that line tells.
            gone = [r for r in members if r not in issued or (own and not any(r in side for side in own))]
            notes += [f"rank {rank} did not come: {_became(reports[rank], one, code)}" for rank in gone]
        rows.append(_row(one, origin(one, code), marks, notes))
    return rows


def _of_the_check(report: RankReport) -> bool:
    """Whether its error was raised in a check, outside of the student's code."""
    frames = report.error.frames if report.error else []
    return not report.student_frame and bool(frames) and Path(frames[-1].file).is_relative_to(CHECKS)


def _became(report: RankReport, missed: Collective, code: Path) -> str:
    """What a rank did instead of calling `missed`."""
    # What the check itself raises, because others were left behind, is no word for a student.
    if report.status == "raised" and report.error is not None and not _of_the_check(report):
        where = f" at {file_line(report.student_frame)}" if report.student_frame else ""
        return f"it raised {one_line(report.error.type, 40)}{where}"
    if report.status == "exited":
        return "its process has ended"
    if report.status == "killed" and not report.cut_off:
        return "its process was killed"
    if report.student_frame:  # of its stack: it was cut off there
        return f"it was at {file_line(report.student_frame)}"
    function = origin(missed, code).function
    return f"it returned from {function}()" if function and function != "<module>" else "it had gone on"
