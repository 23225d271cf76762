"""Which runs may be compared with each other, and what follows: baselines, efficiencies, medians and spreads."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lab.runs.options.precision import DEFAULT_BUCKET_CAP_MB
from lab.slurm import states

BASELINE = "none"  # a plain run on one device: what every other point is compared with

Row = dict[str, str]

# Runs that differ in one of these did different work, or on other hardware: they are never compared. `batch` is
# no column but what stays the same along a curve: the global batch, or with weak scaling that of each device.
SETTING = ("model", "dataset", "precision", "batch", "scaling", "epochs", "input", "variant", "device")


def setting(row: Mapping[str, str]) -> tuple[str, ...]:
    """What two runs must have in common to be compared."""
    return tuple(batch(row) if name == "batch" else row.get(name, "") for name in SETTING)


def batch(row: Mapping[str, str]) -> str:
    """What stays the same along a curve: the global batch, or with weak scaling that of each device."""
    if row.get("scaling") == "weak":
        return f"batch {row['per_gpu_batch']} per device" if row.get("per_gpu_batch") else ""
    return f"global batch {row['global_batch']}" if row.get("global_batch") else ""


def grouped(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """Rows by setting, each group by number of devices with the baseline first.

    A job that died early may not have said, for example, on which device it ran. It stands with the finished
    runs that agree with all it did say, if these are of a single setting.
    """
    finished = dict.fromkeys(setting(row) for row in rows if row["status"] == states.DONE)
    groups: dict[tuple[str, ...], list[Row]] = {key: [] for key in finished}
    homes: dict[tuple[str, ...], tuple[str, ...]] = {}  # of those that are not finished
    for row in rows:
        own = setting(row)
        if row["status"] != states.DONE:
            if own not in homes:
                homes[own] = _home(own, finished)
            own = homes[own]
        groups.setdefault(own, []).append(row)
    return {key: sorted(members, key=_order) for key, members in sorted(groups.items())}


def _home(own: tuple[str, ...], finished: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    agreeing = [
        key for key in finished if all(mine in ("", theirs) for mine, theirs in zip(own, key, strict=True))
    ]
    return agreeing[0] if len(agreeing) == 1 else own


def number(row: Mapping[str, str], column: str) -> float:
    """A figure of a row; nan where there is none."""
    try:
        return float(row.get(column) or "nan")
    except ValueError:
        return math.nan


def seconds(row: Mapping[str, str]) -> float:
    """T: the time of a pass over the data, or with weak scaling of a step, whose work grows with the devices."""
    return number(row, "step_time_s" if row.get("scaling") == "weak" else "time_epoch_s")


def is_baseline(row: Mapping[str, str]) -> bool:
    """Whether it is a finished plain run on one device."""
    return row["status"] == states.DONE and row["strategy"] == BASELINE and row["world_size"] == "1"


def baseline_times(rows: Iterable[Row]) -> dict[tuple[str, ...], float]:
    """T(1) of each setting in seconds: of the plain run on one device, the median where it was repeated."""
    times: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        if is_baseline(row) and seconds(row) > 0:
            times.setdefault(setting(row), []).append(seconds(row))
    return {key: statistics.median(values) for key, values in times.items()}


def fill_efficiencies(rows: list[Row]) -> None:
    """Set the efficiency, a fraction, wherever the same work has a finished baseline on the same card.

    Strong scaling: E_s(N) = T(1) / (N T(N)), T of a pass over the data at one global batch.
    Weak scaling: E_w(N) = T(1) / T(N), T of a step at one batch on each device.
    """
    baseline = baseline_times(rows)
    for row in rows:
        row["eff_strong"] = row["eff_weak"] = ""
        one, own = baseline.get(setting(row)), seconds(row)
        if row["status"] != states.DONE or one is None or not own > 0:
            continue
        if row["scaling"] == "weak":
            row["eff_weak"] = f"{one / own:.6g}"
        else:
            row["eff_strong"] = f"{one / (int(row['world_size']) * own):.6g}"


def efficiency(row: Mapping[str, str]) -> float:
    """The one that the row's kind of scaling has; nan without a baseline."""
    return number(row, "eff_weak" if row.get("scaling") == "weak" else "eff_strong")


@dataclass(frozen=True)
class Spread:
    """Repeats of one figure: their median, the least and the largest; nan where one of them is."""

    median: float
    least: float
    largest: float
    count: int

    @property
    def share(self) -> float:
        """Half of the distance between least and largest, as a fraction of the median."""
        return (self.largest - self.least) / 2 / self.median if self.median else math.nan


@dataclass(frozen=True)
class Point:
    """The finished runs of one strategy on one number of devices: repeats of one another."""

    strategy: str
    devices: int
    bucket_cap_mb: str
    rows: tuple[Row, ...]

    @property
    def label(self) -> str:
        """The strategy, with its buckets where they are not the usual ones."""
        usual = self.bucket_cap_mb in ("", f"{DEFAULT_BUCKET_CAP_MB:g}")
        return self.strategy if usual else f"{self.strategy} {self.bucket_cap_mb} MiB"

    def spread(self, column: str) -> Spread:
        """Of a column of results.csv."""
        return self.spread_of([number(row, column) for row in self.rows])

    def seconds(self) -> Spread:
        return self.spread_of([seconds(row) for row in self.rows])

    def efficiency(self) -> Spread:
        return self.spread_of([efficiency(row) for row in self.rows])

    @staticmethod
    def spread_of(values: Sequence[float]) -> Spread:
        if any(map(math.isnan, values)):
            return Spread(math.nan, math.nan, math.nan, len(values))
        return Spread(statistics.median(values), min(values), max(values), len(values))


def points(rows: Iterable[Row]) -> list[Point]:
    """The points of one setting, in the order of its rows."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row["status"] == states.DONE:
            found.setdefault((row["strategy"], row["world_size"], row.get("bucket_cap_mb", "")), []).append(row)
    return [Point(key[0], int(key[1]), key[2], tuple(members)) for key, members in found.items()]


def _order(row: Row) -> tuple[object, ...]:
    cap, repeat = number(row, "bucket_cap_mb"), row["repeat"]
    return (
        device_count(row["world_size"]),
        row["strategy"] != BASELINE,
        row["strategy"],
        0.0 if math.isnan(cap) else cap,
        int(repeat) if repeat.isdecimal() else 0,
        row["run_id"],
    )


def device_count(text: str) -> int:
    """A world size as a number; 0 for anything that is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 7 else 0
