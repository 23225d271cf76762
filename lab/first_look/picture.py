"""The losses of the first look over its seconds, a curve for each number of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.notebook.drawing import HALF_WIDTH, Drawing

COLOURS = ("#3b8fd6", "#d9730d", "#2f9e44", "#9c36b5")  # readable on white and on JupyterLab's dark grey
LEFT, TOP, WIDE, HIGH = 44.0, 12.0, 310.0, 130.0


def curves(runs: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    """SVG of name -> (seconds at the end of each epoch, loss of each epoch)."""
    longest = max(seconds[-1] for seconds, _ in runs.values())
    highest = max(max(losses) for _, losses in runs.values())
    alt = "Training loss over seconds: " + "; ".join(
        f"{name} falls from {losses[0]:.2f} to {losses[-1]:.2f} in {seconds[-1]:.1f} s"
        for name, (seconds, losses) in runs.items()
    )
    drawing = Drawing(HALF_WIDTH, TOP + HIGH + 36, f"{alt}.")
    drawing.line(LEFT, TOP, LEFT, TOP + HIGH)
    drawing.line(LEFT, TOP + HIGH, LEFT + WIDE, TOP + HIGH)
    drawing.text(LEFT - 6, TOP + 8, f"{highest:.1f}", size=12, anchor="end")
    drawing.text(LEFT - 6, TOP + HIGH, "0", size=12, anchor="end")
    drawing.text(LEFT - 6, TOP + HIGH / 2, "loss", size=12, anchor="end")
    drawing.text(LEFT + WIDE, TOP + HIGH + 16, f"{longest:.1f} s", size=12, anchor="end")
    for number, (name, (seconds, losses)) in enumerate(runs.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = [
            (LEFT + WIDE * second / longest, TOP + HIGH * (1 - loss / highest))
            for second, loss in zip(seconds, losses, strict=True)
        ]
        drawing.curve(points, colour)
        drawing.text(LEFT + number * 80, TOP + HIGH + 32, f"● {name}", size=12, fill=colour, bold=True)
    return drawing.svg()
