"""The notebooks as they were handed out: which cells are graded, and what their questions are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from lab.base.paths import student_sources
from lab.syllabus.package import in_part_two

QUESTION = "**Question.**"


@dataclass(frozen=True)
class GradedCell:
    """A cell that nbgrader grades.

    question     the text above an answer's cell
    placeholder  what the cell says before it is answered
    """

    grade_id: str
    points: float
    is_answer: bool
    question: str
    placeholder: str


Books = dict[str, list[GradedCell]]  # file name of the notebook -> its graded cells


@cache
def book_names() -> frozenset[str]:
    """The file names of the notebooks in the student's package."""
    return frozenset(path.name for path in (student_sources() / "notebooks").glob("*.ipynb"))


def released_books(folder: Path | None = None) -> Books:
    """The graded cells of part one's notebooks in a folder; by default of those in the student's package."""
    books: Books = {}
    for path in sorted((folder or student_sources() / "notebooks").glob("*.ipynb")):
        if in_part_two(PurePosixPath(path.name)):
            continue
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        books[path.name] = []
        before = ""
        for cell in cells:
            source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
            graded = cell["metadata"].get("nbgrader")
            if graded and graded.get("grade"):
                books[path.name].append(
                    GradedCell(
                        graded["grade_id"],
                        float(graded["points"]),
                        bool(graded["solution"]),
                        _question(before) if graded["solution"] else "",
                        source,
                    )
                )
            elif cell["cell_type"] == "markdown":
                before = source
    return books


def _question(text: str) -> str:
    """What is asked: behind the word, or the last paragraph below its heading."""
    if QUESTION in text:
        return text.rpartition(QUESTION)[2].strip()
    heading = next((line.strip("# ") + ": " for line in text.splitlines() if line.startswith("#")), "")
    return heading + text.strip().split("\n\n")[-1]
