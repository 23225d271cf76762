"""One page that a person could hand in: figures, tables, verdicts, system and resources; and outlines for texts.

The page is self-contained: the figures are in it, nothing is loaded from elsewhere. Beside it lie the outlines of
docs/templates with their tables filled in.
"""

import base64
import html
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from lab.base.errors import UserError
from lab.base.files import write_whole
from lab.base.paths import student_sources
from lab.runs.records.job import read_json
from lab.slurm import states
from lab.sweep.compare.points import Row, grouped, points
from lab.sweep.compare.table import setting_titles
from lab.sweep.draw.report_tables import TEXTS, Table

TEMPLATES = ("paper", "proposal", "pitch")
GOOD, EXCELLENT = 0.7, 0.9  # the lines in the efficiency figures
_PLACE = re.compile(r"\{\{(\w+)\}\}")

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --faint: #666; --line: #d5d5d5 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #161616; --faint: #a5a5a5; --line: #444 } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
       margin: 2rem auto; padding: 0 1rem }
h1 { line-height: 1.2 } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line) }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem }
caption { text-align: left; font-weight: 600 }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.note, figcaption { color: var(--faint); font-size: .85rem }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(26rem, 1fr)); gap: 0 1.5rem }
.wide { overflow-x: auto } figure { margin: 1.5rem 0 } img { max-width: 100%; background: #fff }
pre { overflow-x: auto; font-size: .85rem }
@media print { body { margin: 0; max-width: none } figure, table { break-inside: avoid } }
"""


def write_report(rows: Sequence[Row], results: Path, figures: Sequence[Path], page: Path) -> list[Path]:
    """Write the page and the filled outlines; returns the files.

    Args:
        rows: of results.csv.
        results: the folder with the runs' folders.
        figures: PNG files; the SVG of the same name beside one is what goes into the page.
        page: report.html.

    Raises:
        UserError: a figure cannot be read, or the page cannot be written.
    """
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        write_whole(page, _page(rows, results, figures))
        files = [page]
        for name in TEMPLATES:
            template = student_sources() / "docs" / "templates" / f"{name}.md"
            target = page.with_name(f"{page.stem}_{name}.md")
            if target.exists() and not _is_filled_outline(target):
                continue  # somebody has begun to write in it
            write_whole(target, fill(template.read_text(encoding="utf-8"), rows, results))
            files.append(target)
    except OSError as error:
        raise UserError(f"cannot write the report: {error.filename or page}: {error.strerror}") from error
    return files


_MARK = (
    "<!-- Filled by plot_results.py --report. Remove this line when you begin to write: it is then left alone. -->"
)


def _is_filled_outline(file: Path) -> bool:
    with file.open(encoding="utf-8", errors="replace") as stream:
        return stream.readline().rstrip("\n") == _MARK


def fill(template: str, rows: Sequence[Row], results: Path) -> str:
    """An outline with its tables. Raises KeyError for a place that nothing fills."""

    def table(place: re.Match[str]) -> str:
        if place[1] == "commands":
            return "```\n" + "\n".join(commands(rows, results)) + "\n```"
        return "\n\n".join(table.markdown() for table in TEXTS[place[1]](rows, results))

    return _MARK + "\n" + _PLACE.sub(table, template)


def commands(rows: Sequence[Row], results: Path) -> list[str]:
    """What was typed: the command of one run of each point, then collecting and drawing."""
    found: dict[str, None] = {}
    for members in grouped(rows).values():
        for point in points(members):
            command = read_json(results / point.rows[0]["run_id"] / "job.json").get("command")
            if isinstance(command, str):
                found[command] = None
    collect = shlex.join(["python", "collect_results.py", str(results)])
    plot = shlex.join(["python", "plot_results.py", str(results / "results.csv"), "--report", "report.html"])
    return [*found, collect, plot]


def headlines(rows: Sequence[Row]) -> list[str]:
    """A sentence for each setting: how far its largest number of devices has come, and whether that is good."""
    said = []
    groups = grouped(rows)
    titles = setting_titles(groups)
    for key, members in groups.items():
        found = [point for point in points(members) if point.devices > 1]
        judged = [point for point in found if point.efficiency().median > 0]
        if not judged:
            continue
        most = max(point.devices for point in judged)
        best = max((p for p in judged if p.devices == most), key=lambda p: p.efficiency().median)
        share = best.efficiency().median
        grade = (
            f"above the {EXCELLENT:.0%} line"
            if share >= EXCELLENT
            else f"above the {GOOD:.0%} line"
            if share >= GOOD
            else f"below the {GOOD:.0%} line"
        )
        said.append(f"{titles[key]}: {best.label} on {most} devices reaches {share:.0%}, {grade}.")
    return said


def _page(rows: Sequence[Row], results: Path, figures: Sequence[Path]) -> str:
    done = sum(row["status"] == states.DONE for row in rows)
    parts = [
        f"<p>{len(rows)} runs, {done} with figures. Efficiencies compare with a plain run on one device.</p>",
        _list(headlines(rows)),
        "<h2>Figures</h2>",
        "<div class=figures>",
        *map(_figure, figures),
        "</div>",
        "<h2>Measurements</h2>",
        *_tables("scaling", rows, results),
        "<h2>Bottlenecks</h2>",
        *_tables("bottlenecks", rows, results),
        "<h2>What did not come to its end</h2>",
        *_tables("unfinished", rows, results),
        "<h2>System</h2>",
        *_tables("system", rows, results),
        "<h2>Resources</h2>",
        *_tables("resources", rows, results),
        "<h2>Commands</h2>",
        f"<pre>{html.escape(chr(10).join(commands(rows, results)))}</pre>",
    ]
    title = f"Scaling report: {', '.join(sorted({row['model'] for row in rows if row['model']})) or 'no network'}"
    return (
        f"<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>\n<body><h1>{html.escape(title)}</h1>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _tables(name: str, rows: Sequence[Row], results: Path) -> list[str]:
    tables: list[Table] = TEXTS[name](rows, results)
    return [table.html() for table in tables] or ["<p>nothing</p>"]


def _list(sentences: Sequence[str]) -> str:
    return (
        "<ul>" + "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences) + "</ul>"
        if sentences
        else ""
    )


def _figure(png: Path) -> str:
    svg = png.with_suffix(".svg")
    file, kind = (svg, "svg+xml") if svg.is_file() else (png, "png")
    data = base64.b64encode(file.read_bytes()).decode("ascii")
    where = "" if png.parent.name in ("figures", "") else f" ({png.parent.name.replace('-', ' ')})"
    name = png.stem.replace("_", " ") + where
    return (
        f'<figure><img src="data:image/{kind};base64,{data}" alt="Plot: {html.escape(name)}; '
        f'its values are in the tables below"><figcaption>{html.escape(name)}</figcaption></figure>'
    )
