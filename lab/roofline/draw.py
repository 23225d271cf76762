"""The roofline figure (Williams, Waterman and Patterson 2009, CACM 52(4)): a panel a step."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.roofline.kinds import PEAK, Step, short
from lab.sweep.draw.axes import plt

LARGEST = 1800  # points^2 of a mark that is the whole step
SEEN = 0.005  # of the step: a smaller kind is not drawn
NONE = 0.01  # FLOPs a byte: what computes nothing, such as a ReLU, has no place on a logarithmic axis
DIAMOND: dict[str, Any] = {"s": 45, "facecolors": "white", "marker": "D", "linewidths": 1.8}
COLOURS = {
    "convolution, forward": "#0072B2",
    "convolution, backward": "#56B4E9",
    "matrix product": "#F0E442",
    "attention": "#000000",
    "normalisation": "#D55E00",
    "element by element": "#E69F00",
    "optimizer": "#009E73",
    "change of precision": "#CC79A7",
    "pooling": "#999999",
    "loss": "#666666",
}


def draw(steps: Sequence[Step]) -> Figure:
    """The steps side by side on the same axes; a disc's area is its kind's share of the step's time.

    A line leads from a kind's disc, which has the formulas' FLOPs and bytes, to the diamond of what ncu counted.
    """
    figure, axes = plt.subplots(
        1, len(steps), figsize=(6.4 * len(steps) + 0.6, 6.4), layout="constrained", squeeze=False, sharey=True
    )
    for one, panel in zip(steps, axes[0], strict=True):
        _panel(panel, one)
    axes[0][0].set_ylabel("FLOP/s achieved")
    figure.suptitle("Each kind of kernel, below the device's roof", fontweight="bold", ha="left", x=0.02)
    return figure


def _panel(axes: Axes, step: Step) -> None:
    shown = [one for one in step.kinds if one.seconds >= SEEN * step.seconds]
    counted = {one.kind: one for one in step.counted if one.bytes and one.intensity > NONE}
    counted = {one.kind: counted[one.kind] for one in shown if one.kind in counted}
    ridge = step.peaks[0].rate / step.copy.bandwidth
    low = min(0.05, *(one.intensity / 3 for one in (*shown, *counted.values())))
    high = max(10 * ridge, *(3 * one.intensity for one in (*shown, *counted.values())))
    unit, size = step.unit
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.plot([low, ridge], [low * step.copy.bandwidth, step.peaks[0].rate], color="#444444", linewidth=1.6)
    axes.annotate(
        f"memory: {short(step.copy.bandwidth / 1e9)} GB/s",
        (ridge / 40, ridge / 40 * step.copy.bandwidth),
        (8, -10),
        textcoords="offset points",
        fontsize=9,
        color="#444444",
    )
    for peak in step.peaks:
        axes.plot([peak.rate / step.copy.bandwidth, high], [peak.rate] * 2, color="#444444", linewidth=1.6)
        axes.annotate(
            f"{peak.kind.removeprefix(PEAK)}: {short(peak.rate / size)} {unit}",
            (high, peak.rate),
            (-4, 5),
            textcoords="offset points",
            fontsize=9,
            color="#444444",
            ha="right",
            zorder=5,
        )
    for one in shown:
        share = one.seconds / step.seconds
        axes.scatter(
            one.intensity,
            one.rate,
            s=max(20, LARGEST * share),
            color=COLOURS.get(one.kind, "#444444"),
            alpha=0.75,
            edgecolors="white",
            zorder=3,
            label=f"{one.kind}: {share:.0%} of the time",
        )
        if other := counted.get(one.kind):
            colour = COLOURS.get(one.kind, "#444444")
            axes.plot(
                [one.intensity, other.intensity], [one.rate, other.rate], color=colour, linewidth=1, zorder=3
            )
            axes.scatter(other.intensity, other.rate, edgecolors=colour, zorder=4, **DIAMOND)
    if counted:
        axes.scatter([], [], edgecolors="#444444", label="counted by ncu", **DIAMOND)
    axes.set_xlabel("FLOPs for each byte that is read or written")
    axes.set_title(
        f"{step.title}\n{short(1e3 * step.seconds)} ms in kernels", loc="left", fontsize=9.5, color="#444444"
    )
    legend = axes.legend(loc="upper left", bbox_to_anchor=(0, -0.13), ncols=2, fontsize=8.5)
    for handle in legend.legend_handles:
        handle.set_sizes([40])  # type: ignore[union-attr]
