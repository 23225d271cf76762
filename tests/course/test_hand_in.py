"""Submissions from elsewhere into a course, and marks into its gradebook: trouble with one is no other's."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import class_kinds
import pytest

from lab.base.errors import UserError
from lab.cli import main
from lab.course import gradebook, store
from lab.course.assess import record
from lab.course.build import CONFIG
from lab.course.config import config_text
from lab.course.gradebook import Course
from lab.course.marks import SubmissionRecord
from lab.course.outputs import write_all
from lab.course.submissions import find_submissions, read_submission
from lab.syllabus.syllabus import MODULES


@pytest.fixture
def course(tmp_path: Path) -> Course:
    """What Course asks of a course directory, and no more."""
    released = tmp_path / "course" / "release" / "lab"
    released.mkdir(parents=True)
    (released / "1_model.ipynb").write_text("{}")
    (tmp_path / "course" / CONFIG).write_text("")
    return Course(tmp_path / "course")


@pytest.fixture
def handed_in(tmp_path: Path) -> Path:
    folder = tmp_path / "handed-in"
    for name in ("alice", "bob"):
        (folder / name / "exercises").mkdir(parents=True)
        (folder / name / "exercises" / "data.py").write_text(f"# {name}\n")
    return folder


def has(course: Course, student: str) -> str:
    return (course.submitted / student / "lab" / "exercises" / "data.py").read_text()


def test_a_submission_that_cannot_be_read_or_written_is_told_and_the_earlier_one_stays(
    course: Course, handed_in: Path, monkeypatch: pytest.MonkeyPatch
):
    assert course.hand_in(handed_in)[0] == []
    (handed_in / "alice" / "exercises" / "data.py").unlink()
    (handed_in / "alice.zip").write_bytes(b"no zip")
    (handed_in / "alice" / "exercises").rmdir()
    (handed_in / "alice").rmdir()
    (handed_in / "bob" / "exercises" / "data.py").write_text("# bob, later\n")
    [said] = course.hand_in(handed_in)[0]
    assert said.startswith("alice: alice.zip is no zip file that can be read")
    assert said.endswith("what was handed in before stays")
    assert (has(course, "alice"), has(course, "bob")) == ("# alice\n", "# bob, later\n")

    (handed_in / "alice.zip").unlink()
    (handed_in / "alice" / "exercises").mkdir(parents=True)
    (handed_in / "alice" / "exercises" / "data.py").write_text("# alice, later\n")
    write = Course._write

    def full(target: Path, content: bytes | int) -> None:
        if content == b"# alice, later\n":
            raise OSError(28, "No space left on device", str(target))
        write(target, content)

    monkeypatch.setattr(Course, "_write", staticmethod(full))
    (handed_in / "bob" / "exercises" / "data.py").write_text("# bob, last\n")
    [said] = course.hand_in(handed_in)[0]
    assert said.startswith("alice: cannot write")
    assert (has(course, "alice"), has(course, "bob")) == ("# alice\n", "# bob, last\n")
    assert sorted(os.listdir(course.submitted / "alice")) == ["lab", "lab-notes.json"]


@pytest.mark.parametrize("what", ["answers only", "a damaged module"])
def test_modules_that_are_missing_or_damaged_stay_and_what_is_new_counts(
    course: Course, handed_in: Path, what: str
):
    before = handed_in / "alice" / "exercises"
    (before / "model.py").write_text("# model\n")
    (handed_in / "alice" / "a.ipynb").write_text("{}")
    assert course.hand_in(handed_in)[0] == []
    shutil.rmtree(handed_in / "alice")
    with zipfile.ZipFile(handed_in / "alice.zip", "w") as archive:
        archive.writestr("a.ipynb", '{"cells": []}')
        if what == "a damaged module":
            archive.writestr("exercises/data.py", "# alice, later\n")
            archive.writestr("exercises/model.py", "# newer model\n")
    zipped = (handed_in / "alice.zip").read_bytes()
    (handed_in / "alice.zip").write_bytes(zipped.replace(b"# newer model", b"# NEWER model"))  # a wrong checksum
    for _ in range(2):
        [said] = course.hand_in(handed_in)[0]
        assert said.startswith("alice: could not read model.py; " if "module" in what else "alice: no folder with")
        assert "; as handed in before, as the last hand-in lacks them: " in said
        assert said.endswith("model.py")
    lab = course.submitted / "alice" / "lab"
    assert (lab / "exercises" / "model.py").read_text() == "# model\n"
    assert has(course, "alice") == ("# alice, later\n" if what == "a damaged module" else "# alice\n")
    assert (lab / "a.ipynb").read_text() == '{"cells": []}'


@pytest.mark.parametrize("later", ["one module alone", "a new package"])
def test_a_later_hand_in_takes_nobody_s_work_away(course: Course, tmp_path: Path, root: Path, later: str):
    """The corrected train.py alone, or in a package that is otherwise as it was given out."""
    class_kinds.released(tmp_path / "class" / "alice")
    class_kinds.perfect(tmp_path / "class" / "alice")
    assert course.hand_in(tmp_path / "class")[0] == []
    alone = tmp_path / "class" / "alice"
    shutil.rmtree(alone)
    if later == "a new package":
        class_kinds.released(alone)
    (alone / "exercises").mkdir(parents=True, exist_ok=True)
    corrected = (root / "solutions" / "train.py").read_text() + "# corrected\n"
    (alone / "exercises" / "train.py").write_text(corrected)
    for _ in range(2):
        [said] = course.hand_in(tmp_path / "class")[0]
        home = course.submitted / "alice" / "lab"
        found = read_submission("alice", home)
        assert found.modules["train.py"].endswith(b"# corrected\n")
        for name in MODULES:
            if name != "train":
                assert found.modules[f"{name}.py"] == (root / "solutions" / f"{name}.py").read_bytes()
        answers = {name: said for book in found.notebooks.values() for name, said in book.answers}
        assert answers == class_kinds.EVERY_ANSWER
        sentence = (
            "as handed in before, as the last hand-in lacks them: data.py, ddp_utils.py, distributed_utils.py"
        )
        assert any(sentence in one for one in found.look)
        assert sentence in said


def test_measurements_come_into_the_course_and_stay(course: Course, handed_in: Path):
    for folder in ("results", "results-batch"):
        (handed_in / "alice" / folder).mkdir()
        (handed_in / "alice" / folder / "results.csv").write_text(folder)
        (handed_in / "alice" / folder / "other.csv").write_text("")
    assert course.hand_in(handed_in)[0] == []
    lab = course.submitted / "alice" / "lab"
    found = read_submission("alice", lab).results
    assert found == {"results": b"results", "results-batch": b"results-batch"}
    assert not list(lab.rglob("other.csv"))
    shutil.rmtree(handed_in / "alice" / "results")
    assert course.hand_in(handed_in)[0] == []
    assert read_submission("alice", lab).results == found


def test_notebooks_of_one_name_all_come_into_the_course(course: Course, handed_in: Path):
    names = ["copy-1-a.ipynb", "a.ipynb", "x/a.ipynb", "y/a.ipynb", "x/copy-1-a.ipynb"]
    with zipfile.ZipFile(handed_in / "eve.zip", "w") as archive:
        archive.writestr("exercises/data.py", "")
        for name in names:
            archive.writestr(f"notebooks/{name}", name)
    assert course.hand_in(handed_in)[0] == []
    assert {path.read_text() for path in (course.submitted / "eve" / "lab").glob("*.ipynb")} == set(names)


def test_parts_of_a_class_are_graded_only_once_it_is_handed_in(
    course: Course, handed_in: Path, capsys: pytest.CaptureFixture[str]
):
    options = ["grade", str(handed_in), "--course", str(course.folder)]
    assert main([*options, "--shard", "1/2"]) == 2
    assert not course.submitted.exists()
    said = capsys.readouterr().err
    assert f"lab grade {handed_in} --course {course.folder} --hand-in" in said
    assert f"lab grade {course.submitted} --shard 1/2" in said
    (handed_in / "Jonas Müller").mkdir()
    (handed_in / "Jonas Müller" / "data.py").write_text("")
    assert main([*options, "--hand-in"]) == 0
    assert "Jonas Müller is called Jonas_M_ller-e7a6cfc49d in the course" in capsys.readouterr().out
    assert has(course, "bob") == "# bob\n"
    assert main(["grade", str(course.submitted), "--hand-in"]) == 2
    assert "--hand-in is for submissions from elsewhere" in capsys.readouterr().err


def test_two_names_that_become_one_id_are_refused_with_both(
    course: Course, handed_in: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for name in ("Jonas Müller", "Jonas_M_ller-e7a6cfc49d"):
        (handed_in / name / "exercises").mkdir(parents=True)
        (handed_in / name / "exercises" / "data.py").write_text(f"# {name}\n")
    with pytest.raises(UserError, match="Jonas Müller and Jonas_M_ller-e7a6cfc49d would both be"):
        find_submissions(handed_in)
    options = ["grade", str(handed_in), "--course", str(course.folder), "--hand-in"]
    later = handed_in / "Jonas_M_ller-e7a6cfc49d"
    later.rename(tmp_path / "later")
    assert main(options) == 0
    (handed_in / "Jonas Müller").rename(tmp_path / "first")
    (tmp_path / "later").rename(later)
    capsys.readouterr()
    assert main(options) == 1
    assert "Jonas_M_ller-e7a6cfc49d and Jonas Müller would both be" in capsys.readouterr().out
    assert has(course, "Jonas_M_ller-e7a6cfc49d") == "# Jonas Müller\n"


def test_a_record_is_not_replaced_by_one_of_another_name(tmp_path: Path):
    first, second = SubmissionRecord("Jonas Müller", "a", ()), SubmissionRecord("Jonas_M_ller-e7a6cfc49d", "b", ())
    store.save(tmp_path / "a", first)
    store.save(tmp_path / "b", second)
    with pytest.raises(UserError, match="would both be"):
        store.load_all([tmp_path / "a", tmp_path / "b"])
    for refused in (
        lambda: store.save(tmp_path / "a", second),
        lambda: store.load(tmp_path / "a", second.student),
    ):
        with pytest.raises(UserError, match="is of Jonas Müller, and Jonas_M_ller-e7a6cfc49d would replace it"):
            refused()
    assert store.load(tmp_path / "a", "Jonas Müller") == first


def test_a_link_that_was_not_copied_stays_in_the_row(course: Course, handed_in: Path):
    (handed_in / "alice" / "exercises" / "model.py").symlink_to("/etc/passwd")
    assert course.hand_in(handed_in)[0] == []
    home = course.submitted / "alice" / "lab"
    assert "exercises/model.py is a symbolic link, and was left out" in read_submission("alice", home).look
    (handed_in / "alice" / "exercises" / "model.py").unlink()
    assert course.hand_in(handed_in)[0] == []
    assert not any("link" in said for said in read_submission("alice", home).look)


def test_what_could_not_be_read_stands_in_the_row_also_where_the_earlier_one_stays(
    course: Course, handed_in: Path
):
    (handed_in / "eve.zip").write_bytes(b"no zip")
    (handed_in / "zoe.pdf").write_bytes(b"%PDF")

    def look(student: str) -> str:
        return "; ".join(read_submission(student, course.submitted / student / "lab").look)

    for _ in range(2):
        course.hand_in(handed_in)
        assert look("eve").count("eve.zip is no zip file that can be read") == 1
        assert "what was sent: zoe.pdf" in look("zoe")
    shutil.rmtree(handed_in / "alice")
    (handed_in / "alice.zip").write_bytes(b"no zip")
    for _ in range(2):
        course.hand_in(handed_in)
        assert look("alice").count("alice.zip is no zip file that can be read") == 1
        assert "what was handed in before stays" in look("alice")
    (handed_in / "alice.zip").unlink()
    (handed_in / "alice" / "exercises").mkdir(parents=True)
    (handed_in / "alice" / "exercises" / "data.py").write_text("# alice, later\n")
    course.hand_in(handed_in)
    assert "alice.zip" not in look("alice")


def test_who_hands_in_no_notebook_is_known_to_nbgrader(course: Course, handed_in: Path):
    assert course.hand_in(handed_in)[0] == []
    by_hand = course.submitted / "eve" / "lab" / "exercises"
    by_hand.mkdir(parents=True)
    (by_hand / "data.py").write_text("")
    Course(course.folder)
    assert len(list(course.submitted.glob("*/lab/*.ipynb"))) == 3
    (handed_in / "bob" / "1_model.ipynb").write_text("{}")
    assert course.hand_in(handed_in)[0] == []
    assert [path.name for path in (course.submitted / "bob" / "lab").glob("*.ipynb")] == ["1_model.ipynb"]


@pytest.mark.parametrize("shared", [False, True])
def test_marks_are_the_instructor_s_alone_or_the_group_s(tmp_path: Path, shared: bool):
    folder = tmp_path / "course"
    (folder / "instructor").mkdir(parents=True)
    (folder / "instructor" / "marking_guide.md").write_text("")
    (folder / "release" / "lab").mkdir(parents=True)
    (folder / "release" / "lab" / "1_model.ipynb").write_text('{"cells": []}')
    (folder / CONFIG).write_text(config_text({}))
    (folder / "gradebook.db").touch(mode=0o644)
    if shared:
        (folder / "nbgrader_config_local.py").write_text(
            "c = get_config()\nc.CourseDirectory.groupshared = True\n"
        )
    before = os.umask(0)
    try:
        course = Course(folder)
        (tmp_path / "class" / "alice").mkdir(parents=True)
        (tmp_path / "class" / "alice" / "data.py").write_text("")
        assert course.hand_in(tmp_path / "class")[0] == []
        for out in (course.out, tmp_path / "grades"):
            store.save(out, SubmissionRecord("alice", "key", ()))
            write_all(out, [SubmissionRecord("alice", "key", ())])
    finally:
        os.umask(before)

    def modes(top: Path) -> set[int]:
        return {path.stat().st_mode & 0o7777 for path in (top, *top.rglob("*")) if path.is_dir() or path.is_file()}

    assert modes(tmp_path / "grades") == {0o700, 0o600}
    allowed = {0o2770, 0o660} if shared else {0o700, 0o600}
    assert modes(course.out) == allowed
    for name in ("submitted", "autograded", "feedback", "instructor"):
        assert (folder / name).stat().st_mode & 0o7777 == max(allowed)
    assert (folder / "gradebook.db").stat().st_mode & 0o7777 == min(allowed)


def test_a_course_of_an_older_lab_is_graded_and_told(
    course: Course, handed_in: Path, capsys: pytest.CaptureFixture[str]
):
    options = ["grade", str(handed_in), "--course", str(course.folder), "--hand-in"]
    assert main(options) == 0
    said = capsys.readouterr().out
    assert "of an older lab" in said
    assert f"lab course build {course.folder}" in said
    (course.folder / CONFIG).write_text(config_text({}))
    assert main(options) == 0
    assert "of an older lab" not in capsys.readouterr().out


def test_the_grades_of_a_course_go_to_its_own_folder(
    course: Course, handed_in: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["grade", str(handed_in), "--course", str(course.folder), "--out", "elsewhere"]) == 2
    assert f"the grades of a course are in its own folder, {course.out}" in capsys.readouterr().err
    assert not course.submitted.exists()


def test_while_lab_grade_books_nothing_is_checked_again(course: Course):
    assert course._api(5.0).config.SubmissionExporter.booking is True


def test_ctrl_c_ends_booking_though_nbgrader_catches_it(course: Course, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    booked: list[str] = []

    def autograde(assignment: str, student: str, force: bool) -> dict[str, Any]:
        asked.append(student)
        error = {
            "alice": "",
            "bob": "Traceback ...\nValueError: no\n",
            "eve": "Traceback ...\nKeyboardInterrupt\n",
        }
        return {"success": not error[student], "error": error[student]}

    monkeypatch.setattr(Course, "_api", lambda self, deadline: SimpleNamespace(autograde=autograde))
    records = [SubmissionRecord(name, "key", ()) for name in ("alice", "bob", "eve", "zoe")]
    with pytest.raises(KeyboardInterrupt):
        course.book(records, 1.0, booked=lambda record: booked.append(record.student))
    assert asked == ["alice", "bob", "eve"]
    assert booked == ["alice"]
    assert [path.name for path in (course.out / gradebook.BOOKED).iterdir()] == ["alice.txt"]


def test_what_cannot_be_read_is_looked_at_and_graded_all_the_same(course: Course, handed_in: Path):
    for path in handed_in.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (handed_in / "eve.zip").write_bytes(b"no zip")
    said, lost = course.hand_in(handed_in)
    assert "eve" in said[0]
    assert lost == []
    assert main(["grade", str(handed_in), "--course", str(course.folder), "--hand-in"]) == 0


def test_an_answer_in_a_folder_that_is_passed_over_is_told_in_a_course_too(tmp_path: Path):
    class_kinds.released(tmp_path / "course" / "release" / "lab")
    (tmp_path / "course" / CONFIG).write_text("")
    course = Course(tmp_path / "course")
    alice = class_kinds.released(tmp_path / "handed-in" / "alice")
    class_kinds.say(alice, "1_model.ipynb", "answer-why-shape", "The batch differs.")
    for name in ("1_model.ipynb", "exercises/model.py"):
        (alice / "results" / "x").mkdir(parents=True, exist_ok=True)
        (alice / name).rename(alice / "results" / "x" / Path(name).name)
    (alice / "results" / "x" / "model.py").write_text("# mine\n")
    assert course.hand_in(tmp_path / "handed-in")[0] == []
    look = record(read_submission("alice", course.submitted / "alice" / "lab"), [], 180.0, 0.0).look
    assert any("work in folders that are passed over, and not used: results/x/model.py" in said for said in look)
    assert any("it alone answers answer-why-shape: The batch differs." in said for said in look)
