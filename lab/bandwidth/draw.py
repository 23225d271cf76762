"""Bus bandwidth over size, a panel for each collective, with the fitted curves."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from lab.bandwidth.fit import Fit, size_text
from lab.bandwidth.timings import COLLECTIVES, GB, Timing
from lab.sweep.draw.axes import plt
from lab.sweep.draw.style import LINES, look_of_line, readable_log_ticks

STEPS = 60  # of a curve
MANY = 1e3


def draw(timings: Sequence[Timing], found: Sequence[Fit]) -> Figure:
    """A line for each number of ranks, at most LINES; a hollow mark was set aside by its fit."""
    shown = [name for name in COLLECTIVES if any(one.collective == name for one in timings)]
    groups = sorted({(one.ranks, one.nodes, one.device) for one in timings})
    left_out, groups = len(groups[LINES:]), groups[:LINES]
    figure, panels = plt.subplots(
        1, len(shown), figsize=(4.3 * len(shown) + 0.8, 4.8), layout="constrained", squeeze=False, sharey=True
    )
    for name, axes in zip(shown, panels[0], strict=True):
        for number, group in enumerate(groups):
            _line(axes, number, *_of(name, group, timings, found))
        _axes(axes, name)
    panels[0][0].set_ylabel("bus bandwidth (GB/s)")
    low, high = panels[0][0].get_ylim()
    if high < MANY * low:  # else too many ticks; matplotlib's own are one a decade
        readable_log_ticks(panels[0][0])
    devices = sorted({f"{one.backend}, {one.device}" for one in timings})
    title = f"How fast ranks talk ({'; '.join(devices)})"
    if left_out:
        title += f", without the {left_out} largest"
    figure.set_label(title)
    figure.suptitle(title, fontweight="bold", ha="left", x=0.02)
    handles = {
        label: handle for a in panels[0] for handle, label in zip(*a.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=min(4, len(handles)))
    return figure


def _of(
    name: str, group: tuple[int, int, str], timings: Sequence[Timing], found: Sequence[Fit]
) -> tuple[list[Timing], Fit | None]:
    own = [one for one in timings if one.collective == name and (one.ranks, one.nodes, one.device) == group]
    fitted = [one for one in found if one.collective == name and (one.ranks, one.nodes, one.device) == group]
    return sorted(own, key=lambda one: one.bytes), fitted[0] if fitted else None


def _line(axes: Axes, number: int, points: Sequence[Timing], fitted: Fit | None) -> None:
    if not points:
        return
    look, ranks, nodes = look_of_line(number), points[0].ranks, points[0].nodes
    for one in points:
        is_aside = fitted is not None and one == fitted.aside
        axes.plot(
            one.bytes,
            one.bus_gb_s,
            marker=look.marker,
            linestyle="none",
            color=look.colour,
            markerfacecolor="white" if is_aside else look.colour,
            zorder=3,
        )
    label = f"{ranks} ranks" + (f" on {nodes} nodes" if nodes > 1 else "")
    if fitted is None:
        axes.plot([], [], marker=look.marker, linestyle="none", color=look.colour, label=label)
        return
    low, high = math.log(points[0].bytes), math.log(points[-1].bytes)
    sizes = [math.exp(low + (high - low) * step / STEPS) for step in range(STEPS + 1)]
    rounds, share = points[0].rounds, points[0].rounds / ranks
    curve = [share * size / fitted.seconds(rounds, share * size) / GB for size in sizes]
    axes.plot(sizes, curve, color=look.colour, linestyle=look.line, linewidth=1.6, label=f"{label}, with its fit")


def _axes(axes: Axes, name: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title(name, loc="left", fontsize=11)
    axes.set_xlabel("size of the whole buffer")
    axes.xaxis.set_major_locator(LogLocator(base=16, numticks=8))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_text(round(value))))
