"""Every answer of the bank gets one verdict, in whatever the checks draw: the same name, at the same line.

pytest tests/answers/test_draws.py -m slow -rP     prints a line for each answer
"""

import random
from collections import Counter
from pathlib import Path

import pytest
from answers.all_answers import ANSWERS
from answers.entries import Answer
from answers.running import first_outcome, told

from lab.grading.diagnosis import Failed

DRAWS = 20


@pytest.mark.slow
@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.id)
def test_an_answer_gets_one_verdict_in_all_draws(answer: Answer, tmp_path: Path):
    random.seed()
    outcomes = [first_outcome(answer, tmp_path) for _ in range(DRAWS)]
    names = Counter(map(told, outcomes))
    places = Counter(one.diagnosis.look.partition("  ")[0] for one in outcomes if isinstance(one, Failed))
    print(answer.id, dict(names), dict(places))
    assert set(names) == {answer.diagnosis or "passed"}
    assert len(places) <= 1, places
