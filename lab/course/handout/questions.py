"""`nbgrader generate_assignment` mid-term: new questions come into the gradebook, and the rest is refused in time.

nbgrader's own takes no new question once somebody has handed in, and finds that out when it has deleted the
released assignment. nbgrader_config.py plugs these in.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters import NotebookExporter
from nbgrader.api import Comment, Grade, Gradebook, MissingEntry
from nbgrader.converters import GenerateAssignment
from nbgrader.converters.base import NbGraderException
from nbgrader.preprocessors import SaveCells
from nbgrader.utils import is_grade, is_locked, is_solution, is_task


class CheckedExporter(NotebookExporter):
    """Refuses, before anything is deleted, what the gradebook cannot take any more."""

    def __init__(self, config: Any = None, *, parent: Any = None, **options: Any) -> None:
        super().__init__(config=config, parent=parent, **options)
        if isinstance(parent, GenerateAssignment) and not parent.no_database:
            for folder, books in parent.assignments.items():
                self._refuse(parent, os.path.basename(os.path.normpath(folder)), books)

    def _refuse(self, parent: GenerateAssignment, assignment: str, books: list[str]) -> None:
        """Raises NbGraderException."""
        known = _in_gradebook(parent.coursedir.db_url, assignment)
        if known is None or parent.coursedir.notebook_id != "*":
            return
        now = {Path(path).stem: _in_notebook(Path(path)) for path in books}
        said = [f"{book}.ipynb is new" for book in sorted(now.keys() - known.keys())]
        said += [f"{book}.ipynb is gone" for book in sorted(known.keys() - now.keys())]
        for book in sorted(now.keys() & known.keys()):
            said += [f"{name} is gone from {book}.ipynb" for name in sorted(known[book] - now[book])]
        if said:
            why = (
                f"{assignment} has been handed in, and nbgrader can no longer take this: {'; '.join(said)}. "
                f"Nothing was changed. Undo it in source/{assignment}; new questions in the notebooks that "
                "are there, and other points, can be had at any time"
            )
            parent.log.error(why)
            raise NbGraderException(why)


def _in_gradebook(db_url: str, assignment: str) -> dict[str, set[str]] | None:
    """Notebook -> its graded cells; None while nobody has handed in."""
    with Gradebook(db_url) as gradebook:
        try:
            found = gradebook.find_assignment(assignment)
        except MissingEntry:
            return None
        if not found.submissions:
            return None
        return {book.name: {cell.name for cell in book.source_cells} for book in found.notebooks}


def _in_notebook(path: Path) -> set[str]:
    """The cells that nbgrader would put into the gradebook."""
    kinds = (is_grade, is_solution, is_locked, is_task)
    cells = nbformat.read(path, as_version=4).cells
    return {str(cell.metadata.nbgrader.grade_id) for cell in cells if any(is_kind(cell) for is_kind in kinds)}


class SaveMoreCells(SaveCells):
    """Adds questions to a notebook that was handed in: who has done so has 0 points until handing in again."""

    def _create_notebook(self, nb: Any) -> None:
        try:
            book = self.gradebook.find_notebook(self.notebook_id, self.assignment_id)
        except MissingEntry:
            book = None
        if book is not None and book.submissions:
            self._add(book)
        super()._create_notebook(nb)

    def _add(self, book: Any) -> None:
        there = {
            "grade": {cell.name for cell in book.grade_cells},
            "solution": {cell.name for cell in book.solution_cells},
            "task": {cell.name for cell in book.task_cells},
            "source": {cell.name for cell in book.source_cells},
        }
        for kind, known in there.items():
            for name, info in getattr(self, f"new_{kind}_cells").items():
                if name in known:
                    continue
                add = getattr(self.gradebook, f"add_{kind}_cell")
                cell = add(name, self.notebook_id, self.assignment_id, **info)
                for submitted in book.submissions:
                    if kind in ("grade", "task"):
                        self.gradebook.db.add(
                            Grade(cell_id=cell.id, notebook=submitted, auto_score=0.0, needs_manual_grade=False)
                        )
                    if kind in ("solution", "task"):
                        self.gradebook.db.add(Comment(cell_id=cell.id, notebook=submitted))
        self.gradebook.db.commit()
