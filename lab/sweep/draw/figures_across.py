"""Figures across settings: how sensitive the speed is to one choice, and what an optimisation is worth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from lab.slurm import states
from lab.sweep.compare.pairs import Pair, options_of, pairs, share_of_communication
from lab.sweep.compare.points import Point, Row, Spread, number
from lab.sweep.draw.axes import new_figure, panel_legend
from lab.sweep.draw.style import IDEAL, LOOKS

# What may be varied -> what its axis is called.
AXES = {
    "bucket_cap_mb": "DDP's bucket (MiB)",
    "precision": "precision",
    "per_gpu_batch": "images per device",
    "workers": "loader processes per rank",
}
_SAME = ("model", "dataset", "scaling", "input", "device", "strategy", "world_size", "rest")
MAX_LINES = 6


@dataclass(frozen=True)
class Line:
    """Images a second over the values of one axis; all else equal."""

    axis: str
    same: dict[str, str]
    values: tuple[str, ...]
    speeds: tuple[Spread, ...]


def lines(rows: Sequence[Row]) -> list[Line]:
    """Everything that was varied by itself, each axis with all else equal."""
    found = []
    finished = [_facts(row) for row in rows if row["status"] == states.DONE]
    for axis in AXES:
        others = [name for name in (*_SAME, *AXES) if name != axis]
        groups: dict[tuple[str, ...], dict[str, list[float]]] = {}
        for facts in finished:
            key = tuple(facts[name] for name in others)
            if facts[axis]:
                groups.setdefault(key, {}).setdefault(facts[axis], []).append(float(facts["speed"]))
        for key, values in sorted(groups.items()):
            if len(values) > 1:
                order = sorted(values, key=_as_number)
                spreads = tuple(Point.spread_of(values[value]) for value in order)
                found.append(Line(axis, dict(zip(others, key, strict=True)), tuple(order), spreads))
    return found


def sensitivity(rows: Sequence[Row]) -> Figure | None:
    """A panel for each choice that was varied by itself; None where none was."""
    every = lines(rows)
    shown = [axis for axis in AXES if any(line.axis == axis for line in every)]
    if not shown:
        return None
    figure, panels = new_figure(
        len(shown), "Sensitivity", "images per second; one choice is varied, all else is equal"
    )
    for axes, axis in zip(panels, shown, strict=True):
        mine = [line for line in every if line.axis == axis][:MAX_LINES]
        values = sorted({value for line in mine for value in line.values}, key=_as_number)
        for number_of, line in enumerate(mine):
            look = LOOKS.get(line.same["strategy"], LOOKS["ddp"])
            places = [values.index(value) + 0.06 * (number_of - (len(mine) - 1) / 2) for value in line.values]
            axes.errorbar(
                places,
                [speed.median for speed in line.speeds],
                yerr=_bars(line.speeds),
                color=look.colour,
                marker=look.marker,
                linestyle=look.line if look.line != "none" else ":",
                markeredgecolor="white",
                capsize=3,
                label=_describe(line, mine),
            )
        axes.set_xticks(range(len(values)), values)
        axes.set_xlim(-0.5, len(values) - 0.5)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(AXES[axis])
        panel_legend(axes)
    panels[0].set_ylabel("images per second")
    return figure


def before_after(rows: Sequence[Row]) -> Figure | None:
    """Bars of a step's time before and after; hatched is communication, where a run of the same was profiled."""
    found = pairs(rows)
    if not found:
        return None
    options = sorted({pair.options for pair in found})
    subtitle = (
        "time per step; number: how many times as fast\n"
        "hatched: communication, from a profiled run of the same setting"
    )
    figure, (axes,) = new_figure(1, f"Before and after: {', '.join(options)}", subtitle)
    for place, points in enumerate((pair.before, pair.after) for pair in found):
        times = [_milliseconds(point) for point in points]
        for shift, point, time, face in zip((-0.2, 0.2), points, times, ("#ffffff", "#c9c9c9"), strict=True):
            colour = LOOKS.get(point.strategy, LOOKS["ddp"]).colour
            axes.bar(place + shift, time.median, 0.36, facecolor=face, edgecolor=colour, linewidth=1.6)
            axes.errorbar(place + shift, time.median, yerr=_bars([time]), color="#333333", capsize=3)
            share = share_of_communication(point, rows)
            if not math.isnan(share):
                axes.bar(
                    place + shift,
                    time.median * share,
                    0.36,
                    facecolor="none",
                    edgecolor=colour,
                    hatch="////",
                    linewidth=0,
                )
                axes.annotate(
                    f"{share:.0%}",
                    (place + shift, time.median * share),
                    (0, 3),
                    textcoords="offset points",
                    ha="center",
                    fontsize=9,
                )
        before, after = times
        axes.annotate(
            f"{before.median / after.median:.2f}x",
            (place, max(before.largest, after.largest)),
            (0, 6),
            textcoords="offset points",
            ha="center",
            fontweight="bold",
        )
    figure.set_figwidth(max(6.4, 1.1 * len(found) + 1.4))
    axes.set_xticks(range(len(found)), [_label(pair, options) for pair in found], fontsize=9.5)
    axes.margins(y=0.12)
    axes.set_ylabel("time per step (ms)")
    axes.bar(0, 0, facecolor="#ffffff", edgecolor=IDEAL, label="before")
    axes.bar(0, 0, facecolor="#c9c9c9", edgecolor=IDEAL, label="after")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _label(pair: Pair, options: Sequence[str]) -> str:
    """Below its two bars; with what is compared, where that is not the same for all."""
    row = pair.before.rows[0]  # --accumulate makes it fewer images at once
    label = f"{row['strategy']} on {row['world_size']}\n{row['per_gpu_batch']} each\n{row['scaling']}"
    return f"{label}\n{pair.options}" if len(options) > 1 else label


def _milliseconds(point: Point) -> Spread:
    """Of a step; from the images a second where no step was measured by itself."""
    return point.spread_of(
        [
            1e3 * (step if (step := number(row, "step_time_s")) > 0 else _seconds_from_images(row))
            for row in point.rows
        ]
    )


def _seconds_from_images(row: Row) -> float:
    return number(row, "global_batch") / number(row, "images_per_sec")


def _facts(row: Row) -> dict[str, str]:
    options = options_of(row.get("variant", ""))
    workers = [word.split()[1] for word in options if word.startswith("--num-workers ")]
    rest = " ".join(word for word in options if not word.startswith("--num-workers"))
    loaded = row.get("input") != "device"
    return {
        **{name: row.get(name, "") for name in _SAME},
        "rest": rest,
        "bucket_cap_mb": row.get("bucket_cap_mb", ""),
        "precision": row.get("precision", ""),
        "per_gpu_batch": row.get("per_gpu_batch", ""),
        "workers": workers[0] if workers else "0" if loaded else "",
        "speed": row["images_per_sec"] or "nan",
    }


def _describe(line: Line, among: Sequence[Line]) -> str:
    """What tells this line from the others of its panel."""
    same = line.same
    parts = [same["strategy"], f"{same['world_size']} device{'s' * (same['world_size'] != '1')}"]
    for name in ("model", "scaling", "precision", "per_gpu_batch", "rest"):
        if name in same and len({other.same.get(name) for other in among}) > 1 and same[name]:
            parts.append(f"batch {same[name]}" if name == "per_gpu_batch" else same[name])
    return ", ".join(parts)


def _bars(spreads: Sequence[Spread]) -> list[list[float]]:
    return [[s.median - s.least for s in spreads], [s.largest - s.median for s in spreads]]


def _as_number(text: str) -> tuple[float, str]:
    try:
        return float(text), text
    except ValueError:
        return math.inf, text


ACROSS = {"sensitivity": sensitivity, "before_after": before_after}
