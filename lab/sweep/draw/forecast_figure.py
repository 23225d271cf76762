"""The curve of a forecast with its range, the points that it was fitted on, and those that it did not know."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.base.words import slug
from lab.sweep.compare.forecast import USEFUL, Forecast
from lab.sweep.draw.axes import count_axis, legend, new_figure
from lab.sweep.draw.style import IDEAL, LOOKS, readable_log_ticks


def drawings(forecasts: Sequence[Forecast]) -> dict[str, Callable[[], Figure]]:
    """A figure for each forecast, by the name of its file."""
    return {name: partial(_figure, one) for name, one in zip(file_names(forecasts), forecasts, strict=True)}


def file_names(forecasts: Sequence[Forecast]) -> list[str]:
    """Of their figures, no two the same: strategy, scaling and batch, and the title where that is not enough."""
    names = []
    for one in forecasts:
        captured = "_capture" if "--capture" in one.title else ""
        names.append(f"predict_{one.strategy}_{one.scaling}_{one.curve[0].batch}{captured}")
    often = {name for name, count in Counter(names).items() if count > 1}  # of several networks, say
    return [
        f"{name}_{slug(one.title)}" if name in often else name for name, one in zip(names, forecasts, strict=True)
    ]


def _figure(one: Forecast) -> Figure:
    title = f"{one.strategy}, {one.scaling} scaling: predicted and measured"
    figure, (left, right) = new_figure(2, title, one.title)
    figure.set_label(one.title)
    _seconds(left, one)
    _efficiency(right, one)
    legend(figure, left)
    return figure


def _curve(axes: Axes, one: Forecast, values: Sequence[tuple[float, float, float]], scale: float) -> None:
    """Over devices: the median, and between low and high the range, as they are in Predicted."""
    look, counts = LOOKS[one.strategy], [p.devices for p in one.curve]
    middle, low, high = scale * np.transpose(values)
    axes.fill_between(counts, low, high, color=look.colour, alpha=0.18, linewidth=0, label="likely between (90%)")
    axes.plot(counts, middle, color=look.colour, label="predicted")
    count_axis(axes, counts if len(counts) < 9 else counts[::2])
    axes.set_xlabel("number of devices")
    if counts[-1] > one.node:
        axes.axvline(one.node, color="#999999", linewidth=1.2, linestyle=(0, (1, 3)))
        axes.annotate(
            " one node was measured,\n nothing beyond",
            (one.node, 0.015),
            xycoords=("data", "axes fraction"),
            fontsize=9,
            color="#555555",
            va="bottom",
        )


def _seconds(axes: Axes, one: Forecast) -> None:
    look = LOOKS[one.strategy]
    _curve(axes, one, [p.seconds for p in one.curve], 1e3)
    axes.set_yscale("log")
    for points, fill, label in (
        (one.fitted, look.colour, "fitted on"),
        (one.held_out, "white", "measured, not known to the model"),
    ):
        if not points:
            continue  # nothing for the legend to explain
        axes.errorbar(
            [p.devices for p in points],
            [1e3 * p.seconds for p in points],
            yerr=[1e3 * p.seconds * p.spread for p in points],
            linestyle="none",
            marker=look.marker,
            color=look.colour,
            markerfacecolor=fill,
            markeredgewidth=1.8,
            capsize=3,
            label=label,
            zorder=4,
        )
    readable_log_ticks(axes)
    axes.set_ylabel("time per step (ms, log scale)")


def _efficiency(axes: Axes, one: Forecast) -> None:
    _curve(axes, one, [p.efficiency for p in one.curve], 100)
    axes.axhline(100 * USEFUL, linestyle=":", color=IDEAL)
    axes.set_ylim(0, max(110.0, 105 * max(p.efficiency[2] for p in one.curve)))
    axes.set_ylabel("efficiency over one device without a wrapper (%)")
    if one.breaks is not None and one.breaks > 1:
        at = next(p for p in one.curve if p.devices == one.breaks)
        axes.annotate(
            f"half is lost\nfrom {one.breaks} devices on",
            (at.devices, 100 * at.efficiency[0]),
            (-14, 42),
            textcoords="offset points",
            ha="right",
            fontsize=10,
            arrowprops={"arrowstyle": "->", "color": "#444444"},
        )
