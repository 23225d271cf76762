"""The tables of a report: from results.csv, and from what the runs' folders hold besides."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from lab.base.words import digits
from lab.runs.records.job import read_json
from lab.slurm import states
from lab.sweep.compare.points import Row, Spread, baseline_times, device_count, grouped, points
from lab.sweep.compare.table import notes, setting_titles

UNKNOWN = "-"
FOUR_DIGITS = "four digits"  # of _spread: never with an exponent


@dataclass(frozen=True)
class Table:
    """A title, the names of the columns, the rows; `note` stands below it. Numbers are already text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        if not self.rows:
            return f"*{self.title}: {self.note or 'nothing'}*"
        lines = [_pipes(self.header), _pipes(("---",) * len(self.header)), *map(_pipes, self.rows)]
        return "\n".join([f"**{self.title}**", "", *lines, *(["", self.note] if self.note else [])])


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# The tables -------------------------------------------------------------------------------------------------


def scaling(rows: Sequence[Row]) -> list[Table]:
    """One for each setting: what every point took, with the spread of its repeats."""
    tables = []
    groups = grouped(rows)
    titles, baseline = setting_titles(groups), baseline_times(rows)
    for key, members in groups.items():
        found = points(members)
        if not found:
            continue
        weak = members[0]["scaling"] == "weak"
        time = "time per step (ms)" if weak else "time per epoch (s)"
        header = ("strategy", "devices", "runs", time, "images/s", "efficiency", "memory (GiB)", "accuracy")
        body = tuple(
            (
                point.label,
                str(point.devices),
                str(len(point.rows)),
                _spread(point.seconds(), 1e3 if weak else 1, FOUR_DIGITS),
                _spread(point.spread("images_per_sec"), 1, "{:,.0f}"),
                _spread(point.efficiency(), 100, "{:.0f}", "%"),
                _spread(point.spread("mem_gb"), 1, "{:.2f}"),
                _spread(point.spread("val_top1"), 100, "{:.1f}", "%"),
            )
            for point in found
        )
        said = ["Median of the runs, ± half of least to largest."]
        said += [f"{note[0].upper()}{note[1:]}." for note in notes(members, baseline.get(key))]
        tables.append(Table(titles[key], header, body, " ".join(said)))
    return tables


def unfinished(rows: Sequence[Row]) -> Table:
    """Every run without figures, with its state and its reason."""
    bad = [row for row in rows if row["status"] != states.DONE]
    body = tuple((row["run_id"], row["world_size"] or "?", row["status"], row["reason"]) for row in bad)
    return Table(
        "Runs without figures", ("run", "devices", "state", "reason"), body, "" if bad else "every run is done"
    )


def system(rows: Sequence[Row]) -> Table:
    """On what and with what the finished runs were made; more than one line where they differ."""
    names = {
        "device": "device",
        "driver": "driver",
        "versions": "software",
        "allocator": "memory allocator",
        "commit": "commit of the lab",
        "precision": "precision",
    }
    done = [row for row in rows if row["status"] == states.DONE]
    body = []
    for column, name in names.items():
        values = sorted({row.get(column, "") for row in done} - {""})
        if values:
            body.append((name, "; ".join("CPU" if value == "cpu" else value for value in values)))
    shapes = sorted({(device_count(row["nodes"]), device_count(row["world_size"])) for row in done})
    known = [f"{nodes} x {devices / nodes:g}" for nodes, devices in shapes if nodes and devices]
    body.append(("nodes x devices", ", ".join(known)))
    return Table("System", ("what", "which"), tuple(pair for pair in body if pair[1]))


def resources(rows: Sequence[Row], results: Path) -> list[Table]:
    """Node-hours and GPU-hours of the runs, from the times in their folders; a table of its own for CPU ranks.

    Args:
        results: the folder with the runs' folders; a run whose folder or times are gone is counted as unknown.
    """
    all_on_cpu = {row["device"] for row in rows} - {""} == {"cpu"}  # a run that died early does not say
    parts: dict[bool, list[Row]] = {True: [], False: []}
    for row in rows:
        parts[row["device"] == "cpu" or all_on_cpu].append(row)
    on_cpu, on_gpus = parts[True], parts[False]
    title = "What the measurements took"
    if not on_cpu or not on_gpus:
        return [_resources(rows, results, title, "CPU ranks" if on_cpu else "GPUs")]
    return [
        _resources(on_gpus, results, f"{title} on GPUs", "GPUs"),
        _resources(on_cpu, results, f"{title} on CPUs", "CPU ranks"),
    ]


def _resources(rows: Sequence[Row], results: Path, title: str, unit: str) -> Table:
    groups: dict[tuple[str, int, int], list[float | None]] = {}
    for row in rows:
        nodes, devices = device_count(row["nodes"]) or 1, device_count(row["world_size"])
        hours = run_hours(results / row["run_id"]) if devices else None
        groups.setdefault((row["model"] or "?", nodes, devices), []).append(hours)
    body, total_nodes, total_devices, unknown = [], 0.0, 0.0, 0
    for (model, nodes, devices), every in sorted(groups.items()):
        known = [value for value in every if value is not None]
        unknown += len(every) - len(known)
        node_hours, device_hours = sum(known) * nodes, sum(known) * devices
        total_nodes += node_hours
        total_devices += device_hours
        mean = f"{sum(known) / len(known):.3f}" if known else UNKNOWN
        each = f"{devices / nodes:g}" if devices else "?"
        body.append((model, str(len(every)), str(nodes), each, mean, f"{node_hours:.3f}", f"{device_hours:.3f}"))
    body.append(("total", str(len(rows)), "", "", "", f"{total_nodes:.3f}", f"{total_devices:.3f}"))
    hours_of = "GPU-hours" if unit == "GPUs" else "rank-hours"
    note = (
        f"Node-hours = runs x nodes x hours a run; {hours_of} = node-hours x {unit} a node. Failed runs count too."
    )
    if unknown:
        note += f" {unknown} run{'s' * (unknown > 1)} left no times: not counted."
    header = ("network", "runs", "nodes", f"{unit} a node", "hours a run", "node-hours", hours_of)
    return Table(title, header, tuple(body), note)


def run_hours(folder: Path) -> float | None:
    """Hours from a run's start to its end; None where its records do not say."""
    record = read_json(folder / "status.json")
    try:
        started, ended = (datetime.fromisoformat(str(record[name])) for name in ("started", "ended"))
        seconds = (ended - started).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None
    return seconds / 3600 if seconds >= 0 else None


def bottlenecks(rows: Sequence[Row], results: Path) -> Table:
    """The verdicts of profiled runs, from profile/summary.json in their folders."""
    body = []
    for row in rows:
        try:
            record = json.loads((results / row["run_id"] / "profile" / "summary.json").read_text(encoding="utf-8"))
            share, said = record["share"], str(record["sentence"])
            shares = tuple(f"{float(share[part]):.0%}" for part in ("data", "communication", "launch"))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        body.append((row["strategy"], row["world_size"], row["model"], *shares, said))
    header = ("strategy", "devices", "network", "data", "communication", "launch", "verdict")
    note = (
        ""
        if body
        else "No run was profiled: a sweep with --epochs 3 -- --profile shows where the time of its steps goes."
    )
    return Table("Where the time of a step goes", header, tuple(body), note)


def _spread(spread: Spread, scale: float, form: str, unit: str = "") -> str:
    """ "4.2 ± 0.1": the median, and half of the distance between least and largest."""
    if math.isnan(spread.median):
        return UNKNOWN
    half = (spread.largest - spread.least) / 2 * scale
    if form == FOUR_DIGITS:
        text, about = digits(spread.median * scale, 4) + unit, digits(half, 2)
    else:
        text, about = form.format(spread.median * scale) + unit, form.format(half)
    return f"{text} ± {about}" if spread.count > 1 else text


TEXTS: dict[str, Callable[[Sequence[Row], Path], list[Table]]] = {
    "scaling": lambda rows, results: scaling(rows),
    "unfinished": lambda rows, results: [unfinished(rows)],
    "system": lambda rows, results: [system(rows)],
    "resources": resources,
    "bottlenecks": lambda rows, results: [bottlenecks(rows, results)],
}
