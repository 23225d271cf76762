"""Part two as an assignment of its own: released, handed in, graded both ways, and never mixed with part one."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from forbidden import forbidden
from nbgrader.api import Gradebook
from nbgrader_chain import Course

from lab.base.errors import UserError
from lab.base.paths import module_file
from lab.cli import main
from lab.course import store
from lab.course.books import LAB, LAB_TWO, assignment_of, released_books
from lab.course.folders import Notes, read_notes, write_notes
from lab.course.gradebook import Course as OpenedCourse
from lab.course.marks import ExerciseMark, OutcomeRecord, SubmissionRecord
from lab.course.submissions import find_submissions, read_submission
from lab.syllabus.syllabus import PART_TWO, syllabus

FULL = {exercise.id: float(exercise.points) for exercise in syllabus().optional}
OF = syllabus().part_two.points
BOOKS = {"8_fast.ipynb", "9_from_scratch.ipynb"}
ANSWER = "Fewer launches help more."


def solve(home: Path, root: Path) -> None:
    for name in PART_TWO:
        shutil.copyfile(root / "solutions" / module_file(name), home / "exercises" / module_file(name))


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Course:
    """ann has submitted the reference and an answer; what ben hands in is as it was released."""
    course = Course(tmp_path_factory.mktemp("two") / "course")
    course.build_and_release("lab2")
    home = course.folder.parent / "ann"
    shutil.copytree(course.folder / "exchange" / "scaling-lab" / "outbound" / "lab2", home / "lab2")
    solve(home / "lab2", root)
    book = home / "lab2" / "8_fast.ipynb"
    book.write_text(book.read_text().replace("*Write your answer here.*", ANSWER, 1))
    course.nbgrader("submit", "lab2", "--student=ann", cwd=home)
    course.nbgrader("collect", "lab2", "--update")
    shutil.copytree(course.folder / "release" / "lab2", course.folder / "submitted" / "ben" / "lab2")
    (course.folder / "submitted" / "only_one" / "lab").mkdir(parents=True)
    course.nbgrader("autograde", "lab2")
    course.nbgrader("generate_feedback", "lab2", "--student=ann")
    return course


def in_gradebook(course: Course) -> dict[str, dict[str, float | None]]:
    """Student -> exercise -> its points."""
    with Gradebook(f"sqlite:///{course.folder / 'gradebook.db'}") as gradebook:
        return {
            submission.student_id: {
                grade.name[6:].replace("-", "."): grade.auto_score
                for notebook in submission.notebooks
                for grade in notebook.grades
                if grade.name.startswith("check-")
            }
            for submission in gradebook.assignment_submissions("lab2")
        }


@pytest.mark.timeout(900)
def test_nbgrader_gives_the_reference_all_points_of_part_two_and_the_stubs_none(course: Course, root: Path):
    assert in_gradebook(course) == {"ann": FULL, "ben": dict.fromkeys(FULL, 0.0)}
    assert sum(FULL.values()) == OF
    released = course.folder / "exchange" / "scaling-lab" / "outbound" / "lab2"
    assert {path.name for path in released.glob("*.ipynb")} == BOOKS
    assert forbidden(root, released) == []
    with Gradebook(f"sqlite:///{course.folder / 'gradebook.db'}") as gradebook:
        grades = gradebook.find_submission_notebook("8_fast", "lab2", "ann").grades
        assert [grade.name for grade in grades if grade.needs_manual_grade] == ["answer-launch-bound"]
    page = (course.folder / "feedback" / "ann" / "lab2" / "8_fast.html").read_text()
    assert ANSWER in page
    assert "8.4 Capture a step" in page


@pytest.mark.timeout(900)
def test_lab_grade_puts_part_two_into_its_own_tables_and_the_gradebook(
    course: Course, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(course.folder.parent / "instructor"))
    shutil.copytree(root / "exercises", tmp_path / "class" / "carl" / "exercises")
    solve(tmp_path / "class" / "carl", root)
    options = ["--course", str(course.folder), "--assignment", "lab2", "--deadline", "90"]
    assert main(["grade", str(tmp_path / "class"), *options]) == 0
    said = capsys.readouterr().out
    assert "1 graded, 2 had been graded before" in said
    assert "(column to_look of marks.csv): ann\n" in said
    rows = list(csv.DictReader((course.folder / "grades" / "lab2" / "marks.csv").open(encoding="utf-8")))
    assert {row["student"]: {name: float(row[name]) for name in FULL} for row in rows} == in_gradebook(course)
    assert {row["student"]: (row["points"], row["of"]) for row in rows} == {
        "ann": (f"{OF}", f"{OF}"),
        "ben": ("0", f"{OF}"),
        "carl": (f"{OF}", f"{OF}"),
    }
    assert not set(syllabus().ids) & set(rows[0])
    assert not list((course.folder / "grades").glob("*.csv"))  # nothing of part one's
    assert main(["report", str(course.folder / "grades" / "lab2"), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "report.csv").read_text().startswith(f"student,{','.join(FULL)},name\n")


def record(student: str, exercise: str) -> SubmissionRecord:
    mark = ExerciseMark(exercise, "t", 3.0, 3, OutcomeRecord("t", "passed"))
    return SubmissionRecord(student, "key", (mark,))


def test_grades_of_both_parts_are_never_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    one, two = tmp_path / "one", tmp_path / "two"
    store.save(one, record("ann", "1.1"))
    store.save(two, record("ben", "8.1"))
    (tmp_path / "class" / "ann").mkdir(parents=True)
    for options, said in (
        (["--merge", str(one), str(two)], "of lab and of lab2"),
        (["--merge", str(two)], "holds grades of lab2, not of lab"),
        (["--merge", str(one), "--assignment", "lab2"], "holds grades of lab, not of lab2"),
        ([str(tmp_path / "class"), "--out", str(one), "--assignment", "lab2"], "holds grades of lab, not of lab2"),
        ([str(tmp_path / "class"), "--out", str(two)], "holds grades of lab2, not of lab"),
    ):
        out = [] if "--out" in options else ["--out", str(tmp_path / "new")]
        assert main(["grade", *options, *out]) == 1
        assert said in capsys.readouterr().err
    assert not list(tmp_path.rglob("marks.csv"))
    with pytest.raises(UserError, match="of lab and of lab2"):
        assignment_of([record("ann", "1.1"), record("ben", "8.1")])


def test_a_submission_is_read_for_one_assignment_or_the_other(tmp_path: Path, root: Path):
    submitted = tmp_path / "submitted"
    for student, name in (("ann", "lab"), ("ann", "lab2"), ("ben", "lab"), ("carl", "lab2")):
        home = submitted / student / name / "exercises"
        home.mkdir(parents=True)
        (home / ("model.py" if name == "lab" else "fast.py")).write_text("x = 1\n")
    for assignment, students in ((LAB, ["ann", "ben"]), (LAB_TWO, ["ann", "carl"])):
        found = find_submissions(submitted, assignment)
        assert {student: path.name for student, path in found.items()} == dict.fromkeys(students, assignment.name)
        assert list(read_submission("ann", found["ann"], assignment=assignment).modules) == sorted(
            {"lab": ["model.py"], "lab2": ["fast.py"]}[assignment.name]
        )
    missing = read_submission("ben", submitted / "ben" / "lab", assignment=LAB_TWO)
    files = ", ".join(sorted(map(module_file, PART_TWO)))
    assert missing.unread == f"no folder with {files} was found; what was sent: exercises/model.py"
    both = root / "exercises"
    assert read_submission("ann", both).key != read_submission("ann", both, assignment=LAB_TWO).key


def test_notes_on_one_submission_are_not_those_on_the_other(tmp_path: Path):
    one, two = (tmp_path / "submitted" / "ann" / name for name in ("lab", "lab2"))
    one.mkdir(parents=True)
    two.mkdir()
    write_notes(two, Notes("ann", copied=("a link was left out",)))
    assert read_notes(one) is None
    assert read_notes(two) == Notes("ann", copied=("a link was left out",))


def test_questions_belong_to_one_assignment():
    one, two = released_books(), released_books(assignment=LAB_TWO)
    assert set(two) == BOOKS
    assert not set(one) & set(two)


def test_a_course_of_an_older_lab_has_no_part_two(tmp_path: Path):
    (tmp_path / "nbgrader_config.py").write_text("")
    with pytest.raises(UserError, match=r"has no lab2: bring it up to date with `lab course build"):
        OpenedCourse(tmp_path, LAB_TWO)
