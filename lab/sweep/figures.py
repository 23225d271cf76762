"""The three figures of a sweep, for one setting: time per epoch, validation, peak memory.

Readable in print and for the colour-blind: every strategy has a colour, a marker and a line of its own.
"""

import math
import statistics
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib

matplotlib.use("Agg")  # files only: no display is needed

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from lab.sweep.collect import Row, number
from lab.sweep.figure_style import IDEAL, LOOKS, readable_log_ticks
from lab.sweep.plan import BASELINE
from lab.sweep.record_files import device_count
from lab.sweep.states import BAD_ENDS, DONE


@dataclass(frozen=True)
class Point:
    """A strategy on a number of devices: the median over its runs, with the least and the largest."""

    devices: int
    value: float
    least: float
    largest: float


def points(rows: Sequence[Row], strategy: str, column: str, scale: float = 1.0) -> list[Point]:
    """One Point for each number of devices with finished runs, in order."""
    values: dict[int, list[float]] = {}
    for row in rows:
        if row["status"] == "done" and row["strategy"] == strategy:
            values.setdefault(int(row["world_size"]), []).append(number(row, column) * scale)
    result = []
    for devices, group in sorted(values.items()):
        known = [value for value in group if not math.isnan(value)]
        middle = statistics.median(known) if len(known) == len(group) else math.nan
        result.append(Point(devices, middle, min(known, default=math.nan), max(known, default=math.nan)))
    return result


def time_per_epoch(rows: Sequence[Row], setting: str) -> Figure:
    """Seconds an epoch against devices, both on a logarithmic scale, where ideal scaling is a straight line."""
    figure, (axes,) = _new_figure(
        1,
        "Time per epoch",
        f"{setting}\nmedian of the epochs after the first; numbers: speed-up over one device" + _about_bars(rows),
    )
    axes.set_yscale("log")
    counts = _device_axis(axes, rows)
    baseline = points(rows, BASELINE, "time_epoch_s")
    if baseline and baseline[0].value > 0:
        one = baseline[0].value
        axes.plot(counts, [one / n for n in counts], ":", color=IDEAL, label="ideal: T(1) / devices", zorder=1)
        _label_speed_up(axes, rows, one)
    _draw(axes, rows, "time_epoch_s")
    axes.set_ylabel("time per epoch (seconds, log scale)")
    readable_log_ticks(axes)
    _mark_failed(axes, rows)
    _legend(figure, axes)
    return figure


def validation(rows: Sequence[Row], setting: str) -> Figure:
    """Loss and accuracy after the last epoch: they should not depend on the number of devices."""
    figure, panels = _new_figure(2, "Validation after the last epoch", setting + _about_bars(rows))
    for axes, column, scale, label, narrowest in (
        (panels[0], "val_loss", 1.0, "validation loss (cross-entropy)", 0.2),
        (panels[1], "val_top1", 100.0, "validation accuracy (%)", 10.0),
    ):
        _device_axis(axes, rows)
        baseline = points(rows, BASELINE, column, scale)
        if baseline:
            axes.axhline(baseline[0].value, linestyle=":", color=IDEAL, zorder=1, label="level of one device")
        _draw(axes, rows, column, scale, side_by_side=True)
        axes.set_ylabel(label)
        _not_narrower_than(axes, narrowest)
        _mark_failed(axes, rows)
    _legend(figure, panels[0])
    return figure


def memory(rows: Sequence[Row], setting: str) -> Figure:
    """Peak memory of the fullest device, from zero, so that the heights can be compared."""
    what = "resident in a rank's process, most of it PyTorch itself" if _on_cpu(rows) else "allocated on a GPU"
    figure, (axes,) = _new_figure(
        1, "Peak memory per device", f"{setting}\nthe most that was ever {what}" + _about_bars(rows)
    )
    _device_axis(axes, rows)
    _draw(axes, rows, "mem_gb", side_by_side=True)
    axes.set_ylabel("peak memory per device (GiB)")
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.1)
    _mark_failed(axes, rows)
    _legend(figure, axes)
    return figure


FIGURES: dict[str, Callable[[Sequence[Row], str], Figure]] = {
    "time_per_epoch": time_per_epoch,
    "validation": validation,
    "memory": memory,
}


def _new_figure(panels: int, title: str, subtitle: str) -> tuple[Figure, list[Axes]]:
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


def _about_bars(rows: Sequence[Row]) -> str:
    """What the error bars mean, where there are any."""
    finished = [(row["strategy"], row["world_size"]) for row in rows if row["status"] == "done"]
    return "\nbars: least and largest of the repeats" if len(set(finished)) < len(finished) else ""


def _on_cpu(rows: Sequence[Row]) -> bool:
    return any(row["device"] == "cpu" for row in rows)


def _device_axis(axes: Axes, rows: Sequence[Row]) -> list[int]:
    """Devices on a logarithmic x-axis, with a tick at every count of the sweep. Returns the counts."""
    counts = sorted({count for row in rows if (count := device_count(row["world_size"]))})
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    margin = 2 ** (0.12 * max(1.0, math.log2(counts[-1] / counts[0])))
    axes.set_xlim(counts[0] / margin, counts[-1] * margin)
    axes.set_xlabel(f"number of devices ({'CPU ranks' if _on_cpu(rows) else 'GPUs'})")
    return counts


def _beside(axes: Axes, steps: float) -> float:
    """The factor that shifts a marker sideways by so many marker widths."""
    low, high = axes.get_xlim()
    return (high / low) ** (0.022 * steps)


def _label_speed_up(axes: Axes, rows: Sequence[Row], one: float) -> None:
    """T(1) / T(N) beside the last point of each strategy."""
    for strategy, look in LOOKS.items():
        series = [point for point in points(rows, strategy, "time_epoch_s") if point.value > 0]
        if strategy != BASELINE and series and series[-1].devices > 1:
            last = series[-1]
            axes.annotate(
                f"{one / last.value:.1f}x",
                (last.devices, last.value),
                (10, 0),
                textcoords="offset points",
                color=look.colour,
                fontweight="bold",
                va="center",
            )


def _legend(figure: Figure, axes: Axes) -> None:
    """Below the axes, where it can hide nothing; in the order of the lines, the failures last."""
    handles, labels = axes.get_legend_handles_labels()
    # An error bar's own handle would show a bar that most markers in the figure do not have.
    plain = [handle[0] if isinstance(handle, ErrorbarContainer) else handle for handle in handles]
    order = sorted(range(len(labels)), key=lambda i: ("failed" in labels[i], not isinstance(handles[i], tuple)))
    columns = min(len(labels), 5 if figure.get_figwidth() > 8 else 2)
    figure.legend([plain[i] for i in order], [labels[i] for i in order], loc="outside lower center", ncols=columns)


def _draw(axes: Axes, rows: Sequence[Row], column: str, scale: float = 1.0, *, side_by_side: bool = False) -> None:
    """A line with markers for each strategy; a bar from the least to the largest where runs were repeated.

    Args:
        side_by_side: shift the strategies a little, so that equal values do not hide each other.
    """
    shown = [strategy for strategy in LOOKS if points(rows, strategy, column)]
    for i, strategy in enumerate(shown):
        look, series = LOOKS[strategy], points(rows, strategy, column, scale)
        shift = _beside(axes, i - (len(shown) - 1) / 2) if side_by_side else 1.0
        drawn = [point for point in series if not math.isnan(point.value)]
        axes.errorbar(
            [point.devices * shift for point in drawn],
            [point.value for point in drawn],
            yerr=[[p.value - p.least for p in drawn], [p.largest - p.value for p in drawn]],
            color=look.colour,
            marker=look.marker,
            linestyle=look.line,
            markeredgecolor="white",
            capsize=3,
            elinewidth=1.2,
            label=look.label,
            zorder=3,
        )
        for point in series:
            if math.isnan(point.value):
                _on_axis(axes, point.devices * shift, r"$\mathrm{nan}$", look.colour, size=16)


def _failed(rows: Sequence[Row]) -> list[tuple[int, str]]:
    """The points without a single finished run."""
    done, failed = (
        {(device_count(row["world_size"]), row["strategy"]) for row in rows if row["status"] in states}
        for states in ((DONE,), BAD_ENDS)
    )
    return sorted(point for point in failed - done if point[0])


def _mark_failed(axes: Axes, rows: Sequence[Row]) -> None:
    """A cross on the x-axis for every point that failed: a missing marker could be taken for not planned."""
    seen: dict[int, int] = {}
    for devices, strategy in _failed(rows):
        colour = LOOKS[strategy].colour if strategy in LOOKS else IDEAL
        shift = _beside(axes, seen.setdefault(devices, 0))
        seen[devices] += 1
        _on_axis(axes, devices * shift, "X", colour, size=10, label=f"{strategy} failed on {devices}")


def _on_axis(axes: Axes, x: float, marker: str, colour: str, size: float, label: str = "") -> None:
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


def _not_narrower_than(axes: Axes, span: float) -> None:
    """Widen the y-axis to at least `span`, so that noise does not look like a trend."""
    low, high = axes.get_ylim()
    missing = max(0.0, span - (high - low)) / 2
    margin = 0.08 * (high - low + 2 * missing)
    axes.set_ylim(low - missing - 2 * margin, high + missing + margin)
