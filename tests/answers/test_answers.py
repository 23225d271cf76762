"""Every wrong answer of the bank is caught by its own diagnosis, in these words; every right one is accepted.

Only the answer's exercise is run, up to the first check that fails. `pytest tests/answers -m slow` runs all
checks, and the other exercises of the same file, with other numbers each time.

    pytest tests/answers --update-golden     writes golden/*.txt and docs/mistakes.md anew, to be read as a diff
    pytest tests/answers --fresh-draws       other numbers in every run, no words compared: is any flaky?
"""

import random
from contextlib import nullcontext
from pathlib import Path

import pytest
from answers import golden, mistakes
from answers.all_answers import ANSWERS, RIGHT, WRONG
from answers.bank import solution
from answers.entries import Answer
from answers.running import drawn_from, first_outcome, told

from lab.grading.diagnosis import Failed, Passed
from lab.grading.explain import exercise_of
from lab.grading.retelling import MORE
from lab.grading.suite import run_exercise
from lab.syllabus.syllabus import Exercise, syllabus

# A wrong answer may spoil another check too: answer -> the diagnoses that follow from its own.
CONSEQUENCES: dict[str, set[str]] = {}


# Of each exercise, so that the bank takes CI two minutes on two cores; the others are slow tests.
OFTEN_RIGHT, OFTEN_WRONG = 4, 12


def often(answers: list[Answer]) -> list[Answer]:
    """Some answers of each exercise for CI, none of them slow, spread over all that its checks say."""
    chosen = []
    for exercise in syllabus().every:
        first: dict[str, Answer] = {}  # of each diagnosis, and every right answer
        for one in answers:
            if one.exercise == exercise.id and not one.slow:
                first.setdefault(one.diagnosis or one.id, one)
        quick, most = list(first.values()), OFTEN_WRONG if answers[0].diagnosis else OFTEN_RIGHT
        count = min(most, len(quick))
        chosen += [quick[i * len(quick) // count] for i in range(count)]
    return chosen


def params(answers: list[Answer]) -> list:
    """All of them; those that CI does not run are marked as slow."""
    quick = {one.id for one in often(answers)}
    return [pytest.param(one, id=one.id, marks=[] if one.id in quick else [pytest.mark.slow]) for one in answers]


@pytest.mark.parametrize("answer", params(RIGHT))
def test_a_right_answer_passes(answer: Answer, tmp_path: Path):
    outcome = first_outcome(answer, tmp_path)
    assert outcome == Passed(), getattr(outcome, "diagnosis", outcome)


@pytest.mark.parametrize("answer", params(WRONG))
def test_a_wrong_answer_gets_its_diagnosis(answer: Answer, tmp_path: Path, request: pytest.FixtureRequest):
    fresh = request.config.getoption("--fresh-draws", False)
    with nullcontext() if fresh else drawn_from(answer.id):
        outcome = first_outcome(answer, tmp_path)
    assert told(outcome) == answer.diagnosis, getattr(outcome, "diagnosis", outcome)
    if fresh:
        return
    assert isinstance(outcome, Failed)
    words = golden.block(answer, outcome.diagnosis)
    if request.config.getoption("--update-golden", False):
        order = [one.name for one in WRONG if one.exercise == answer.exercise]
        golden.write(answer.exercise, golden.read(answer.exercise) | {answer.name: words}, order)
    assert golden.read(answer.exercise).get(answer.name) == words


@pytest.mark.slow
@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.id)
def test_an_answer_sets_off_nothing_else(answer: Answer, tmp_path: Path):
    """With fresh numbers: no other diagnosis in its exercise, and none in those that do not build on it."""
    random.seed()
    code = answer.install(tmp_path)
    own = syllabus()[answer.exercise]
    expected = {answer.diagnosis or "passed"} | CONSEQUENCES.get(answer.id, set())
    outcomes = [check.outcome for check in run_exercise(own, code).checks]
    assert {told(outcome) for outcome in outcomes} <= expected | {"passed"}
    assert answer.diagnosis in [told(outcome) for outcome in outcomes] or not answer.diagnosis
    for other in syllabus().every:
        changed = {exercise_of(region) for region in answer.regions if answer.regions[region] != solution(region)}
        if other.id in changed or not changed.isdisjoint(one.id for one in foundations(other)):
            continue
        if other.module == own.module and other != own and own not in foundations(other):
            assert told(run_exercise(other, code).outcome) == "passed", other.id


def foundations(exercise: Exercise) -> list[Exercise]:
    """What an exercise builds on, and what that builds on."""
    below = [syllabus()[name] for name in exercise.builds_on]
    return below + [deeper for one in below for deeper in foundations(one)]


def test_the_bank_is_large_and_covers_every_exercise():
    assert len(WRONG) >= 60
    assert len(RIGHT) >= 25
    ids = {exercise.id for exercise in syllabus().every}
    assert {answer.exercise for answer in WRONG} == ids
    assert {answer.exercise for answer in RIGHT} == ids


def test_ci_runs_some_of_every_exercise_and_no_slow_ones():
    for answers, most in ((RIGHT, OFTEN_RIGHT), (WRONG, OFTEN_WRONG)):
        chosen = often(answers)
        assert not any(one.slow for one in chosen)
        for exercise in syllabus().every:
            own = [one for one in chosen if one.exercise == exercise.id]
            assert 3 <= len(own) <= most, exercise.id
            assert len({one.diagnosis or one.id for one in own}) == len(own)


def test_golden_holds_nothing_else():
    for exercise in syllabus().every:
        assert list(golden.read(exercise.id)) == [one.name for one in WRONG if one.exercise == exercise.id]


def test_lines_are_short():
    """Three lines that somebody reads at midnight: the saw line may quote, the others are one sentence or two."""
    for exercise in syllabus().every:
        for name, block in golden.read(exercise.id).items():
            _, saw, means, _ = block.rstrip("\n").split("\n")
            assert len(saw) <= 260, (exercise.id, name, len(saw))
            assert len(means.removesuffix(MORE)) <= 125, (exercise.id, name, len(means))


def test_the_table_of_mistakes_is_up_to_date(request: pytest.FixtureRequest):
    if request.config.getoption("--update-golden", False):
        mistakes.write()
    assert mistakes.PAGE.read_text(encoding="utf-8") == mistakes.page(), "run: make mistakes"


def test_students_do_not_get_it():
    from lab.syllabus.package import package_files

    names = [path.as_posix() for path in package_files()]
    assert not [name for name in names if "answers" in name or "mistakes" in name]
    assert {name.split("/")[1] for name in names if name.startswith("docs/")} == {
        *("templates", "cluster.md", "failures.md", "glossary.md", "other-hands.md", "scaling-plot.png")
    }
