"""lab grade on a small class: marks, resuming, shards and merging, and what a hang costs."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.base.errors import UserError
from lab.cli import main
from lab.course import grade, store
from lab.course.grade import default_out
from lab.course.marks import SubmissionRecord
from lab.course.people.shard import Shard

HANG = 60.0  # seconds that a submission gets here


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A folder with the submissions in class/ and what `lab grade` made of them in grades/."""
    place = tmp_path_factory.mktemp("graded")
    shutil.copytree(root / "solutions", place / "class" / "perfect" / "exercises")
    shutil.copytree(root / "exercises", place / "class" / "untouched" / "exercises")
    hang = place / "class" / "hang" / "exercises"
    shutil.copytree(root / "exercises", hang)
    shutil.copy(root / "solutions" / "ddp_utils.py", hang / "ddp_utils.py")
    (hang / "data.py").write_text("while True:\n    pass\n")
    options = ["--out", str(place / "grades"), "--jobs", "2", "--deadline", str(HANG)]
    assert main(["grade", str(place / "class"), *options]) == 0
    return place


def marks(out: Path) -> dict[str, dict[str, str]]:
    return {row["student"]: row for row in csv.DictReader((out / "marks.csv").open(encoding="utf-8"))}


def again(place: Path, *options: str) -> int:
    return main(["grade", str(place / "class"), "--out", str(place / "grades"), "--deadline", str(HANG), *options])


def test_every_submission_has_its_marks(graded: Path):
    found = marks(graded / "grades")
    assert {student: row["points"] for student, row in found.items()} == {
        "perfect": "100",
        "untouched": "0",
        "hang": "14",  # 4.0 and 4.1, whatever data.py does
    }
    assert {row["to_look"] for row in found.values()} == {""}


def test_running_again_grades_only_what_has_changed(graded: Path, capsys: pytest.CaptureFixture[str]):
    before = {path: path.stat().st_mtime_ns for path in (graded / "grades" / store.FOLDER).iterdir()}
    assert again(graded) == 0
    assert "0 graded, 3 had been graded before and have not changed." in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in (graded / "grades" / store.FOLDER).iterdir()} == before


def test_an_answers_table_with_marks_that_fit_no_answer_is_kept_and_named(
    graded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "grades"
    shutil.copytree(graded / "grades", out)
    assert main(["grade", str(graded / "class"), "--out", str(out), "--deadline", str(HANG)]) == 0
    assert "answers-before" not in capsys.readouterr().out
    (out / "answers.csv").write_text("student;my points\nperfect;2\n")
    assert main(["grade", str(graded / "class"), "--out", str(out), "--deadline", str(HANG)]) == 0
    assert f"{out / 'answers-before-1.csv'}: the answers.csv that was there" in capsys.readouterr().out


def test_shards_of_a_class_merge_to_the_same_marks(graded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each shard takes its own students, whoever else comes, and none is lost. The checks have run before."""

    def known(
        work: list[tuple[str, Path]], *, done: Callable[[SubmissionRecord], None], **options: object
    ) -> None:
        for student, _ in work:
            record = store.load(graded / "grades", student)
            assert record is not None
            done(record)

    def students(folder: Path) -> set[str]:
        return {path.stem for path in (folder / store.FOLDER).iterdir()}

    monkeypatch.setattr(grade, "grade_all", known)
    folders = [tmp_path / str(number) for number in range(1, 6)]  # two have nobody
    for number, folder in enumerate(folders, 1):
        options = ["--out", str(folder), "--shard", f"{number}/5", "--deadline", str(HANG)]
        assert main(["grade", str(graded / "class"), *options]) == 0
        assert not (folder / "marks.csv").exists()
        assert students(folder) == {name for name in marks(graded / "grades") if Shard(number, 5).has(name)}
    assert main(["grade", "--merge", *map(str, folders), "--out", str(tmp_path / "all")]) == 0
    assert (tmp_path / "all" / "marks.csv").read_bytes() == (graded / "grades" / "marks.csv").read_bytes()


def test_every_student_is_in_one_shard_and_stays_there():
    for count in (1, 2, 3, 8):
        shards = [Shard(number, count) for number in range(1, count + 1)]
        of = [{name for name in map(str, range(200)) if shard.has(name)} for shard in shards]
        assert sum(map(len, of)) == len(set().union(*of)) == 200
        assert min(map(len, of)) > 100 / count


def test_a_submission_without_time_is_to_look_at_and_graded_again_only_with_more(
    graded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    shutil.copytree(graded / "class" / "hang", tmp_path / "class" / "hang")
    options = ["grade", str(tmp_path / "class"), "--out", str(tmp_path / "grades"), "--jobs", "1"]
    assert main([*options, "--deadline", "1"]) == 0
    assert "To look at (column to_look of marks.csv): hang\n" in capsys.readouterr().out
    assert "no time was left for 1.1, 2.1" in marks(tmp_path / "grades")["hang"]["to_look"]
    record = store.load(tmp_path / "grades", "hang")
    assert record is not None
    assert record.final(record.key, 1.0)
    assert not record.final(record.key, 2.0)


def test_a_record_that_is_damaged_is_made_anew(graded: Path, tmp_path: Path):
    shutil.copytree(graded / "class" / "untouched", tmp_path / "class" / "untouched")
    store.save(tmp_path / "grades", store.load_all([graded / "grades"])[2])
    [file] = (tmp_path / "grades" / store.FOLDER).iterdir()
    whole = json.loads(file.read_text())
    file.write_text(file.read_text()[:-20])
    assert main(["grade", str(tmp_path / "class"), "--out", str(tmp_path / "grades"), "--jobs", "1"]) == 0
    assert json.loads(file.read_text())["exercises"] == whole["exercises"]


def test_as_many_are_graded_at_once_as_this_process_may_use_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "class" / "alice").mkdir(parents=True)
    asked: list[int] = []

    def grade_all(work: list[tuple[str, Path]], *, jobs: int, **options: object) -> None:
        asked.append(jobs)
        raise UserError("enough")

    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 5, 7}, raising=False)
    monkeypatch.setattr(grade, "grade_all", grade_all)
    assert main(["grade", str(tmp_path / "class"), "--out", str(tmp_path / "grades")]) == 1
    assert asked == [3]


def test_no_grades_are_put_among_the_submissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "class" / "alice").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "class")
    assert default_out(Path(".")) == tmp_path / "grades"
    assert default_out(Path("alice")) == default_out(None) == Path("grades")
    assert main(["grade", ".", "--out", "mine"]) == 2
    assert "mine is inside ., and would be graded as a submission" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say which submissions"),
        (["x", "--shard", "3/2"], "--shard 3/2: expected i/n"),
        (["x", "--shard", "0/2"], "--shard 0/2: expected i/n"),
        (["--merge", "y", "--shard", "1/2"], "--merge takes folders"),
        (["--merge", "y", "--force"], "--merge takes folders"),
        (["--merge", "y", "--jobs", "1"], "--merge takes folders"),
        (["--merge", "y", "--deadline", "9"], "--merge takes folders"),
        (["--merge", "y", "--hand-in"], "--merge takes folders"),
        (["x", "--merge", "y"], "--merge takes folders"),
        (["x", "--hand-in"], "--hand-in is for submissions from elsewhere"),
        (["x", "--jobs", "0"], "--jobs 0: expected more than 0"),
        (["x", "--deadline", "-1"], "--deadline -1.0: expected more than 0"),
        (["nowhere"], "nowhere cannot be read: No such file or directory"),
    ],
)
def test_options_that_make_no_sense_get_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["grade", *arguments]) in (1, 2)
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
