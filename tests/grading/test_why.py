"""What `lab check --why` shows of every exercise, and what each exercise's parts are found to be."""

import io
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lab.base.terminal import Page
from lab.cli import main
from lab.commands import check as check_command
from lab.grading.check import Order
from lab.grading.diagnosis import Blocked, Diagnosis, Failed, LabError, NotStarted, Passed
from lab.grading.parts import HELD
from lab.grading.suite import CheckResult, ExerciseResult, run_exercise
from lab.grading.trace.why import brief, left_out, reported, told, write
from lab.notebook import calls
from lab.notebook.show import Said
from lab.ranks.reports import GroupResult, RankError, RankReport
from lab.student.paying import NOT_YET, Terms
from lab.syllabus.paid import course_text, paid_in, paid_text
from lab.syllabus.paths import find_code
from lab.syllabus.syllabus import Exercise, syllabus


def shown(result: ExerciseResult, *, whole: bool = False) -> list[str]:
    stream = io.StringIO()
    write(Page(stream, width=80, colour=False), told(result, whole=whole))
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("exercise", syllabus().every, ids=lambda exercise: exercise.id)
def test_why_of_the_reference_shows_inputs_ranks_and_what_is_right(exercise: Exercise):
    result = run_exercise(exercise, find_code("solutions"))
    assert result.outcome == Passed(), result.outcome
    # Each part of the syllabus is one that the checks decide on, and the other way round.
    assert {name for check in result.checks for name in check.parts} == {part.name for part in exercise.parts}
    assert all(state == HELD for check in result.checks for state in check.parts.values())
    for check in told(result, whole=True):
        assert any(group.given for group in check.groups)
        assert any(row.expected and row.has for group in check.groups for row in group.compared)
        for group in check.groups:
            ranks = set(range(int(group.heading.split()[0])))
            told_of = {int(rank) for row in group.reported for rank in row.ranks.split(", ")}
            assert told_of == ranks
    lines = shown(result)
    assert all(len(line) <= 80 for line in lines)
    assert len(lines) < 60 * sum(len(check.groups) for check in result.checks)


def test_what_is_compared_is_the_same_for_the_reference():
    """Row for row, what the ranks have reads like what is right: the numbers are the reference's."""
    result = run_exercise(syllabus()["6.1"], find_code("solutions"))
    rows = [row for check in told(result) for group in check.groups for row in group.compared]
    assert len(rows) > 8
    assert [row for row in rows if row.has != row.expected] == []


def test_a_value_in_a_few_words():
    torch = pytest.importorskip("torch")
    assert brief(torch.full((2, 2), 2.0)) == "norm 4 of [2, 2]"
    assert brief({"a": torch.ones(8), "b": torch.ones(8)}) == "norm 4 of 2 tensors"
    assert brief([1, None, "x", True, 0.123456789]) == "[1, none, x, yes, 0.12346]"
    assert len(brief("x" * 10_000)) <= 200
    assert len(brief([["y" * 10_000]] * 3)) <= 200


def test_a_wrong_answer_is_not_told_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code = Path(shutil.copytree(find_code("solutions"), tmp_path / "exercises"))
    right = (code / "distributed_utils.py").read_text()
    (code / "distributed_utils.py").write_text(right.replace("dist.get_rank() == 0", "dist.get_rank() == 1"))
    assert main(["check", "--why", "2.3", "--code", str(code)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"{NOT_YET} 2.3 has passed." in said
    assert "compared" not in said


def test_why_is_of_exercises_that_are_named(capsys: pytest.CaptureFixture[str]):
    assert main(["check", "--why"]) != 0
    assert "lab check --why 6.1" in capsys.readouterr().err


def test_why_in_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["check", "--why", "4.0", "--code", str(find_code("solutions"))]) == 0
    out = capsys.readouterr().out
    for words in ("3 ranks", "2 ranks", "given", "compared", "expected", "reported"):
        assert words in out
    assert max(map(len, out.splitlines())) <= 80


def test_why_in_a_notebook(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LAB_GRADING", "1")  # nothing is started
    from lab.notebook.card import why_card

    card = why_card(run_exercise(syllabus()["2.3"], find_code("solutions")))
    assert card.html.count("<table>") == 3
    assert "main process, by torchrun" in card.html
    assert "main process, by torchrun" in card.text


# Before it has passed, where a course has set a price ------------------------------------------------------


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> ExerciseResult:
    """2.3 where every check has reported, and two parts of three hold."""
    code = Path(shutil.copytree(find_code("solutions"), tmp_path_factory.mktemp("failed") / "exercises"))
    right = (code / "distributed_utils.py").read_text()
    (code / "distributed_utils.py").write_text(right.replace("dist.get_rank() == 0", "dist.get_rank() == 1"))
    result = run_exercise(syllabus()["2.3"], code)
    assert isinstance(result.outcome, Failed)
    return result


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A student's modules, in a course that takes a quarter."""
    folder = Path(shutil.copytree(find_code("solutions"), tmp_path / "exercises"))
    (folder / "course.toml").write_text(course_text(0.25))
    return folder


@pytest.fixture
def said(code: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What `lab check --why 2.3` says of a result, and whether a table is there."""

    def run(result: ExerciseResult, *options: str) -> str:
        monkeypatch.setattr(check_command, "_check", lambda *_: result)
        main(["check", "--why", result.exercise.id, "--code", str(code), *options])
        return " ".join(capsys.readouterr().out.split())

    return run


def passed(exercise: str) -> ExerciseResult:
    return ExerciseResult(syllabus()[exercise], Passed(), (CheckResult("does it", Passed(), 0.0),), 0.0)


def ended(outcome: Any, *reports: RankReport, title: str = "does it") -> ExerciseResult:
    """2.3, whose one check has ended so, with one group of ranks."""
    groups = ((Order("lab:observe", len(reports), {"order": [0, 2, 1]}), GroupResult(list(reports), 0.0)),)
    check = CheckResult(title, outcome, 0.0, groups=groups if reports else ())
    return ExerciseResult(syllabus()["2.3"], outcome, (check,), 0.0)


WRONG = Failed(Diagnosis("hang", saw="s", means="m", look="l"))


def test_before_it_has_passed_the_price_is_said_and_nothing_shown_or_written(
    failed: ExerciseResult, code: Path, said: Callable[..., str]
):
    text = said(failed)
    assert (
        "2.3 has not passed. --pay shows what the check did and takes 1 of the 4 points; to see it: "
        "lab check --why 2.3 --pay" in text
    )
    assert "compared" not in text
    assert NOT_YET not in text
    assert not (code / "paid.toml").exists()


def test_what_is_paid_is_shown_noted_and_then_free(failed: ExerciseResult, code: Path, said: Callable[..., str]):
    text = said(failed, "--pay")
    assert "This takes 1 of the 4 points of 2.3. It is noted in exercises/paid.toml, which you hand in" in text
    assert "main process, by torchrun 0 no yes" in text
    noted = (code / "paid.toml").read_text()
    assert "lab check --why" in noted
    assert "handed in with your modules" in noted
    paid = paid_in(noted.encode())
    assert list(paid) == ["2.3"]
    assert isinstance(paid["2.3"], datetime)
    for again in ((), ("--pay",)):
        text = said(failed, *again)
        assert "Paid for on" in text
        assert "takes" not in text
        assert "main process, by torchrun" in text
        assert (code / "paid.toml").read_text() == noted
    said(replace(failed, exercise=syllabus()["4.1"]), "--pay")
    assert list(paid_in((code / "paid.toml").read_bytes())) == ["2.3", "4.1"]


def test_what_has_passed_is_free_also_for_who_offers_to_pay(code: Path, said: Callable[..., str]):
    assert "points" not in said(passed("2.3"))
    assert "2.3 has passed: what its check did costs nothing." in said(passed("2.3"), "--pay")
    assert not (code / "paid.toml").exists()


@pytest.mark.parametrize(
    ("result", "what"),
    [
        (ended(NotStarted("2.3"), RankReport(0, "raised", error=RankError("E", "", [], None, "2.3"))), "no value"),
        (ended(Failed(Diagnosis("syntax-error", saw="", means="", look=""))), "no ranks"),
        (
            replace(
                ended(WRONG, RankReport(0, "raised"), RankReport(1, "killed")),
                checks=(
                    *ended(WRONG, RankReport(0, "raised"), RankReport(1, "killed")).checks,
                    *ended(Passed(), RankReport(0, "ok", {"a": 1})).checks,
                ),
            ),
            "reports of what passed alone",
        ),
        (ended(LabError("broken"), RankReport(0, "ok", {"a": 1})), "the lab's fault"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_where_nothing_can_be_shown_nothing_is_taken(
    result: ExerciseResult, what: str, code: Path, said: Callable[..., str]
):
    assert "nothing can be shown, at no price." in said(result)
    text = said(result, "--pay")
    assert "nothing can be shown, and nothing was taken." in text
    assert "given" not in text
    assert not (code / "paid.toml").exists()


def test_of_what_ended_early_there_is_shown_what_there_is_and_said_what_is_missing(said: Callable[..., str]):
    error = RankError("ValueError", "", [], None, None)
    result = ended(
        WRONG,
        RankReport(0, "ok", {"loss": 2.5}),
        RankReport(1, "raised", error=error),
        RankReport(2, "timeout"),
        RankReport(3, "killed"),
    )
    assert reported(result)
    text = said(result, "--pay")
    assert "Missing: no report of ranks 1, 2 and 3 of 4, and all that would have been compared after that." in text
    assert "loss 0 2.5" in text
    assert "no report 1 it raised ValueError" in text
    assert "2 it was still running when the check ended it" in text
    assert "3 it was ended, for another one had failed" in text
    assert "order [0, 2, 1]" in text
    blocked = replace(result, outcome=Blocked("2.1"))
    assert "It builds on 2.1, which is not right yet" in said(blocked, "--pay")
    assert left_out(passed("2.3")) == []
    hung = ended(WRONG, RankReport(0, "ok", 1), RankReport(1, "timeout"))
    assert left_out(replace(hung, exercise=syllabus()["6.1"]))[-1].startswith("Missing: ")


def test_no_line_of_a_solution_is_shown_before_it_has_passed(failed: ExerciseResult):
    text = "\n".join(shown(failed, whole=True))
    regions = re.findall(
        r"### BEGIN SOLUTION 2\.3.*?\n(.*?)### END SOLUTION",
        (find_code("solutions") / "distributed_utils.py").read_text(),
        re.S,
    )
    lines = {line.strip() for region in regions for line in region.splitlines() if len(line.strip()) > 9}
    assert lines
    assert [line for line in lines if line in text] == []


def test_reports_that_nobody_has_judged_are_shown_whatever_they_are():
    torch = pytest.importorskip("torch")
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep or 1}
    values = [
        deep,
        {"\x1b[31m" * 100: 1},
        {1: None},
        b"\0",
        torch.zeros(0),
        torch.zeros(2, dtype=torch.complex64),
        [],
    ]
    reports = [RankReport(rank, "ok", value) for rank, value in enumerate(values)]
    lines = shown(ended(WRONG, *reports), whole=True)
    assert all(len(line) <= 80 and line.isprintable() for line in lines)


def test_the_points_of_all_exercises_are_told_with_what_will_be_off(
    code: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(check_command, "_check", lambda _, exercise, __: passed(exercise.id))
    assert main(["check", "--code", str(code)]) == 0
    assert "will be off" not in capsys.readouterr().out
    (code / "paid.toml").write_text(paid_text({"3.2": datetime.now(UTC), "2.3": datetime.now(UTC)}))
    assert main(["check", "--code", str(code)]) == 0
    out = capsys.readouterr().out
    assert "100 of 100 points" in out
    assert "Of these, 3.5 will be off, as you asked why before it passed: 2.3, 3.2." in out
    (code / "paid.toml").write_text("broken")
    assert main(["check", "--code", str(code)]) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--pay", "2.3"], "--pay is for one exercise, and for what its check did: lab check --why 2.3 --pay"),
        (["--pay"], "--pay is for one exercise"),
        (["--pay", "--why", "2"], "--pay is for one exercise"),
        (["--pay", "--why", "2.3", "--sandbox"], "--sandbox leaves nothing behind"),
    ],
)
def test_what_cannot_be_paid_is_one_sentence(
    arguments: list[str], sentence: str, code: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["check", *arguments, "--code", str(code)]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not (code / "paid.toml").exists()


def test_without_a_course_there_is_nothing_to_pay(code: Path, capsys: pytest.CaptureFixture[str]):
    (code / "course.toml").unlink()
    assert main(["check", "--why", "2.3", "--pay", "--code", str(code)]) == 2
    assert "has no course.toml, so there is nothing to pay for" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("course.toml", "why_costs = 2\n", "2 is no share over 0 and up to 1"),
        ("course.toml", "why_costs = 0\n", "0 is no share"),
        ("course.toml", "why_costs = nan\n", "nan is no share"),
        ("course.toml", "why_costs = true\n", "no line why_costs = 0.25"),
        ("course.toml", "why_costs = \n", "Invalid value"),
        ("paid.toml", "[paid]\n2.3 = 1\n", "2 has no time"),
        ("paid.toml", "paid = 1\n", "no table [paid]"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_before_anything_runs(
    file: str, text: str, sentence: str, code: Path, capsys: pytest.CaptureFixture[str]
):
    (code / file).write_text(text)
    assert main(["check", "--why", "2.3", "--pay", "--code", str(code)]) == 1
    error = capsys.readouterr().err
    assert str(code / file) in error
    assert sentence in error
    assert (code / file).read_text() == text


def test_what_cannot_be_noted_is_not_shown(
    failed: ExerciseResult, code: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (code / "paid.toml").mkdir()
    monkeypatch.setattr(check_command, "_check", lambda *_: failed)
    assert main(["check", "--why", "2.3", "--pay", "--code", str(code)]) == 1
    out, error = capsys.readouterr()
    assert "nothing is shown, and nothing taken" in error
    assert "compared" not in out


def test_a_notebook_says_the_price_and_pays(
    failed: ExerciseResult, code: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(calls.session, "code", lambda: code)
    monkeypatch.setattr(calls.session, "graded_elsewhere", lambda: False)
    monkeypatch.setattr(calls, "_check", lambda *_, **__: failed)
    calls.check("2.3", why=True)
    assert (
        "2.3 has not passed. pay=True shows what the check did and takes 1 of the 4 points; to see it: "
        'check("2.3", why=True, pay=True)' in capsys.readouterr().out
    )
    assert Terms.of(code).paid == {}
    with pytest.raises(Said, match=r'pay=True is for one exercise.*check\("2.3", why=True, pay=True\)'):
        calls.check("2.3", pay=True)
    calls.check("2.3", why=True, pay=True)
    text = " ".join(capsys.readouterr().out.split())
    assert "This takes 1 of the 4 points of 2.3." in text
    assert "main process, by torchrun 0 no yes" in text
    assert list(Terms.of(code).paid) == ["2.3"]
