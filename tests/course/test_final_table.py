"""The final table: exercises, answers and lateness together, and what learning platforms import of it."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from lab.base.errors import UserError
from lab.cli import main
from lab.course import store
from lab.course.books import Books, GradedCell
from lab.course.final.rows import FinalRow, final_rows
from lab.course.final.tables import final_csv, platform_tables
from lab.course.final.write import course_with, write_final
from lab.course.marking_table import given_points
from lab.course.marks import ExerciseMark, OutcomeRecord, SubmissionRecord
from lab.course.outputs import write_all
from lab.course.people.booking import Booked
from lab.course.people.lateness import ClassRules
from lab.syllabus.syllabus import syllabus

ZOE = "Zo\u00eb M\u00fcller"
BOOKS: Books = {
    "1_model.ipynb": [
        GradedCell("answer-a", 2.0, True, "Why?", "*here*"),
        GradedCell("check-1-1", 8.0, False, "", ""),
    ],
    "2_setup.ipynb": [GradedCell("answer-b", 3.0, True, "How?", "*here*")],
}


def record(student: str, points: float | None = 8.0, **more: object) -> SubmissionRecord:
    mark = ExerciseMark("1.1", "t", points, 8, OutcomeRecord("t", "passed"))
    return replace(SubmissionRecord(student, "k", (mark,)), **more)  # type: ignore[arg-type]


def rows_of(
    *records: SubmissionRecord,
    rules: ClassRules | None = None,
    given: dict[tuple[str, str], str] | None = None,
    booked: dict[str, dict[str, Booked]] | None = None,
) -> dict[str, FinalRow]:
    rows = final_rows(records, BOOKS, rules or ClassRules(), given or {}, booked or {})
    return {row.person.id: row for row in rows}


def points_table(folder: Path, text: str) -> ClassRules:
    (folder / "points.csv").write_text(text)
    return ClassRules.load({"points": str(folder / "points.csv")})


def test_a_course_has_points_of_its_own(tmp_path: Path):
    rules = points_table(tmp_path, "exercise;points\n1.1;12\nanswer-a;1,5\n")
    rows = rows_of(record("ada", 4.0), rules=rules, given={("a", "ada"): "2", ("b", "ada"): "3"})
    assert (rows["ada"].exercises, rows["ada"].answers, rows["ada"].of) == (6.0, 4.5, 16.5)
    rows = rows_of(record("ada"), rules=points_table(tmp_path, "id,points\n1.1,0\n"))
    assert (rows["ada"].exercises, rows["ada"].of) == (0.0, 5.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id;points\n1.1;\n", ":2: columns id and points are needed"),
        ("id;points\n1.1;many\n", ":2: many is no number of points for 1.1"),
        ("id;points\n1.1;-1\n", ":2: -1 is no number of points for 1.1"),
        ("id;points\n1.1;1\n1.1;2\n", ":3: 1.1 is there twice"),
    ],
)
def test_a_table_of_points_that_cannot_be_used_is_said(tmp_path: Path, text: str, said: str):
    with pytest.raises(UserError) as error:
        points_table(tmp_path, text)
    assert said in str(error.value)


def test_points_for_what_is_not_there_are_refused(tmp_path: Path):
    store.save(tmp_path, record("ada"))
    (tmp_path / "points.csv").write_text("id;points\n1.2;3\n1.1;3\n")
    store.class_rules(tmp_path, {"points": str(tmp_path / "points.csv")})
    with pytest.raises(UserError, match=r"--points: lab has no 1\.2; it has 1\.1, "):
        write_final(tmp_path, None, lambda _: None)


def test_exercises_and_answers_less_a_penalty_make_the_total(tmp_path: Path):
    rules = ClassRules.load({"due": "2026-05-01T12:00Z", "late": "10% a day"})
    given = {("a", "ada"): "2", ("b", "ada"): "1,5", ("a", "bob"): "0", ("b", "bob"): ""}
    late = "2026-05-02T12:30:00+00:00"
    rows = rows_of(
        record("ada", handed_in=late), record("bob", handed_in=late), record("eve", None), rules=rules, given=given
    )
    ada = rows["ada"]
    assert (ada.exercises, ada.answers, ada.penalty, ada.total, ada.of) == (8, 3.5, 2.3, 9.2, 13)
    assert ada.is_final
    bob = rows["bob"]
    assert (bob.earned, bob.total, bob.waits) == (8, 6.4, ("1 answer to mark",))
    assert not bob.is_final
    assert rows["eve"].waits[:2] == ("1.1 could not be checked", "2 answers to mark")
    assert rows["eve"].waits[2].startswith("not known when it was handed in")


def test_what_a_person_has_marked_in_the_gradebook_counts_first():
    marked, auto, waiting = (Booked(2.0, 2.0, True, False), Booked(0, 3, False, False), Booked(0, 3, False, True))
    booked = {
        "ada": {"answer-a": marked, "answer-b": auto, "check-1-1": Booked(6.0, 8.0, True, False), "own": marked},
        "bob": {
            "answer-a": Booked(0, 2, False, False),
            "answer-b": waiting,
            "check-1-1": Booked(8, 8, False, False),
        },
    }
    rows = rows_of(record("ada"), record("bob"), given={("a", "ada"): "1", ("b", "bob"): "3"}, booked=booked)
    ada = rows["ada"]
    assert (ada.exercises, ada.answers, ada.of, ada.waits) == (6, 4, 15, ())
    assert ada.notes == (
        "1.1 was changed in the gradebook to 6",
        "a: 2 in the gradebook, 1 in answers.csv; the first counts",
    )
    assert (rows["bob"].answers, rows["bob"].waits) == (3, ())  # marked in the table alone


@pytest.mark.parametrize(
    ("text", "waits", "note"),
    [("two", ("1 answer to mark",), "two is no number of points for a"), ("5", (), "5 points of 2 for a")],
)
def test_points_that_cannot_be_right_are_noted(text: str, waits: tuple[str, ...], note: str):
    row = rows_of(record("ada"), given={("a", "ada"): text, ("b", "ada"): "1"})["ada"]
    assert row.waits == waits
    assert row.notes == (f"answers.csv: {note}",)


def roster(tmp_path: Path, text: str) -> ClassRules:
    (tmp_path / "roster.csv").write_text(text, encoding="utf-8")
    return ClassRules.load({"roster": str(tmp_path / "roster.csv")})


def parsed(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


CLASS = (
    "id,first name,last name,e-mail,platform id\n"
    "zmueller,Zo\u00eb,M\u00fcller,zoe@uni.edu,4711\nbob,Bob,Adams,b@x,7\n"
)


def test_who_has_not_handed_in_is_in_the_table_and_has_no_grade(tmp_path: Path):
    rules = roster(tmp_path, CLASS)
    zoe = record("Zo__M_ller-1", name=ZOE)  # handed in before there was a roster
    rows = list(rows_of(zoe, rules=rules, given={("a", zoe.student): "2", ("b", zoe.student): "3"}).values())
    assert [(row.person.name, row.handed_in) for row in rows] == [("Bob Adams", False), (ZOE, True)]
    bob, mueller = parsed(final_csv(rows))
    assert (bob["student"], bob["total"], bob["waits_for"]) == ("bob", "", "not handed in")
    assert (mueller["student"], mueller["name"], mueller["total"]) == ("zmueller", ZOE, "13")
    tables = platform_tables(rows, "Lab")
    assert parsed(tables["moodle"])[1] == {
        "Username": "zmueller", "ID number": "4711", "Email address": "zoe@uni.edu", "First name": "Zo\u00eb",
        "Last name": "M\u00fcller", "Lab": "13",
    }  # fmt: skip
    points, nobody, somebody = parsed(tables["canvas"])
    assert (points["Student"], points["Lab"]) == ("    Points Possible", "13")
    assert (nobody["Student"], nobody["Lab"]) == ("Adams, Bob", "")
    assert (somebody["ID"], somebody["SIS Login ID"]) == ("4711", "zmueller")
    assert list(points) == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Lab"]
    assert parsed(tables["blackboard"])[1] == {
        "Last Name": "M\u00fcller", "First Name": "Zo\u00eb", "Username": "zmueller", "Student ID": "4711",
        "Lab": "13",
    }  # fmt: skip


def test_a_total_that_is_not_final_is_no_grade_on_a_platform(tmp_path: Path):
    rows = list(rows_of(record("bob"), rules=roster(tmp_path, CLASS)).values())
    assert {row["Lab"] for text in platform_tables(rows, "Lab").values() for row in parsed(text)} == {"", "13"}
    assert parsed(platform_tables(rows, "Lab")["moodle"])[0]["Lab"] == ""


def test_canvas_gets_back_its_own_columns(tmp_path: Path):
    rules = roster(
        tmp_path,
        "Student,ID,SIS User ID,SIS Login ID,Section,Old\n    Points Possible,,,,,10\n"
        '"M\u00fcller, Zo\u00eb",4711,s-1,zmueller,Group A,3\n',
    )
    rows = list(
        rows_of(record("zmueller"), rules=rules, given={("a", "zmueller"): "2", ("b", "zmueller"): "3"}).values()
    )
    assert list(parsed(platform_tables(rows, "Lab (99)")["canvas"])[1].values()) == [
        "M\u00fcller, Zo\u00eb", "4711", "s-1", "zmueller", "Group A", "13",
    ]  # fmt: skip


def test_the_table_follows_what_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    marks = tuple(
        ExerciseMark(one.id, one.title, float(one.points), one.points, OutcomeRecord("t", "passed"))
        for one in syllabus().exercises
    )
    out = tmp_path / "grades"
    said = {"answer-why-shape": [("1_model.ipynb", "The batch differs.")]}
    records = [SubmissionRecord("zmueller", "k", marks, answers=said), SubmissionRecord("eve", "k", marks)]
    for one in records:
        store.save(out, one)
    rules, _ = store.class_rules(out, {"roster": str(tmp_path / "roster.csv")} if roster(tmp_path, CLASS) else {})
    write_all(out, records, rules)
    lines: list[str] = []
    write_final(out, None, lines.append)
    assert lines == [
        f"{out}: final.html and final.csv, marking/ to mark by, platforms/ for Moodle, Canvas and Blackboard: "
        "1 of 2 totals are final; 1 of the roster has not handed in"
    ]
    assert (out / "final.csv").read_bytes().startswith(b"\xef\xbb\xbfstudent,")
    page = (out / "final.html").read_text(encoding="utf-8")
    assert f'<a href="feedback/zmueller.html">{ZOE}</a>' in page
    assert "<strong>1 answer to mark</strong>" in page
    assert "Bob Adams" in page.partition("Not handed in")[2]
    marking = (out / "marking" / "zmueller.html").read_text(encoding="utf-8")
    assert '<a href="marking/zmueller.html">mark</a>' in page
    why = marking.partition('id="why-shape"')[2].partition('id="why-local-rank"')[0]
    assert "The batch differs." in why
    assert "<strong>half</strong>: " in why  # of the guide
    assert "model answer" not in (out / "feedback" / "zmueller.html").read_text(encoding="utf-8")
    text = (out / "answers.csv").read_text(encoding="utf-8")
    marked = text.replace("why-shape,zmueller,,2,", "why-shape,zmueller,1.5,2,")
    assert marked != text
    (out / "answers.csv").write_text(marked.replace(",", ",", 1), encoding="utf-8")
    assert given_points(out)[0]["why-shape", "zmueller"] == "1.5"
    assert main(["report", str(out), "--column", "Lab [Total Pts: 153 Score] |1"]) == 0
    assert "2 of 2 totals are final" in capsys.readouterr().out
    [_, zoe] = [
        row for row in parsed((out / "platforms" / "blackboard.csv").read_text()) if row["Username"] != "eve"
    ]
    assert zoe["Lab [Total Pts: 153 Score] |1"] == "101.5"
    assert main(["report", str(out), "--out", str(tmp_path / "x"), "--column", "y"]) == 2
    assert course_with(out) is None
    (out / "answers.csv").write_bytes(b"\x00\x01 no table")
    assert main(["report", str(out)]) == 1
    assert "answers.csv cannot be read as the table of answers" in capsys.readouterr().err
