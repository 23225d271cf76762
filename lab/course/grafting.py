"""A student's work put into a released notebook: the answers by their grade ids, the marks as outputs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from lab.base.html import render
from lab.course.marks import ExerciseMark, SubmissionRecord
from lab.course.notebooks import cut
from lab.course.sent.pictures import placed
from lab.course.sent.shown import shown_folder
from lab.grading.looks import LOOKS
from lab.syllabus.notebooks import check_id
from lab.syllabus.syllabus import syllabus

if TYPE_CHECKING:
    from nbformat import NotebookNode

CHECK = "check-"
TAG = re.compile("<(?=[A-Za-z/!?])")
SEVERAL = "*(This question was answered in several cells; here are all of them.)*"


def grade_id(cell: Any) -> str:
    """Of a graded cell; "" for any other."""
    return str(cell.metadata.get("nbgrader", {}).get("grade_id", ""))


def is_solution(cell: Any) -> bool:
    """Whether a student writes in this cell."""
    return bool(cell.metadata.get("nbgrader", {}).get("solution", False))


def exercise_of(cell: Any) -> str:
    """The exercise whose check cell this is; "" for any other cell."""
    name = grade_id(cell)
    return next((exercise for exercise in (one.id for one in syllabus().every) if check_id(exercise) == name), "")


def answer(record: SubmissionRecord, name: str, book: str, placeholder: str) -> str | None:
    """What the student answered; None where nothing was.

    Of several texts, those in the notebook of the right name come first; others, of copies, may be the newer.

    Args:
        name: the cell's grade id.
        book: the notebook's file name, "1_model.ipynb".
        placeholder: what the cell says before it is answered.
    """
    said = [
        (PurePosixPath(path).name, text.strip())
        for path, text in record.answers.get(name, [])
        if text.strip() and _plain(text) != _plain(placeholder)
    ]
    texts = list(dict.fromkeys(text for _, text in sorted(said, key=lambda one: one[0] != book)))
    if not texts:
        return None
    return texts[0] if len(texts) == 1 else cut("\n\n---\n\n".join([SEVERAL, *texts]))


def graft(notebook: NotebookNode, record: SubmissionRecord, book: str) -> None:
    """Put the answers into the cells of the released notebook that are for them; nothing else changes."""
    from nbformat import NotebookNode

    for cell in notebook.cells:
        if is_solution(cell):
            said = answer(record, grade_id(cell), book, cell.source)
            if said is not None:
                if cell.cell_type != "markdown":
                    cell.source = said
                    continue
                text, pictures = placed(said, record.pictures.get(grade_id(cell), {}))
                cell.source = no_markup(text)
                if pictures:
                    cell.attachments = NotebookNode(pictures)


def no_markup(text: str) -> str:
    """Markdown in which no HTML is left: nbgrader's pages, the formgrader too, would run a student's <script>.

    Behind a < that could begin a tag comes a space without width: it then begins none, and looks as it did, in
    code too.
    """
    return TAG.sub("<\u200b", text)


def put_marks(notebook: NotebookNode, marks: Iterable[ExerciseMark]) -> None:
    """Give every check cell the outputs that nbgrader reads its points from, below a card for people."""
    from nbformat.v4 import new_output

    by_id = {mark.exercise: mark for mark in marks}
    for cell in notebook.cells:
        mark = by_id.get(exercise_of(cell))
        if mark is None:
            continue
        cell.execution_count = None
        shown = {
            "text/html": render("nbgrader.html", mark=mark, looks=LOOKS),
            "text/plain": _in_words(mark),
        }
        # The last line of a cell is a number: that many points. An open mark has none (see SaveMarks).
        points = f"{mark.points or 0.0:g}"
        cell.outputs = [
            new_output("display_data", data=shown),
            new_output("execute_result", data={"text/plain": points}, execution_count=None),
        ]


def put_measured(notebook: NotebookNode, record: SubmissionRecord) -> None:
    """Let every cell that shows measurements show those that were handed in, as the lab reads them."""
    from nbformat.v4 import new_output

    for cell in notebook.cells:
        folder = shown_folder(cell.source) if cell.cell_type == "code" else ""
        if table := record.measured.get(folder):
            cell.outputs = [new_output("display_data", data={"text/plain": table})]


def _in_words(mark: ExerciseMark) -> str:
    lines = [f"{mark.exercise} {mark.title}: {mark.word}, {mark.points_text}"]
    for finding in mark.diagnoses:
        lines += [f"  saw    {finding.saw}", f"  means  {finding.means}", f"  look   {finding.look}"]
    lines += [f"  {said}" for said in (mark.parts_text, mark.off_text) if said]
    return "\n".join(lines)


def structure(record: SubmissionRecord, books: dict[str, list[str]]) -> list[str]:
    """What is unusual about the notebooks of a submission, for remarks.

    Args:
        books: file name of a released notebook -> grade ids of its cells.
    """
    found: list[str] = []
    by_name: dict[str, list[tuple[str, str]]] = {}
    for path, cells in record.notebooks.items():
        by_name.setdefault(PurePosixPath(path).name, []).extend(cells)
    everywhere = {name for cells in by_name.values() for name, _ in cells}
    for book, names in books.items():
        if book not in by_name:
            other = [path for path, cells in by_name.items() if {name for name, _ in cells} & set(names)]
            found.append(f"{book} is missing" + (f"; its cells were found in {', '.join(other)}" if other else ""))
            continue
        present = [name for name, _ in by_name[book]]
        if len(names) > 1 and not present:
            found.append(f"{book} was saved without the lab's cell names: its answers were found by their place")
            continue
        kinds = dict(by_name[book])
        for name in names:
            if present.count(name) > 1:
                found.append(f"{book}: {name} is there {present.count(name)} times")
            elif name not in present:
                where = " (found in another notebook)" if name in everywhere else ""
                found.append(f"{book}: {name} was deleted{where}")
            elif kinds[name] != ("code" if name.startswith(CHECK) else "markdown"):
                found.append(f"{book}: {name} is a {kinds[name]} cell now")
    return found


def _plain(text: str) -> str:
    return " ".join(text.split())
