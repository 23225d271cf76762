"""From notebooks/source/*.py (jupytext's percent format) to the notebooks that students open.

    # %% check="3.2"                                a code cell with nothing but check("3.2"): graded by itself
    # %% [markdown] answer="why-shape" points=2     a free-text answer, marked by hand

Every other cell is plain. Both kinds become nbgrader's cells (schema 3) with the grade_ids check-3-2 (nbgrader
allows no dots) and answer-why-shape. The same source always gives the same bytes. Needs jupytext and nbformat,
which students do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.base.errors import UserError
from lab.syllabus.syllabus import Syllabus

if TYPE_CHECKING:
    from nbformat import NotebookNode

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
OUR_KEYS = {"check", "answer", "points"}
LINK = re.compile(r"(?<=\]\()\.\./")


class NotebookError(UserError):
    """A source breaks the notation; the message names the file and the cell."""


def points_of(syllabus: Syllabus) -> dict[str, int]:
    """Exercise id -> points of its check cell."""
    return {exercise.id: exercise.points for exercise in syllabus.every}


def check_id(exercise: str) -> str:
    """The grade_id of an exercise's check cell: "3.2" -> "check-3-2"."""
    return f"check-{exercise.replace('.', '-')}"


def sources(folder: Path) -> list[Path]:
    """notebooks/source/0_start.py and so on, in the order of the sections."""
    return sorted(folder.glob("[0-9]_*.py"))


def build_notebook(source: Path, points: Mapping[str, int], *, beside_exercises: bool = False) -> NotebookNode:
    """The notebook that a source describes, without outputs.

    Args:
        points: of each exercise, by id.
        beside_exercises: the notebook will lie in the folder that holds exercises/, and not in one of its own:
            links lead there.

    Raises:
        NotebookError: naming the file and the cell.
    """
    try:
        import jupytext
        import nbformat
    except ImportError as error:
        raise UserError(f"building notebooks needs {error.name}: pip install jupytext nbformat") from None
    text = source.read_text(encoding="utf-8")
    read = jupytext.reads(text, fmt="py:percent")
    cells: list[NotebookNode] = []
    seen: set[str] = set()
    for number, cell in enumerate(read.cells):
        grading = _grading(cell, f"{source.name}: cell {number + 1}", points)
        name = grading["grade_id"] if grading else f"cell-{number:02d}"
        if name in seen:
            raise NotebookError(f"{source.name}: cell {number + 1}: {name} is there twice")
        seen.add(name)
        make = nbformat.v4.new_markdown_cell if cell.cell_type == "markdown" else nbformat.v4.new_code_cell
        made = make(LINK.sub("", cell.source) if beside_exercises else cell.source)
        made.id = re.sub(r"[^a-zA-Z0-9_-]", "-", name)  # all that nbformat allows
        made.metadata = nbformat.from_dict({"nbgrader": grading} if grading else {})
        cells.append(made)
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
    notebook.nbformat_minor = 5
    nbformat.validate(notebook)
    return notebook


def to_text(notebook: NotebookNode) -> str:
    """The notebook as a file's text."""
    import nbformat

    return nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


def generate(folder: Path, points: Mapping[str, int]) -> dict[str, str]:
    """File name -> text of the notebook, for every source in `folder`/source."""
    found = sources(folder / "source")
    if not found:
        raise NotebookError(f"{folder / 'source'} holds no sources such as 1_model.py")
    notebooks = {path.with_suffix(".ipynb").name: build_notebook(path, points) for path in found}
    _unique(notebooks)
    return {name: to_text(notebook) for name, notebook in notebooks.items()}


def _grading(cell: NotebookNode, where: str, points: Mapping[str, int]) -> dict[str, Any] | None:
    """nbgrader's metadata of a cell; None for a plain one."""
    ours = {key: value for key, value in cell.metadata.items() if key in OUR_KEYS}
    if unknown := sorted(set(cell.metadata) - OUR_KEYS - {"lines_to_next_cell"}):
        raise NotebookError(f"{where}: {', '.join(unknown)} means nothing here; known are check, answer, points")
    base = {"schema_version": 3, "grade": True, "task": False}
    if set(ours) == {"check"}:
        exercise = ours["check"]
        if exercise not in points:
            raise NotebookError(f"{where}: check={exercise!r}: the syllabus has no such exercise")
        if cell.cell_type != "code" or cell.source != f'check("{exercise}")':
            raise NotebookError(f'{where}: the cell must be exactly check("{exercise}")')
        return {
            **base,
            "grade_id": check_id(exercise),
            "points": points[exercise],
            "locked": True,
            "solution": False,
        }
    if set(ours) == {"answer", "points"}:
        name, worth = ours["answer"], ours["points"]
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
            raise NotebookError(f"{where}: answer={name!r}: a name is small letters with dashes: why-shape")
        if type(worth) is not int or worth < 1:
            raise NotebookError(f"{where}: points={worth!r}: expected a whole number from 1")
        if cell.cell_type != "markdown" or not cell.source.strip():
            raise NotebookError(f"{where}: an answer is a [markdown] cell with a placeholder in it")
        return {**base, "grade_id": f"answer-{name}", "points": worth, "locked": False, "solution": True}
    if ours:
        raise NotebookError(f'{where}: expected check="3.2", or answer="why-shape" points=2')
    return None


def _unique(notebooks: Mapping[str, NotebookNode]) -> None:
    """The marking guide knows answers by name alone, and an exercise is graded once."""
    where: dict[str, str] = {}
    for name, notebook in notebooks.items():
        for grade_id in grade_ids(notebook.cells):
            if grade_id in where:
                raise NotebookError(f"{name}: {grade_id} is in {where[grade_id]} already")
            where[grade_id] = name


def grade_ids(cells: Iterable[NotebookNode]) -> list[str]:
    """The grade_ids of the cells that are graded, in order."""
    return [cell.metadata["nbgrader"]["grade_id"] for cell in cells if "nbgrader" in cell.metadata]
