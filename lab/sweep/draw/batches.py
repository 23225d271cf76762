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
from lab.sweep.compare.points import finished
from lab.sweep.draw.axes import count_axis, legend_entries, new_figure, on_axis
from lab.sweep.draw.style import LINES, look_of_line, marked

SAME = ["model", "dataset", "precision", "device", "strategy", "world_size", "input", "variant"]
PART_OF_BEST = 0.95  # of the best accuracy of all: what is to be reached where nobody says


def epochs_of(run_folder: Path) -> pd.DataFrame:
    """A run's epochs in order: `val_top1` after each, and `seconds` of training until then.

    Raises:
        UserError: run.csv cannot be read.
    """
    file = run_folder / "run.csv"
    try:
        table = pd.read_csv(file, dtype={"epoch": "str"}, usecols=["epoch", "val_top1", "time_epoch_s"])
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {file}: {error}") from error
    table = table[table["epoch"] != "summary"]
    figures = table[["val_top1", "time_epoch_s"]].apply(pd.to_numeric, errors="coerce")
    return pd.DataFrame(
        {"val_top1": figures["val_top1"], "seconds": figures["time_epoch_s"].cumsum()}
    ).reset_index(drop=True)


def by_batch(runs: pd.DataFrame, results: Path, target: float | None = None) -> tuple[pd.DataFrame, float]:
    """What each run needed to reach an accuracy, where the global batch was varied and all else is equal.

    Args:
        results: the folder with the runs' folders.
        target: the validation accuracy, a fraction; else PART_OF_BEST of the best of these runs.

    Returns:
        One row a run: the columns SAME, `global_batch`, `best` (a fraction), `epoch` and `seconds` when it was
        first at `target` (NaN where it never was), `line`; and the target. No row where no batch was varied.
    """
    done = finished(runs)
    done = done[done["epochs"] > 1].dropna(subset="global_batch")  # not those of --measure-steps
    by_line = done.groupby(SAME, dropna=False)["global_batch"]
    done = done.assign(line=done.groupby(SAME, dropna=False).ngroup())[by_line.transform("nunique") > 1]
    curves = {run_id: epochs_of(results / run_id) for run_id in done["run_id"]}
    best = done["run_id"].map({run_id: curve["val_top1"].max() for run_id, curve in curves.items()})
    done = done.assign(best=best.astype("float64"))
    done = done[done["best"].notna()]
    if target is None:
        target = PART_OF_BEST * done["best"].max() if len(done) else 0.0
    there = {run_id: curve[curve["val_top1"] >= target].head(1) for run_id, curve in curves.items()}
    first = {run_id: (row.index[0] + 1, row["seconds"].iloc[0]) for run_id, row in there.items() if len(row)}
    for name, which in (("epoch", 0), ("seconds", 1)):
        values = done["run_id"].map({run_id: found[which] for run_id, found in first.items()})
        done[name] = values.astype("float64")
    return done, target


def time_to_accuracy(runs: pd.DataFrame, results: Path, target: float | None = None) -> Figure | None:
    """Left the time to the target, with the epochs at each point; right the best accuracy of each batch."""
    table, target = by_batch(runs, results, target)
    if table.empty:
        return None
    order = table.groupby("line")["run_id"].size().sort_values(ascending=False, kind="stable").index[:LINES]
    shared = [name for name in SAME if table[name].nunique(dropna=False) == 1]
    shown = table[table["line"].isin(order)]
    subtitle = f"{_say(shown.iloc[0], shared)}\nvalidation accuracy of {target:.1%}; numbers: epochs until then"
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
        label = _say(mine.iloc[0], [name for name in SAME if name not in shared])
        point = mine.groupby("global_batch")[["seconds", "epoch", "best"]].median()
        style = marked(look)
        left.plot(point.index.astype(int), point["seconds"], label=label, **style)
        right.plot(point.index.astype(int), 100 * point["best"], **style)
        for batch, one in point.iterrows():
            if pd.isna(one["seconds"]):
                on_axis(left, int(batch), "X", look.colour, size=10)
            else:
                where = (int(batch), one["seconds"])
                left.annotate(
                    f"{one['epoch']:g}", where, (0, 9), textcoords="offset points", ha="center", fontsize=9,
                    color=look.colour,
                )  # fmt: skip
    right.axhline(100 * target, linestyle=":", color="#555555", zorder=1)
    right.annotate(
        f"{target:.1%}", (1, 100 * target), (3, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
        va="center", fontsize=9, color="#555555",
    )  # fmt: skip
    left.set_ylim(bottom=0, top=left.get_ylim()[1] * 1.1)
    left.set_ylabel("seconds of training")
    right.set_ylabel("best validation accuracy (%)")
    if len(order) > 1:
        handles, labels = legend_entries(left)
        figure.legend(handles, labels, loc="outside lower center", ncols=2, handlelength=3.2)
    return figure


def fastest(runs: pd.DataFrame, results: Path, target: float | None = None) -> list[str]:
    """A sentence for each line: which batch is there first, and which never is."""
    table, target = by_batch(runs, results, target)
    said = []
    for _, mine in table.groupby("line"):
        point = mine.groupby("global_batch")[["seconds", "images_per_sec"]].median()
        first, most = (
            point["seconds"].idxmin() if point["seconds"].notna().any() else None,
            point["images_per_sec"],
        )
        if first is None:
            said.append(f"time to {target:.1%}: {_say(mine.iloc[0], SAME)}: no batch reached it")
            continue
        words = f"time to {target:.1%}: {_say(mine.iloc[0], SAME)}: batch {first} is there first, after "
        words += f"{point['seconds'][first]:.3g} s"
        if most.notna().any() and (quick := most.idxmax()) != first:
            late = point["seconds"][quick]
            words += f"; batch {quick} has the most images/s and "
            words += f"takes {late:.3g} s" if pd.notna(late) else "never gets there"
        said.append(words)
    return said


def _say(row: "pd.Series[object]", names: list[str]) -> str:
    known = {name: row[name] for name in names if pd.notna(row[name]) and row[name] != ""}
    if "world_size" in known:
        known["world_size"] = "1 device" if known["world_size"] == 1 else f"{known['world_size']} devices"
    if "input" in known:
        known["input"] = "images on the device" if known["input"] == "device" else "images from the loader"
    if known.get("strategy") == "none":
        known["strategy"] = "no wrapper"
    return ", ".join("CPU" if value == "cpu" else str(value) for value in known.values())
