"""A class with names as people have them, one folder after another, one student alone: nothing gets lost."""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from lab.cli import main
from lab.course import grade, store
from lab.course.marks import ExerciseMark, OutcomeRecord, SubmissionRecord
from lab.course.submissions import read_submission
from lab.syllabus.syllabus import syllabus

ZOE = "Zo\u00eb M\u00fcller"
ROSTER = (
    f"\ufeffid;name;e-mail;platform id\r\nzmueller;{ZOE};zoe@uni.edu;4711\r\nbob;Bob Hope;;\r\nada;Ada L.;;\r\n"
)


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What 1.1 is given to a student; everybody else has 8. No submission is run."""
    of: dict[str, float] = {}

    def grade_all(
        work: Iterable[tuple[str, Path]], *, done: Callable[[SubmissionRecord], None], **options: object
    ) -> None:
        for student, path in work:
            marks = [
                ExerciseMark(
                    one.id, one.title, of.get(student, 8.0) if one.id == "1.1" else 0.0, one.points, passed
                )
                for one in syllabus().exercises
            ]
            done(
                SubmissionRecord(
                    student, read_submission(student, path, parse=False).key, tuple(marks), deadline=180
                )
            )

    passed = OutcomeRecord("t", "passed")
    monkeypatch.setattr(grade, "grade_all", grade_all)
    return of


def hand_in(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name / "exercises").mkdir(parents=True)
        (folder / name / "exercises" / "model.py").write_text(f"# {name}\n")
    return folder


def table(out: Path, name: str = "marks.csv") -> dict[str, dict[str, str]]:
    return {row["student"]: row for row in csv.DictReader((out / name).open(encoding="utf-8"))}


def lab_grade(folder: Path, out: Path, *options: str) -> int:
    return main(["grade", str(folder), "--out", str(out), *options])


def test_names_of_a_roster_are_in_every_table_and_page_and_ids_in_the_files(
    tmp_path: Path, points: dict[str, float], capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "roster.csv").write_text(ROSTER, encoding="utf-8")
    folder = hand_in(tmp_path / "class", unicodedata.normalize("NFD", ZOE), "bob", "eve")
    out = tmp_path / "grades"
    assert lab_grade(folder, out, "--roster", str(tmp_path / "roster.csv")) == 0
    assert {student: row["name"] for student, row in table(out).items()} == {
        "bob": "Bob Hope", "eve": "eve", "zmueller": ZOE,
    }  # fmt: skip
    assert table(out, "report.csv")["zmueller"]["name"] == ZOE
    assert {row["name"] for row in table(out, "answers.csv").values()} == {"Bob Hope", "eve", ZOE}
    assert f"<title>Feedback for {ZOE}</title>" in (out / "feedback" / "zmueller.html").read_text()
    report = (out / "report.html").read_text()
    assert f'<a href="feedback/zmueller.html">{ZOE}</a>' in report
    assert "zmueller (" not in report.replace(f"{ZOE} (zmueller)", "")
    capsys.readouterr()
    assert lab_grade(folder, out) == 0  # it is remembered
    assert f"As before: --roster {tmp_path / 'roster.csv'}" in capsys.readouterr().out
    assert table(out)["zmueller"]["name"] == ZOE
    assert lab_grade(folder, out, "--roster", "none") == 0
    assert ZOE in table(out)  # under the name by which it came, in one spelling


def test_both_spellings_of_a_name_are_one_student(
    tmp_path: Path, points: dict[str, float], capsys: pytest.CaptureFixture[str]
):
    folder = hand_in(tmp_path / "class", ZOE)
    out = tmp_path / "grades"
    store.save(out, SubmissionRecord(unicodedata.normalize("NFD", ZOE), "k", ()))  # as labs before this one did
    assert lab_grade(folder, out) == 0
    assert list(table(out)) == [ZOE]
    assert "is the same person as" in capsys.readouterr().out
    hand_in(folder, unicodedata.normalize("NFD", ZOE))
    assert lab_grade(folder, out) == 1
    assert "is there twice" in capsys.readouterr().err


def test_another_folder_into_the_same_grades_loses_nobody(
    tmp_path: Path, points: dict[str, float], capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "grades"
    assert lab_grade(hand_in(tmp_path / "one", "ada", "bob"), out) == 0
    assert lab_grade(hand_in(tmp_path / "two", "bob", "eve"), out) == 0
    assert list(table(out)) == ["ada", "bob", "eve"]
    said = capsys.readouterr().out
    assert f"still in the tables: ada; to drop one, delete {out}/results/STUDENT.json" in said


def test_one_student_is_graded_alone_and_the_others_marks_stay(
    tmp_path: Path, points: dict[str, float], capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "grades"
    folder = hand_in(tmp_path / "class", "ada", "bob", "eve")
    (tmp_path / "roster.csv").write_text(ROSTER, encoding="utf-8")
    assert lab_grade(folder, out, "--roster", str(tmp_path / "roster.csv")) == 0
    points["ada"] = points["bob"] = points["eve"] = 3.0
    capsys.readouterr()
    assert lab_grade(folder, out, "--student", "Ada L.", "EVE", "--force") == 0
    assert {student: row["1.1"] for student, row in table(out).items()} == {"ada": "3", "bob": "8", "eve": "3"}
    assert "still in the tables" not in capsys.readouterr().out
    assert lab_grade(folder, out, "--student", "mallory") == 1
    assert "holds no submission of mallory; there are ada, bob, eve" in capsys.readouterr().err
    assert lab_grade(folder, out, "--student", "ada", "--shard", "1/2") == 2


@pytest.mark.parametrize("place", ["class/ada", "class/ada/exercises", "submitted/ada", "submitted/ada/lab"])
def test_the_folder_of_one_student_is_refused_with_what_to_type(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
):
    hand_in(tmp_path, "class/ada", "submitted/ada/lab")
    for home in ("class/ada", "submitted/ada/lab"):
        (tmp_path / home / "env").mkdir()
        (tmp_path / home / "exercises" / "data.py").write_text("")
    assert lab_grade(tmp_path / place, tmp_path / "grades") == 1
    above = tmp_path / place.partition("/")[0]
    assert f"lab grade {above} --student ada\n" in capsys.readouterr().err


def test_work_for_another_assignment_is_no_submission_of_this_one(tmp_path: Path, points: dict[str, float]):
    folder = hand_in(tmp_path / "submitted", "ada/lab", "mia/my own folder")
    (folder / "eve" / "hw2" / "problems").mkdir(parents=True)
    (folder / "eve" / "hw2" / "problem1.ipynb").write_text("{}")
    assert lab_grade(folder, tmp_path / "grades") == 0
    assert list(table(tmp_path / "grades")) == ["ada", "mia"]  # whatever is ours is graded, wherever it lies


def test_whose_marks_have_changed_is_said_and_shown(
    tmp_path: Path, points: dict[str, float], capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "grades"
    folder = hand_in(tmp_path / "class", "ada", "bob")
    assert lab_grade(folder, out) == 0
    record = store.load(out, "ada")
    assert record is not None
    store.save(out, replace(record, key="of another lab", lab="0.0 (older)"))
    points["ada"] = 5.5
    capsys.readouterr()
    assert lab_grade(folder, out) == 0
    assert "Other marks than before: ada 1.1 8 -> 5.5 (report.html" in capsys.readouterr().out
    page = (out / "report.html").read_text()
    assert "Whose marks have changed" in page
    assert "0.0 (older) before" in page
    assert "bob" not in page.partition("Whose marks have changed")[2].partition("Most frequent")[0]
    assert lab_grade(folder, out) == 0
    assert "Other marks" not in capsys.readouterr().out
    assert "Whose marks have changed" in (out / "report.html").read_text()  # until it is graded again


def late_class(tmp_path: Path) -> Path:
    return hand_in(tmp_path / "class", "lab_ada_attempt_2026-05-02-10-00-00_hw", "bob", "eve 2026-05-01 09:00")


def test_lateness_is_taken_once_and_an_extension_after_grading_counts(
    tmp_path: Path, points: dict[str, float], capsys: pytest.CaptureFixture[str]
):
    folder, out = late_class(tmp_path), tmp_path / "grades"
    (tmp_path / "roster.csv").write_text(ROSTER, encoding="utf-8")
    due = ["--due", "2026-05-01 12:00", "--late", "2 points a day", "--roster", str(tmp_path / "roster.csv")]
    assert lab_grade(folder, out, *due) == 0  # but nobody knows when bob did: to_look
    found = table(out)
    assert found["bob"]["to_look"].startswith("not known when it was handed in")
    assert (found["bob"]["late"], found["bob"]["penalty"]) == ("", "0")
    ada = {name: found["ada"][name] for name in ("handed_in", "due", "late", "penalty", "points_left")}
    assert list(ada.values()) == ["2026-05-02 10:00", "2026-05-01 12:00", "22 h", "2", "6"]
    assert found["eve 2026-05-01 09:00"]["late"] == ""
    page = (out / "feedback" / "ada.html").read_text()
    assert "<strong>22 h late</strong>. 2 points are taken off (2 points a day), which leaves 6" in page
    (tmp_path / "more.csv").write_text("id,due\nada,+2 days\nmallory,+1 day\n")
    (tmp_path / "times.csv").write_text("id,time\nBob Hope,2026-05-03 11:00\n")
    tables = ["--extensions", str(tmp_path / "more.csv"), "--times", str(tmp_path / "times.csv")]
    capsys.readouterr()
    assert lab_grade(folder, out, *tables) == 0
    said = capsys.readouterr().out
    assert "0 graded, 3 had been graded before" in said
    assert "neither in the roster nor handed in: mallory" in said
    assert (table(out)["ada"]["penalty"], table(out)["bob"]["penalty"]) == ("0", "4")
    assert "(extended)" in (out / "feedback" / "ada.html").read_text()
    assert lab_grade(folder, out, "--due", "none") == 0
    assert table(out)["bob"]["penalty"] == ""
    assert lab_grade(folder, out, "--late", "zero") == 2


def test_that_nobody_s_time_is_known_is_said_once(
    tmp_path: Path, points: dict[str, float], capsys: pytest.CaptureFixture[str]
):
    folder, out = hand_in(tmp_path / "class", "ada", "bob"), tmp_path / "grades"
    assert lab_grade(folder, out, "--due", "2026-05-01 12:00") == 0
    said = capsys.readouterr().out
    assert said.count("It is not known of anybody when they handed in") == 1
    assert "To look at" not in said
    assert [row["to_look"] for row in table(out).values()] == ["", ""]
    assert (out / "report.html").read_text().count("not known") == 1
    hand_in(tmp_path / "class", "eve 2026-05-01 09:00")
    assert lab_grade(folder, out) == 0
    assert "It is not known of anybody" not in capsys.readouterr().out
    assert [bool(row["to_look"]) for row in table(out).values()] == [True, True, False]


def test_of_two_of_one_name_neither_is_graded_alone_until_the_id_tells(
    tmp_path: Path, points: dict[str, float], capsys: pytest.CaptureFixture[str]
):
    folder, out = hand_in(tmp_path / "class", "am", "bm", "bob"), tmp_path / "grades"
    roster = tmp_path / "roster.csv"
    roster.write_text("id,name,email\nam,Anna M\u00fcller,a@uni\nbm,Ben M\u00fcller,b@uni\nbob,Bob Hope,\n")
    assert lab_grade(folder, out, "--roster", str(roster), "--student", "M\u00fcller") == 1
    said = capsys.readouterr().err
    assert (
        "--student M\u00fcller: Anna M\u00fcller (am) and Ben M\u00fcller (bm) are called so: write the id" in said
    )
    assert not (out / "results").exists()
    for name in ("bm", "b@uni", "Ben M\u00fcller", "M\u00fcller, Ben", "ben"):
        assert lab_grade(folder, out, "--student", name, "--force") == 0
        assert list(table(out)) == ["bm"]
    roster.write_text("id,name\nam,Jo Lee\nbm,Jo Lee\n")
    assert lab_grade(folder, out, "--student", "Jo Lee") == 1
    assert "Jo Lee (am) and Jo Lee (bm)" in capsys.readouterr().err


def test_part_two_has_the_roster_of_part_one_until_it_has_its_own(tmp_path: Path):
    one, two = tmp_path / "grades", tmp_path / "grades" / "lab2"
    two.mkdir(parents=True)
    (tmp_path / "roster.csv").write_text(ROSTER, encoding="utf-8")
    (tmp_path / "own.csv").write_text("id\nxy\n")
    store.class_rules(one, {"roster": str(tmp_path / "roster.csv"), "due": "2026-05-01"})
    rules, said = store.class_rules(two, {})
    assert ("zmueller" in rules.roster.people, rules.due) == (True, None)
    assert said == f"--roster {tmp_path / 'roster.csv'}"
    assert store.settings(two) == {}  # another roster of part one counts here too
    store.class_rules(two, {"roster": "none"})
    assert list(store.class_rules(two, {})[0].roster.people) == []
    store.class_rules(two, {"roster": str(tmp_path / "own.csv")})
    assert list(store.class_rules(two, {})[0].roster.people) == ["xy"]
    assert list(store.class_rules(one, {})[0].roster.people) == ["zmueller", "bob", "ada"]
    other = tmp_path / "grades" / "lab3"
    other.mkdir()
    assert list(store.class_rules(other, {})[0].roster.people) == []
