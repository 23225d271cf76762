"""What a larger batch costs: the time to a given accuracy against the global batch. Images/s alone decide nothing.

A step on more images is faster per image, and more passes over the data are needed to learn as much: beyond a
batch that the data and the network decide, more devices give no shorter training (McCandlish et al., An Empirical
Model of Large-Batch Training, 2018; Shallue et al., Measuring the Effects of Data Parallelism on Neural Network
Training, 2019).
"""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lab.base.errors import UserError
from lab.runs.records.folder import SUMMARY
from lab.sweep.compare.points import finished
from lab.sweep.compare.table import say
from lab.sweep.draw.axes import beside_point, count_axis, legend, level, new_figure, on_axis
from lab.sweep.draw.style import LINES, look_of_line, marked

SAME = ["model", "dataset", "precision", "device", "strategy", "world_size", "input", "variant"]
PART_OF_BEST = 0.95  # of the best accuracy of all: what is to be reached where nobody says


def epochs_of(file: Path) -> pd.DataFrame:
    """A run's epochs 1, 2, 3, ...: `val_top1` after each, and `seconds` of training until then.

    Raises:
        UserError: the run.csv cannot be read.
    """
    try:
        table = pd.read_csv(file, dtype={"epoch": "str"}, usecols=["epoch", "val_top1", "time_epoch_s"])
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {file}: {error}") from error
    figures = table[table["epoch"] != SUMMARY].drop(columns="epoch").apply(pd.to_numeric, errors="coerce")
    seconds = figures["time_epoch_s"].cumsum()
    return figures.assign(seconds=seconds)[["val_top1", "seconds"]].set_axis(range(1, len(figures) + 1))


def _file(results: Path, run_id: str) -> Path:
    """Where a run keeps its epochs."""
    return results / run_id / "run.csv"


def _varied(runs: pd.DataFrame) -> pd.DataFrame:
    """Finished runs of several epochs of which another differs in the global batch alone."""
    done = finished(runs)
    done = done[done["epochs"] > 1].dropna(subset="global_batch")  # not those of --measure-steps
    return done[done.groupby(SAME, dropna=False)["global_batch"].transform("nunique") > 1]


def without_epochs(runs: pd.DataFrame, results: Path) -> list[str]:
    """A sentence on runs that the figure leaves out: results.csv was taken along without their folders."""
    lost = [run_id for run_id in _varied(runs)["run_id"] if not _file(results, run_id).is_file()]
    if not lost:
        return []
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return [f"time to an accuracy is in a run's folder, and there is no {_file(results, lost[0])}{more}"]


def by_batch(runs: pd.DataFrame, results: Path, target: float | None = None) -> tuple[pd.DataFrame, float]:
    """What each run needed to reach an accuracy, where the global batch was varied and all else is equal.

    Args:
        results: the folder with the runs' folders.
        target: the validation accuracy, a fraction; else PART_OF_BEST of the best of these runs.

    Returns:
        One row a run: the columns SAME, `global_batch`, `best` (a fraction), `epoch` and `seconds` when it was
        first at `target` (NaN where it never was), `line`; and the target. No row where no batch was varied, or
        where no run has its folder there.
    """
    done = _varied(runs)
    there = [run_id for run_id in done["run_id"] if _file(results, run_id).is_file()]
    done = _varied(done[done["run_id"].isin(there)])
    done = done.assign(line=done.groupby(SAME, dropna=False).ngroup())
    if done.empty:
        return done, 0.0
    curves = {run_id: epochs_of(_file(results, run_id)) for run_id in done["run_id"]}
    epochs = pd.concat(curves, names=["run_id", "epoch"]).reset_index()
    best = epochs.groupby("run_id")["val_top1"].max().rename("best")
    done = done.drop(columns=["epoch", "seconds"]).join(best, on="run_id").dropna(subset="best")
    if target is None:
        target = PART_OF_BEST * done["best"].max()
    first = epochs[epochs["val_top1"] >= target].drop_duplicates("run_id")
    return done.merge(first.drop(columns="val_top1"), how="left", on="run_id"), target


def time_to_accuracy(runs: pd.DataFrame, results: Path, target: float | None = None) -> Figure | None:
    """Left the time to the target, with the epochs at each point; right the best accuracy of each batch."""
    table, target = by_batch(runs, results, target)
    if table.empty:
        return None
    order = table["line"].value_counts().index[:LINES]
    shared = [name for name in SAME if table[name].nunique(dropna=False) == 1]
    shown = table[table["line"].isin(order)]
    subtitle = f"{say(shown.iloc[0], shared)}\nvalidation accuracy of {target:.1%}; numbers: epochs until then"
    if (shown.groupby(["line", "global_batch"])["run_id"].size() > 1).any():
        subtitle += "\nmedian of the repeats; x: a batch of which no repeat reached it"
    else:
        subtitle += "\nx: a batch that never reached it"
    figure, (left, right) = new_figure(2, "Time to a given accuracy", subtitle.lstrip())
    batches = sorted(map(int, shown["global_batch"].unique()))
    for axes in (left, right):
        count_axis(axes, batches)
        axes.set_xlim(batches[0] / 1.3, batches[-1] * 1.3)
        axes.set_xlabel("images per step over all devices (global batch)")
    for rank, number in enumerate(order):
        mine = shown[shown["line"] == number]
        look = look_of_line(rank)
        label = say(mine.iloc[0], [name for name in SAME if name not in shared])
        point = mine.groupby("global_batch")[["seconds", "epoch", "best"]].median()
        left.plot(point.index.astype(int), point["seconds"], label=label, **marked(look))
        right.plot(point.index.astype(int), 100 * point["best"], **marked(look))
        for batch, one in point.iterrows():
            if pd.isna(one["seconds"]):
                on_axis(left, int(batch), "X", look.colour, size=10)
            else:
                beside_point(left, f"{one['epoch']:g}", (int(batch), one["seconds"]), 9, look.colour)
    level(right, 100 * target)
    left.set_ylim(bottom=0, top=left.get_ylim()[1] * 1.1)
    left.set_ylabel("seconds of training")
    right.set_ylabel("best validation accuracy (%)")
    if len(order) > 1:
        legend(figure, left)
    return figure


def fastest(runs: pd.DataFrame, results: Path, target: float | None = None) -> list[str]:
    """A sentence for each line: which batch is there first, and which never is."""
    table, target = by_batch(runs, results, target)
    said = []
    for _, mine in table.groupby("line"):
        point = mine.groupby("global_batch")[["seconds", "images_per_sec"]].median()
        seconds, speed = point["seconds"], point["images_per_sec"]
        words = f"time to {target:.1%}: {say(mine.iloc[0], SAME)}: "
        if seconds.isna().all():
            said.append(f"{words}no batch reached it")
            continue
        first = seconds.idxmin()
        words += f"batch {first} is there first, after {seconds[first]:.3g} s"
        if speed.notna().any() and (quick := speed.idxmax()) != first:
            late = f"takes {seconds[quick]:.3g} s" if pd.notna(seconds[quick]) else "never gets there"
            words += f"; batch {quick} has the most images/s and {late}"
        said.append(words)
    return said
