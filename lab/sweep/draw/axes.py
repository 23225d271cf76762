"""What all figures share: axes over device counts, lines with error bars, marks for what failed, the legend."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib
import pandas as pd

matplotlib.use("Agg")  # files only: no display is needed

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from lab.slurm.states import BAD_ENDS, DONE
from lab.sweep.compare.points import points
from lab.sweep.draw.style import IDEAL, LOOKS, Look, marked


def curves(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The points of each strategy in order of devices; those with buckets of their own are another figure's."""
    found = dict(list(points(runs).groupby("label")))
    return {name: found[name].sort_values("world_size") for name in LOOKS if name in found}


def new_figure(panels: int, title: str, subtitle: str) -> tuple[Figure, list[Axes]]:
    """Panels side by side under one title; a subtitle in several lines where it is long."""
    figure, axes = plt.subplots(1, panels, figsize=(5.4 * panels + 1.0, 5.0), layout="constrained", squeeze=False)
    lines = [short for line in subtitle.splitlines() for short in textwrap.wrap(line, 72 * panels)]
    above = 14 + 12 * len(lines)  # points
    axes[0][0].set_title(title, loc="left", fontsize=14, fontweight="bold", pad=above)
    axes[0][0].annotate(
        "\n".join(lines),
        (0, 1),
        (0, 8),
        "axes fraction",
        "offset points",
        fontsize=9.5,
        color="#444444",
        va="bottom",
    ).set_in_layout(False)  # else a long line would push the axes aside
    return figure, list(axes[0])


def about_bars(points: pd.DataFrame) -> str:
    """What the error bars mean, where there are any."""
    return "\nbars: least and largest of the repeats" if (points["runs"] > 1).any() else ""


def on_cpu(runs: pd.DataFrame) -> bool:
    return bool((runs["device"] == "cpu").any())


def device_counts(runs: pd.DataFrame) -> list[int]:
    return sorted(map(int, runs["world_size"].dropna().unique()))


def device_axis(axes: Axes, runs: pd.DataFrame) -> None:
    """Devices on a logarithmic x-axis, with a tick at every count of the sweep."""
    counts = device_counts(runs)
    count_axis(axes, counts)
    margin = 2 ** (0.12 * max(1.0, math.log2(counts[-1] / counts[0])))
    axes.set_xlim(counts[0] / margin, counts[-1] * margin)
    axes.set_xlabel(f"number of devices ({'CPU ranks' if on_cpu(runs) else 'GPUs'})")


def count_axis(axes: Axes, ticks: Sequence[int]) -> None:
    """A logarithmic x-axis with ticks at these whole numbers only."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))


def beside(axes: Axes, steps: float) -> float:
    """The factor that shifts a marker sideways by so many marker widths."""
    low, high = axes.get_xlim()
    return (high / low) ** (0.022 * steps)


def draw(axes: Axes, runs: pd.DataFrame, column: str, scale: float = 1.0, *, side_by_side: bool = False) -> None:
    """A line for each strategy, as `line` draws it.

    Args:
        column: of points().
        side_by_side: shift the strategies a little, so that equal values do not hide each other.
    """
    found = curves(runs)
    for i, (strategy, mine) in enumerate(found.items()):
        shift = beside(axes, i - (len(found) - 1) / 2) if side_by_side else 1.0
        places = mine["world_size"].astype("float64") * shift
        line(axes, places, mine, column, LOOKS[strategy], scale, label=LOOKS[strategy].label)


def line(
    axes: Axes,
    places: "pd.Series[float]",
    table: pd.DataFrame,
    column: str,
    look: Look,
    scale: float = 1.0,
    *,
    label: str,
) -> None:
    """A line with markers; a bar from the least to the largest where runs were repeated.

    A point of which a repeat is not a number breaks the line, and is marked on the axis.

    Args:
        places: of the table's rows on the x-axis.
        column: of `spread`.
    """
    middle, least, largest = (table[f"{column}{end}"] * scale for end in ("", "_least", "_largest"))
    spread = [middle - least, largest - middle]
    axes.errorbar(places, middle, yerr=spread, capsize=3, elinewidth=1.2, label=label, zorder=3, **marked(look))
    for place in places[middle.isna()]:
        on_axis(axes, place, r"$\mathrm{nan}$", look.colour, size=16)


def over_devices(
    axes: Axes, runs: pd.DataFrame, column: str, label: str, scale: float = 1.0, *, side_by_side: bool = False
) -> None:
    """A panel of what most figures show: a value against devices, by strategy, and what failed."""
    device_axis(axes, runs)
    draw(axes, runs, column, scale, side_by_side=side_by_side)
    mark_failed(axes, runs)
    axes.set_ylabel(label)


def level(axes: Axes, value: float) -> None:
    """A dotted line across the axes at this many per cent, which stand at its end."""
    axes.axhline(value, linestyle=(0, (1, 2)), color=IDEAL, linewidth=1.4, zorder=1)
    where = ("axes fraction", "data")
    axes.annotate(
        f"{value:.3g}%", (1, value), (3, 0), where, "offset points", fontsize=9, color="#555555", va="center"
    )


def beside_point(
    axes: Axes, text: str, point: tuple[float, float], up: float, colour: str = "black", **look: Any
) -> None:
    """A few words so many points (of print) above a point, or below it."""
    look = {"fontsize": 9, "ha": "center", **look}
    axes.annotate(text, point, (0, up), textcoords="offset points", color=colour, **look)


def mark_failed(axes: Axes, runs: pd.DataFrame) -> None:
    """A cross on the x-axis for every point that failed: a missing marker could be taken for not planned."""
    seen: dict[int, int] = {}
    for devices, strategy in _failed(runs):
        colour = LOOKS[strategy].colour if strategy in LOOKS else IDEAL
        shift = beside(axes, seen.setdefault(devices, 0))
        seen[devices] += 1
        on_axis(axes, devices * shift, "X", colour, size=10, label=f"{strategy} failed on {devices}")


def _failed(runs: pd.DataFrame) -> list[tuple[int, str]]:
    """The points without a single finished run."""
    known = runs.dropna(subset="world_size")
    done, failed = (
        {*known[known["status"].isin(states)][["world_size", "strategy"]].itertuples(index=False, name=None)}
        for states in ((DONE,), BAD_ENDS)
    )
    return sorted(failed - done)


def on_axis(axes: Axes, x: float, marker: str, colour: str, size: float, label: str = "") -> None:
    """A marker on the x-axis itself, where no value is."""
    axes.plot(
        [x],
        [0.0],
        marker=marker,
        markersize=size,
        color=colour,
        linestyle="none",
        markeredgecolor="white" if marker == "X" else colour,
        transform=axes.get_xaxis_transform(),
        clip_on=False,
        zorder=6,
        label=label or "_nolegend_",
    )


def legend(figure: Figure, axes: Axes) -> None:
    """Below the axes, where it can hide nothing; in the order of the lines, the failures last."""
    handles, labels = axes.get_legend_handles_labels()
    plain, _ = legend_entries(axes)
    order = sorted(range(len(labels)), key=lambda i: ("failed" in labels[i], not isinstance(handles[i], tuple)))
    columns = min(len(labels), 4 if figure.get_figwidth() > 8 else 2)
    figure.legend(
        [plain[i] for i in order],
        [labels[i] for i in order],
        loc="outside lower center",
        ncols=columns,
        handlelength=3.2,  # long enough to tell dashes from dots
    )


def legend_entries(axes: Axes) -> tuple[list[Any], list[str]]:
    """Handles and labels; an error bar's own handle would show a bar that most markers do not have."""
    handles, labels = axes.get_legend_handles_labels()
    return [handle[0] if isinstance(handle, ErrorbarContainer) else handle for handle in handles], labels


def not_narrower_than(axes: Axes, span: float) -> None:
    """Widen the y-axis to at least `span`, so that noise does not look like a trend."""
    low, high = axes.get_ylim()
    missing = max(0.0, span - (high - low)) / 2
    margin = 0.08 * (high - low + 2 * missing)
    axes.set_ylim(low - missing - 2 * margin, high + missing + margin)
