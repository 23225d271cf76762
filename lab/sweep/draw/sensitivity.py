"""How sensitive the speed is to one choice: a line for everything that was varied by itself."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.sweep.compare.pairs import options_of
from lab.sweep.compare.points import finished, spread
from lab.sweep.compare.table import describe_work
from lab.sweep.draw.axes import bars, legend_entries, new_figure, no_number
from lab.sweep.draw.style import LINES, look_of_line

# What may be varied -> what its axis is called, and how a value of it is said in a legend.
AXES = {
    "bucket_cap_mb": ("DDP's bucket (MiB)", "{:g} MiB buckets"),
    "precision": ("precision", "{}"),
    "per_gpu_batch": ("images per device", "batch {}"),
    "workers": ("loader processes per rank", "{} workers"),
}
WORDS = {"scaling": "{} scaling", "input": "input from the {}"}  # how else a value is said in a legend
SAME = ["model", "dataset", "scaling", "input", "device", "strategy", "world_size", "rest"]


def lines(runs: pd.DataFrame, axis: str) -> pd.DataFrame:
    """What was varied by itself on this axis, all else equal: one row a value, in `line` which line it is of.

    The columns of `spread` are of images a second; `runs` says how many repeats; `rank` is 0 for the line with
    the most runs.
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
    order = table.drop_duplicates("line").sort_values(["told", "line"], ascending=[False, True])["line"]
    return table.assign(rank=table["line"].map({line: rank for rank, line in enumerate(order)}))


def sensitivity(runs: pd.DataFrame) -> Figure | None:
    """A panel for each choice that was varied by itself; None where none was."""
    found = {axis: table for axis in AXES if len(table := lines(runs, axis))}
    if not found:
        return None
    every = pd.concat(found.values())
    shared = [name for name in ("model", "dataset", "device") if every[name].nunique() == 1]
    on_what = describe_work({name: every[name].iloc[0] for name in shared})
    what = f"{on_what}\nimages per second; one choice is varied, all else is equal".lstrip()
    if (every["runs"] > 1).any():
        what += "\nbars: least and largest of the repeats"
    figure, panels = new_figure(len(found), "Sensitivity", what)
    for axes, (axis, table) in zip(panels, found.items(), strict=True):
        _panel(axes, axis, table)
    panels[0].set_ylabel("images per second")
    figure.set_figheight(6.4)  # the legends stand below the panels
    return figure


def _panel(axes: Axes, axis: str, table: pd.DataFrame) -> None:
    shown = table[table["rank"] < LINES]
    values = sorted(shown[axis].unique())
    differ = [name for name in (*SAME, *AXES) if name != axis and shown[name].nunique(dropna=False) > 1]
    for rank, line in shown.groupby("rank"):
        look = look_of_line(rank)
        shift = 0.06 * (rank - (shown["rank"].max()) / 2)
        places = line[axis].map(values.index).astype("float64") + shift
        axes.errorbar(
            places,
            line["images_per_sec"],
            yerr=bars(line, "images_per_sec"),
            color=look.colour,
            marker=look.marker,
            linestyle=look.line,
            markeredgecolor="white",
            capsize=3,
            label=_describe(line.iloc[0], differ),
        )
        for place in places[line["images_per_sec"].isna()]:
            no_number(axes, place, look.colour)
    axes.set_xticks(range(len(values)), [value if isinstance(value, str) else f"{value:g}" for value in values])
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(AXES[axis][0])
    number = table["line"].nunique()
    if number > LINES:
        axes.set_title(f"{LINES} of {number} lines: those with most runs", loc="right", fontsize=9.5)
    axes.legend(
        *legend_entries(axes), fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.14), handlelength=3.2
    )


def _describe(row: Any, differ: list[str]) -> str:
    """What tells this line from the others of its panel."""
    parts = [row["strategy"], f"{row['world_size']} device{'' if row['world_size'] == 1 else 's'}"]
    for name in differ:
        if name in ("strategy", "world_size") or pd.isna(row[name]) or row[name] == "":
            continue
        parts.append(AXES[name][1].format(row[name]) if name in AXES else WORDS.get(name, "{}").format(row[name]))
    return ", ".join(parts)


def left_out(runs: pd.DataFrame) -> list[str]:
    """A sentence for each choice of which there are more lines than can be told apart in a figure."""
    return [
        f"sensitivity: of {number} lines over {AXES[axis][0]} the {LINES} with most runs are drawn"
        for axis in AXES
        if (number := lines(runs, axis)["line"].nunique()) > LINES
    ]
