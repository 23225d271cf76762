"""Small SVG drawings for notebooks: they follow JupyterLab's theme, need no other file, and say what they show."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.base.words import as_html
from lab.notebook.show import Card

INK = "#14171a"  # of text on the fills below, in a light theme and in a dark one
# One for each rank or kind of thing; the label that stands in every box is what tells them apart.
FILLS = ("#8ecae6", "#ffc078", "#b7e4a7", "#e5b8f4", "#ffe066", "#f7a8a8", "#99e9e0", "#d0d5dc")
ALERT = "#ff8f8f"
QUIET = "#d0d5dc"
LENGTHS = {"start": 1.0, "middle": 0.5, "end": 0.0}  # the part of a text that is to the right of its x

# What a notebook beside a file leaves in half of a window: a wider picture is shrunk, and its text with it.
HALF_WIDTH = 470

STYLE = """<style>
.lab-figure{margin:4px 0;color:var(--jp-content-font-color1,#1c1f24);
font-family:var(--jp-ui-font-family,system-ui,sans-serif)}
.lab-figure svg{display:block;max-width:100%;height:auto}
.lab-row{display:flex;flex-wrap:wrap;gap:8px 20px}
.lab-figure figcaption{font-size:13px;max-width:46rem;margin-top:6px;color:var(--jp-content-font-color1,#1c1f24)}
</style>"""


class Drawing:
    """An SVG under construction; lengths are in pixels, from the upper left corner. It is cut off at the right.

    Args:
        alt: what the picture shows, in words: for those who do not see it.
    """

    def __init__(self, width: float, height: float, alt: str) -> None:
        self.width, self.height, self.alt = width, height, alt
        self._parts: list[str] = []
        self._right = 0.0  # of what has been drawn: the picture is no wider, so that it need not be shrunk

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: int = 13,
        anchor: str = "start",
        bold: bool = False,
        fill: str = "currentColor",
    ) -> None:
        """One line of text; y is its baseline, anchor is start, middle or end."""
        weight = ' font-weight="600"' if bold else ""
        self._reach(x + LENGTHS[anchor] * (0.62 if bold else 0.56) * size * len(words))
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{weight} fill="{fill}">'
            f"{as_html(words)}</text>"
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = "none",
        label: str = "",
        *,
        size: int = 13,
        dashed: bool = False,
        bold: bool = False,
    ) -> None:
        """A rectangle with a label in its middle; without a fill it is an outline."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._reach(x + width)
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" rx="3" '
            f'fill="{fill}" stroke="currentColor" stroke-width="1"{dash}/>'
        )
        if label:
            ink = "currentColor" if fill == "none" else INK
            middle = y + height / 2 + size * 0.36
            self.text(x + width / 2, middle, label, size=size, anchor="middle", fill=ink, bold=bold)

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        width: float = 1.2,
        dashed: bool = False,
        arrow: bool = False,
    ) -> None:
        """A straight line, on request with a head at its end."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._reach(max(x1, x2))
        self._parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" '
            f'stroke-width="{width}"{dash}/>'
        )
        if arrow:
            angle = math.atan2(y2 - y1, x2 - x1)
            corners = [(x2, y2)] + [
                (x2 - 9 * math.cos(angle + turn), y2 - 9 * math.sin(angle + turn)) for turn in (0.4, -0.4)
            ]
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
            self._parts.append(f'<polygon points="{points}" fill="currentColor"/>')

    def curve(self, points: Sequence[tuple[float, float]], colour: str, *, dashed: bool = False) -> None:
        """A line through points, with a dot on each."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"{dash}/>')
        if not dashed:
            self._parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in points]

    def _reach(self, x: float) -> None:
        self._right = max(self._right, x)

    def svg(self) -> str:
        width = min(self.width, self._right + 4)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 0 {width + 1:.0f} {self.height:.0f}" '
            f'width="{width + 1:.0f}" height="{self.height:.0f}" role="img" aria-label="{as_html(self.alt)}" '
            f'font-family="var(--jp-ui-font-family,system-ui,sans-serif)">{"".join(self._parts)}</svg>'
        )


def figure(*drawings: Drawing, caption: str = "") -> Card:
    """Drawings as a cell's output: side by side where there is room, else one below the other."""
    below = f"<figcaption>{as_html(caption)}</figcaption>" if caption else ""
    pictures = "".join(drawing.svg() for drawing in drawings)
    html = f'{STYLE}<figure class="lab-figure"><div class="lab-row">{pictures}</div>{below}</figure>'
    return Card(html, "\n".join(filter(None, [*(drawing.alt for drawing in drawings), caption])))


def stepped(drawings: Sequence[Drawing], labels: Sequence[str], name: str, caption: str = "") -> Card:
    """Several drawings, of which the reader chooses one at a time. Plain HTML and CSS: works offline.

    Args:
        name: of the group of buttons; no other figure on the page may have it.
    """
    key = f"lab-{name}"
    rules, buttons, frames = [], [], []
    for number, (drawing, label) in enumerate(zip(drawings, labels, strict=True)):
        checked = " checked" if number == 0 else ""
        buttons.append(
            f'<label><input type="radio" name="{key}" class="{key}-{number}"{checked}> {as_html(label)}</label>'
        )
        frames.append(f'<div class="lab-frame {key}-f{number}">{drawing.svg()}</div>')
        rules.append(f".lab-figure:has(.{key}-{number}:checked) .{key}-f{number}{{display:block}}")
    rules = [".lab-frame{display:none}", ".lab-steps label{margin-right:14px;cursor:pointer}", *rules]
    style = f"<style>{''.join(rules)}</style>"
    steps = f'<div class="lab-steps" role="radiogroup" aria-label="step">{"".join(buttons)}</div>'
    below = f"<figcaption>{as_html(caption)}</figcaption>" if caption else ""
    html = f'{STYLE}{style}<figure class="lab-figure">{steps}{"".join(frames)}{below}</figure>'
    text = "\n".join(f"{label}: {drawing.alt}" for label, drawing in zip(labels, drawings, strict=True))
    return Card(html, "\n".join(filter(None, [text, caption])))


def whole_number(name: str, value: object, least: int, most: int) -> int:
    """An argument that a student has changed, if it makes sense.

    Raises:
        Said: it does not, in one sentence.
    """
    from lab.notebook.show import Said

    if type(value) is not int or not least <= value <= most:
        raise Said(f"{name}={value!r}: this figure takes a whole number from {least} to {most}")
    return value
