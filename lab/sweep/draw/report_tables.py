"""The tables of a report: from results.csv, and from what the runs' folders hold besides."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from lab.base.words import digits
from lab.runs.records.job import read_json
from lab.slurm import states
from lab.sweep.compare.points import baseline_times, finished, points
from lab.sweep.compare.reasons import in_words
from lab.sweep.compare.table import count_text, describe_work, notes, setting_titles

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
    return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"


# The tables -------------------------------------------------------------------------------------------------


def scaling(runs: pd.DataFrame) -> list[Table]:
    """One for each setting: what every point took, with the spread of its repeats."""
    tables = []
    titles, baseline = setting_titles(runs["setting"]), baseline_times(runs)
    members = dict(list(runs.groupby("setting")))
    for setting, found in points(runs).groupby("setting", sort=False):
        weak = (members[setting]["scaling"] == "weak").any()
        time = "time per step (ms)" if weak else "time per epoch (s)"
        header = ("strategy", "devices", "runs", time, "images/s", "efficiency", "memory (GiB)", "accuracy")
        body = tuple(
            (
                point["label"],
                str(point["world_size"]),
                str(point["runs"]),
                _spread(point, "seconds", 1e3 if weak else 1, FOUR_DIGITS),
                _spread(point, "images_per_sec", 1, "{:,.0f}"),
                _spread(point, "efficiency", 100, "{:.0f}", "%"),
                _spread(point, "mem_gb", 1, "{:.2f}"),
                _spread(point, "val_top1", 100, "{:.1f}", "%"),
            )
            for _, point in found.iterrows()
        )
        said = ["Median of the runs, ± half of least to largest."]
        said += [f"{note[0].upper()}{note[1:]}." for note in notes(members[setting], baseline.get(setting))]
        tables.append(Table(titles[setting], header, body, " ".join(said)))
    return tables


def unfinished(runs: pd.DataFrame) -> Table:
    """Every run without figures, with its state and its reason."""
    body = tuple(
        (run.run_id, count_text(run.world_size) or "?", run.status, in_words(run.reason))
        for run in runs[runs["status"] != states.DONE].itertuples()
    )
    return Table(
        "Runs without figures", ("run", "devices", "state", "reason"), body, "" if body else "every run is done"
    )


def system(runs: pd.DataFrame) -> Table:
    """On what and with what the finished runs were made; more than one line where they differ."""
    names = {
        "device": "device",
        "driver": "driver",
        "versions": "software",
        "allocator": "memory allocator",
        "commit": "commit of the lab",
        "precision": "precision",
    }
    done = finished(runs)
    body = []
    for column, name in names.items():
        values = sorted({*done[column]} - {""})
        if values:
            body.append((name, "; ".join("CPU" if value == "cpu" else value for value in values)))
    shapes = done[["nodes", "world_size"]].dropna().drop_duplicates().sort_values(["nodes", "world_size"])
    known = [f"{nodes} x {devices / nodes:g}" for nodes, devices in shapes.itertuples(index=False) if nodes]
    body.append(("nodes x devices", ", ".join(known)))
    return Table("System", ("what", "which"), tuple(pair for pair in body if pair[1]))


def resources(runs: pd.DataFrame, results: Path) -> list[Table]:
    """Node-hours and GPU-hours of the runs, from the times in their folders; a table of its own for CPU ranks.

    Args:
        results: the folder with the runs' folders; a run whose folder or times are gone is counted as unknown.
    """
    all_on_cpu = {*runs["device"]} - {""} == {"cpu"}  # a run that died early does not say
    on_cpu = (runs["device"] == "cpu") | all_on_cpu
    title = "What the measurements took"
    if on_cpu.all() or not on_cpu.any():
        return [_resources(runs, results, title, "CPU ranks" if on_cpu.all() else "GPUs")]
    return [
        _resources(runs[~on_cpu], results, f"{title} on GPUs", "GPUs"),
        _resources(runs[on_cpu], results, f"{title} on CPUs", "CPU ranks"),
    ]


def _resources(runs: pd.DataFrame, results: Path, title: str, unit: str) -> Table:
    facts = pd.DataFrame(
        {
            "model": runs["model"].replace("", "?"),
            "nodes": runs["nodes"].where(runs["nodes"] > 0).fillna(1),
            "devices": runs["world_size"].fillna(0),
            "hours": runs["run_id"].map(lambda run_id: run_hours(results / run_id)).astype("float64"),
        }
    )
    facts["hours"] = facts["hours"].where(facts["devices"] > 0)
    groups = facts.groupby(["model", "nodes", "devices"])["hours"].agg(["size", "mean", "sum"]).reset_index()
    groups["node_hours"], groups["device_hours"] = (groups["sum"] * groups[name] for name in ("nodes", "devices"))
    body: list[tuple[str, ...]] = [
        (
            group.model,
            str(group.size),
            str(group.nodes),
            f"{group.devices / group.nodes:g}" if group.devices else "?",
            UNKNOWN if math.isnan(group.mean) else f"{group.mean:.3f}",
            f"{group.node_hours:.3f}",
            f"{group.device_hours:.3f}",
        )
        for group in groups.itertuples()
    ]
    total = (f"{groups[name].sum():.3f}" for name in ("node_hours", "device_hours"))
    body.append(("total", str(len(runs)), "", "", "", *total))
    hours_of = "GPU-hours" if unit == "GPUs" else "rank-hours"
    note = (
        f"Node-hours = runs x nodes x hours a run; {hours_of} = node-hours x {unit} a node. Failed runs count too."
    )
    if unknown := int(facts["hours"].isna().sum()):
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


DIFFER = ("dataset", "precision", "batch", "scaling", "input", "variant", "device")  # what runs may differ in


def bottlenecks(runs: pd.DataFrame, results: Path) -> Table:
    """The verdicts of profiled runs, from their profile/summary.json, with all in which these runs differ."""
    found: dict[int, tuple[str, ...]] = {}
    for place, run_id in runs["run_id"].items():
        try:
            record = json.loads((results / run_id / "profile" / "summary.json").read_text(encoding="utf-8"))
            share, said = record["share"], str(record["sentence"])
            shares = tuple(f"{float(share[part]):.0%}" for part in ("data", "communication", "launch"))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        # records of earlier versions have numbers such as 2.32e+03
        found[place] = (*shares, re.sub(r"\d\.?\d*e[+-]\d+", lambda number: digits(float(number[0]), 3), said))
    profiled = runs.loc[list(found)]
    differ = [name for name in DIFFER if profiled[name].nunique() > 1]
    repeated = ["repeat"] if profiled.duplicated(["label", "world_size", "model", *differ]).any() else []
    body = tuple(
        (
            *(run["label"], count_text(run["world_size"]), run["model"]),
            *(describe_work({name: run[name]}) or UNKNOWN for name in differ),
            *(count_text(run[name]) for name in repeated),
            *found[place],
        )
        for place, run in profiled.iterrows()
    )
    names = ("options" if name == "variant" else name for name in differ)
    header = ("strategy", "devices", "network", *names, *repeated, "data", "communication", "launch", "verdict")
    note = (
        ""
        if body
        else "No run was profiled: a sweep with --epochs 3 -- --profile shows where the time of its steps goes."
    )
    return Table("Where the time of a step goes", header, body, note)


def _spread(point: Any, figure: str, scale: float, form: str, unit: str = "") -> str:
    """ "4.2 ± 0.1": the median, and half of the distance between least and largest."""
    if math.isnan(point[figure]):
        return UNKNOWN
    half = (point[f"{figure}_largest"] - point[f"{figure}_least"]) / 2 * scale
    if form == FOUR_DIGITS:
        text, about = digits(point[figure] * scale, 4) + unit, digits(half, 2)
    else:
        text, about = form.format(point[figure] * scale) + unit, form.format(half)
    return f"{text} ± {about}" if point["runs"] > 1 else text


TEXTS: dict[str, Callable[[pd.DataFrame, Path], list[Table]]] = {
    "scaling": lambda runs, results: scaling(runs),
    "unfinished": lambda runs, results: [unfinished(runs)],
    "system": lambda runs, results: [system(runs)],
    "resources": resources,
    "bottlenecks": lambda runs, results: [bottlenecks(runs, results)],
}
