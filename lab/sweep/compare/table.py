"""results.csv as a table for people."""

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import pandas as pd

from lab.base.allocator import KEEPS
from lab.slurm import states
from lab.sweep.compare.columns import BASELINE, ENOUGH_STEPS, SETTING, Row
from lab.sweep.compare.frame import BETWEEN, typed
from lab.sweep.compare.points import baseline_times, baselines, finished, points
from lab.sweep.compare.reasons import in_words

Key = TypeVar("Key", bound=Hashable)

SUSPICIOUS = 1.1  # an efficiency that only a disturbed baseline explains


def summary(rows: Iterable[Row] | pd.DataFrame) -> str:
    """One block for each setting: one line a point with the median of its repeats, then what has no figures.

    Args:
        rows: as `typed` takes them.
    """
    runs = typed(rows)
    titles, times, found = setting_titles(runs["setting"]), baseline_times(runs), points(runs)
    blocks = [
        _block(titles[setting], members, found[found["setting"] == setting], times.get(setting))
        for setting, members in runs.groupby("setting", sort=False)
    ]
    counts = runs["status"].value_counts()
    total = ", ".join(f"{counts[state]} {state}" for state in states.STATES if state in counts)
    return "\n\n".join([*blocks, f"{len(runs)} run{'s' * (len(runs) > 1)}: {total}"])


def _block(title: str, members: pd.DataFrame, found: pd.DataFrame, baseline: float | None) -> str:
    cells = _cells(found, baseline, weak=(members["scaling"] == "weak").any())
    widths = [max(map(len, [name, *column])) for name, column in cells.items()]
    lines = [title]
    for first, *others in [tuple(cells), *cells.itertuples(index=False, name=None)]:
        right = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  " + "  ".join([first.ljust(widths[0]), *right]).rstrip())
    for run in members[members["status"] != states.DONE].itertuples():
        name, devices = (run.strategy or run.run_id).ljust(widths[0]), count_text(run.world_size) or "?"
        lines.append(f"  {name}  {devices.rjust(widths[1])}  {run.status}: {in_words(run.reason)}")
    return "\n".join(lines + [f"  {note}" for note in notes(members, baseline)])


def _cells(found: pd.DataFrame, baseline: float | None, weak: bool) -> pd.DataFrame:
    """Of the points of a setting, as text; how often each was repeated only where one was."""
    alone = found[(found["strategy"] == BASELINE) & (found["world_size"] == 1)]["images_per_sec"]
    one = math.nan if baseline is None or alone.empty else alone.iloc[0]
    spread = (found["seconds_largest"] - found["seconds_least"]) / 2 / found["seconds"].where(found["seconds"] > 0)
    time = _texts(found["seconds"] * 1000, "{:.1f} ms") if weak else _texts(found["seconds"], "{:.2f} s")
    cells = {
        "strategy": found["label"],
        "devices": found["world_size"].astype("str"),
        "runs": found["runs"].astype("str"),
        "time/step" if weak else "time/epoch": time,
        "spread": _texts(spread.where(found["runs"] > 1) * 100, "±{:.1f}%"),
        "speed-up": _texts(found["images_per_sec"] / one, "{:.2f}x"),
        "efficiency": _texts(found["efficiency"] * 100, "{:.0f}%"),
        "images/s": _texts(found["images_per_sec"], "{:,.0f}"),
        "loss": _texts(found["val_loss"], "{:.4f}", missing="nan"),
        "accuracy": _texts(found["val_top1"] * 100, "{:.1f}%", missing="nan"),
        "memory": _texts(found["mem_gb"], "{:.2f} GiB"),
    }
    repeated = (found["runs"] > 1).any()
    return pd.DataFrame(cells).drop(columns=[] if repeated else ["runs", "spread"])


def _texts(values: "pd.Series[float]", form: str, missing: str = "-") -> "pd.Series[str]":
    return values.map(form.format, na_action="ignore").astype("str").fillna(missing)


def notes(members: pd.DataFrame, baseline: float | None) -> list[str]:
    """What a reader of one setting's table must know before believing it.

    Args:
        baseline: T(1) in seconds; None where no finished run gives it.
    """
    said = []
    done = finished(members)
    if baseline is None and len(done):
        said.append("no speed-up: there is no finished run of --strategy none on 1 device to compare with")
    if too_fast(done):
        said.append(_faster_than_ideal(done))
    least = done["measured_steps"].min()
    if pd.notna(least) and least < ENOUGH_STEPS:
        said.append(
            f"only {least} steps were measured: use --epochs or --measure-steps for {ENOUGH_STEPS} or more"
        )
    for column in ("commit", "versions", "driver", "allocator"):
        what = column if column.endswith("s") else f"{column}s"
        different = sorted({*done[column]} - {""})
        if len(different) > 1:
            said.append(f"measured with different {what}: {'; '.join(different)}")
    return said


def _faster_than_ideal(done: pd.DataFrame) -> str:
    """What can make N devices more than N times as fast as one, which to divide the work does not."""
    one = baselines(done)
    disturbed = "faster than ideal: the run on 1 device was probably disturbed; repeat it on a quiet machine"
    if (one["scaling"] == "weak").any():
        return disturbed
    others = {allocator or "not recorded" for allocator in one[one["device"] == "cpu"]["allocator"]} - {KEEPS}
    if others:
        return (
            f"{disturbed}, without allocator settings of your own: the memory allocator "
            f"({', '.join(sorted(others))}) may have given the larger batch back to the kernel in every step"
        )
    return f"{disturbed}; or its larger batch costs more per image, as where caches hold only the smaller ones"


def doubts(runs: pd.DataFrame) -> list[str]:
    """What makes the measurements of a setting doubtful, for those who go on with them."""
    titles = setting_titles(runs["setting"])
    return [
        f"{titles[setting]}: {_faster_than_ideal(done)}"
        for setting, done in finished(runs).groupby("setting", sort=False)
        if too_fast(done)
    ]


def too_fast(done: pd.DataFrame) -> bool:
    return bool((points(done)["efficiency"] > SUSPICIOUS).any())


def setting_titles(settings: Iterable[str]) -> dict[str, str]:
    """A title for each setting, no two the same: `cnn on shapes, fp32, global batch 256, strong scaling, CPU`."""
    keys = dict.fromkeys(settings)
    return distinct({key: (describe_setting(key), describe_setting(key, whole=True)) for key in keys})


def distinct(titles: Mapping[Key, tuple[str, str]]) -> dict[Key, str]:
    """Of a short and a whole title for each key: the short one, or where two keys share it the whole one."""
    often = Counter(short for short, _ in titles.values())
    return {key: whole if often[short] > 1 else short for key, (short, whole) in titles.items()}


def describe_setting(setting: str, whole: bool = False) -> str:
    """What was trained on what; `whole`: with the options that say how long was measured."""
    row = dict(zip(SETTING, setting.split(BETWEEN), strict=True))
    return describe_work(row if whole else row | {"variant": without_measuring(row["variant"])}) or "unknown"


def describe_work(row: Mapping[str, str]) -> str:
    """The same of some of its columns, but for what is usual: `resnet18 on shapes, bf16, A card`."""
    usual = {"epochs": "1", "input": "loader"}
    return say(row, [name for name in SETTING if name in row and row[name] != usual.get(name)])


WORDS: dict[str, Callable[[Any], str]] = {  # how the value of a column is said; others as they are
    "strategy": lambda name: "no wrapper" if name == BASELINE else name,
    "world_size": lambda count: "1 device" if count == 1 else f"{count} devices",
    "scaling": "{} scaling".format,
    "epochs": "{} epochs".format,
    "input": lambda place: f"images {'on the' if place == 'device' else 'from the'} {place}",
    "device": lambda name: "CPU" if name == "cpu" else name,
    "bucket_cap_mb": "{:g} MiB buckets".format,
    "per_gpu_batch": "batch {}".format,
    "workers": "{} workers".format,
}


def say(row: "Mapping[str, Any] | pd.Series[Any]", names: Iterable[str]) -> str:
    """These columns of a run in words, but for unknown ones: `cnn on shapes, ddp, 4 devices, 25 MiB buckets`."""
    known = [name for name in names if pd.notna(row[name]) and row[name] != ""]
    said = {name: WORDS.get(name, str)(row[name]) for name in known}
    if {"model", "dataset"} <= said.keys():
        said["model"] += f" on {said.pop('dataset')}"
    return ", ".join(said.values())


def without_measuring(variant: str) -> str:
    """The options without those that say how long was measured: the table of points tells it better."""
    return re.sub(r"--measure-\w+ \d+ ?", "", variant).strip()


def count_text(count: Any) -> str:
    """A whole number of a table; empty where it is <NA>."""
    return "" if pd.isna(count) else str(count)
