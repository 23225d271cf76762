"""What asking why costs before an exercise has passed: the share its own, the list a student's."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader.utils import determine_grade

from lab.cli import main
from lab.course import grade, nbgrader_glue, store
from lab.course.assess import charged, dated
from lab.course.assess import record as record_of
from lab.course.build import CONFIG
from lab.course.config import GRADES
from lab.course.gradebook import Course
from lab.course.grafting import put_marks
from lab.course.marks import ExerciseMark, OutcomeRecord, PartMark, SubmissionRecord
from lab.course.nbgrader_glue import SubmissionExporter
from lab.course.submissions import find_submissions, read_submission
from lab.syllabus.paid import course_text, paid_by_a_stranger, paid_text
from lab.syllabus.syllabus import MODULES, syllabus

NOW = datetime(2026, 5, 1, tzinfo=UTC)
OFF = "points off: asked why before it passed"


def mark(name: str, points: float | None, of: int = 8, **more: object) -> ExerciseMark:
    word = "lab error" if points is None else "passed" if points == of else "failed"
    return ExerciseMark(name, "t", points, of, OutcomeRecord("t", word), **more)  # type: ignore[arg-type]


def made(*marks: ExerciseMark, paid: tuple[str, ...] = ("3.2", "6.1"), **more: object) -> SubmissionRecord:
    return SubmissionRecord("alice", "key", marks, paid=paid, **more)  # type: ignore[arg-type]


def test_what_was_asked_about_has_the_rest_of_its_points_in_hundredths_whatever_was_taken_before():
    before = made(mark("3.2", 8.0), mark("4.1", 8.0), mark("6.1", 3.33), paid=("3.2", "6.1"))
    after = charged(before, 0.25)
    assert after.earned == {"3.2": 6.0, "4.1": 8.0, "6.1": 2.5}
    assert after.points == 16.5
    assert after.charges == [f"3.2: 2 {OFF}", f"6.1: 0.83 {OFF}"]
    assert charged(after, 0.25) == after
    assert charged(after, 0.0) == before
    assert charged(after, 1.0).earned == {"3.2": 0.0, "4.1": 8.0, "6.1": 0.0}
    assert charged(charged(after, 1.0), 0.25) == after


def test_an_open_mark_stays_open_and_nothing_is_taken_of_nothing():
    record = charged(made(mark("3.2", None), mark("6.1", 0.0)), 0.25)
    assert record.earned == {"3.2": None, "6.1": 0.0}
    assert record.charges == []


def test_parts_are_told_as_they_were_found_and_what_is_off_beside_them():
    parts = (PartMark("a", 6, "held"), PartMark("b", 2, "failed"))
    [found] = charged(made(mark("3.2", 6.0, parts=parts)), 1.0).exercises
    assert found.points_text == "0 of 8 points"
    assert found.parts_text == "6 of 8 points: a (6); wrong: b (2)"
    assert found.state == "partly"
    assert found.off_text == f"6 {OFF}"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[paid\n", "cannot be used (Expected ']'"),
        (b"\xff\xfe[\0p\0", "cannot be used (it is no text in UTF-8)"),
        (b"x" * 20_000, "it has more than 16384 bytes"),
        (2_000_000, "has 2000000 bytes, and was not read"),
        (b"a = " + b"[" * 8000 + b"]" * 8000, "nested too deeply"),
        (b"", "no table [paid]"),
        (b"[[paid]]\n3.2 = 1\n", "no table [paid]"),
        (b"paid = '3.2'\n", "no table [paid]"),
        (b'[paid]\n"9.99" = 2026-05-01T00:00:00Z\n', "cost nothing: 9.99"),
        (b"[paid]\n3.2 = 2026-05-01T00:00:00Z\n", "cost nothing: 3"),
        (b'[paid]\n"3.2" = true\n"6.1" = "yes"\n', "cost nothing: 3.2, 6.1"),
        (b'[paid]\n"3.2" = 2026-99-01T00:00:00Z\n', "cannot be used"),
        (b'[paid]\n"\\u001b[31m=1+1" = 1\n', "cost nothing: [31m=1+1"),
        (b"[paid]\n" + b"".join(b"a%d = 1\n" % n for n in range(900)), "a4 and 895 more"),
        (b'[paid]\n"3.2" = ' + b"9" * 9000 + b"\n", "cannot be used"),
    ],
)
def test_a_strangers_list_that_is_none_is_told_and_costs_nothing(content: bytes | int, said: str):
    paid, odd = paid_by_a_stranger(content)
    assert paid == ()
    [sentence] = odd
    assert sentence.startswith("paid.toml ")
    assert said in sentence
    assert sentence.isprintable()
    assert len(sentence) < 400


def test_a_list_is_read_as_the_lab_writes_it_also_from_windows_and_beside_nonsense():
    text = paid_text({"6.1": NOW, "3.2": NOW}).encode()
    assert paid_by_a_stranger(text) == (("3.2", "6.1"), ())
    assert paid_by_a_stranger(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n")) == (("3.2", "6.1"), ())
    assert paid_by_a_stranger(None) == ((), ())
    paid, [odd] = paid_by_a_stranger(text + b"x = 1\n")
    assert paid == ("3.2", "6.1")
    assert odd.endswith("cost nothing: x")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """alice's submission, in which 3.2 was asked about; her own course.toml says what she likes."""
    folder = tmp_path / "class" / "alice" / "exercises"
    folder.mkdir(parents=True)
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"# {name} of alice\n")
    (folder / "paid.toml").write_text(paid_text({"3.2": NOW}))
    (folder / "course.toml").write_text(course_text(0.01))
    return folder


def test_the_list_counts_where_it_lies_in_a_submission_and_a_link_is_to_look_at(work: Path, tmp_path: Path):
    alice = work.parent
    assert read_submission("alice", alice).modules["paid.toml"] == (work / "paid.toml").read_bytes()
    for number in range(80):  # more than are read beside modules
        (work / f"a{number:02}.csv").write_text("x")
    assert "paid.toml" in read_submission("alice", alice).modules
    (alice / "paid.toml").write_text(paid_text({"6.1": NOW}))
    found = read_submission("alice", alice)
    assert found.modules["paid.toml"] == (work / "paid.toml").read_bytes()
    assert "exercises/paid.toml was read; not paid.toml" in found.remarks
    (work / "paid.toml").unlink()
    found = read_submission("alice", alice)
    assert b'"6.1"' in found.modules["paid.toml"]
    assert "paid.toml was read, though it is not beside the modules" in found.remarks
    (alice / "paid.toml").rename(tmp_path / "paid.toml")
    (work / "paid.toml").symlink_to(tmp_path / "paid.toml")
    found = read_submission("alice", alice)
    assert "paid.toml" not in found.modules
    assert found.look == ("exercises/paid.toml is a symbolic link, and was left out",)


def test_the_list_is_one_of_the_single_files_that_platforms_export(work: Path, tmp_path: Path):
    for file in work.iterdir():
        file.rename(tmp_path / "class" / f"eve_12_{len(file.name)}_{file.name}")
    shutil.rmtree(work.parent)
    [(student, path)] = find_submissions(tmp_path / "class").items()
    assert student == "eve_12"
    assert paid_by_a_stranger(read_submission(student, path).modules["paid.toml"]) == (("3.2",), ())


@pytest.fixture
def full_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Submissions are read as they are; every exercise passes."""

    def grade_all(work: list[tuple[str, Path]], *, done: Callable[[SubmissionRecord], None], **_: object) -> None:
        for student, path in work:
            marks = [mark(one.id, float(one.points), one.points) for one in syllabus().exercises]
            done(record_of(read_submission(student, path), marks, 180.0, 0.0))

    monkeypatch.setattr(grade, "grade_all", grade_all)
    monkeypatch.setattr(grade.Sandbox, "require", lambda self: None)


def table(path: Path) -> dict[str, str]:
    [row] = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig")))
    return row


def of_32() -> int:
    return syllabus()["3.2"].points


@pytest.mark.usefixtures("full_marks")
def test_lab_grade_takes_it_from_the_option_and_says_so_wherever_the_points_are(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "grades"
    command = ["grade", str(tmp_path / "class"), "--out", str(out)]
    assert main(command) == 0  # without it nothing is off, though there is a list
    row = table(out / "marks.csv")
    assert (row["points"], row["remarks"].count("off")) == ("100", 0)
    plain = (out / "feedback" / "alice.html").read_text()
    assert main([*command, "--why-costs", "0.25"]) == 0
    off = of_32() / 4
    for _ in range(2):  # the second time remembered
        row = table(out / "marks.csv")
        assert float(row["3.2"]) == of_32() - off
        assert float(row["points"]) == 100 - off
        assert f"3.2: {off:g} {OFF}" in row["remarks"]
        page = (out / "feedback" / "alice.html").read_text()
        assert page.count(f"{off:g} {OFF}") == 2  # above all, and at the exercise
        assert f"3.2: {off:g} {OFF}" in table(out / "final.csv")["notes"]
        assert float(table(out / "final.csv")["exercises"]) == 100 - off
        assert main(command) == 0
        assert "As before: --why-costs 0.25" in capsys.readouterr().out
    assert main([*command, "--why-costs", "none"]) == 0
    assert table(out / "marks.csv")["points"] == "100"
    assert OFF not in (out / "feedback" / "alice.html").read_text()
    assert OFF not in plain


@pytest.mark.usefixtures("full_marks")
def test_a_list_that_is_none_is_to_look_at_only_where_asking_costs_something(work: Path, tmp_path: Path):
    (work / "paid.toml").write_text("[paid")
    command = ["grade", str(tmp_path / "class"), "--out", str(tmp_path / "grades")]
    assert main(command) == 0
    assert "paid.toml" not in table(tmp_path / "grades" / "marks.csv")["to_look"]
    assert main([*command, "--why-costs", "0.25"]) == 0
    row = table(tmp_path / "grades" / "marks.csv")
    assert row["points"] == "100"
    assert "paid.toml cannot be used" in row["to_look"]
    (work / "paid.toml").unlink()
    assert main(command) == 0
    assert table(tmp_path / "grades" / "marks.csv")["to_look"].count("paid.toml") == 0


@pytest.mark.usefixtures("full_marks")
def test_being_late_costs_its_share_of_what_is_left_and_an_extension_counts(work: Path, tmp_path: Path):
    for file, text in (("times", "id;time\nalice;2026-05-02 12:00\n"), ("more", "id;due\nalice;+2 days\n")):
        (tmp_path / f"{file}.csv").write_text(text)
    options = ["--due", "2026-05-01", "--late", "10%", "--times", str(tmp_path / "times.csv")]
    command = ["grade", str(tmp_path / "class"), "--out", str(tmp_path / "grades"), "--why-costs", "0.5"]
    assert main([*command, *options]) == 0
    left = 100 - of_32() / 2
    row = table(tmp_path / "grades" / "marks.csv")
    assert float(row["points"]) == left
    assert float(row["penalty"]) == pytest.approx(left / 10)
    assert main([*command, "--extensions", str(tmp_path / "more.csv")]) == 0
    assert float(table(tmp_path / "grades" / "marks.csv")["points_left"]) == left


@pytest.mark.usefixtures("full_marks")
def test_handing_in_again_with_more_in_the_list_costs_more(work: Path, tmp_path: Path):
    command = ["grade", str(tmp_path / "class"), "--out", str(tmp_path / "grades"), "--why-costs", "1"]
    assert main(command) == 0
    (work / "paid.toml").write_text(paid_text({"3.2": NOW, "6.1": NOW}))
    assert main(command) == 0
    assert float(table(tmp_path / "grades" / "marks.csv")["points"]) == 100 - of_32() - syllabus()["6.1"].points


@pytest.mark.usefixtures("full_marks")
def test_parts_of_a_class_keep_what_they_were_graded_with_unless_it_differs(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    bob = tmp_path / "other" / "bob"
    shutil.copytree(work.parent, bob)
    for folder, share in (("class", "0.25"), ("other", "0.5")):
        command = ["grade", str(tmp_path / folder), "--out", str(tmp_path / f"of-{folder}"), "--why-costs", share]
        assert main(command) == 0
    assert main(["grade", "--merge", str(tmp_path / "of-class"), "--out", str(tmp_path / "one")]) == 0
    assert float(table(tmp_path / "one" / "marks.csv")["points"]) == 100 - of_32() / 4
    both = [
        "grade",
        "--merge",
        str(tmp_path / "of-class"),
        str(tmp_path / "of-other"),
        "--out",
        str(tmp_path / "g"),
    ]
    assert main(both) == 1
    assert "graded with --why-costs 0.25 and 0.5: say which holds" in capsys.readouterr().err
    assert main([*both, "--why-costs", "1"]) == 0
    rows = csv.DictReader((tmp_path / "g" / "marks.csv").open())
    assert [float(row["3.2"]) for row in rows] == [0.0, 0.0]


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """What Course asks of a course directory; it takes a quarter."""
    folder = tmp_path / "course"
    for name in ("release/lab", "instructor"):
        (folder / name).mkdir(parents=True)
    (folder / "release" / "lab" / "1_model.ipynb").write_text("{}")
    (folder / CONFIG).write_text("")
    (folder / "instructor" / "course.toml").write_text(course_text(0.25))
    return folder


@pytest.mark.usefixtures("full_marks")
def test_a_course_has_its_own_share_and_neither_a_student_nor_an_option_another(
    work: Path, tmp_path: Path, course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(Course, "book", lambda *_, **__: [])
    command = ["grade", str(tmp_path / "class"), "--course", str(course)]
    assert main([*command, "--why-costs", "0.5"]) == 2
    assert f"lab course build {course} --why-costs 0.5" in capsys.readouterr().err
    assert main(command) == 0
    assert (course / "submitted" / "alice" / "lab" / "exercises" / "paid.toml").is_file()
    row = table(course / "grades" / "marks.csv")
    assert float(row["points"]) == 100 - of_32() / 4
    (course / "instructor" / "course.toml").write_text("why_costs = 9\n")
    assert main(command) == 1
    assert "9 is no share" in capsys.readouterr().err
    (course / "instructor" / "course.toml").unlink()
    assert main(command) == 0
    assert table(course / "grades" / "marks.csv")["points"] == "100"


def test_what_was_noted_stays_when_a_later_hand_in_lacks_it(work: Path, tmp_path: Path, course: Path):
    home = Course(course)
    assert home.hand_in(tmp_path / "class")[0] == []
    (work / "paid.toml").unlink()
    [said] = home.hand_in(tmp_path / "class")[0]
    assert said == "alice: as handed in before, as the last hand-in lacks them: paid.toml"
    kept = home.submitted / "alice" / "lab" / "exercises" / "paid.toml"
    assert kept.read_text() == paid_text({"3.2": NOW})
    (work / "paid.toml").write_text(paid_text({"6.1": NOW}))
    assert home.hand_in(tmp_path / "class")[0] == []
    assert kept.read_text() == paid_text({"6.1": NOW})


@pytest.mark.parametrize("known", [True, False])
def test_nbgrader_autograde_takes_the_share_of_the_course(
    work: Path, tmp_path: Path, course: Path, monkeypatch: pytest.MonkeyPatch, known: bool
):
    home = course / "submitted" / "alice" / "lab"
    home.mkdir(parents=True)
    work.rename(home / "exercises")
    submission = read_submission("alice", home)
    record = record_of(submission, [mark("3.2", 8.0)], 180.0, 0.0)
    monkeypatch.setattr(nbgrader_glue, "_server", lambda: None)
    monkeypatch.setattr(nbgrader_glue, "assess", lambda *_: record)
    exporter = SubmissionExporter.__new__(SubmissionExporter)
    exporter.course = SimpleNamespace(
        root=course, submitted_directory="submitted", format_path=lambda *parts: str(course.joinpath(*parts))
    )
    if known:  # graded before the course had a price
        store.save(course / GRADES, dated(record, home, home.parent.parent))
    found = exporter._graded("alice", "lab")
    assert found.earned == {"3.2": 6.0}
    notebook = new_notebook(cells=[new_code_cell('check("3.2")', metadata={"nbgrader": GRADED})])
    put_marks(notebook, found.exercises)
    assert determine_grade(notebook.cells[0]) == (6.0, 8.0)
    card = notebook.cells[0].outputs[0]["data"]
    assert f"<li>2 {OFF}</li>" in card["text/html"]
    assert f"  2 {OFF}" in card["text/plain"].splitlines()


GRADED = {
    "schema_version": 3,
    "grade": True,
    "grade_id": "check-3-2",
    "locked": True,
    "solution": False,
    "task": False,
    "points": 8.0,
}


def test_a_record_of_an_older_lab_has_paid_for_nothing(tmp_path: Path):
    record = made(mark("3.2", 8.0), paid=())
    store.save(tmp_path, record)
    file = tmp_path / store.FOLDER / "alice.json"
    text = file.read_text()
    for name in ("paid", "paid_odd", "why_costs", "off"):
        assert f'"{name}"' in text
    import json

    known = json.loads(text)
    for name in ("paid", "paid_odd", "why_costs"):
        del known[name]
    del known["exercises"][0]["off"]
    file.write_text(json.dumps(known))
    assert store.load(tmp_path, "alice") == record
    store.save(tmp_path, replace(charged(made(mark("3.2", 8.0)), 0.25), paid_odd=("x",)))
    assert store.load(tmp_path, "alice").to_look == ["x"]  # type: ignore[union-attr]
