"""A larger class through lab grade: every kind, as folder and as zip, and wrong answers to every exercise."""

from __future__ import annotations

import csv
import shutil

import pytest
from answers.all_answers import WRONG
from class_kinds import ALL, KINDS, expected, install, released, solve

from lab.cli import main
from lab.syllabus.syllabus import Exercise, syllabus

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

DEADLINE = 120.0
ZIPPED = ("perfect", "half", "attack", "cells", "renamed", "noise", "crlf")


def wrong_answers() -> dict[str, tuple[Exercise, str]]:
    """Student -> exercise and diagnosis: two for each exercise, from the bank."""
    found: dict[str, tuple[Exercise, str]] = {}
    for exercise in syllabus().exercises:
        names = list(dict.fromkeys(one.diagnosis for one in WRONG if one.exercise == exercise.id))
        for name in (names[0], names[-1]):
            found[f"wrong-{exercise.id}-{name}"] = (exercise, name)
    return found


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    place = tmp_path_factory.mktemp("class")
    for name, change in KINDS.items():
        change(released(place / "class" / name))
        if name in ZIPPED:
            shutil.make_archive(str(place / "class" / f"{name}-zip"), "zip", place / "class" / name)
    for name, (exercise, diagnosis) in wrong_answers().items():
        folder = released(place / "class" / name)
        solve(folder)
        install(folder, exercise.id, diagnosis)
    options = ["--out", str(place / "grades"), "--jobs", "2", "--deadline", str(DEADLINE)]
    assert main(["grade", str(place / "class"), *options]) == 1  # attack and noise are to be looked at
    rows = list(csv.DictReader((place / "grades" / "marks.csv").open(encoding="utf-8")))
    assert len(rows) >= 30
    return {row["student"]: {name: float(row[name]) for name in ALL} for row in rows}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_gets_its_marks_as_folder_and_as_zip(marks: dict[str, dict[str, float]], name: str):
    assert marks[name] == expected(name)
    if name in ZIPPED:
        assert marks[f"{name}-zip"] == expected(name)


@pytest.mark.parametrize("name", wrong_answers())
def test_a_wrong_answer_costs_its_own_exercise_only(marks: dict[str, dict[str, float]], name: str):
    """Not all of it where some of its parts hold. What builds on it may be blocked, and is paid its parts."""
    exercise, _ = wrong_answers()[name]
    found = marks[name]
    assert found[exercise.id] < ALL[exercise.id]
    builds_on = {exercise.id}
    for other in syllabus().exercises:
        if builds_on & set(other.builds_on):
            builds_on.add(other.id)
    assert {one: points for one, points in found.items() if one not in builds_on} == {
        one: points for one, points in ALL.items() if one not in builds_on
    }
    assert all(0 <= found[one] <= ALL[one] for one in builds_on)
