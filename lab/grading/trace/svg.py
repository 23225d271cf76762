"""A trace as an SVG for notebooks and files: one lane a rank, from top to bottom. Needs no other file."""

from __future__ import annotations

import textwrap
import zlib
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from lab.grading.trace.picture import Mark, Picture, Row
from lab.grading.trace.text import LEGEND

WIDTH = 470  # pixels, what a notebook beside a file has: a wider picture would be shrunk, and its text with it
BESIDE = 260  # pixels that a row's text has at least: many ranks make the picture wider
LANE, LEFT, TOP = 44, 66, 30  # pixels: between lanes, to the first one, above a section's first row
LINE, SMALL = 17, 16  # pixels: of a row's text, of the text below it
CHARACTER, BOLD, FIXED = 6.8, 7.4, 7.9  # pixels: of the small text, of the headings, of the monospaced text

# Told apart by shape first; the colours differ for the colour-blind too, and stand out from white and from black.
COLOURS: dict[Mark, str] = {"met": "#0d8a62", "waits": "#b5690a", "called": "#b5690a", "absent": "#dc3f50"}
QUIET, RAIL = "#7a818b", "#8f97a3"
INK, PAPER = "#1c1f24", "#ffffff"  # of a file; in a notebook the page's own
THEMED = f"<style>.lab-paper{{fill:var(--jp-layout-color1,{PAPER})}}</style>"


def trace_svg(sections: Sequence[tuple[str, Picture]], title: str, *, inline: bool = False) -> str:
    """Draw pictures one below the other, each under its heading.

    `inline`: part of a page, whose colours of ink and paper it takes, in a light theme and in a dark one.

    Whatever a rank has named its files and functions is escaped. The title and a description in words stand in
    <title> and <desc>, for those who do not see the picture.
    """
    body: list[str] = []
    most = max((picture.world_size for _, picture in sections), default=1)
    width = max(WIDTH, _lane(most - 1) + 30 + BESIDE)
    y = 20.0
    for heading, picture in sections:
        parts, y = _section(heading, picture, y, width)
        body += parts
    legend, y = _legend([picture for _, picture in sections], y, width)
    words = _words(sections)
    name = f"trace-{zlib.crc32((title + words).encode('utf-8', 'replace')):08x}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y:.0f}" width="{width}" '
            f'height="{y:.0f}" role="img" aria-labelledby="{name}-t {name}-d" '
            'style="max-width:100%;height:auto">',
            f'<title id="{name}-t">{escape(title)}</title>',
            f'<desc id="{name}-d">{escape(words)}</desc>',
            THEMED if inline else f'<rect width="{width}" height="{y:.0f}" rx="6" fill="{PAPER}"/>',
            f'<g font-family="system-ui, sans-serif" font-size="13" fill="{"currentColor" if inline else INK}">',
            *body,
            *legend,
            "</g>",
            "</svg>",
        ]
    )


def _section(heading: str, picture: Picture, y: float, width: int) -> tuple[list[str], float]:
    parts = []
    for line in textwrap.wrap(f"{heading}: {picture.summary}", int((width - 8) / BOLD)):
        parts.append(_text(4, y, line, weight="600"))
        y += LINE
    if not picture.rows:
        return parts, y + 10
    y += 12
    parts += [
        _text(_lane(rank), y, f"rank {rank}", anchor="middle", size=12, fill=QUIET)
        for rank in range(picture.world_size)
    ]
    rails: dict[int, tuple[float, float]] = {}
    rows: list[str] = []
    y += TOP - 8
    for index, row in enumerate(picture.rows):
        if picture.left_out and index == picture.head:
            rows.append(_text(_beside(picture), y + 4, f"{picture.left_out} rows are left out here", fill=QUIET))
            y += LINE + 8
        for rank, mark in enumerate(row.marks):
            if mark not in ("blank", "absent"):
                rails[rank] = (rails[rank][0] if rank in rails else y - TOP / 2, y)
        drawn, y = _row(row, picture, y, width)
        rows += drawn
    for rank, (top, bottom) in rails.items():
        parts.append(
            f'<line x1="{_lane(rank)}" y1="{top:.0f}" x2="{_lane(rank)}" y2="{bottom:.0f}" stroke="{RAIL}" '
            'stroke-width="2"/>'
        )
    return [*parts, *rows], y + 14


def _row(row: Row, picture: Picture, y: float, width: int) -> tuple[list[str], float]:
    """Signs and text of one row, whose first line of text is at height y."""
    parts = [_text(LEFT - 24, y + 4, row.number, anchor="end", size=12, fill=QUIET)]
    joined = [rank for rank, mark in enumerate(row.marks) if mark == "met"]
    if len(joined) > 1:
        parts.append(
            f'<line x1="{_lane(joined[0])}" y1="{y:.0f}" x2="{_lane(joined[-1])}" y2="{y:.0f}" '
            f'stroke="{COLOURS["met"]}" stroke-width="3"/>'
        )
    parts += [_sign(mark, _lane(rank), y) for rank, mark in enumerate(row.marks) if mark != "blank"]
    x = _beside(picture)
    room = int((width - x - 4) / CHARACTER)
    for line in textwrap.wrap(row.what, int((width - x - 4) / FIXED)):
        parts.append(_text(x, y + 4, line, family="ui-monospace, monospace"))
        y += LINE
    for line in textwrap.wrap(row.where, room):
        parts.append(_text(x, y + 3, line, size=12, fill=QUIET))
        y += SMALL
    for note in row.notes:
        for line in textwrap.wrap(note, room):
            parts.append(_text(x, y + 3, line, size=12, fill=COLOURS["absent"], weight="600"))
            y += SMALL
    return parts, y + 10


def _legend(pictures: Sequence[Picture], y: float, width: int) -> tuple[list[str], float]:
    used = [mark for mark in LEGEND if any(mark in row.marks for picture in pictures for row in picture.rows)]
    parts, x = [], 12.0
    for mark in used:
        if x + 14 + CHARACTER * len(LEGEND[mark]) > width:
            x, y = 12.0, y + 22
        parts += [_sign(mark, x, y), _text(x + 14, y + 4, LEGEND[mark], size=12, fill=QUIET)]
        x += 40 + 7 * len(LEGEND[mark])
    return parts, y + (24 if used else 0)


def _sign(mark: Mark, x: float, y: float) -> str:
    """A disc, a disc half full, a diamond or a cross."""
    colour = COLOURS[mark]
    if mark == "met":
        return f'<circle cx="{x:.0f}" cy="{y:.0f}" r="6.5" fill="{colour}"/>'
    outline = f'class="lab-paper" fill="{PAPER}" stroke="{colour}" stroke-width="2.5"'
    if mark == "waits":
        return (
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="6.5" {outline}/>'
            f'<path d="M {x:.0f} {y - 6.5:.1f} a 6.5 6.5 0 0 0 0 13 z" fill="{colour}"/>'
        )
    if mark == "called":
        return f'<path d="M {x:.0f} {y - 8:.0f} l 8 8 l -8 8 l -8 -8 z" {outline}/>'
    cross = f"M {x - 6:.0f} {y - 6:.0f} l 12 12 m 0 -12 l -12 12"
    return f'<path d="{cross}" fill="none" stroke="{colour}" stroke-width="3"/>'


def _words(sections: Sequence[tuple[str, Picture]]) -> str:
    return " ".join(_sentences(sections))


def _sentences(sections: Sequence[tuple[str, Picture]]) -> Iterator[str]:
    for heading, picture in sections:
        yield f"{heading}: {picture.summary}."
        for row in picture.rows:
            if not row.met:
                yield f"Number {row.number}, {row.what}, {row.where}: {'; '.join(row.notes) or 'not met'}."


def _lane(rank: int) -> int:
    return LEFT + LANE * rank


def _beside(picture: Picture) -> int:
    """Where a row's text begins."""
    return _lane(picture.world_size - 1) + 30


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 13,
    fill: str = "",
    weight: str = "",
    anchor: str = "",
    family: str = "",
) -> str:
    more = "".join(
        f' {name}="{value}"'
        for name, value in (
            ("fill", fill),
            ("font-weight", weight),
            ("text-anchor", anchor),
            ("font-family", family),
        )
        if value
    )
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}"{more}>{escape(text)}</text>'
