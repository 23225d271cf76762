"""From run folders to results.csv: one row a run, and the efficiencies that a single run cannot know."""

import csv
import io
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.sweep.plan import BASELINE
from lab.sweep.run_folder import RESULT_COLUMNS, device_count, is_run_folder, read_run
from lab.training.errors import UserError
from lab.training.records import write_atomically

RESULTS_FILE = "results.csv"
FIGURES_FOLDER = "figures"

# Runs that differ in one of these did different work, or on other hardware: they are never compared.
SETTING = ("model", "dataset", "precision", "global_batch", "scaling", "device")
Row = dict[str, str]


@dataclass
class Collection:
    """What was found in a results folder."""

    path: Path  # of results.csv
    rows: list[Row]
    ignored: list[str] = field(default_factory=list)  # folders that are no runs


def collect(results: Path) -> Collection:
    """Read all run folders in `results` and write results/results.csv.

    Raises:
        UserError: there is no such folder, or no run in it, or results.csv cannot be written.
    """
    if not results.is_dir():
        raise UserError(
            f"there is no folder {results}: run_benchmarks.py makes it, or name the one that holds your runs"
        )
    collection = Collection(results / RESULTS_FILE, [])
    for folder in sorted(results.iterdir()):
        if not folder.is_dir() or folder.name.startswith(".") or folder.name == FIGURES_FOLDER:
            continue
        if folder.is_symlink() and folder.resolve().parent == results.resolve():
            continue  # a second name for a run, such as `latest`
        try:
            usable = is_run_folder(folder)
        except OSError as error:
            collection.ignored.append(f"{folder.name} ({error.strerror})")
            continue
        if usable:
            collection.rows.append(read_run(folder))
        else:
            collection.ignored.append(folder.name)
    if not collection.rows:
        raise UserError(f"there are no runs in {results}: run_benchmarks.py makes them")
    fill_efficiencies(collection.rows)
    collection.rows = [row for members in grouped(collection.rows).values() for row in members]
    _write(collection)
    return collection


def setting(row: Mapping[str, str]) -> tuple[str, ...]:
    """What two runs must have in common to be compared."""
    return tuple(row.get(name, "") for name in SETTING)


def grouped(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """Rows by setting, each group by number of devices with the baseline first.

    A job that died early may not have said, for example, on which device it ran. It stands with the finished
    runs that agree with all it did say, if these are of a single setting.
    """
    finished = dict.fromkeys(setting(row) for row in rows if row["status"] == "done")
    groups: dict[tuple[str, ...], list[Row]] = {key: [] for key in finished}
    for row in rows:
        own = setting(row)
        agreeing = [
            key for key in finished if all(mine in ("", theirs) for mine, theirs in zip(own, key, strict=True))
        ]
        groups.setdefault(agreeing[0] if len(agreeing) == 1 and row["status"] != "done" else own, []).append(row)
    return {key: sorted(members, key=_order) for key, members in sorted(groups.items())}


def number(row: Mapping[str, str], column: str) -> float:
    """A figure of a row; nan where there is none."""
    try:
        return float(row.get(column) or "nan")
    except ValueError:
        return math.nan


def baseline_times(rows: Iterable[Row]) -> dict[tuple[str, ...], float]:
    """T(1) of each setting: seconds an epoch of the plain run on one device, the median where it was repeated."""
    times: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        seconds = number(row, "time_epoch_s")
        if row["status"] == "done" and row["strategy"] == BASELINE and row["world_size"] == "1" and seconds > 0:
            times.setdefault(setting(row), []).append(seconds)
    return {key: statistics.median(values) for key, values in times.items()}


def fill_efficiencies(rows: list[Row]) -> None:
    """Set eff_strong = T(1) / (N T(N)), a fraction, wherever the same work has a finished baseline.

    Weak scaling keeps the batch per device instead of the work per epoch, so eff_strong would mean nothing
    there and stays empty.
    """
    baseline = baseline_times(rows)
    for row in rows:
        row["eff_strong"] = ""
        one, seconds = baseline.get(setting(row)), number(row, "time_epoch_s")
        if row["status"] == "done" and row["scaling"] != "weak" and one is not None and seconds > 0:
            row["eff_strong"] = f"{one / (int(row['world_size']) * seconds):.6g}"


def _order(row: Row) -> tuple[object, ...]:
    return (
        device_count(row["world_size"]),
        row["strategy"] != BASELINE,
        row["strategy"],
        row["repeat"],
        row["run_id"],
    )


def _write(collection: Collection) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, RESULT_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(collection.rows)
    try:
        write_atomically(collection.path, text.getvalue())
    except OSError as error:
        raise UserError(f"cannot write {collection.path} ({error.strerror})") from error
