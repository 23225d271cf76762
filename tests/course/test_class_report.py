"""The class report and the feedback page: counts by name, signs beside colours, nothing that could run."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lab.cli import main
from lab.course import store
from lab.course.books import GradedCell
from lab.course.feedback_page import feedback_page, listings
from lab.course.marks import ExerciseMark, OutcomeRecord, SubmissionRecord
from lab.course.report_page import mistakes, mistakes_csv, outcomes_csv, report_page
from lab.syllabus.syllabus import syllabus

EVIL = "<img src=x onerror=alert(1)>\"'</title>\x1b[31m"


def failed(name: str, said: str = "said") -> OutcomeRecord:
    return OutcomeRecord(EVIL, "failed", name, said, f"{name} means {said}", "data.py:1")


def record(student: str, **outcomes: tuple[OutcomeRecord, ...]) -> SubmissionRecord:
    """Exercises by id with _ for the dot; those not named have passed."""
    marks = []
    for exercise in syllabus().exercises:
        checks = outcomes.get(f"e{exercise.id.replace('.', '_')}", (OutcomeRecord("t", "passed"),))
        worst = next((check for check in checks if check.outcome != "passed"), checks[0])
        points = None if worst.outcome == "lab error" else exercise.points * (worst.outcome == "passed")
        marks.append(ExerciseMark(exercise.id, exercise.title, points, exercise.points, worst, checks))
    return SubmissionRecord(student, "key", tuple(marks), remarks=(EVIL,))


def test_mistakes_are_counted_by_name_once_a_student_and_the_most_frequent_come_first():
    records = [record(f"s{n}", e6_1=(failed("no-set-epoch"), failed("no-set-epoch"))) for n in range(3)]
    records.append(record("s3", e3_2=(failed("seed-ignored"),)))
    records.append(record("s4"))
    assert [(one.exercise, one.words, len(one.students)) for one in mistakes(records)] == [
        ("6.1", "no set epoch", 3),
        ("3.2", "seed ignored", 1),
    ]
    rows = list(csv.DictReader(io.StringIO(mistakes_csv(records))))
    assert [(row["diagnosis"], row["students"], row["of"]) for row in rows] == [
        ("no-set-epoch", "3", "5"),
        ("seed-ignored", "1", "5"),
    ]
    assert "3 of 5" in report_page(records)


def test_submissions_that_nobody_could_read_are_no_mistakes_and_no_part_of_the_median():
    lost = tuple(failed("no-module") for _ in range(1))
    unread = [
        replace(record(f"u{n}", **{f"e{one.replace('.', '_')}": lost for one in syllabus().ids}), unread="no zip")
        for n in range(5)
    ]
    records = [record("a"), record("b", e3_2=(failed("seed-ignored"),)), *unread]
    assert [one.name for one in mistakes(records)] == ["seed-ignored"]
    page = report_page(records)
    assert "7 submissions, of which 5 could not be read and do not count in what follows" in page
    assert "half of them have 95 points or more" in page
    assert "1 of 2" in page
    assert page.count("<strong>u0</strong>: no zip") == 1  # to be looked at all the same
    partly = replace(record("c", e3_2=(failed("seed-ignored"),)), unread="could not read data.py")
    assert len(mistakes([partly])) == 1


def test_what_stands_on_another_mistake_is_none_of_its_own():
    blocked = ExerciseMark(
        "3.3", "t", 0, 8, OutcomeRecord("t", "blocked", detail="3.2"), (failed("samples-dropped"),)
    )
    assert mistakes([SubmissionRecord("a", "k", (blocked,))]) == []


def test_the_heat_map_says_with_signs_what_it_says_with_colours():
    records = [record("a", e1_1=(failed("x"),), e2_1=(OutcomeRecord("t", "not started", detail="2.1"),))]
    records.append(record("b", e1_1=(OutcomeRecord("t", "lab error", detail="oops"),)))
    page = report_page(records)
    cells = re.findall(r'<td class="m"[^>]*>(.)<small>([^<]*)</small>', page)
    assert cells[:3] == [("✗", "0"), ("·", "0"), ("✓", "8")]
    assert cells[14] == ("!", "?")
    assert "For you to look at" in page
    assert "the lab could not check 1.1" in page
    head = next(csv.DictReader(io.StringIO(outcomes_csv(records))))
    assert (head["1.1"], head["2.1"], head["2.2"]) == ("failed: x", "not started", "passed")


@pytest.mark.parametrize("student", ["alice", EVIL])
def test_nothing_that_a_student_wrote_is_markup(student: str):
    one = record(student, e1_1=(failed("x", EVIL),), e2_1=(OutcomeRecord(EVIL, "not started", detail=EVIL),))
    books = {"1_model.ipynb": [GradedCell("answer-a", 2.0, True, "Why `x`?", "*here*")]}
    one.answers["answer-a"] = [("1_model.ipynb", EVIL)]
    for page in (feedback_page(one, books), report_page([one])):
        assert "<img" not in page
        assert "<script" not in page
        assert "\x1b" not in page
        assert page.count("</title>") == 1
        assert "default-src 'none'" in page
    assert "&lt;img src=x" in feedback_page(one, books)
    assert "<code>x</code>" in feedback_page(one, books)


def test_the_code_stands_beside_the_marks_with_each_failed_check_at_its_line():
    found = replace(failed("rank-ignored", "every rank drew 43 samples"), title="its own samples")
    one = replace(
        record("alice", e3_2=(found,)),
        code={"data.py": "x = 1 < 2\ny = 2\n", "model.py": "# fine\f\n", "fast.py": "# of the other assignment"},
    )
    data = next(module for module in listings(one) if module.name == "data.py")
    assert data.lines == [(1, "x = 1 < 2", ["3.2 its own samples: every rank drew 43 samples"]), (2, "y = 2", [])]
    assert [module.name for module in listings(one)] == ["model.py", "data.py"]
    page = feedback_page(one, {})
    wrong = '<span id="data.py-1" class="wrong"><i>1</i>x = 1 &lt; 2</span><b>3.2 its own samples: every rank'
    assert wrong in page
    assert "<summary><code>data.py</code>: 1 line to look at</summary>" in page
    assert "<details><summary><code>model.py</code></summary>" in page
    assert "Your code" not in feedback_page(replace(one, code={}), {})  # graded by an older lab


def test_lab_report_reads_shards_and_prints_the_most_frequent(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    store.save(tmp_path / "1", record("a", e6_1=(failed("no-set-epoch"),)))
    store.save(tmp_path / "2", record("b", e6_1=(failed("no-set-epoch"),)))
    assert main(["report", str(tmp_path / "1"), str(tmp_path / "2"), "--out", str(tmp_path / "all")]) == 0
    assert "2 of 2  6.1  no set epoch" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "all").iterdir()} == {"report.html", "report.csv", "mistakes.csv"}
    assert main(["report", str(tmp_path / "nowhere")]) == 1
    assert "holds no graded submissions" in capsys.readouterr().err
