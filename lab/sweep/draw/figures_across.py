"""Figures across settings: how sensitive the speed is to one choice, and what an optimisation is worth."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from lab.sweep.compare.pairs import SIDES, pairs
from lab.sweep.compare.table import describe_work
from lab.sweep.draw.axes import beside_point, legend, new_figure
from lab.sweep.draw.sensitivity import sensitivity
from lab.sweep.draw.style import IDEAL, LOOKS

OF_THE_FIGURE = ("model", "dataset", "precision", "device")  # said above it where they are the same for all pairs


def before_after(runs: pd.DataFrame) -> Figure | None:
    """Bars of a step's time before and after; hatched is communication, where a run of the same was profiled."""
    found = pairs(runs)
    if found.empty:
        return None
    options = sorted(found["compared"].unique())
    same = [name for name in OF_THE_FIGURE if found[f"{name}_before"].nunique() == 1]
    subtitle = [describe_work({name: found[f"{name}_before"].iloc[0] for name in same})]
    subtitle.append("time per step; number: how many times as fast")
    if found[["share_before", "share_after"]].notna().to_numpy().any():
        subtitle.append("hatched: communication, from a profiled run of the same setting")
    figure, (axes,) = new_figure(1, f"Before and after: {', '.join(options)}", "\n".join(filter(None, subtitle)))
    for pair in found.itertuples():
        for shift, side, face in zip((-0.2, 0.2), SIDES, ("#ffffff", "#c9c9c9"), strict=True):
            _bar(axes, pair, side, pair.Index + shift, face)
        top = max(pair.step_largest_before, pair.step_largest_after)
        times = f"{pair.step_before / pair.step_after:.2f}x"
        beside_point(axes, times, (pair.Index, 1e3 * top), 6, fontsize=11, fontweight="bold")
    figure.set_figwidth(max(6.4, 1.1 * len(found) + 1.4))
    differ = [name for name in OF_THE_FIGURE if name not in same and f"--{name}" not in " ".join(options)]
    labels = [_label(pair, differ, len(options) > 1) for _, pair in found.iterrows()]
    axes.set_xticks(range(len(found)), labels, fontsize=9.5)
    axes.margins(y=0.12)
    axes.set_ylabel("time per step (ms)")
    axes.bar(0, 0, facecolor="#ffffff", edgecolor=IDEAL, label="before")
    axes.bar(0, 0, facecolor="#c9c9c9", edgecolor=IDEAL, label="after")
    legend(figure, axes)
    return figure


def _bar(axes: Any, pair: Any, side: str, place: float, face: str) -> None:
    """Of the step's time, with the spread of repeats, and hatched the share of communication."""
    colour = LOOKS.get(getattr(pair, f"strategy_{side}"), LOOKS["ddp"]).colour
    step, least, largest = (1e3 * getattr(pair, f"step{end}_{side}") for end in ("", "_least", "_largest"))
    axes.bar(place, step, 0.36, facecolor=face, edgecolor=colour, linewidth=1.6)
    axes.errorbar(place, step, yerr=[[step - least], [largest - step]], color="#333333", capsize=3)
    share = getattr(pair, f"share_{side}")
    if pd.notna(share):
        axes.bar(place, step * share, 0.36, facecolor="none", edgecolor=colour, hatch="////", linewidth=0)
        beside_point(axes, f"{share:.0%}", (place, step * share), 3)


def _label(pair: Any, differ: list[str], with_options: bool) -> str:
    """Below its two bars; with what is not the same for all pairs."""
    lines = [f"{pair['strategy_before']} on {pair['world_size_before']}"]
    lines.append(f"{pair['per_gpu_batch_before']} each")  # --accumulate makes it fewer images at once
    lines.append(pair["scaling_before"])
    lines += [describe_work({name: pair[f"{name}_before"]}) for name in differ]
    return "\n".join(filter(None, [*lines, pair["compared"] if with_options else ""]))


ACROSS = {"sensitivity": sensitivity, "before_after": before_after}
