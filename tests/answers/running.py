"""Runs the checks of an answer's exercise as the lab does, only shorter."""

import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from answers.entries import Answer

from lab.grading.diagnosis import Failed, Outcome, Passed
from lab.grading.suite import checks_of, run_check
from lab.syllabus.syllabus import syllabus


def first_outcome(answer: Answer, folder: Path) -> Outcome:
    """The outcome of the first check that the answer does not pass: the headline. The rest is not run."""
    code = answer.install(folder)
    for check in checks_of(syllabus()[answer.exercise]):
        outcome = run_check(check, code).outcome
        if not isinstance(outcome, Passed):
            return outcome
    return Passed()


@contextmanager
def drawn_from(seed: str) -> Iterator[None]:
    """The checks draw everything anew each time; in here, the same for the same seed."""
    state = random.getstate()
    random.seed(seed)
    with mock.patch.object(secrets, "token_hex", lambda size: "ab" * size):
        try:
            yield
        finally:
            random.setstate(state)


def told(outcome: Outcome) -> str:
    """The name of the diagnosis; or "passed", "not started", "blocked", or the text of a lab error."""
    if isinstance(outcome, Failed):
        return outcome.diagnosis.name
    return getattr(outcome, "text", outcome.word)
