"""Through nbgrader: pictures, answers beside their cells, measurements reach the marker; questions come later."""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import class_kinds
import pytest
from class_kinds import find, read_book, write_book
from nbgrader.api import Gradebook
from nbgrader_chain import Course

from lab.cli import main

pytestmark = pytest.mark.timeout(900)

MODEL, SHAPE = "1_model.ipynb", "answer-why-shape"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(50)).decode()
TABLE = "| a | b |\n|---|---|\n| 1 | 2 |"
QUESTION = {"grade_id": "answer-mine", "grade": True, "solution": True, "locked": False, "points": 3}
QUESTION |= {"schema_version": 3, "task": False}


def no_modules(folder: Path) -> Path:
    """A released package whose modules need no rank."""
    class_kinds.released(folder)
    for path in (folder / "exercises").glob("*.py"):
        path.write_text("(\n")
    return folder


def below(folder: Path, *cells: dict[str, Any], book: str = MODEL) -> None:
    notebook = read_book(folder, book)
    notebook["cells"] += cells
    write_book(folder, book, notebook)


def text(source: str, **more: Any) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": f"x{len(source)}", "metadata": {}, "source": source, **more}


def ask(folder: Path, said: str) -> None:
    """An instructor's question in the first notebook, and what its cell says."""
    below(folder, text("**Question.** Mine?"), text(said, metadata={"nbgrader": dict(QUESTION)}) | {"id": "mine"})


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """Two have handed in, who need no check, and were graded; feedback was made."""
    course = Course(tmp_path_factory.mktemp("midterm") / "course")
    course.build_and_release()
    ada = no_modules(course.folder / "submitted" / "ada" / "lab")
    pasted = {"attachments": {"plot 1.png": {"image/png": PNG}}}
    below(ada, text(f"My plot ![p](attachment:plot%201.png) and ![q](attachment:gone.png)\n\n{TABLE}", **pasted))
    (ada / "results").mkdir()
    shutil.copy(class_kinds.ROOT / "docs" / "results" / "demo" / "results.csv", ada / "results")
    no_modules(course.folder / "submitted" / "bob" / "lab")
    assert main(["grade", str(course.folder / "submitted"), "--jobs", "1"]) == 0
    course.nbgrader("generate_feedback", "lab", "--student=ada")
    return course


def grade(course: Course, student: str, name: str) -> tuple[float | None, bool]:
    with Gradebook(f"sqlite:///{course.folder / 'gradebook.db'}") as gradebook:
        found = gradebook.find_grade(name, "1_model", "lab", student)
        return found.auto_score, found.needs_manual_grade


def test_pictures_and_answers_beside_their_cells_reach_formgrader_and_feedback(course: Course):
    assert grade(course, "ada", SHAPE) == (None, True)
    assert grade(course, "bob", SHAPE) == (0.0, False)
    page = (course.folder / "feedback" / "ada" / "lab" / "1_model.html").read_text()
    assert f"data:image/png;base64,{PNG}" in page
    assert "(a picture that was not handed in: q gone.png)" in page
    assert "<td>2</td>" in page
    assert ".text_cell_render table" in page


def test_measurements_are_shown_where_the_notebook_shows_them(course: Course):
    book = json.loads((course.folder / "autograded" / "ada" / "lab" / "7_benchmarks.ipynb").read_text())
    shown = {"".join(cell["source"]): cell["outputs"] for cell in book["cells"] if cell.get("outputs")}
    [output] = shown['figures.show_results("results")']
    assert "efficiency" in "".join(output["data"]["text/plain"])
    assert 'figures.show_results("results-batch")' not in shown
    page = html.unescape((course.folder / "feedback" / "ada" / "lab" / "7_benchmarks.html").read_text())
    assert "efficiency" in page


def test_no_secret_is_in_what_is_released(course: Course):
    for folder in ("release", "exchange"):
        assert not list((course.folder / folder).rglob("submission_secret.txt"))


def test_make_course_prints_nothing_of_nbgrader_s_log(course: Course, root: Path):
    target = (root / "Makefile").read_text().partition("\ncourse:")[2].partition("\n\n")[0]
    commands = re.findall(r"/nbgrader (\w[^&\\\n]*)", target)
    assert [command.split()[0] for command in commands] == ["generate_assignment", "release_assignment"]
    assert [course.nbgrader(*command.split()) for command in commands] == ["", ""]


def test_a_question_that_comes_later_is_asked_and_one_that_goes_is_refused(course: Course):
    source, release = course.folder / "source" / "lab", course.folder / "release" / "lab"
    ask(source, "*Write here.*")
    assert main(["course", "build", str(course.folder)]) == 0  # the question stays
    course.nbgrader("generate_assignment", "lab", "--force")
    assert find(read_book(release, MODEL), "answer-mine")
    assert grade(course, "ada", SHAPE) == (None, True)
    assert grade(course, "bob", "answer-mine") == (0.0, False)
    bob = course.folder / "submitted" / "bob" / "lab"
    ask(bob, "Yours.")
    assert main(["grade", str(course.folder / "submitted"), "--jobs", "1"]) == 0
    assert grade(course, "bob", "answer-mine") == (None, True)
    assert grade(course, "bob", SHAPE) == (0.0, False)  # the instructor's words are no answer of bob's

    notebook = read_book(source, MODEL)
    del notebook["cells"][find(notebook, SHAPE)]
    write_book(source, MODEL, notebook)
    before = {path.name: path.read_bytes() for path in release.iterdir() if path.is_file()}
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "generate_assignment", "lab", "--force"],
        cwd=course.folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "answer-why-shape is gone from 1_model.ipynb" in done.stderr
    assert {path.name: path.read_bytes() for path in release.iterdir() if path.is_file()} == before
