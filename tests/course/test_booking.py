"""Names and lateness in nbgrader's gradebook: people's names, and a penalty once for all notebooks."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nbformat.v4 import new_notebook
from nbgrader.api import Gradebook
from nbgrader.plugins import BasePlugin
from traitlets.config import Config

from lab.course import gradebook as booked
from lab.course import store
from lab.course.build import CONFIG
from lab.course.folders import came
from lab.course.gradebook import Course
from lab.course.marks import SubmissionRecord
from lab.course.nbgrader_glue import LatePenalties
from lab.course.people.booking import telling
from lab.course.people.lateness import ClassRules
from lab.course.people.roster import Roster
from lab.course.tables import lateness

ZOE = "Zo\u00eb M\u00fcller"
LATE = "2026-05-02T10:00:00+00:00"


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Eight notebooks; zmueller has 5 points in each of four, and submitted a day after nbgrader's due date."""
    monkeypatch.setattr("nbgrader.api.get_alembic_version", lambda: "any")  # which starts a program to find out
    url = f"sqlite:///{tmp_path / 'gradebook.db'}"
    with Gradebook(url) as gradebook:
        gradebook.add_assignment("lab", duedate="2026-05-01")
        for number in range(8):
            gradebook.add_notebook(f"{number}", "lab")
            gradebook.add_grade_cell("c", f"{number}", "lab", max_score=10, cell_type="code")
        gradebook.add_student("zmueller")
        gradebook.add_submission("lab", "zmueller", timestamp=datetime(2026, 5, 2, 10))
        for number in range(4):
            grade = gradebook.find_grade("c", f"{number}", "lab", "zmueller")
            grade.auto_score = 5.0
        gradebook.db.commit()
    return url


def penalties(db: str) -> list[float]:
    with Gradebook(db) as gradebook:
        submission = gradebook.find_submission("lab", "zmueller")
        return [
            one.late_submission_penalty or 0.0 for one in sorted(submission.notebooks, key=lambda one: one.name)
        ]


class FivePoints(BasePlugin):
    def late_submission_penalty(self, student: str, score: float, seconds: float) -> float:
        assert seconds > 80_000
        return 5.0


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        ({}, [5, 0, 0, 0]),  # nbgrader's due date and the course's plugin
        ({"due": "2026-05-01T12:00+00:00", "late": "7 points a day"}, [5, 2, 0, 0]),
        ({"due": "2026-05-01T12:00+00:00", "late": "50% a day"}, [5, 5, 0, 0]),
        ({"due": "2026-05-03", "late": "zero"}, [0, 0, 0, 0]),
        ({"due": "none"}, [0, 0, 0, 0]),
    ],
)
def test_a_penalty_is_taken_once_from_a_submission_of_eight_notebooks(
    db: str, settings: dict[str, str], taken: list[float]
):
    rules = ClassRules.load(settings)
    record = SubmissionRecord("zmueller", "k", (), handed_in=LATE)
    for number in range(8):  # as `nbgrader autograde` comes to each of them, however often
        late = LatePenalties(config=Config({"AssignLatePenalties": {"plugin_class": FivePoints}}))
        late.rules = lambda assignment: rules  # type: ignore[method-assign]
        late.record = lambda resources: record  # type: ignore[method-assign]
        who = {"notebook": f"{number}", "assignment": "lab", "student": "zmueller", "db_url": db}
        late.preprocess(new_notebook(), {"nbgrader": who})
    assert penalties(db) == [*taken, 0, 0, 0, 0]
    with Gradebook(db) as gradebook:
        assert gradebook.find_submission("lab", "zmueller").late_submission_penalty == sum(taken)


@pytest.fixture
def course(tmp_path: Path, db: str, monkeypatch: pytest.MonkeyPatch) -> Course:
    """A course in whose gradebook everything is already that `lab grade` has graded."""
    released = tmp_path / "release" / "lab"
    released.mkdir(parents=True)
    (released / "1_model.ipynb").write_text("{}")
    (tmp_path / CONFIG).write_text("")
    course = Course(tmp_path)
    api = SimpleNamespace(
        coursedir=SimpleNamespace(db_url=db), autograde=lambda *_, **__: {"success": True, "log": "", "error": ""}
    )
    monkeypatch.setattr(booked.Course, "_api", lambda self, deadline: api)
    return course


def roster(tmp_path: Path) -> str:
    (tmp_path / "roster.csv").write_text(f"id,name,e-mail,platform id\nzmueller,{ZOE},zoe@uni.edu,4711\n")
    return str(tmp_path / "roster.csv")


def test_names_and_what_being_late_costs_today_are_in_the_gradebook(course: Course, db: str, tmp_path: Path):
    record = SubmissionRecord("zmueller", "k", (), handed_in=LATE)
    due = {"due": "2026-05-01T12:00+00:00", "late": "10% a day", "roster": roster(tmp_path)}
    assert course.book([record], 9.0, ClassRules.load(due)) == []
    with Gradebook(db) as gradebook:
        zoe = gradebook.find_student("zmueller")
        known = (zoe.first_name, zoe.last_name, zoe.email, zoe.lms_user_id)
        assert known == ("Zo\u00eb", "M\u00fcller", "zoe@uni.edu", "4711")
    assert sum(penalties(db)) == 2.0
    (tmp_path / "more.csv").write_text("id,due\nzmueller,+3 days\n")
    more = ClassRules.load(due | {"extensions": str(tmp_path / "more.csv")})
    assert course.book([record], 9.0, more) == []  # nothing is graded again, and the penalty is gone
    assert sum(penalties(db)) == 0.0


def test_penalties_of_a_plugin_stay_where_the_lab_decides_nothing(course: Course, db: str):
    with Gradebook(db) as gradebook:
        gradebook.find_submission_notebook("0", "lab", "zmueller").late_submission_penalty = 3.0
        gradebook.db.commit()
    assert course.book([SubmissionRecord("zmueller", "k", ())], 9.0, ClassRules()) == []
    assert penalties(db)[0] == 3.0


LINK = "(Background on this error at: https://sqlalche.me/e/20/e3q8)"


def test_a_locked_gradebook_is_said_to_be_locked(
    course: Course, db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import sqlalchemy

    real = sqlalchemy.create_engine

    def impatient(*args: Any, **options: Any) -> Any:
        return real(*args, **options | {"connect_args": {"timeout": 0.1}})

    monkeypatch.setattr("nbgrader.api.create_engine", impatient)
    other = sqlite3.connect(tmp_path / "gradebook.db")
    other.execute("BEGIN EXCLUSIVE")
    try:
        [said] = course.book([SubmissionRecord("zmueller", "k", ())], 9.0, ClassRules.load({"due": "2026-05-01"}))
    finally:
        other.close()
    assert said == (
        "names and lateness: gradebook.db is locked by another program: close the formgrader's pages, end other "
        "commands of nbgrader, and type the same again"
    )
    assert telling(["Traceback", "OperationalError: (sqlite3.OperationalError) database is locked", LINK]) in said
    assert telling(["ValueError: no", "", LINK]) == "ValueError: no"
    assert telling([]) == "no reason given"


def test_work_that_lies_in_a_course_under_a_former_name_stays_there(course: Course, tmp_path: Path):
    folder = tmp_path / "handed-in"
    (folder / ZOE / "exercises").mkdir(parents=True)
    (folder / ZOE / "exercises" / "model.py").write_text("# 1\n")
    course.hand_in(folder)
    people = Roster.read(Path(roster(tmp_path)))
    assert course.former(people.student) == {"zmueller": ZOE}
    [home] = course.submitted.glob("*/lab")
    record = SubmissionRecord(home.parent.name, "k", (), name=ZOE)
    assert people.person(record.student, record.name).label == f"{ZOE} (zmueller)"
    (course.submitted / "zmueller" / "lab").mkdir(parents=True)
    assert course.former(people.student) == {}


def test_when_something_was_handed_in_goes_with_it_into_a_course(course: Course, tmp_path: Path):
    folder = tmp_path / "handed-in"
    home = folder / "lab_zmueller_attempt_2026-05-02-10-00-00_hw"
    (home / "exercises").mkdir(parents=True)
    (home / "exercises" / "model.py").write_text("# 1\n")
    course.hand_in(folder, {"zmueller": home})
    name, time = came(course.submitted / "zmueller" / "lab", course.submitted)
    assert (name, datetime.fromisoformat(time)) == ("zmueller", datetime(2026, 5, 2, 10).astimezone())
    (course.submitted / "ada" / "lab").mkdir(parents=True)
    (course.submitted / "ada" / "lab" / "timestamp.txt").write_text("2026-05-02 10:00:00.5 UTC\n")
    rules = ClassRules.load({"due": "2026-05-01T10:00+00:00"})
    record = SubmissionRecord(
        "ada", "k", (), handed_in=came(course.submitted / "ada" / "lab", course.submitted)[1]
    )
    assert lateness(record, rules).late == timedelta(days=1, milliseconds=500)
    assert store.settings(course.out) == {}
