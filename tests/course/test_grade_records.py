"""Records of graded submissions and the tables made of them: nothing lost, nothing computed, nothing mixed up."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import pytest

from lab.base.errors import UserError
from lab.course import store, tables
from lab.course.marks import ExerciseMark, OutcomeRecord, SubmissionRecord


def made(student: str, points: float | None = 6.0) -> SubmissionRecord:
    outcome = OutcomeRecord("t", "passed" if points else "lab error", detail="=x")
    return SubmissionRecord(student, "key", (ExerciseMark("1.1", "t", points, 6, outcome),), remarks=("=1+1",))


def test_a_spreadsheet_computes_nothing_that_a_student_wrote():
    text = tables.marks_csv([made("=cmd|' /C calc'!A0"), made("@x")])
    for row in list(csv.reader(io.StringIO(text)))[1:]:
        assert not [cell for cell in row if cell[:1] in ("=", "@", "+", "-")]


def test_an_open_mark_is_empty_and_said(tmp_path: Path):
    record = made("alice", None)
    row = next(csv.DictReader(io.StringIO(tables.marks_csv([record]))))
    assert row["1.1"] == ""
    assert row["to_look"] == "the lab could not check 1.1"
    assert not record.final("key", 1.0)
    assert made("alice").final("key", 1.0)


def test_records_come_back_as_they_were_and_garbage_is_none(tmp_path: Path):
    record = made("../../alice /\\ \N{SNOWMAN}")
    store.save(tmp_path, record)
    [file] = (tmp_path / store.FOLDER).iterdir()
    assert store.load(tmp_path, record.student) == record
    for garbage in ("", "[]", '{"student": 1}', "[" * 100_000):
        file.write_text(garbage)
        assert store.load(tmp_path, record.student) is None


def test_no_two_students_share_a_file():
    students = ["a b", "a_b", "a/b", "A" * 300, "A" * 301, "..", ".", "x.json", "ä", ""]
    assert len({store.file_name(student, ".json") for student in students}) == len(students)
    assert store.file_name("alice.b-c@d", ".html") == "alice.b-c@d.html"


def test_merging_refuses_what_does_not_belong_together(tmp_path: Path):
    with pytest.raises(UserError, match="holds no graded submissions"):
        store.load_all([tmp_path])
    store.save(tmp_path / "a", made("alice"))
    os.utime(tmp_path / "a" / store.FOLDER / "alice.json", (1, 1))
    other = SubmissionRecord("alice", "other", made("alice").exercises)
    store.save(tmp_path / "b", other)
    with pytest.raises(
        UserError, match=r"alice was graded twice.*a/results/alice\.json is older than .*b/results"
    ):
        store.load_all([tmp_path / "a", tmp_path / "b"])
    store.save(tmp_path / "b", SubmissionRecord("alice", "key", made("alice").exercises, lab="9.9"))
    os.utime(tmp_path / "b" / store.FOLDER / "alice.json", (1, 1))
    store.save(tmp_path / "c", SubmissionRecord("bob", "key", made("bob").exercises))
    with pytest.raises(UserError, match=r"different versions of the lab.*older are .*b/results/alice\.json"):
        store.load_all([tmp_path / "b", tmp_path / "c"])
