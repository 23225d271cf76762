"""The parts plugged into nbgrader, one by one: dead kernels, open marks, grafted answers."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.api import Gradebook
from nbgrader.utils import determine_grade

from lab.course import nbgrader_glue, store
from lab.course.config import GRADES
from lab.course.grafting import answer, graft, put_marks, structure
from lab.course.marked import marked
from lab.course.marks import ExerciseMark, OutcomeRecord, SubmissionRecord
from lab.course.nbgrader_glue import SaveMarks, SubmissionExporter, SurvivingExecute
from lab.course.submissions import read_submission

RESOURCES: dict[str, Any] = {"nbgrader": {"notebook": "own"}, "metadata": {"path": "."}}


def graded(source: str, grade_id: str, *, solution: bool = False, points: float = 3.0) -> Any:
    nbgrader = {"schema_version": 3, "grade": True, "grade_id": grade_id, "locked": not solution}
    nbgrader |= {"solution": solution, "task": False, "points": points}
    return new_code_cell(source, metadata={"nbgrader": nbgrader})


def test_a_dead_kernel_costs_only_the_cells_that_it_did_not_answer(tmp_path: Path):
    own = {"nbgrader": {"schema_version": 3, "grade": False, "grade_id": "own", "locked": False, "solution": True}}
    own["nbgrader"]["task"] = False
    notebook = new_notebook(
        cells=[
            graded("assert True", "before"),
            new_code_cell("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", metadata=own),
            graded("assert True", "after"),
            graded("", "empty"),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    resources = {"nbgrader": {"notebook": "own"}, "metadata": {"path": str(tmp_path)}}
    done, _ = SurvivingExecute(timeout=60).preprocess(notebook, resources)
    points = [determine_grade(cell)[0] for cell in (done.cells[0], done.cells[2], done.cells[3])]
    assert points == [3.0, 0, 0]


def test_no_kernel_is_started_where_students_write_no_code(monkeypatch: pytest.MonkeyPatch):
    def started(*_: object, **__: object) -> None:
        raise AssertionError("a kernel was started")

    monkeypatch.setattr(SurvivingExecute, "start_new_kernel", started)
    notebook = new_notebook(cells=[new_code_cell("import json"), graded('check("3.2")', "check-3-2")])
    assert SurvivingExecute().preprocess(notebook, dict(RESOURCES)) == (notebook, RESOURCES)


def record(points: float | None, answers: dict[str, list[tuple[str, str]]] | None = None) -> SubmissionRecord:
    word = "passed" if points else "lab error" if points is None else "failed"
    mark = ExerciseMark("3.2", "t", points, 10, OutcomeRecord("t", word), (OutcomeRecord("<b>", word),))
    return SubmissionRecord("alice", "key", (mark,), answers=answers or {})


@pytest.mark.parametrize("points", [0.0, 3.33, 5.0, 10.0])
def test_nbgrader_reads_exactly_these_points_from_a_check_cell(points: float):
    notebook = new_notebook(cells=[graded('check("3.2")', "check-3-2", points=10.0)])
    put_marks(notebook, record(points).exercises)
    assert determine_grade(notebook.cells[0]) == (points, 10.0)
    nbformat.validate(notebook)
    assert "<b>" not in notebook.cells[0].outputs[0]["data"]["text/html"]


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A gradebook in which alice has submitted a notebook with a check and a question."""
    # A new gradebook calls alembic by its name; nbgrader_config.py sees to that in a course.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    url = f"sqlite:///{tmp_path / 'gradebook.db'}"
    with Gradebook(url) as gradebook:
        gradebook.add_assignment("lab")
        gradebook.add_notebook("3_data", "lab")
        gradebook.add_grade_cell("check-3-2", "3_data", "lab", max_score=10, cell_type="code")
        gradebook.add_grade_cell("answer-a", "3_data", "lab", max_score=2, cell_type="markdown")
        gradebook.add_solution_cell("answer-a", "3_data", "lab")
        gradebook.add_student("alice")
        gradebook.add_submission("lab", "alice")
    return url


def test_an_answer_that_was_marked_needs_a_mark_again_only_when_it_has_changed(tmp_path: Path, url: str):
    notebook = new_notebook(cells=[new_markdown_cell("", metadata=graded("", "answer-a", solution=True).metadata)])
    who = {"notebook": "3_data", "assignment": "lab", "student": "alice", "db_url": url}
    saver = SaveMarks()
    saver.record = lambda resources: record(10.0)  # type: ignore[method-assign]
    saver.grades = lambda assignment: tmp_path  # type: ignore[method-assign]

    def graded_again(said: str, mark: float | None = None) -> tuple[float | None, bool]:
        """What the gradebook has then; a person gives the mark afterwards."""
        notebook.cells[0].source = said
        before = marked(url, "lab", "alice")
        saver.marked = lambda who: {name for _, name in before}  # type: ignore[method-assign]
        with Gradebook(url) as gradebook:  # as nbgrader's init_assignment has it for a notebook in another folder
            for grade in gradebook.find_submission_notebook("3_data", "lab", "alice").grades:
                grade.needs_manual_grade = False
            gradebook.db.commit()
        saver.preprocess(notebook, {"nbgrader": who})
        with Gradebook(url) as gradebook:
            grade = gradebook.find_grade("answer-a", "3_data", "lab", "alice")
            found = grade.manual_score, grade.needs_manual_grade
            if mark is not None:
                grade.manual_score, grade.needs_manual_grade = mark, False
                gradebook.db.commit()
            return found

    assert graded_again("one") == (None, True)
    assert graded_again("one", mark=1.5) == (None, True)
    assert graded_again("one") == (1.5, False)
    assert graded_again("two") == (1.5, True)
    assert graded_again("two") == (1.5, True)  # those points are of the first answer
    assert graded_again("two", mark=2.0) == (1.5, True)
    (tmp_path / "marked" / "alice.json").write_text("damaged")
    assert graded_again("two") == (2.0, True)


def test_a_mark_that_is_open_needs_a_person_and_is_no_zero(tmp_path: Path, url: str):
    notebook = new_notebook(cells=[graded('check("3.2")', "check-3-2", points=10.0)])
    who = {"notebook": "3_data", "assignment": "lab", "student": "alice", "db_url": url}
    for points, expected in ((None, (None, True)), (10.0, (10.0, False))):
        put_marks(notebook, record(points).exercises)
        saver = SaveMarks()
        saver.record = lambda resources, points=points: record(points)  # type: ignore[method-assign]
        saver.grades = lambda assignment: tmp_path  # type: ignore[method-assign]
        saver.marked = lambda who: set()  # type: ignore[method-assign]
        saver.preprocess(notebook, {"nbgrader": who})
        with Gradebook(url) as gradebook:
            grade = gradebook.find_grade("check-3-2", "3_data", "lab", "alice")
            assert (grade.auto_score, grade.needs_manual_grade) == expected


@pytest.mark.parametrize("booking", [True, False])
def test_open_marks_are_booked_as_they_are_and_checked_again_only_by_nbgrader_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, booking: bool
):
    submitted = tmp_path / "submitted" / "alice" / "lab"
    submitted.mkdir(parents=True)
    key = read_submission("alice", submitted).key
    store.save(tmp_path / GRADES, replace(record(None), key=key))
    monkeypatch.setattr(nbgrader_glue, "_server", lambda: None)
    monkeypatch.setattr(nbgrader_glue, "assess", lambda submission, server, deadline: record(10.0))
    exporter = SubmissionExporter.__new__(SubmissionExporter)
    exporter.booking = booking
    exporter.course = SimpleNamespace(
        root=tmp_path, submitted_directory="submitted", format_path=lambda *parts: str(tmp_path.joinpath(*parts))
    )
    assert exporter._graded("alice", "lab").points == (0.0 if booking else 10.0)


PLACEHOLDER = "*Write your answer here.*"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], None),
        ([("1_model.ipynb", PLACEHOLDER)], None),
        ([("1_model.ipynb", f"  {PLACEHOLDER}\n")], None),
        ([("1_model.ipynb", " \n ")], None),
        ([("1_model.ipynb", "mine")], "mine"),
        ([("1_model.ipynb", PLACEHOLDER), ("1_model-Copy1.ipynb", "mine")], "mine"),
        ([("1_model.ipynb", "mine"), ("1_model.ipynb", "mine")], "mine"),
        ([("1_model.ipynb", PLACEHOLDER), ("1_model.ipynb", "mine")], "mine"),
    ],
)
def test_the_answer_is_what_the_student_wrote_wherever_it_is(found: list[tuple[str, str]], said: str | None):
    assert answer(record(1.0, {"answer-a": found}), "answer-a", "1_model.ipynb", PLACEHOLDER) == said


def test_two_different_answers_to_a_question_both_come_up():
    found = [("1_model.ipynb", "first"), ("1_model.ipynb", "second")]
    said = answer(record(1.0, {"answer-a": found}), "answer-a", "1_model.ipynb", PLACEHOLDER)
    assert said is not None
    assert said.index("first") < said.index("second")


def test_a_copy_of_the_notebook_with_another_answer_comes_up_behind_the_first():
    found = [("1_model (1).ipynb", "corrected"), ("x/1_model.ipynb", "mine")]
    said = answer(record(1.0, {"answer-a": found}), "answer-a", "1_model.ipynb", PLACEHOLDER)
    assert said is not None
    assert said.index("mine") < said.index("corrected")


def test_grafting_changes_only_cells_that_are_for_answers():
    meta = {"nbgrader": {"grade": True, "grade_id": "answer-a", "solution": True, "points": 2}}
    cells = [new_markdown_cell("text"), new_markdown_cell(PLACEHOLDER, metadata=meta), graded("1", "check-3-2")]
    notebook = new_notebook(cells=cells)
    found = {"answer-a": [("1.ipynb", "mine")], "check-3-2": [("1.ipynb", "10")]}
    graft(notebook, record(1.0, found), "1.ipynb")
    assert [cell.source for cell in notebook.cells] == ["text", "mine", "1"]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("<script>alert(1)</script>", "<\u200bscript>alert(1)<\u200b/script>"),
        ("<IMG SRC=x onerror=alert(1)>", "<\u200bIMG SRC=x onerror=alert(1)>"),
        ("<!-- x --> <?php", "<\u200b!-- x --> <\u200b?php"),
        ("W < 4, 1<2, `a < b`, x <= y", "W < 4, 1<2, `a < b`, x <= y"),
    ],
)
def test_no_answer_brings_html_into_nbgraders_pages(said: str, shown: str):
    meta = {"nbgrader": {"grade": True, "grade_id": "answer-a", "solution": True, "points": 2}}
    notebook = new_notebook(cells=[new_markdown_cell(PLACEHOLDER, metadata=meta)])
    graft(notebook, record(1.0, {"answer-a": [("1.ipynb", said)]}), "1.ipynb")
    assert notebook.cells[0].source == shown


def test_what_is_odd_about_notebooks_is_named():
    has = SimpleNamespace(notebooks={"mine.ipynb": [("a", "markdown")], "b.ipynb": [("b", "code"), ("b", "code")]})
    books = {"a.ipynb": ["a"], "b.ipynb": ["b", "c", "a"], "c.ipynb": ["d"]}
    assert structure(has, books) == [  # type: ignore[arg-type]
        "a.ipynb is missing; its cells were found in mine.ipynb",
        "b.ipynb: b is there 2 times",
        "b.ipynb: c was deleted",
        "b.ipynb: a was deleted (found in another notebook)",
        "c.ipynb is missing",
    ]
