"""Before and after: which finished runs differ in one comparison and in nothing else. Imports no matplotlib."""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.slurm import states
from lab.sweep.compare.points import BASELINE, Point, Row, batch, number

# What a comparison may set that results.csv has a column for; all other options are in `variant`.
COLUMN_OF = {
    "--precision": "precision",
    "--no-amp": "precision",
    "--input": "input",
    "--bucket-cap-mb": "bucket_cap_mb",
    "--model": "model",
    "--dataset": "dataset",
}
WORK = (
    *("strategy", "world_size", "bucket_cap_mb", "model", "dataset", "precision", "batch", "scaling"),
    *("input", "device"),
)
VARIED_ALONE = ("--num-workers",)  # of a sweep's axes: the figure of the sensitivity shows it


@dataclass(frozen=True)
class Work:
    """What a step did: the columns, the options of main.py that have no column, and how long was measured."""

    columns: tuple[str, ...]
    options: frozenset[str]
    measured: tuple[str, ...]

    def without(self, names: frozenset[str]) -> "Work":
        """The same with these options of main.py left open."""
        open_columns = {COLUMN_OF[name] for name in names if name in COLUMN_OF}
        columns = ("" if name in open_columns else value for name, value in zip(WORK, self.columns, strict=True))
        options = frozenset(option for option in self.options if option.split()[0] not in names)
        return Work(tuple(columns), options, self.measured)


@dataclass(frozen=True)
class Pair:
    """Repeats of one point without the options, and with them."""

    options: str
    before: Point
    after: Point


def options_of(variant: str) -> list[str]:
    """ "--capture --accumulate 2" -> ["--capture", "--accumulate 2"]."""
    return [f"--{word}".strip() for word in variant.split("--") if word.strip()] if variant else []


def work_of(row: Mapping[str, str]) -> Work:
    """Of a run, also of one that is not finished."""
    options = options_of(row["variant"])
    measuring = tuple(option for option in options if option.startswith("--measure-"))
    columns = tuple(batch(row) if name == "batch" else row[name] for name in WORK)
    return Work(columns, frozenset(options) - {*measuring}, (row["epochs"], *measuring))


def pairs(rows: Sequence[Row]) -> list[Pair]:
    """All of them, those of the baseline first.

    What a sweep was told to compare is in the column `compare`. Of other runs those are paired whose options of
    main.py are those of another and some more, with the fewest more.
    """
    found = [*_told(rows), *_by_their_options(rows)]
    known: dict[tuple[Work, Work], Pair] = {}
    for before, after, pair in found:
        known.setdefault((before, after), pair)
    quiet = {(b.columns, b.options, a.columns, a.options) for (b, a), pair in known.items() if not _profiled(pair)}
    kept = [
        ((before, after), pair)
        for (before, after), pair in known.items()
        # a profile slows the steps: it tells of another pair's communication
        if not _profiled(pair) or (before.columns, before.options, after.columns, after.options) not in quiet
    ]
    return [pair for _, pair in sorted(kept, key=lambda one: _order(one[0][0], one[1]))]


def unpaired(rows: Sequence[Row]) -> list[str]:
    """A sentence for each point that was to be compared and has no finished run without, or with, the options."""
    paired = {row["run_id"] for _, _, pair in _told(rows) for row in pair.after.rows}
    points: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row["compare"]:
            key = (row["compare"], row["strategy"], row["world_size"], row["per_gpu_batch"], row["scaling"])
            points.setdefault(key, []).append(row)
    said = []
    for (options, strategy, devices, each, scaling), members in points.items():
        if any(row["run_id"] in paired for row in members):
            continue
        with_it, without = _grouped(members), _grouped(row for row in rows if _is_without(row, options))
        if with_it.keys() & without.keys():
            why = "the runs with it did the same work as those without: it changes nothing here"
        else:
            why = f"no run {'without' if with_it else 'with'} it is done"
        said.append(f"no before and after of {options} ({strategy} on {devices}, {each} each, {scaling}): {why}")
    return said


def _told(rows: Sequence[Row]) -> Iterator[tuple[Work, Work, Pair]]:
    for options in dict.fromkeys(row["compare"] for row in rows if row["compare"]):
        names = _names(options)
        plain = _grouped(row for row in rows if _is_without(row, options))
        candidates: dict[Work, list[Work]] = {}
        for before in plain:
            candidates.setdefault(before.without(names), []).append(before)
        for work, members in _grouped(row for row in rows if row["compare"] == options).items():
            for before in candidates.get(work.without(names), []):
                if before != work:
                    yield before, work, Pair(options, _point(plain[before]), _point(members))


def _is_without(row: Row, options: str) -> bool:
    """Whether a run can be the one before: one that another comparison made can, unless that sets the same."""
    mine, other = ({COLUMN_OF.get(name, name) for name in _names(words)} for words in (options, row["compare"]))
    return row["compare"] != options and mine.isdisjoint(other)


def _names(options: str) -> frozenset[str]:
    return frozenset(word.split("=")[0] for word in options.split() if word.startswith("--"))


def _by_their_options(rows: Sequence[Row]) -> Iterator[tuple[Work, Work, Pair]]:
    alike: dict[tuple[tuple[str, ...], ...], dict[Work, list[Row]]] = {}
    for work, members in _grouped(rows).items():
        alike.setdefault((work.columns, work.measured), {})[work] = members
    for groups in alike.values():
        for work, members in groups.items():
            fewer = {one: work.options - one.options for one in groups if one.options < work.options}
            least = min(map(len, fewer.values()), default=0)
            for before, more in fewer.items():
                if len(more) == least and not any(option.split()[0] in VARIED_ALONE for option in more):
                    yield before, work, Pair(" ".join(sorted(more)), _point(groups[before]), _point(members))


def _grouped(rows: Iterable[Row]) -> dict[Work, list[Row]]:
    groups: dict[Work, list[Row]] = {}
    for row in rows:
        if row["status"] == states.DONE:
            groups.setdefault(work_of(row), []).append(row)
    return groups


def _point(rows: Sequence[Row]) -> Point:
    first = rows[0]
    return Point(first["strategy"], int(first["world_size"]), first["bucket_cap_mb"], tuple(rows))


def _profiled(pair: Pair) -> bool:
    return any(row["comm_time_s"] for point in (pair.before, pair.after) for row in point.rows)


def _order(before: Work, pair: Pair) -> tuple[object, ...]:
    point, row = pair.before, pair.before.rows[0]
    one = (point.strategy != BASELINE, point.devices, point.strategy, number(row, "per_gpu_batch"), row["scaling"])
    return *one, pair.options, before.columns, before.measured


def share_of_communication(point: Point, rows: Sequence[Row]) -> float:
    """The fraction of a step, from the profiled runs among `rows` that did the same; nan where there is none.

    A run that is timed is not profiled, because that slows its steps: how long was measured does not matter here.
    """
    mine = work_of(point.rows[0])
    shares = [
        number(row, "comm_time_s") / number(row, "time_epoch_s")
        for row in rows
        if row["status"] == states.DONE and row["comm_time_s"] and _does(row, mine)
    ]
    known = [share for share in shares if not math.isnan(share)]
    return statistics.median(known) if known else math.nan


def _does(row: Row, work: Work) -> bool:
    other = work_of(row)
    return (other.columns, other.options) == (work.columns, work.options)
