"""The figures of one setting: time, throughput, efficiency, validation, memory.

Readable in print and for the colour-blind: every strategy has a colour, a marker and a line of its own. A figure
that has nothing to show for a setting is None.
"""

import math
from collections.abc import Callable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.sweep.compare.columns import BASELINE
from lab.sweep.compare.points import finished, points
from lab.sweep.draw.axes import (
    about_bars,
    curves,
    device_counts,
    legend,
    level,
    new_figure,
    not_narrower_than,
    on_cpu,
    over_devices,
)
from lab.sweep.draw.style import EXCELLENT, GOOD, IDEAL, LOOKS, readable_log_ticks


def time_per_epoch(runs: pd.DataFrame, setting: str) -> Figure | None:
    """Seconds an epoch against devices. Strong scaling is a straight line where it is ideal; weak, a level one."""
    weak = _is_weak(runs)
    subtitle = f"{setting}\n{_measured_steps(runs) or 'median of the epochs after the first'}"
    if weak:
        steps = _steps_on_one_device(runs)
        subtitle += (
            f"\nof {steps} steps: an epoch on one device; with the devices the work grows" if steps > 1 else ""
        )
        value, scale = "step_time_s", steps
        label = "time per epoch" if steps > 1 else "time per step"
    else:
        subtitle += "; numbers: speed-up over one device"
        value, scale, label = "time_epoch_s", 1, "time per epoch"
    title = "Time per epoch, weak scaling" if weak else "Time per epoch"
    figure, (axes,) = new_figure(1, title, subtitle + about_bars(points(runs)))
    axes.set_yscale("log")
    over_devices(axes, runs, value, f"{label} (seconds, log scale)", scale)
    _ideal_lines(axes, runs, value, scale, times=(lambda n: 1) if weak else (lambda n: 1 / n))
    if not weak:
        _label_speed_up(axes, runs)
    readable_log_ticks(axes)
    legend(figure, axes)
    return figure


def throughput(runs: pd.DataFrame, setting: str) -> Figure | None:
    """Images a second over all devices, both axes logarithmic: ideal scaling is a straight line."""
    figure, (axes,) = new_figure(1, "Images per second", f"{setting}\nover all devices" + about_bars(points(runs)))
    axes.set_yscale("log")
    over_devices(axes, runs, "images_per_sec", "images per second (log scale)")
    _ideal_lines(axes, runs, "images_per_sec", 1, times=lambda n: n)
    readable_log_ticks(axes)
    legend(figure, axes)
    return figure


def efficiency(runs: pd.DataFrame, setting: str) -> Figure | None:
    """The share of the devices that was put to use, with the lines of 70% and 90%."""
    if not _has_efficiency(runs):
        return None
    weak = _is_weak(runs)
    formula = "E_w(N) = T(1) / T(N), T of a step" if weak else "E_s(N) = T(1) / (N T(N))"
    figure, (axes,) = new_figure(
        1,
        f"{'Weak' if weak else 'Strong'} scaling efficiency",
        f"{setting}\n{formula}; T(1): one device, no wrapper{about_bars(points(runs))}",
    )
    draw_efficiency(axes, runs)
    legend(figure, axes)
    return figure


def draw_efficiency(axes: Axes, runs: pd.DataFrame) -> None:
    """Efficiencies in per cent from zero, with the two lines that a committee looks for."""
    over_devices(axes, runs, "efficiency", "efficiency (%)", 100, side_by_side=True)
    axes.set_ylim(0, max(110.0, axes.get_ylim()[1]))
    level(axes, 100 * GOOD)
    level(axes, 100 * EXCELLENT)


def validation(runs: pd.DataFrame, setting: str) -> Figure | None:
    """Loss and accuracy after the last epoch: they should not depend on the number of devices."""
    if not _has_validation(runs):
        return None
    figure, panels = new_figure(2, "Validation after the last epoch", setting + about_bars(points(runs)))
    for axes, name, scale, label, narrowest in (
        (panels[0], "val_loss", 1.0, "validation loss (cross-entropy)", 0.2),
        (panels[1], "val_top1", 100.0, "validation accuracy (%)", 10.0),
    ):
        over_devices(axes, runs, name, label, scale, side_by_side=True)
        for alone in curves(runs).get(BASELINE, points(runs).head(0))[name][:1] * scale:
            axes.axhline(alone, linestyle=":", color=IDEAL, zorder=1, label="level of one device")
        not_narrower_than(axes, narrowest)
    legend(figure, panels[0])
    return figure


def memory(runs: pd.DataFrame, setting: str) -> Figure | None:
    """Peak memory of the fullest device, from zero, so that the heights can be compared."""
    what = (
        "resident in a rank's process, most of it PyTorch itself"
        if on_cpu(runs)
        else "allocated on a GPU, measured"
    )
    figure, (axes,) = new_figure(
        1, "Peak memory per device", f"{setting}\nthe most that was ever {what}" + about_bars(points(runs))
    )
    over_devices(axes, runs, "mem_gb", "peak memory per device (GiB)", side_by_side=True)
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.1)
    legend(figure, axes)
    return figure


def accuracy_beside_efficiency(runs: pd.DataFrame, setting: str) -> Figure | None:
    """Does more speed cost accuracy? Both over devices, side by side."""
    if not _has_validation(runs) or not _has_efficiency(runs):
        return None
    figure, (left, right) = new_figure(2, "Efficiency, and accuracy beside it", setting + about_bars(points(runs)))
    draw_efficiency(left, runs)
    over_devices(right, runs, "val_top1", "validation accuracy (%)", 100.0, side_by_side=True)
    not_narrower_than(right, 10.0)
    legend(figure, left)
    return figure


LABEL_POINTS = 13  # from one label to the next

FIGURES: dict[str, Callable[[pd.DataFrame, str], Figure | None]] = {
    "time_per_epoch": time_per_epoch,
    "throughput": throughput,
    "efficiency": efficiency,
    "validation": validation,
    "memory": memory,
    "accuracy_beside_efficiency": accuracy_beside_efficiency,
}


def _is_weak(runs: pd.DataFrame) -> bool:
    return bool((runs["scaling"] == "weak").any())


def _has_validation(runs: pd.DataFrame) -> bool:
    return bool(finished(runs)[["val_top1", "val_loss"]].notna().to_numpy().any())


def _has_efficiency(runs: pd.DataFrame) -> bool:
    return any((mine["efficiency"] > 0).any() for mine in curves(runs).values())


def _measured_steps(runs: pd.DataFrame) -> str:
    least = runs["measured_steps"].min()
    return f"from {least} measured steps of the slowest rank" if pd.notna(least) else ""


def _steps_on_one_device(runs: pd.DataFrame) -> int:
    """Optimizer steps of an epoch on one device; 1 where no record says."""
    most = runs["steps_per_epoch"][runs["world_size"] == 1].max()
    return int(most) if pd.notna(most) else 1


def _ideal_lines(
    axes: Axes, runs: pd.DataFrame, column: str, scale: float, *, times: Callable[[int], float]
) -> None:
    """What the speed-ups are relative to: one line from the baseline; without one, each strategy's from its own.

    Args:
        times: what the value would ideally be on n devices, as a multiple of that on one.
    """
    own = {
        name: mine[column].iloc[0] * scale
        for name, mine in curves(runs).items()
        if mine["world_size"].iloc[0] == 1
    }
    known = {name: value for name, value in own.items() if value > 0}
    counts = device_counts(runs)
    for name in (BASELINE,) if BASELINE in known else tuple(known):
        ideal = [known[name] * times(n) for n in counts]
        colour = IDEAL if name == BASELINE else LOOKS[name].colour
        axes.plot(counts, ideal, ":", color=colour, linewidth=1.3, zorder=1, gid=f"ideal {name}")
    if known:
        axes.plot([], [], ":", color=IDEAL, label="ideal, from one device")  # short: it stands beside three others


def _label_speed_up(axes: Axes, runs: pd.DataFrame) -> None:
    """T(1) / T(N) beside the last point of each strategy; where two would touch, the upper one moves up."""
    found = curves(runs)
    if BASELINE not in found:
        return
    one = found.pop(BASELINE)["time_epoch_s"].iloc[0]
    ends = []
    for name, mine in found.items():
        known = mine[mine["time_epoch_s"] > 0][["world_size", "time_epoch_s"]].tail(1)
        ends += [((int(n), seconds), LOOKS[name].colour) for n, seconds in known.itertuples(index=False) if n > 1]
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
