"""The parts of an exercise: what the first failure leaves of them, and that every place counts the same points."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from answers.all_answers import WRONG
from answers.entries import Answer
from answers.running import drawn_from, told

from lab.cli import main
from lab.course.grafting import put_marks
from lab.course.marks import SubmissionRecord, mark, out_of_time
from lab.course.tables import marks_csv
from lab.grading.check import Check, Group
from lab.grading.diagnosis import CheckEnded, Diagnosis, Failed, LabError, NotStarted, Passed
from lab.grading.parts import FAILED, HELD, UNJUDGED, compared, in_words, part
from lab.grading.suite import ExerciseResult, checks_of, run_check, run_exercise
from lab.ranks.server import RankServerError
from lab.student import outcomes
from lab.syllabus.paths import find_code
from lab.syllabus.syllabus import Exercise, Part, Syllabus, syllabus

PARTS = (Part("a", 3), Part("b", 2), Part("c", 1))
EXERCISE = Exercise("3.2", "Data", "data", "answer", 6, 10, (), ("One.", "Two."), PARTS)


def wrong(name: str) -> Diagnosis:
    return Diagnosis(name, saw="saw", means="means", look="data.py:1")


def judged(tmp_path: Path, *judges: Callable[[Group], None], after_passed: bool = False) -> ExerciseResult:
    """Checks without ranks."""
    (tmp_path / "data.py").write_text("")
    checks = [
        Check("3.2", f"check {number}", judge, after_passed and number > 0) for number, judge in enumerate(judges)
    ]
    return run_exercise(EXERCISE, tmp_path, checks=checks)


def test_the_first_diagnosis_is_that_of_the_check_and_later_parts_are_judged(tmp_path: Path):
    def judge(group: Group) -> None:
        with part("a"):
            pass
        with part("b"):
            raise wrong("first")
        with part("c"):
            raise wrong("second")

    result = judged(tmp_path, judge)
    assert result.outcome == Failed(wrong("first"))
    assert result.parts == {"a": HELD, "b": FAILED, "c": FAILED}
    assert result.points == 3
    assert result.parts_text == "3 of 6 points: a (3); wrong: b (2), c (1)"


def test_a_part_holds_only_if_every_step_of_it_does(tmp_path: Path):
    def judge(group: Group) -> None:
        for ranks in (2, 3):
            with part("a"):
                if ranks == 3:
                    raise wrong("on three")
            with part("b"), part("c"):
                pass

    assert judged(tmp_path, judge).parts == {"a": FAILED, "b": HELD, "c": HELD}


def test_where_the_judge_was_ended_nothing_is_known_to_hold(tmp_path: Path):
    def judge(group: Group) -> None:
        with part("a"):
            pass
        with part("b"):
            raise wrong("first")
        raise wrong("the second group of ranks has raised")

    result = judged(tmp_path, judge)
    assert result.outcome == Failed(wrong("first"))
    assert result.parts == {"a": UNJUDGED, "b": FAILED, "c": UNJUDGED}
    assert (result.points, result.parts_text) == (0, "0 of 6 points; wrong: b (2); not judged: a (3), c (1)")


def test_a_part_counts_only_with_those_that_it_needs(tmp_path: Path):
    def judge(group: Group) -> None:
        with part("b", after=["a"]):
            pass
        with part("a"):
            raise wrong("first")
        with part("c", after=["b"]):
            pass

    assert judged(tmp_path, judge).parts == {"a": FAILED, "b": UNJUDGED, "c": UNJUDGED}


def test_what_a_later_part_stumbles_over_says_nothing_about_it(tmp_path: Path):
    def judge(group: Group) -> None:
        report: dict[str, int] = {}
        with part("a"):
            raise wrong("first")
        with part("b"):
            report["missing"] += 1
        with part("c"):
            raise wrong("unusable-report")

    assert judged(tmp_path, judge).parts == {"a": FAILED, "b": UNJUDGED, "c": UNJUDGED}


def test_an_error_of_the_judge_without_a_failure_is_the_labs(tmp_path: Path):
    def judge(group: Group) -> None:
        with part("a"):
            raise KeyError("a mistake of the judge")

    result = judged(tmp_path, judge)
    assert isinstance(result.outcome, LabError)
    assert mark(result, 1).points is None


@pytest.mark.parametrize("fault", [RankServerError("no memory"), CheckEnded(LabError("no memory"))])
def test_the_labs_own_fault_costs_nobody_a_part(tmp_path: Path, fault: Exception):
    def judge(group: Group) -> None:
        with part("a"):
            raise wrong("first")
        with part("b"):
            raise fault

    assert mark(judged(tmp_path, judge), 1).points is None


def test_a_check_that_had_no_time_left_says_so(tmp_path: Path):
    """Then it is graded again where there is more time: its parts may hold."""

    def judge(group: Group) -> None:
        with part("a"):
            raise wrong("first")
        raise CheckEnded(Failed(out_of_time(1.0)))

    assert judged(tmp_path, judge).outcome == Failed(out_of_time(1.0))


def test_a_check_that_would_say_nothing_new_is_run_for_its_parts_alone(tmp_path: Path):
    def first(group: Group) -> None:
        with part("a"):
            raise wrong("first")

    def second(group: Group) -> None:
        with part("b"):
            pass
        with part("c"):
            raise wrong("second")

    result = judged(tmp_path, first, second, after_passed=True)
    assert [check.title for check in result.checks] == ["check 0"]
    assert result.parts == {"a": FAILED, "b": HELD, "c": FAILED}
    assert mark(result, 2).points == result.points == 2


def test_what_is_not_started_gives_what_is_there(tmp_path: Path):
    def first(group: Group) -> None:
        with part("a"):
            pass

    def second(group: Group) -> None:
        with part("b"):
            raise CheckEnded(NotStarted("3.2b"))

    result = judged(tmp_path, first, second)
    assert result.outcome == NotStarted("3.2b")
    assert (result.points, mark(result, 2).points) == (3, 3.0)


def test_parts_are_for_the_run_of_a_check_only():
    with pytest.raises(Diagnosis), part("a"):
        raise wrong("first")
    compared("nothing", [1], 1)


def test_points_in_words():
    assert in_words(0, 6, [("a", 6, FAILED)]) == "0 of 6 points; wrong: a (6)"
    assert in_words(1.5, 6, []) == "1.5 of 6 points"


# The exercises ----------------------------------------------------------------------------------------------


def test_every_exercise_of_part_one_has_parts():
    assert all(2 <= len(exercise.parts) <= 4 for exercise in syllabus().exercises)
    assert sum(one.points for exercise in syllabus().exercises for one in exercise.parts) == 100


@pytest.mark.parametrize("exercise", syllabus().exercises, ids=lambda exercise: exercise.id)
def test_a_stub_earns_nothing_in_any_part(exercise: Exercise):
    result = run_exercise(exercise, find_code("exercises"))
    assert set(result.parts.values()) == {UNJUDGED}
    assert (result.points, mark(result, len(checks_of(exercise))).points, result.parts_text) == (0, 0.0, "")


@pytest.mark.slow
@pytest.mark.parametrize("instead", ["pass", "raise ValueError('no')", "raise AssertionError"])
@pytest.mark.parametrize("exercise", syllabus().exercises, ids=lambda exercise: exercise.id)
def test_what_is_hardly_more_than_a_stub_earns_nothing(exercise: Exercise, instead: str, tmp_path: Path):
    """Of this exercise the stubs do nothing, or refuse everything; the others are the reference."""
    for file in find_code("solutions").glob("*.py"):
        (tmp_path / file.name).write_text(file.read_text())
    text = (find_code("exercises") / exercise.file).read_text()
    stub = re.compile(rf'raise NotImplementedError\("Exercise {re.escape(exercise.id)}[a-z]? is not done yet.*\)')
    text, count = stub.subn(instead, text)
    assert count
    (tmp_path / exercise.file).write_text(text)
    assert run_exercise(exercise, tmp_path).points == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer", [one for one in WRONG if one.exercise in syllabus().ids], ids=lambda one: one.id
)
def test_no_wrong_answer_of_the_bank_earns_all_points(answer: Answer, tmp_path: Path):
    exercise = syllabus()[answer.exercise]
    with drawn_from(answer.id):
        result = run_exercise(exercise, answer.install(tmp_path))
    assert told(result.outcome) == answer.diagnosis
    assert 0 <= result.points < exercise.points


# Everywhere the same ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def partly(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ExerciseResult]:
    """2.1 without a refusal, beside the reference, and how it ends."""
    answer = next(one for one in WRONG if one.diagnosis == "contradiction-accepted")
    code = answer.install(tmp_path_factory.mktemp("partly"))
    with drawn_from(answer.id):
        return code, run_exercise(syllabus()["2.1"], code)


SAID = (
    "6 of 8 points: torchrun's variables (2), srun's variables (2), what is missing is refused (2); "
    "wrong: what cannot be is refused (2)"
)


def test_mark_table_and_card_have_the_points_of_the_parts(partly: tuple[Path, ExerciseResult]):
    result = partly[1]
    one = mark(result, 1)
    assert (result.points, one.points, one.state) == (6, 6.0, "partly")
    assert result.parts_text == one.parts_text == SAID
    record = SubmissionRecord("ada", "key", (one,))
    assert SubmissionRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    assert ",6," in marks_csv([record]).splitlines()[1]

    nbformat = pytest.importorskip("nbformat")
    cell = nbformat.v4.new_code_cell('check("2.1")', metadata={"nbgrader": {"grade_id": "check-2-1"}})
    book = nbformat.v4.new_notebook(cells=[cell])
    put_marks(book, [one])
    card, points = book.cells[0].outputs
    assert points["data"]["text/plain"] == "6"
    assert SAID in card["data"]["text/plain"]


def test_a_record_of_before_has_no_parts_and_is_read(partly: tuple[Path, ExerciseResult]):
    old = SubmissionRecord("ada", "key", (mark(partly[1], 1),)).to_json()
    del old["exercises"][0]["parts"]
    one = SubmissionRecord.from_json(old).exercises[0]
    assert (one.points, one.parts_text) == (6.0, "")


def test_a_wrong_answer_loses_a_part(partly: tuple[Path, ExerciseResult]):
    check = checks_of(syllabus()["2.1"])[0]
    assert set(run_check(check, partly[0]).parts.values()) == {HELD, FAILED}
    assert run_check(check, find_code("solutions")).outcome == Passed()


def test_the_terminal_and_the_progress_have_them_too(
    partly: tuple[Path, ExerciseResult], capsys: pytest.CaptureFixture[str]
):
    code, _ = partly
    assert main(["check", "2.1", "--code", str(code)]) == 1
    assert SAID in " ".join(capsys.readouterr().out.split())
    of = Syllabus((syllabus()["2.1"],))
    assert outcomes.points(code, of) == 6
    assert outcomes.passed(code, of) == set()
    (code / "distributed_utils.py").write_text("")  # and they are of the code as it was checked only
    assert outcomes.points(code, of) == 0
