"""Ranks run code that nobody has read: whatever they report, a judge ends with a pass or a diagnosis."""

import random
import secrets

import pytest
from replay import Replay

from lab.grading.diagnosis import CheckEnded, Diagnosis
from lab.grading.suite import checks_of
from lab.syllabus.syllabus import syllabus


@pytest.mark.parametrize("exercise", [exercise.id for exercise in syllabus().every])
def test_no_report_breaks_a_judge(exercise: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(secrets, "token_hex", lambda size: "0" * size)
    choose = random.Random(0)
    for check in checks_of(syllabus()[exercise]):
        group = Replay(exercise)
        random.seed(exercise)
        check.function(group)
        group.position = 0
        random.seed(exercise)
        check.function(group)  # the recording itself passes again
        failed = 0
        for _ in range(100):
            group.position, group.damage = 0, choose
            random.seed(exercise)
            try:
                check.function(group)
            except Diagnosis as diagnosis:
                failed += all(diagnosis.lines)
            except CheckEnded as ended:
                pytest.fail(f"{ended.outcome}")
        assert failed > 50
