"""Answers that a person has marked stay marked while they are the same; nbgrader itself asks for them again.

GRADES/marked/<student>.json has a digest of each answer that is in the gradebook.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook, MissingEntry

from lab.base.words import encodable
from lab.course import store
from lab.course.grafting import grade_id
from lab.course.notebooks import ANSWER

FOLDER = "marked"


def marked(db_url: str, assignment: str, student: str) -> set[tuple[str, str]]:
    """(notebook, grade id) of the answers that a person has marked, and nothing waits for.

    To be asked before nbgrader begins with a submission: it then takes the tick "needs manual grade" from
    notebooks that do not lie at the top of it.
    """
    with Gradebook(db_url) as gradebook:
        try:
            submission = gradebook.find_submission(assignment, student)
        except MissingEntry:
            return set()
        grades = [(notebook.name, grade) for notebook in submission.notebooks for grade in notebook.grades]
        return {(book, grade.name) for book, grade in grades if grade.name.startswith(ANSWER) and _done(grade)}


def keep(who: dict[str, Any], notebook: Any, before: set[str], grades: Path) -> None:
    """After nbgrader has saved the grades: what was marked before, and says the same, needs no mark again.

    Args:
        who: db_url, notebook, assignment and student, as nbgrader's preprocessors have it.
        before: the grade ids in this notebook that were marked.
    """
    file = grades / FOLDER / store.file_name(who["student"], ".json")
    known = _read(file)
    now = _digests(notebook)
    same = [name for name in before if name in now and known.get(name) == now[name]]
    if same:
        with Gradebook(who["db_url"]) as gradebook:
            for name in same:
                _grade(gradebook, who, name).needs_manual_grade = False
            gradebook.db.commit()
    if now:
        store.write(file, json.dumps(known | now, indent=1))


def _done(grade: Any) -> bool:
    return grade.manual_score is not None and not grade.needs_manual_grade


def _grade(gradebook: Gradebook, who: dict[str, Any], name: str) -> Any:
    return gradebook.find_grade(name, who["notebook"], who["assignment"], who["student"])


def _digests(notebook: Any) -> dict[str, str]:
    """Grade id -> digest of the answer."""
    return {
        grade_id(cell): hashlib.sha256(encodable(cell.source + _pictures(cell)).encode()).hexdigest()
        for cell in notebook.cells
        if grade_id(cell).startswith(ANSWER) and cell.metadata["nbgrader"]["grade"]
    }


def _pictures(cell: Any) -> str:
    return json.dumps(cell.attachments, sort_keys=True) if "attachments" in cell else ""


def _read(file: Path) -> dict[str, str]:
    """None of them, where the file is damaged: a person looks once more."""
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
