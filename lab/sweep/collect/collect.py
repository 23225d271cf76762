"""From run folders and logs to results.csv: one row a run, and the efficiencies that a single run cannot know."""

import contextlib
import csv
import io
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.base.errors import UserError
from lab.base.files import write_whole
from lab.runs.records.job import mark, read_json
from lab.slurm import query, states
from lab.sweep.collect.bare_log import read_log, what_tells_it_apart
from lab.sweep.collect.run_folder import is_run_folder, read_run
from lab.sweep.compare.columns import RESULT_COLUMNS, Row

RESULTS_FILE = "results.csv"
FIGURES_FOLDER = "figures"
LOG_SUFFIXES = (".log", ".out")


@dataclass
class Collection:
    """What was found in a results folder."""

    path: Path  # of results.csv
    rows: list[Row]
    ignored: list[str] = field(default_factory=list)  # folders that are no runs; in parentheses, why else


def collect(results: Path, logs: Sequence[Path] = ()) -> Collection:
    """Read all run folders and bare logs in `results` and write results/results.csv.

    Jobs of which Slurm knows more than their folders say get their state from there, and keep it in status.json.

    Args:
        logs: more logs, from elsewhere.

    Raises:
        UserError: there is no such folder, or no run in it, or results.csv cannot be written, or a log that was
            named is not there.
    """
    if not results.is_dir():
        raise UserError(
            f"there is no folder {results}: run_benchmarks.py makes it, or name the one that holds your runs"
        )
    for log in logs:
        if not log.is_file():
            raise UserError(f"there is no log {log}")
    collection = Collection(results / RESULTS_FILE, [])
    for folder in _folders(results):
        try:
            usable = is_run_folder(folder)
        except OSError as error:
            collection.ignored.append(f"{folder.name} ({error.strerror})")
            continue
        if usable and read_json(folder / "config.json").get("evaluate_only"):
            collection.ignored.append(f"{folder.name} (an evaluation: it trained nothing)")
        elif usable:
            collection.rows.append(_compact(read_run(folder)))
        else:
            collection.ignored.append(folder.name)
    _ask_slurm(results, collection.rows)
    lying_there = (path for path in sorted(results.iterdir()) if path.suffix in LOG_SUFFIXES and path.is_file())
    _add_logs(results, collection, list(dict.fromkeys([*lying_there, *logs])))
    if not collection.rows:
        raise UserError(f"there are no runs in {results}: run_benchmarks.py makes them")
    collection.rows = filled_in_order(collection.rows)
    _write(collection)
    return collection


def filled_in_order(rows: Sequence[Row]) -> list[Row]:
    """The rows with the efficiencies that a single run cannot know, in the order of the table."""
    from lab.sweep.compare.frame import typed  # here, so that to launch a sweep needs no pandas
    from lab.sweep.compare.points import efficiencies

    runs = typed(rows)
    filled = []
    for place, weak, share in zip(runs.index, runs["scaling"] == "weak", efficiencies(runs), strict=True):
        text = "" if math.isnan(share) else f"{share:.6g}"
        filled.append(rows[place] | {"eff_strong": "" if weak else text, "eff_weak": text if weak else ""})
    return filled


def _add_logs(results: Path, collection: Collection, logs: Sequence[Path]) -> None:
    """A row for each bare log, but for copies: of another log, or of that of a run folder. They are no repeats."""
    folders: dict[tuple[str, ...], list[Path]] = {}
    for row in collection.rows:
        if row["status"] == states.DONE:
            folders.setdefault(_point(row), []).append(results / row["run_id"] / "train.log")
    known: dict[tuple[str, ...], Path] = {}  # of what is in it -> the log that was read first
    for log in logs:
        row = _compact(read_log(log))
        if row["status"] == states.DONE:
            point = _point(row)
            for other in folders.pop(point, []):
                known.setdefault((*point, what_tells_it_apart(other)), other)
            first = known.setdefault((*point, what_tells_it_apart(log)), log)
            if first != log:
                whose = first.relative_to(results) if first.is_relative_to(results) else first
                collection.ignored.append(f"{log.name} (a copy of {whose})")
                continue
        collection.rows.append(row)


def _point(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in ("strategy", "model", "dataset", "precision", "world_size", "global_batch"))


def _folders(results: Path) -> Iterator[Path]:
    for folder in sorted(results.iterdir()):
        if not folder.is_dir() or folder.name.startswith(".") or folder.name == FIGURES_FOLDER:
            continue
        if folder.is_symlink() and folder.resolve().parent == results.resolve():
            continue  # a second name for a run, such as `latest`
        yield folder


def _ask_slurm(results: Path, rows: list[Row]) -> None:
    """Let Slurm say what has become of the jobs that are not done."""
    open_ends = {i: row["jobid"] for i, row in enumerate(rows) if row["jobid"] and row["status"] != states.DONE}
    if not open_ends:
        return
    known = query.jobs(open_ends.values())
    runs = Counter(row["jobid"] for row in rows)
    for i, jobid in open_ends.items():  # several runs can share one job
        if jobid not in known:
            continue
        folder = results / rows[i]["run_id"]
        row = _compact(read_run(folder, known))
        if row["status"] in states.BAD_ENDS and (not _same_end(row, rows[i]) or _has_no_end(folder)):
            job = known[jobid]
            times = (job.started, job.ended) if runs[jobid] == 1 else ("", "")  # of one among several nobody knows
            with contextlib.suppress(OSError):  # somebody else's folder: the table has it all the same
                mark(folder, row["status"], row["reason"], started=times[0], ended=times[1])
        rows[i] = row


def _same_end(row: Row, other: Row) -> bool:
    return (row["status"], row["reason"]) == (other["status"], other["reason"])


def _has_no_end(folder: Path) -> bool:
    """Whether the run's own word is that it goes on, although its log may have told of its end."""
    return read_json(folder / "status.json").get("status") in states.UNFINISHED


def _compact(row: Row) -> Row:
    """The same row with its texts shared: most columns have the same few values in thousands of runs."""
    return {name: sys.intern(value) for name, value in row.items()}


def _write(collection: Collection) -> None:
    table = io.StringIO()
    writer = csv.DictWriter(table, RESULT_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(collection.rows)
    try:
        write_whole(collection.path, table.getvalue())
    except OSError as error:
        raise UserError(f"cannot write {collection.path} ({error.strerror})") from error
