"""The curve of a forecast with its range, the points that it was fitted on, and those that it did not know."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.base.words import slug
from lab.sweep.compare.forecast import USEFUL, Forecast
from lab.sweep.draw.axes import count_axis, plt
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
    figure, axes = plt.subplots(1, 2, figsize=(11.4, 5.2), layout="constrained")
    figure.set_label(one.title)
    title = f"{one.strategy}, {one.scaling} scaling: predicted and measured"
    figure.suptitle(title, fontweight="bold", ha="left", x=0.02)
    _seconds(axes[0], one)
    _efficiency(axes[1], one)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def _seconds(axes: Axes, one: Forecast) -> None:
    look = LOOKS[one.strategy]
    counts = [p.devices for p in one.curve]
    _axis(axes, counts, one)
    axes.set_yscale("log")
    axes.fill_between(
        counts,
        [1e3 * p.seconds[1] for p in one.curve],
        [1e3 * p.seconds[2] for p in one.curve],
        color=look.colour,
        alpha=0.18,
        linewidth=0,
        label="likely between (90%)",
    )
    axes.plot(counts, [1e3 * p.seconds[0] for p in one.curve], color=look.colour, label="predicted")
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
    axes.set_title(one.title, loc="left", fontsize=9.5, color="#444444")


def _efficiency(axes: Axes, one: Forecast) -> None:
    look = LOOKS[one.strategy]
    counts = [p.devices for p in one.curve]
    _axis(axes, counts, one)
    low, high = ([100 * p.efficiency[i] for p in one.curve] for i in (1, 2))
    axes.fill_between(counts, low, high, color=look.colour, alpha=0.18, linewidth=0)
    axes.plot(counts, [100 * p.efficiency[0] for p in one.curve], color=look.colour)
    axes.axhline(100 * USEFUL, linestyle=":", color=IDEAL)
    axes.set_ylim(0, max(110.0, max(high) * 1.05))
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


def _axis(axes: Axes, counts: list[int], one: Forecast) -> None:
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
