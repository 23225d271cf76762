"""How the figures look: a colour, a marker and a line for every strategy, and matplotlib's settings."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Look:
    label: str
    colour: str
    marker: str
    line: str | tuple[int, tuple[int, ...]]


# Okabe and Ito's palette, which stays apart for the colour-blind; the lines and markers do in black and white.
LOOKS = {
    "none": Look("one device, no wrapper", "#000000", "D", "none"),
    "ddp": Look("ddp", "#0072B2", "o", "-"),
    "fsdp": Look("fsdp", "#D55E00", "s", "--"),
    "fsdp1": Look("fsdp1", "#009E73", "^", "-."),
    # A student's own, beside PyTorch's: other markers in lighter colours.
    "my-ddp": Look("my-ddp", "#56B4E9", "v", (0, (6, 2))),
    "my-zero": Look("my-zero", "#CC79A7", "P", ":"),
    "my-fsdp": Look("my-fsdp", "#E69F00", "d", (0, (1, 1))),
}
LINES = 6  # that can be told apart in one panel
_LINES = (
    *(("#0072B2", "o", "-"), ("#D55E00", "s", "--"), ("#009E73", "^", "-.")),
    *(("#CC79A7", "D", ":"), ("#E69F00", "v", (0, (6, 2))), ("#56B4E9", "P", (0, (1, 1)))),
)
IDEAL = "#767676"
GOOD, EXCELLENT = 0.7, 0.9  # efficiencies that a line is drawn at
DPI = 200
STYLE: Any = {  # matplotlib types this as a dictionary of its 300 names
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "lines.markersize": 8,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.06,
    "svg.hashsalt": "scaling-lab",  # the same data gives the same file
}


def marked(look: Look) -> dict[str, Any]:
    """What Axes.plot is given for a line with markers."""
    return {"color": look.colour, "marker": look.marker, "linestyle": look.line, "markeredgecolor": "white"}


def look_of_line(number: int) -> Look:
    """Of one of at most LINES lines that are no strategies."""
    return Look("", *_LINES[number])


def readable_log_ticks(axes: "Axes") -> None:
    """Ticks at 1, 2 and 5 times powers of ten, written out: 0.5, 1, 2, 5, 10."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = axes.get_ylim()
    steps = (1, 2, 5) if high / low > 6 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    axes.yaxis.set_major_locator(FixedLocator([step * 10.0**decade for decade in decades for step in steps]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(low / 1.15, high * 1.1)
