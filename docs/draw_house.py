"""Draws docs/house.svg, the rooms of lab/ and their arrows, and writes the list of rooms in CONTRIBUTING.md.

`make house` runs it. All comes from each room's docstring: its first sentence, and its last line, which
tests/test_layers.py holds to what the room imports. The layout is Sugiyama's ("Methods for visual understanding of
hierarchical system structures", 1981): layers by depth, dummies where an arrow passes a layer, few crossings,
straight arrows.
"""

import ast
import re
from graphlib import TopologicalSorter
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parents[1]
PICTURE, TEXT = ROOT / "docs/house.svg", ROOT / "CONTRIBUTING.md"
# Title, the folders of lab/ that it holds, and colours: on white, and on black.
GROUPS = {
    "The ground": ({"base", "slurm", "collectives"}, "#6e7781", "#8b949e"),
    "A training run": ({"runs", "training"}, "#0969da", "#58a6ff"),
    "The sweep, and a job that failed": (
        {"sweep", "roofline", "bandwidth", "plan", "diagnose"},
        "#9a5b00",
        "#d8a13a",
    ),
    "Exercises, and checks on real ranks": ({"syllabus", "ranks", "grading", "checks"}, "#1a7f37", "#3fb950"),
    "What people use": (
        {"student", "course", "questions", "first_look", "notebook", "doctor", "commands"},
        "#8250df",
        "#bc8cff",
    ),
}
# Two-liners for packages and courses that were handed out before the rooms were made.
KEPT = {"sweep", "grading/course"}
MODULES = "checks/<module>"  # the seven of them are one box, and one line of the list
OF_A_MODULE = "The checks of one of the seven modules: what they observe in the ranks, draw, and judge."
ROW, GAP, HEIGHT, MARGIN, TOP, LETTER = 92, 22, 34, 28, 72, 7.9  # pixels
# A ground of its own: legible in light and in dark mode, also where a page is light and the system dark.
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"
     role="img">
<title>The rooms of lab/: an arrow leads from a room to one that it imports</title>
<style>
text{{font:600 13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;text-anchor:middle}}
.legend{{font:13px system-ui,sans-serif;text-anchor:start}}
rect{{stroke-width:1.5;fill-opacity:.1}}.ground{{fill:#fff;fill-opacity:1}}
path{{fill:none;stroke:#8c959f;stroke-width:1.3}}#head path{{fill:#8c959f;stroke:none}}
{light}
@media (prefers-color-scheme:dark){{.ground{{fill:#0d1117}}path{{stroke:#6e7681}}#head path{{fill:#6e7681}}
{dark}}}
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">\
<path d="M0 0L8 4L0 8Z"/></marker></defs>
<rect class="ground" width="{width}" height="{height}" rx="10"/>
{body}
</svg>
"""
Arrows = dict[str, set[str]]


def box(name: str) -> str:
    return MODULES if name.startswith("checks/") and name != "checks/common" else name


def rooms() -> tuple[dict[str, str], Arrows]:
    """Each room's first sentence, and which rooms it imports. Folders that only hold rooms are none."""
    sentences, arrows = {}, Arrows()
    for file in sorted((ROOT / "lab").rglob("__init__.py")):
        name = file.parent.relative_to(ROOT / "lab").as_posix()
        if name == "." or name in KEPT or len(list(file.parent.glob("*.py"))) == 1:
            continue
        text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        line = re.search(r"^May import: ([\w/, \n]+)\.$", text, re.M)
        if not line:
            raise SystemExit(f'lab/{name}/__init__.py: its docstring has no line "May import: base, ranks."')
        imported = {box(one.strip()) for one in line[1].split(",")} - {"nothing", *KEPT, box(name)}
        arrows.setdefault(box(name), set()).update(imported)
        sentences[box(name)] = OF_A_MODULE if box(name) == MODULES else re.split(r"(?<=\.)\s", text)[0]
    return sentences, arrows


def group(name: str) -> int:
    for i, (folders, *_) in enumerate(GROUPS.values()):
        if name.split("/")[0] in folders:
            return i
    raise SystemExit(f"lab/{name} is in no group: add it to GROUPS in docs/draw_house.py")


def depths(arrows: Arrows) -> dict[str, int]:
    deep: dict[str, int] = {}
    for name in TopologicalSorter(arrows).static_order():
        deep[name] = 1 + max((deep[other] for other in arrows.get(name, ())), default=-1)
    return deep


def thinned(arrows: Arrows) -> Arrows:
    """No arrow where a longer way leads to the same room."""
    reached: Arrows = {}
    for name in TopologicalSorter(arrows).static_order():
        reached[name] = arrows[name].union(*(reached[other] for other in arrows[name]))
    return {
        name: {other for other in others if not any(other in reached[between] for between in others)}
        for name, others in arrows.items()
    }


def with_dummies(arrows: Arrows) -> tuple[list[list[str]], Arrows]:
    """Names by layer, and each one's neighbours in the layer below: a long arrow becomes several short ones."""
    deep, below = depths(arrows), {name: set[str]() for name in sorted(arrows)}
    layers = [sorted((n for n in deep if deep[n] == d), key=lambda n: (group(n), n)) for d in set(deep.values())]
    for name in sorted(arrows):
        for other in sorted(arrows[name]):
            last = name
            for d in range(deep[name] - 1, deep[other], -1):
                dummy = f"~{other}~{d}"  # arrows to the same room share their way
                if dummy not in below:
                    below[dummy] = set()
                    layers[d].append(dummy)
                below[last].add(dummy)
                last = dummy
            below[last].add(other)
    return layers, below


def crossings(layers: list[list[str]], below: Arrows) -> int:
    total = 0
    for low, high in pairwise(layers):
        place = {name: i for i, name in enumerate(low)}
        ends = [(i, place[other]) for i, name in enumerate(high) for other in below[name]]
        total += sum((a - c) * (b - d) < 0 for i, (a, b) in enumerate(ends) for c, d in ends[i + 1 :])
    return total


def ordered(layers: list[list[str]], below: Arrows) -> list[list[str]]:
    """By the mean place of the neighbours, from below and from above in turn; then by exchanging two that are side
    by side, as long as that helps."""
    above = {name: {other for other in below if name in below[other]} for name in below}
    best = layers
    for turn in range(40):
        layers = [list(layer) for layer in layers]
        neighbours, span = (below, range(1, len(layers))) if turn % 2 else (above, range(len(layers) - 2, -1, -1))
        for d in span:
            near = {name: i for i, name in enumerate(layers[d - 1 if turn % 2 else d + 1])}
            old = {name: i for i, name in enumerate(layers[d])}
            layers[d].sort(key=lambda n: fmean([near[o] for o in neighbours[n]]) if neighbours[n] else old[n])
        best = min(best, layers, key=lambda one: crossings(one, below))
    better = True
    while better:
        better = False
        for d, layer in enumerate(best):
            for i in range(len(layer) - 1):
                other = [*best[:d], [*layer[:i], layer[i + 1], layer[i], *layer[i + 2 :]], *best[d + 1 :]]
                if crossings(other, below) < crossings(best, below):
                    best, layer, better = other, other[d], True
    return best


def width(name: str) -> float:
    return 10 if name.startswith("~") else LETTER * len(name) + 22


def spread(wanted: list[float], names: list[str]) -> list[float]:
    """Nearest to where each wants to be (least squares) without overlap: the pool-adjacent-violators algorithm."""
    offsets = [0.0]
    for a, b in pairwise(names):
        offsets.append(offsets[-1] + (width(a) + width(b)) / 2 + GAP)
    pools: list[list[float]] = []
    for x, offset in zip(wanted, offsets, strict=True):
        pools.append([x - offset])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    flat = [fmean(pool) for pool in pools for _ in pool]
    return [x + offset for x, offset in zip(flat, offsets, strict=True)]


def places(layers: list[list[str]], below: Arrows) -> dict[str, float]:
    x = {
        name: float(i)
        for layer in layers
        for name, i in zip(layer, spread([0.0] * len(layer), layer), strict=True)
    }
    near = {n: sorted(below[n]) + sorted(other for other in below if n in below[other]) for n in below}
    for _ in range(200):
        for layer in layers:
            wanted = [fmean([x[n], *(x[o] for o in near[n])]) for n in layer]
            x.update(zip(layer, spread(wanted, layer), strict=True))
    return x


def picture(sentences: dict[str, str], arrows: Arrows) -> str:
    layers, below = with_dummies(thinned(arrows))
    layers = ordered(layers, below)
    x = places(layers, below)
    left = min(x[n] - width(n) / 2 for n in x) - MARGIN
    across = max(x[n] + width(n) / 2 for n in x) + MARGIN - left
    x = {name: middle - left for name, middle in x.items()}
    y = {n: TOP + (len(layers) - 1 - d) * ROW for d, layer in enumerate(layers) for n in layer}
    paths, boxes, legend = [], [], []
    for name in below:
        for other in sorted(below[name]):
            a, b, start, end = f"{x[name]:.0f}", f"{x[other]:.0f}", y[name] + HEIGHT, y[other] - 2
            bend = (start + end) // 2
            # Straight down beside the boxes of a layer that it passes.
            on = f'V{end + 2 + HEIGHT}"/>' if other.startswith("~") else '" marker-end="url(#head)"/>'
            paths.append(f'<path d="M{a} {start}C{a} {bend} {b} {bend} {b} {end}{on}')
    for name in x:
        if not name.startswith("~"):
            w, sentence = width(name), sentences[name]
            boxes.append(
                f'<g class="g{group(name)}"><title>{escape(sentence)}</title><rect x="{x[name] - w / 2:.0f}" '
                f'y="{y[name]:.0f}" width="{w:.0f}" height="{HEIGHT}" rx="7"/>'
                f'<text x="{x[name]:.0f}" y="{y[name] + 22:.0f}">{escape(name)}</text></g>'
            )
    at = float(MARGIN)
    for i, title in enumerate(GROUPS):
        legend.append(
            f'<g class="g{i}"><rect x="{at:.0f}" y="{MARGIN - 10}" width="14" height="14" rx="3"/>'
            f'<text class="legend" x="{at + 20:.0f}" y="{MARGIN + 2}">{title}</text></g>'
        )
        at += 6.6 * len(title) + 48
    colours = [
        "".join(f".g{i} rect{{stroke:{c};fill:{c}}}.g{i} text{{fill:{c}}}" for i, c in enumerate(one))
        for one in zip(*(colours for _, *colours in GROUPS.values()), strict=True)
    ]
    return SVG.format(
        width=round(max(across, at)),
        height=round(TOP + len(layers) * ROW - ROW + HEIGHT + MARGIN),
        light=colours[0],
        dark=colours[1],
        body="\n".join([*paths, *boxes, *legend]),
    )


def room_list(sentences: dict[str, str], arrows: Arrows) -> str:
    """The rooms as Markdown, a table a group, from the ground up."""
    deep, lines = depths(arrows), list[str]()
    for i, title in enumerate(GROUPS):
        lines += ["", f"| **{title}** | |", "|---|---|"]
        for name in sorted((n for n in deep if group(n) == i), key=lambda n: (deep[n], n)):
            lines.append(f"| `lab/{name}/` | {sentences[name]} |")
    return "\n".join([*lines, ""])


def text_with(listed: str) -> str:
    """CONTRIBUTING.md with this list of rooms."""
    begin, end = "<!-- rooms: written by make house -->\n", "<!-- end of rooms -->"
    text = TEXT.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(
            f"CONTRIBUTING.md: the rooms stand between the lines {begin.strip()} and {end}, once each"
        )
    return text[: text.index(begin) + len(begin)] + listed + "\n" + text[text.index(end) :]


if __name__ == "__main__":
    house = rooms()
    PICTURE.write_text(picture(*house), encoding="utf-8")
    TEXT.write_text(text_with(room_list(*house)), encoding="utf-8")
