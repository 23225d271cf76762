"""answers.csv: what a marker has written in it is never lost, whatever a spreadsheet makes of the file."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from lab.base.errors import UserError
from lab.course.books import Books, GradedCell
from lab.course.marking_table import CHANGED, UNREAD, deal, given_points, write_answers
from lab.course.marks import SubmissionRecord
from lab.course.notebooks import MAX_ANSWER

BOOKS: Books = {
    "1_model.ipynb": [GradedCell("answer-a", 2.0, True, "Why?", "*here*")],
    "2_setup.ipynb": [
        GradedCell("answer-b", 3.0, True, "How?", "*here*"),
        GradedCell("check-2-1", 8.0, False, "", ""),
    ],
}


def said(student: str, **answers: str) -> SubmissionRecord:
    books = {"a": "1_model.ipynb", "b": "2_setup.ipynb"}
    texts = {f"answer-{name}": [(books[name], text)] for name, text in answers.items()}
    return SubmissionRecord(student, "key", (), answers=texts)


def points(out: Path, column: str = "points") -> dict[str, str]:
    rows = csv.DictReader((out / "answers.csv").open(encoding="utf-8", newline=""))
    return {f"{row['question']}-{row['student']}": row[column] for row in rows}


def mark(out: Path, encoding: str = "utf-8", delimiter: str = ",", newline: str = "\n") -> None:
    """2 points and a remark for every answer that has no mark, saved as some spreadsheet does."""
    with (out / "answers.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        row |= {"points": row["points"] or "2", "remark": "" if row["points"] else "fine"}
        row["answer"] = row["answer"].replace("\n", newline)
    with (out / "answers.csv").open("w", encoding=encoding, newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter=delimiter, lineterminator=newline)
        writer.writeheader()
        writer.writerows(rows)


CLASS = [said("ada", a="two\n\nlines; and, signs", b="=1+1"), said("bob", a="ä", b="*here*")]


def test_every_answer_has_a_row_and_only_what_nobody_wrote_has_points(tmp_path: Path):
    assert write_answers(tmp_path, CLASS, BOOKS) is None
    assert points(tmp_path) == {"a-ada": "", "a-bob": "", "b-ada": "", "b-bob": "0"}
    assert points(tmp_path, "of") == {"a-ada": "2", "a-bob": "2", "b-ada": "3", "b-bob": "3"}
    assert points(tmp_path, "answer")["b-ada"] == "'=1+1"


EXCEL = {"delimiter": ";", "newline": "\r\n"}


@pytest.mark.parametrize("saved", [{}, EXCEL | {"encoding": "utf-8-sig"}, EXCEL | {"encoding": "cp1252"}])
def test_marks_and_columns_of_the_marker_stay_when_more_is_graded(tmp_path: Path, saved: dict[str, str]):
    write_answers(tmp_path, CLASS, BOOKS)
    mark(tmp_path, **saved)
    assert write_answers(tmp_path, [*CLASS, said("eve", b="late")], BOOKS) is None
    assert points(tmp_path) == {
        "a-ada": "2",
        "a-bob": "2",
        "a-eve": "0",
        "b-ada": "2",
        "b-bob": "0",
        "b-eve": "",
    }
    assert points(tmp_path, "remark")["b-ada"] == "fine"
    assert [path.name for path in tmp_path.iterdir()] == ["answers.csv"]


def test_a_row_without_its_last_empty_fields_is_whole(tmp_path: Path):
    write_answers(tmp_path, CLASS, BOOKS)
    mark(tmp_path)
    text = (tmp_path / "answers.csv").read_text()
    short = text.replace("2_setup.ipynb,b,bob,0,3,,\n", "2_setup.ipynb,b,bob,0,3\n")
    assert short != text
    (tmp_path / "answers.csv").write_text(short)
    assert write_answers(tmp_path, CLASS, BOOKS) is None
    assert set(points(tmp_path).values()) == {"2", "0"}


def test_marks_of_the_longest_answers_stay(tmp_path: Path):
    """A cell of more than 32,767 characters is cut off by spreadsheets, and one of 131,072 no CSV to Python."""
    three = [("1_model.ipynb", letter * MAX_ANSWER) for letter in "xyz"]
    long = [SubmissionRecord("ada", "key", (), answers={"answer-a": three})]
    write_answers(tmp_path, long, BOOKS)
    assert len(points(tmp_path, "answer")["a-ada"]) < 32_767
    mark(tmp_path)
    assert write_answers(tmp_path, long, BOOKS) is None
    assert points(tmp_path)["a-ada"] == "2"


def test_a_mark_of_an_answer_that_has_changed_is_kept_apart(tmp_path: Path):
    write_answers(tmp_path, CLASS, BOOKS)
    mark(tmp_path)
    marked = (tmp_path / "answers.csv").read_bytes()
    kept = write_answers(tmp_path, [said("ada", a="something else", b="=1+1"), CLASS[1]], BOOKS)
    assert points(tmp_path) == {"a-ada": "", "a-bob": "2", "b-ada": "2", "b-bob": "0"}
    assert kept == (tmp_path / "answers-before-1.csv", CHANGED)
    assert kept.path.read_bytes() == marked
    assert write_answers(tmp_path, CLASS[1:], BOOKS) == (tmp_path / "answers-before-2.csv", CHANGED)  # ada's marks


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"my own notes\n", b"question,student\n1,2,3\n"])
def test_a_file_that_is_no_such_table_is_kept_apart(tmp_path: Path, content: bytes):
    (tmp_path / "answers.csv").write_bytes(content)
    kept = write_answers(tmp_path, CLASS, BOOKS)
    assert kept is not None
    assert kept.path.read_bytes() == content
    assert kept.why == UNREAD
    assert set(points(tmp_path).values()) == {"", "0"}


def test_answers_that_nobody_has_marked_are_replaced(tmp_path: Path):
    write_answers(tmp_path, CLASS, BOOKS)
    assert write_answers(tmp_path, [said("ada", a="new")], BOOKS) is None
    assert points(tmp_path) == {"a-ada": "", "b-ada": "0"}


def test_questions_are_dealt_out_to_several_markers_and_their_tables_count(tmp_path: Path):
    write_answers(tmp_path, [said(name, a=f"{name} says", b="yes") for name in ("ada", "bob", "eve")], BOOKS)
    dealt = deal(tmp_path, ["ann", "ben"])
    assert {file.name: count for file, count in dealt.items()} == {"answers-ann.csv": 3, "answers-ben.csv": 3}
    for file, points in zip(dealt, ("1", "2,5"), strict=True):
        text = file.read_text(encoding="utf-8")
        assert len({line.split(",")[1] for line in text.splitlines()[1:]}) == 1  # a question has one marker
        file.write_text(text.replace(",,", f',"{points}",'), encoding="cp1252")
    found, sentences = given_points(tmp_path)
    assert (found["a", "ada"], found["b", "eve"], sentences) == ("1", "2,5", [])
    assert write_answers(tmp_path, [said(name, a="new", b="yes") for name in ("ada", "bob", "eve")], BOOKS) is None
    found, sentences = given_points(tmp_path)
    assert (found["a", "ada"], found["b", "eve"]) == ("", "2,5")
    said_so = "3 of its marks are of answers that have changed, and do not count"
    assert sentences == [f"{tmp_path / 'answers-ann.csv'}: {said_so}"]
    (tmp_path / "answers-cid.csv").write_text((tmp_path / "answers-ben.csv").read_text().replace("2,5", "3"))
    assert given_points(tmp_path)[0]["b", "eve"] == "2,5 / 3"  # no number: somebody decides


@pytest.mark.parametrize(
    ("markers", "why"), [(["ann", "ann"], "is there already"), (["../x"], "is no name for a file")]
)
def test_no_marker_s_table_is_written_over(tmp_path: Path, markers: list[str], why: str):
    write_answers(tmp_path, CLASS, BOOKS)
    with pytest.raises(UserError, match=why):
        deal(tmp_path, markers)
    assert [path.name for path in tmp_path.iterdir()] == ["answers.csv"]
