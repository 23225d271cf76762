"""One page that a person could hand in: figures, tables, verdicts, system and resources; and outlines for texts.

The page is self-contained: the figures are in it, nothing is loaded from elsewhere. Beside it lie the outlines of
docs/templates with their tables filled in.
"""

import base64
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lab.base.errors import UserError
from lab.base.files import write_whole
from lab.base.html import render
from lab.base.paths import student_sources
from lab.runs.records.job import read_json
from lab.sweep.compare.points import finished, points
from lab.sweep.compare.table import setting_titles
from lab.sweep.draw.report_tables import TEXTS
from lab.sweep.draw.style import EXCELLENT, GOOD

TEMPLATES = ("paper", "proposal", "pitch", "abstract")
_PLACE = re.compile(r"\{\{(\w+)\}\}")

# Heading on the page -> one of TEXTS.
SECTIONS = {
    "Measurements": "scaling",
    "Bottlenecks": "bottlenecks",
    "What did not come to its end": "unfinished",
    "System": "system",
    "Resources": "resources",
}


def write_report(runs: pd.DataFrame, results: Path, figures: Sequence[Path], page: Path) -> list[Path]:
    """Write the page and the filled outlines; returns the files.

    Args:
        runs: of results.csv.
        results: the folder with the runs' folders.
        figures: PNG files; the SVG of the same name beside one is what goes into the page.
        page: report.html.

    Raises:
        UserError: a figure cannot be read, or the page cannot be written.
    """
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        write_whole(page, _page(runs, results, figures))
        files = [page]
        for name in TEMPLATES:
            template = student_sources() / "docs" / "templates" / f"{name}.md"
            target = page.with_name(f"{page.stem}_{name}.md")
            if target.exists() and not _is_filled_outline(target):
                continue  # somebody has begun to write in it
            write_whole(
                target, fill(template.read_text(encoding="utf-8"), runs, results, shown_from(page, figures))
            )
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


def shown_from(page: Path, figures: Sequence[Path]) -> str:
    """The first setting's figures in Markdown, as a text beside the page finds them; the page has all."""
    main = [png for png in figures if png.parent == figures[0].parent]
    return "\n\n".join(f"![{_name(png)}]({Path(os.path.relpath(png, page.parent)).as_posix()})" for png in main)


def fill(template: str, runs: pd.DataFrame, results: Path, figures: str = "") -> str:
    """An outline with its tables and figures. Raises KeyError for a place that nothing fills."""

    def table(place: re.Match[str]) -> str:
        if place[1] == "figures":
            return figures
        if place[1] == "commands":
            return "```\n" + "\n".join(commands(runs, results)) + "\n```"
        return "\n\n".join(table.markdown() for table in TEXTS[place[1]](runs, results))

    return _MARK + "\n" + _PLACE.sub(table, template)


def commands(runs: pd.DataFrame, results: Path) -> list[str]:
    """What was typed: the command of one run of each point, then collecting and drawing."""
    found: dict[str, None] = {}
    for run_id in points(runs)["run_id"]:
        command = read_json(results / run_id / "job.json").get("command")
        if isinstance(command, str):
            found[command] = None
    collect = shlex.join(["python", "collect_results.py", str(results)])
    plot = shlex.join(["python", "plot_results.py", str(results / "results.csv"), "--report", "report.html"])
    return [*found, collect, plot]


def headlines(runs: pd.DataFrame) -> list[str]:
    """A sentence for each setting: how far its largest number of devices has come, and whether that is good."""
    found = points(runs)
    judged = found[(found["world_size"] > 1) & (found["efficiency"] > 0)].sort_values(
        ["world_size", "efficiency"], ascending=False, kind="stable"
    )
    titles = setting_titles(runs["setting"])
    best = judged.drop_duplicates("setting").set_index("setting")
    said = []
    for setting in [setting for setting in titles if setting in best.index]:
        label, devices, share = best.loc[setting, ["label", "world_size", "efficiency"]]
        above = next((line for line in (EXCELLENT, GOOD) if share >= line), None)
        grade = f"above the {above:.0%} line" if above else f"below the {GOOD:.0%} line"
        said.append(f"{titles[setting]}: {label} on {devices} devices reaches {share:.0%}, {grade}.")
    return said


def _page(runs: pd.DataFrame, results: Path, figures: Sequence[Path]) -> str:
    networks = ", ".join(sorted({*runs["model"]} - {""})) or "no network"
    return render(
        "scaling.html",
        title=f"Scaling report: {networks}",
        runs=len(runs),
        done=len(finished(runs)),
        headlines=headlines(runs),
        figures=[_figure(png) for png in figures],
        sections=[(heading, TEXTS[name](runs, results)) for heading, name in SECTIONS.items()],
        commands=commands(runs, results),
    )


def _figure(png: Path) -> tuple[str, str, str]:
    """Name, type of the image, its bytes in base64."""
    svg = png.with_suffix(".svg")
    file, kind = (svg, "svg+xml") if svg.is_file() else (png, "png")
    return _name(png), kind, base64.b64encode(file.read_bytes()).decode("ascii")


def _name(png: Path) -> str:
    where = "" if png.parent.name in ("figures", "") else f" ({png.parent.name.replace('-', ' ')})"
    return png.stem.replace("_", " ") + where
