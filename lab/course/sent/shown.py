"""What a notebook's cells have shown of a student's measurements, and which cells show any."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from lab.course.sent.contents import MEASURED
from lab.course.sent.damaged import Cells
from lab.course.sent.places import source_of

LONGEST = 20_000  # characters of a table
CALL = re.compile(r"show_results\(\s*(?:folder\s*=\s*)?(?:[\"']([^\"'\n]{1,100})[\"'])?")
NOTHING_YET = "no results.csv yet"  # in what show_results() says then
AS_SENT = "(as the notebook showed it; no results.csv was handed in)"


def folder_of(name: PurePosixPath) -> str:
    """The folder of runs that a results.csv is of, as the notebooks call it."""
    return name.parent.name or MEASURED.parent.name


def shown_folder(source: str) -> str:
    """The folder whose results a cell shows; "" for any other cell."""
    found = CALL.search(source)
    return (found[1] or MEASURED.parent.name) if found else ""


def shown(cells: Cells) -> dict[str, str]:
    """Folder -> what the notebook's cells have shown of its results, as text."""
    found: dict[str, str] = {}
    for cell in cells:
        folder = shown_folder(source_of(cell)) if cell.get("cell_type") == "code" else ""
        outputs = cell.get("outputs")
        for output in outputs if folder and isinstance(outputs, list) else []:
            data = output.get("data") if isinstance(output, dict) else None
            text = source_of({"source": data.get("text/plain")}) if isinstance(data, dict) else ""
            if text.strip() and NOTHING_YET not in text:
                found[folder] = text[:LONGEST]
    return found
