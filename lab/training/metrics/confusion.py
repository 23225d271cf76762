"""The confusion matrix as a figure."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from lab.base.words import printable
from lab.training.metrics.classes import ClassCounts

MOST_NAMES = 40  # of classes on an axis
MOST_NUMBERS = 20  # of classes whose cells have room for a number


def draw(counts: ClassCounts, names: Sequence[str], title: str, path: Path) -> None:
    """Rows are what an image is, columns what it was taken for; a colour says what part of the row that is."""
    count = len(names)
    shares = counts.matrix / counts.matrix.sum(dim=1, keepdim=True).clamp(min=1)
    side = min(4.0 + 0.35 * count, 14.0)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.add_subplot()
    picture = axes.imshow(shares.numpy(), cmap="Blues", vmin=0.0, vmax=1.0)
    figure.colorbar(picture, label="part of the class's images", shrink=0.8)
    axes.set_title(title)
    axes.set_xlabel("taken for")
    axes.set_ylabel("what it is")
    if count <= MOST_NAMES:
        labels = [printable(name) for name in names]
        # A dollar sign in a name begins no formula.
        axes.set_xticks(range(count), labels, rotation=90, parse_math=False)
        axes.set_yticks(range(count), labels, parse_math=False)
    if count <= MOST_NUMBERS:
        for row, cells in enumerate(counts.matrix.tolist()):
            for column, images in enumerate(cells):
                shade = "white" if shares[row, column] > 0.5 else "black"
                if images:
                    axes.text(column, row, images, ha="center", va="center", color=shade, fontsize=8)
    figure.savefig(path, dpi=150)
