"""Every check as a test: pytest tests/checks --code solutions|exercises|DIR."""

from pathlib import Path

import pytest

from lab.grading.check import CHECKS, Check
from lab.grading.diagnosis import Failed, LabError, NotStarted, Passed
from lab.grading.suite import checks_of, run_check
from lab.syllabus.paths import find_code
from lab.syllabus.syllabus import Exercise, syllabus


def all_checks() -> list:
    return [
        pytest.param(check, id=f"{exercise.id}-{check.name}")
        for exercise in syllabus().every
        for check in checks_of(exercise)
    ]


@pytest.mark.parametrize("check", all_checks())
def test_check(check: Check, code: Path) -> None:
    result = run_check(check, code)
    outcome = result.outcome
    if isinstance(outcome, Passed):
        return
    if isinstance(outcome, Failed):
        lines = "\n".join(outcome.diagnosis.lines)
        pytest.fail(f"{check.exercise} {check.title} [{outcome.diagnosis.name}]\n{lines}", pytrace=False)
    text = f"\n{outcome.text}\n{outcome.details}" if isinstance(outcome, LabError) else ""
    pytest.fail(f"{check.exercise} {check.title}: {outcome.word}{text}", pytrace=False)


@pytest.mark.parametrize("check", all_checks())
def test_the_stub_is_not_started_and_nothing_else(check: Check) -> None:
    outcome = run_check(check, find_code("exercises")).outcome
    assert isinstance(outcome, NotStarted), outcome
    assert outcome.region.rstrip("abcdefgh") == check.exercise


@pytest.mark.parametrize("exercise", syllabus().every, ids=lambda exercise: exercise.id)
def test_every_exercise_has_a_check(exercise: Exercise) -> None:
    assert checks_of(exercise)


def test_every_check_belongs_to_an_exercise_of_its_module():
    all_checks()
    for exercise_id, checks in CHECKS.items():
        module = syllabus()[exercise_id].module
        assert {check.function.__module__ for check in checks} == {f"lab.checks.{module}.checks"}, exercise_id
