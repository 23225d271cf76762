"""The figures of one setting: time, throughput, efficiency, validation, memory.

Readable in print and for the colour-blind: every strategy has a colour, a marker and a line of its own. A figure
that has nothing to show for a setting is None.
"""

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.sweep.compare.points import BASELINE, Point, Row, number
from lab.sweep.draw.axes import (
    Value,
    about_bars,
    column,
    device_axis,
    draw,
    legend,
    mark_failed,
    new_figure,
    not_narrower_than,
    on_cpu,
    series,
)
from lab.sweep.draw.style import EXCELLENT, GOOD, IDEAL, LOOKS, readable_log_ticks


def time_per_epoch(rows: Sequence[Row], setting: str) -> Figure | None:
    """Seconds an epoch against devices. Strong scaling is a straight line where it is ideal; weak, a level one."""
    weak = _is_weak(rows)
    subtitle = f"{setting}\n{_measured_steps(rows) or 'median of the epochs after the first'}"
    if weak:
        steps = _steps_on_one_device(rows)
        subtitle += (
            f"\nof {steps} steps: an epoch on one device; with the devices the work grows" if steps > 1 else ""
        )
        value = _seconds_of(steps)
        label = "time per epoch" if steps > 1 else "time per step"
    else:
        subtitle += "; numbers: speed-up over one device"
        value, label = column("time_epoch_s"), "time per epoch"
    title = "Time per epoch, weak scaling" if weak else "Time per epoch"
    figure, (axes,) = new_figure(1, title, subtitle + about_bars(rows))
    axes.set_yscale("log")
    counts = device_axis(axes, rows)
    _ideal_lines(axes, rows, counts, value, times=(lambda n: 1) if weak else (lambda n: 1 / n))
    draw(axes, rows, value)
    if not weak:
        _label_speed_up(axes, rows)
    axes.set_ylabel(f"{label} (seconds, log scale)")
    readable_log_ticks(axes)
    mark_failed(axes, rows)
    legend(figure, axes)
    return figure


def throughput(rows: Sequence[Row], setting: str) -> Figure | None:
    """Images a second over all devices, both axes logarithmic: ideal scaling is a straight line."""
    figure, (axes,) = new_figure(1, "Images per second", f"{setting}\nover all devices" + about_bars(rows))
    axes.set_yscale("log")
    counts = device_axis(axes, rows)
    _ideal_lines(axes, rows, counts, column("images_per_sec"), times=lambda n: n)
    draw(axes, rows, column("images_per_sec"))
    axes.set_ylabel("images per second (log scale)")
    readable_log_ticks(axes)
    mark_failed(axes, rows)
    legend(figure, axes)
    return figure


def efficiency(rows: Sequence[Row], setting: str) -> Figure | None:
    """The share of the devices that was put to use, with the lines of 70% and 90%."""
    if not any(point.efficiency().median > 0 for name in LOOKS for point in series(rows, name)):
        return None
    weak = _is_weak(rows)
    formula = "E_w(N) = T(1) / T(N), T of a step" if weak else "E_s(N) = T(1) / (N T(N))"
    figure, (axes,) = new_figure(
        1,
        f"{'Weak' if weak else 'Strong'} scaling efficiency",
        f"{setting}\n{formula}; T(1): one device, no wrapper{about_bars(rows)}",
    )
    draw_efficiency(axes, rows)
    legend(figure, axes)
    return figure


def draw_efficiency(axes: Axes, rows: Sequence[Row]) -> None:
    """Efficiencies in per cent from zero, with the two lines that a committee looks for."""
    device_axis(axes, rows)
    draw(axes, rows, Point.efficiency, 100, side_by_side=True)
    axes.set_ylim(0, max(110.0, axes.get_ylim()[1]))
    for level in (100 * GOOD, 100 * EXCELLENT):
        axes.axhline(level, linestyle=(0, (1, 2)), color=IDEAL, linewidth=1.4, zorder=1)
        axes.annotate(
            f" {level:.0f}%",
            (1, level),
            xycoords=("axes fraction", "data"),
            fontsize=9,
            color="#555555",
            va="center",
        )
    axes.set_ylabel("efficiency (%)")
    mark_failed(axes, rows)


def validation(rows: Sequence[Row], setting: str) -> Figure | None:
    """Loss and accuracy after the last epoch: they should not depend on the number of devices."""
    if not _has_validation(rows):
        return None
    figure, panels = new_figure(2, "Validation after the last epoch", setting + about_bars(rows))
    for axes, name, scale, label, narrowest in (
        (panels[0], "val_loss", 1.0, "validation loss (cross-entropy)", 0.2),
        (panels[1], "val_top1", 100.0, "validation accuracy (%)", 10.0),
    ):
        device_axis(axes, rows)
        for point in series(rows, BASELINE)[:1]:
            level = point.spread(name).median * scale
            axes.axhline(level, linestyle=":", color=IDEAL, zorder=1, label="level of one device")
        draw(axes, rows, column(name), scale, side_by_side=True)
        axes.set_ylabel(label)
        not_narrower_than(axes, narrowest)
        mark_failed(axes, rows)
    legend(figure, panels[0])
    return figure


def memory(rows: Sequence[Row], setting: str) -> Figure | None:
    """Peak memory of the fullest device, from zero, so that the heights can be compared."""
    what = (
        "resident in a rank's process, most of it PyTorch itself"
        if on_cpu(rows)
        else "allocated on a GPU, measured"
    )
    figure, (axes,) = new_figure(
        1, "Peak memory per device", f"{setting}\nthe most that was ever {what}" + about_bars(rows)
    )
    device_axis(axes, rows)
    draw(axes, rows, column("mem_gb"), side_by_side=True)
    axes.set_ylabel("peak memory per device (GiB)")
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.1)
    mark_failed(axes, rows)
    legend(figure, axes)
    return figure


def accuracy_beside_efficiency(rows: Sequence[Row], setting: str) -> Figure | None:
    """Does more speed cost accuracy? Both over devices, side by side."""
    if not _has_validation(rows) or not any(
        point.efficiency().median > 0 for name in LOOKS for point in series(rows, name)
    ):
        return None
    figure, (left, right) = new_figure(2, "Efficiency, and accuracy beside it", setting + about_bars(rows))
    draw_efficiency(left, rows)
    device_axis(right, rows)
    draw(right, rows, column("val_top1"), 100.0, side_by_side=True)
    right.set_ylabel("validation accuracy (%)")
    not_narrower_than(right, 10.0)
    mark_failed(right, rows)
    legend(figure, left)
    return figure


LABEL_POINTS = 13  # from one label to the next

FIGURES: dict[str, Callable[[Sequence[Row], str], Figure | None]] = {
    "time_per_epoch": time_per_epoch,
    "throughput": throughput,
    "efficiency": efficiency,
    "validation": validation,
    "memory": memory,
    "accuracy_beside_efficiency": accuracy_beside_efficiency,
}


def _is_weak(rows: Sequence[Row]) -> bool:
    return any(row["scaling"] == "weak" for row in rows)


def _has_validation(rows: Sequence[Row]) -> bool:
    return any(row["val_top1"] or row.get("val_loss") for row in rows if row["status"] == "done")


def _measured_steps(rows: Sequence[Row]) -> str:
    steps = {number(row, "measured_steps") for row in rows if row.get("measured_steps")}
    known = [count for count in steps if not math.isnan(count)]
    return f"from {min(known):.0f} measured steps of the slowest rank" if known else ""


def _steps_on_one_device(rows: Sequence[Row]) -> int:
    """Optimizer steps of an epoch on one device; 1 where no record says."""
    known = [number(row, "steps_per_epoch") for row in rows if row["world_size"] == "1"]
    return int(max((steps for steps in known if not math.isnan(steps)), default=1))


def _seconds_of(steps: int) -> Value:
    """So many steps of a point, in seconds."""
    return lambda point: point.spread_of([steps * number(row, "step_time_s") for row in point.rows])


def _ideal_lines(
    axes: Axes, rows: Sequence[Row], counts: Sequence[int], value: Value, *, times: Callable[[int], float]
) -> None:
    """What the speed-ups are relative to: one line from the baseline; without one, each strategy's from its own.

    Args:
        times: what the value would ideally be on n devices, as a multiple of that on one.
    """
    own = {name: found[0] for name in LOOKS if (found := series(rows, name)) and found[0].devices == 1}
    whose = (BASELINE,) if BASELINE in own and value(own[BASELINE]).median > 0 else tuple(own)
    label = "ideal, from one device"  # short: it stands beside three others below the axes
    for name in whose:
        first = value(own[name]).median
        if first > 0:
            ideal = [first * times(n) for n in counts]
            colour = IDEAL if name == BASELINE else LOOKS[name].colour
            axes.plot(counts, ideal, ":", color=colour, linewidth=1.3, zorder=1, gid=f"ideal {name}")
            if label:
                axes.plot([], [], ":", color=IDEAL, label=label)
            label = ""


def _label_speed_up(axes: Axes, rows: Sequence[Row]) -> None:
    """T(1) / T(N) beside the last point of each strategy; where two would touch, the upper one moves up."""
    baseline = series(rows, BASELINE)
    if not baseline:
        return
    one = baseline[0].spread("time_epoch_s").median
    ends = []
    for name, look in LOOKS.items():
        known = [(p.devices, p.spread("time_epoch_s").median) for p in series(rows, name)]
        known = [(devices, seconds) for devices, seconds in known if seconds > 0]
        if name != BASELINE and known and known[-1][0] > 1:
            ends.append((known[-1], look.colour))
    taken: dict[int, float] = {}  # devices -> the height in points of the last label there
    for end, colour in sorted(ends):
        points_high = axes.transData.transform(end)[1] * 72 / axes.figure.dpi
        height = max(points_high, taken.get(end[0], -math.inf) + LABEL_POINTS)
        taken[end[0]] = height
        axes.annotate(
            f"{one / end[1]:.1f}x",
            end,
            (10, height - points_high),
            textcoords="offset points",
            color=colour,
            fontweight="bold",
            va="center",
        )
