"""How sensitive the speed is to one choice: a line for everything that was varied by itself."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.sweep.compare.pairs import options_of
from lab.sweep.compare.points import finished, spread
from lab.sweep.compare.table import say
from lab.sweep.draw.axes import about_bars, legend_entries, line, new_figure
from lab.sweep.draw.style import LINES, look_of_line

AXES = {  # what may be varied -> what its axis is called
    "bucket_cap_mb": "DDP's bucket (MiB)",
    "precision": "precision",
    "per_gpu_batch": "images per device",
    "workers": "loader processes per rank",
}
SAME = ["model", "dataset", "device", "strategy", "world_size", "scaling", "input", "rest"]


def lines(runs: pd.DataFrame, axis: str) -> pd.DataFrame:
    """What was varied by itself on this axis, all else equal: one row a value, in `line` which line it is of.

    The columns of `spread` are of images a second; `runs` says how many repeats; `rank` is 0 for the line with
    the most runs, of several that on the most devices.
    """
    done = finished(runs)
    options = done["variant"].map(options_of)
    workers = options.map(lambda words: [word.split()[1] for word in words if word.startswith("--num-workers ")])
    rest = options.map(lambda words: " ".join(word for word in words if not word.startswith("--num-workers")))
    loaded = done["input"] != "device"
    facts = done.assign(
        rest=rest.astype("str"),
        workers=pd.to_numeric(workers.str[0]).astype("Int64").fillna(0).where(workers.map(bool) | loaded),
    )
    facts = facts[facts[axis].notna() & (facts[axis].astype("str") != "")]
    others = [name for name in (*SAME, *AXES) if name != axis]
    groups = facts.groupby([*others, axis], dropna=False)
    table = pd.concat([spread(groups, ("images_per_sec",)), groups.size().rename("runs")], axis=1).reset_index()
    by_line = table.groupby(others, dropna=False)
    table["line"] = by_line.ngroup()
    table["told"] = by_line["runs"].transform("sum")
    table = table[by_line[axis].transform("size") > 1]
    order = table.sort_values(["told", "world_size", "line"], ascending=[False, False, True])["line"].unique()
    return table.assign(rank=table["line"].map({line: rank for rank, line in enumerate(order)}))


def sensitivity(runs: pd.DataFrame) -> Figure | None:
    """A panel for each choice that was varied by itself; None where none was."""
    found = {axis: table for axis in AXES if len(table := lines(runs, axis))}
    if not found:
        return None
    every = pd.concat([table[table["rank"] < LINES] for table in found.values()])
    shared = [name for name in SAME if every[name].nunique() == 1]
    what = f"{say(every.iloc[0], shared)}\nimages per second; one choice is varied, all else is equal".lstrip()
    what += about_bars(every)
    figure, panels = new_figure(len(found), "Sensitivity", what)
    for axes, (axis, table) in zip(panels, found.items(), strict=True):
        _panel(axes, axis, table, shared)
    panels[0].set_ylabel("images per second")
    figure.set_figheight(6.4)  # the legends stand below the panels
    return figure


def _panel(axes: Axes, axis: str, table: pd.DataFrame, shared: list[str]) -> None:
    shown = table[table["rank"] < LINES]
    values = sorted(shown[axis].unique())
    others = [name for name in (*SAME, *AXES) if name != axis and name not in shared]
    differ = [name for name in others if shown[name].nunique(dropna=False) > 1]
    for rank, mine in shown.groupby("rank"):
        look = look_of_line(rank)
        shift = 0.06 * (rank - (shown["rank"].max()) / 2)
        places = mine[axis].map(values.index).astype("float64") + shift
        line(axes, places, mine, "images_per_sec", look, label=say(mine.iloc[0], differ) or "all")
    axes.set_xticks(range(len(values)), [value if isinstance(value, str) else f"{value:g}" for value in values])
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(AXES[axis])
    about = [say(shown.iloc[0], [name for name in others if name not in differ])]
    if (number := table["line"].nunique()) > LINES:
        about.append(f"{LINES} of {number} lines: those with most runs, then on most devices")
    handles, labels = legend_entries(axes)
    axes.legend(
        handles,
        labels,
        title="\n".join(filter(None, about)) or None,
        title_fontsize=8.5,
        fontsize=8.5,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.14),
        handlelength=3.2,
    )


def left_out(runs: pd.DataFrame) -> list[str]:
    """A sentence for each choice of which there are more lines than can be told apart in a figure."""
    return [
        f"sensitivity: of {number} lines over {AXES[axis]} {LINES} are drawn, those with most runs"
        for axis in AXES
        if (number := lines(runs, axis)["line"].nunique()) > LINES
    ]
