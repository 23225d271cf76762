"""The notebooks of a submission: which graded cells they hold, and the free-text answers in them.

A notebook of a student's is data here, never run. Cells are known by their grade id, wherever they have been moved
and whatever their type is now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lab.base.words import encodable
from lab.course.contents import Unusable

MAX_ANSWER = 30_000  # characters of one answer: a spreadsheet's cell holds 32,767, and cuts what it saves
MAX_CELLS = 2_000
ANSWER = "answer-"  # how the grade ids of the free-text answers begin

Cells = dict[str, list[tuple[str, str]]]  # path of the notebook -> (grade id, type) of its graded cells
Answers = dict[str, list[tuple[str, str]]]  # grade id -> (path of the notebook, text)


def read_notebooks(notebooks: Mapping[str, bytes | int]) -> tuple[Cells, Answers, list[str]]:
    """The graded cells and the answers of all notebooks, and remarks on those that cannot be read."""
    cells: Cells = {}
    answers: Answers = {}
    remarks: list[str] = []
    for path, content in sorted(notebooks.items()):
        book = encodable(path)
        try:
            found = _cells(content)
        except Unusable as error:
            remarks.append(f"{book} {error}")
            continue
        cells[book] = []
        for cell in found:
            grade_id = _grade_id(cell)
            if grade_id is None:
                continue
            cells[book].append((grade_id, str(cell.get("cell_type"))[:20]))
            if _is_answer(cell, grade_id):
                answers.setdefault(grade_id, []).append((book, _source(cell)))
    return cells, answers, remarks


def _cells(content: bytes | int) -> list[dict[str, Any]]:
    if isinstance(content, int):
        raise Unusable(f"is too large to be read ({content >> 20} MB)")
    try:
        notebook = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise Unusable(f"is damaged: {str(error) or type(error).__name__}") from error
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise Unusable("is no notebook of the format 4")
    return [cell for cell in cells[:MAX_CELLS] if isinstance(cell, dict)]


def _grade_id(cell: dict[str, Any]) -> str | None:
    metadata = cell.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
    if not isinstance(name, str) or not name:
        # A cell pasted without its metadata keeps its own id, which is the grade id.
        name = cell.get("id")
        if not isinstance(name, str) or not name.startswith(ANSWER):
            return None
    return encodable(name[:100])


def _is_answer(cell: dict[str, Any], grade_id: str) -> bool:
    metadata = cell.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    return grade_id.startswith(ANSWER) or (isinstance(nbgrader, dict) and nbgrader.get("solution") is True)


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    return cut(encodable(source if isinstance(source, str) else "").replace("\r\n", "\n").replace("\x00", ""))


def cut(said: str) -> str:
    """No more of an answer than MAX_ANSWER."""
    return said if len(said) <= MAX_ANSWER else said[:MAX_ANSWER] + "\n\n(the rest was cut off)"
