"""The whole course through the released nbgrader: each kind of submission gets exactly its marks, both ways."""

from __future__ import annotations

import csv
import html
import json
import shutil
from pathlib import Path
from typing import Any

import class_kinds
import pytest
from class_kinds import ANSWERS, IN_CI
from forbidden import forbidden
from nbgrader.api import Gradebook
from nbgrader_chain import DEADLINE, Course, solved

from lab.cli import main
from lab.course import store
from lab.course.grafting import exercise_of

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """A course after generate, release, fetch, submit, collect, autograde, feedback and export."""
    course = Course(tmp_path_factory.mktemp("chain") / "course")
    course.build_and_release()
    shutil.copytree(course.folder, course.folder.parent / "second")  # for lab grade --course
    course.hand_in(IN_CI)
    course.nbgrader("autograde", "lab")
    course.nbgrader("generate_feedback", "lab", "--student=[km]*")  # those that the tests look at
    course.nbgrader("release_feedback", "lab")
    course.nbgrader("export", "--to=grades.csv")
    return course


@pytest.fixture(scope="module")
def graded(course: Course) -> Path:
    """What `lab grade` makes of the same submissions, some of them zips; nothing is taken from the course."""
    place = course.zipped(course.folder.parent / "class", IN_CI, zips=("half", "renamed", "crlf"))
    out = course.folder.parent / "grades"
    options = ["--out", str(out), "--jobs", "2", "--deadline", str(DEADLINE)]
    assert main(["grade", str(place), *options]) == 0
    return out


def in_gradebook(course: Course) -> dict[str, dict[str, Any]]:
    """Student -> grade id -> its grade."""
    found: dict[str, dict[str, Any]] = {}
    with Gradebook(f"sqlite:///{course.folder / 'gradebook.db'}") as gradebook:
        for submission in gradebook.assignment_submissions("lab"):
            grades = found.setdefault(submission.student_id, {})
            for notebook in submission.notebooks:
                grades |= {grade.name: (grade.auto_score, grade.needs_manual_grade) for grade in notebook.grades}
    return found


def test_nbgrader_gives_every_submission_exactly_its_marks(course: Course):
    found = {
        student: {name[6:].replace("-", "."): score for name, (score, _) in grades.items() if name[:6] == "check-"}
        for student, grades in in_gradebook(course).items()
    }
    assert found == solved(IN_CI)


def test_collecting_warns_of_who_hands_in_under_another_name(course: Course):
    assert "claims to be submitted by perfect but is owned by" in course.said["collect"]


def test_nothing_that_students_must_not_see_was_released(course: Course, root: Path):
    released = course.folder / "exchange" / "scaling-lab" / "outbound" / "lab"
    assert len(list(released.glob("*.ipynb"))) == 8
    assert forbidden(root, released) == []


def test_lab_grade_gives_the_same_marks(graded: Path):
    rows = list(csv.DictReader((graded / "marks.csv").open(encoding="utf-8")))
    found = {row["student"]: {name: float(row[name]) for name in class_kinds.ALL} for row in rows}
    assert found == solved(IN_CI)
    assert {row["student"] for row in rows if row["to_look"]} == {"attack", "noise", "renamed"}


def test_only_answers_that_somebody_wrote_come_up_for_marking(course: Course, graded: Path):
    questions = set(class_kinds.EVERY_ANSWER)
    by_hand = {
        student: {name for name, (_, manual) in grades.items() if manual}
        for student, grades in in_gradebook(course).items()
    }
    assert by_hand == {name: set(ANSWERS[name]) for name in IN_CI}
    for student, grades in in_gradebook(course).items():
        assert {name: grades[name] for name in questions - set(ANSWERS[student])} == dict.fromkeys(
            questions - set(ANSWERS[student]), (0.0, False)
        )
    rows = csv.DictReader((graded / "answers.csv").open(encoding="utf-8"))
    answered = {(row["student"], f"answer-{row['question']}"): row["answer"] for row in rows if row["answer"]}
    assert answered == {(kind, name): said for kind in IN_CI for name, said in ANSWERS[kind].items()}


def grafted(student: str, name: str, placeholder: str) -> str:
    """What a cell must say for whoever marks it: no < that begins a tag."""
    return ANSWERS[student].get(name, placeholder).replace("<s", "<\u200bs").replace("</", "<\u200b/")


def test_the_formgrader_gets_the_answers_in_the_released_notebooks(course: Course):
    for student in IN_CI:
        for book in class_kinds.BOOKS:
            graded = json.loads((course.folder / "autograded" / student / "lab" / book).read_text())
            released = json.loads((course.folder / "release" / "lab" / book).read_text())
            assert [cell["id"] for cell in graded["cells"]] == [cell["id"] for cell in released["cells"]]
            for mine, theirs in zip(graded["cells"], released["cells"], strict=True):
                name = mine["metadata"].get("nbgrader", {}).get("grade_id", "")
                assert "".join(mine["source"]) == grafted(student, name, "".join(theirs["source"]))
                assert bool(mine.get("outputs")) == name.startswith("check-")


def test_feedback_has_the_diagnoses_and_nothing_of_a_student_s_that_could_run(course: Course, graded: Path):
    page = (graded / "feedback" / "mistakes.html").read_text()
    for part in ("93 of 100 points", "every epoch", "train.py:", "8 of 10 points", "6 of 8 points"):
        assert part.lower() in page.lower()
    mine = (graded / "feedback" / "kernel.html").read_text()
    assert "&lt;script&gt;alert(1)" in mine  # the answer is there, as text
    for text in (mine, (course.folder / "feedback" / "kernel" / "lab" / "1_model.html").read_text()):
        assert "=1+1" in text
        assert "<script>alert" not in text
    theirs = (course.folder / "feedback" / "mistakes" / "lab" / "6_training_loop.html").read_text()
    assert "Every epoch comes in the same order" in theirs
    assert "<script src=" not in theirs.lower()  # nothing that the page would wait for
    for tag in ("div", "ul", "table", "tbody", "section", "style"):  # the card is made of what sanitizing leaves
        assert f"&lt;{tag}" not in theirs


def test_what_is_odd_about_a_submission_is_told_and_costs_nothing(graded: Path):
    def page(student: str) -> str:
        return (graded / "feedback" / f"{student}.html").read_text()

    for said in (
        "3_data.ipynb is damaged",
        "2_distributed_setup.ipynb is missing",
        "its cells were found in Model",
    ):
        assert said in page("renamed")
    for said in ("answer-no-sampler was deleted", "answer-why-local-rank is there 2 times", "is a code cell now"):
        assert said in page("cells")


def test_nothing_of_the_attack_stays_or_reached_the_grader(course: Course, graded: Path):
    record = store.load(graded, "attack")
    assert record is not None
    said = [finding.saw for mark in record.exercises for finding in mark.diagnoses]
    assert not [line for line in said if "FOUND" in line]
    assert not list((course.folder / "submitted" / "attack").rglob("*.pyx"))  # the link
    assert "passwd" not in "".join(path.name for path in (course.folder / "autograded").rglob("*"))


def test_the_export_has_the_sums(course: Course):
    rows = csv.DictReader((course.folder / "grades.csv").open(encoding="utf-8"))
    found = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in rows}
    by_hand = sum(cell.points for cells in class_kinds.QUESTIONS.values() for cell in cells if cell.is_answer)
    assert found == {name: (sum(class_kinds.expected(name).values()), 100 + by_hand) for name in IN_CI}


def test_autograde_again_changes_nothing_and_runs_nothing(course: Course):
    before = in_gradebook(course)
    records = course.folder / "grades" / store.FOLDER
    stamps = {path.name: path.stat().st_mtime_ns for path in records.iterdir()}
    course.nbgrader("autograde", "lab", "--force", "--CourseDirectory.student_id=m*")
    assert in_gradebook(course) == before
    assert {path.name: path.stat().st_mtime_ns for path in records.iterdir()} == stamps


def test_lab_grade_puts_the_same_into_a_gradebook_and_only_once(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(course.folder.parent / "instructor"))
    second = Course(course.folder.parent / "second")
    three = ("cells", "renamed", "modules_only")
    place = course.zipped(course.folder.parent / "three", three, zips=("renamed",))
    assert main(["grade", str(place), "--course", str(second.folder), "--jobs", "2"]) == 0
    first, booked = in_gradebook(course), in_gradebook(second)
    assert booked == {student: first[student] for student in three}
    book = json.loads((second.folder / "autograded" / "renamed" / "lab" / "1_model.ipynb").read_text())
    assert "Any batch." in ["".join(cell["source"]) for cell in book["cells"]]
    with Gradebook(f"sqlite:///{second.folder / 'gradebook.db'}") as gradebook:
        grade = gradebook.find_grade("answer-why-shape", "1_model", "lab", "renamed")
        grade.manual_score, grade.needs_manual_grade = 2.0, False
        gradebook.db.commit()
    capsys.readouterr()
    assert main(["grade", str(second.folder / "submitted")]) == 0  # it knows its course
    said = capsys.readouterr().out
    assert "0 graded, 3 had been graded before" in said
    assert "gradebook.db" in said
    assert in_gradebook(second)["renamed"]["answer-why-shape"] == (None, False)  # what was marked stays


def test_check_cells_have_a_card_above_their_points(course: Course):
    import nbformat

    book = nbformat.read(course.folder / "autograded" / "mistakes" / "lab" / "4_wrapping.ipynb", 4)
    cell = next(cell for cell in book.cells if exercise_of(cell) == "4.2")
    card, points = cell.outputs
    assert "failed: precision='bf16'" in html.unescape(card["data"]["text/html"])
    assert points["data"]["text/plain"] == "8"  # of 10: all parts but bf16's
