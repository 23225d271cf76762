"""What `lab check --why` shows of every exercise, and what each exercise's parts are found to be."""

import io
import shutil
from pathlib import Path

import pytest

from lab.base.terminal import Page
from lab.cli import main
from lab.grading.diagnosis import Passed
from lab.grading.parts import HELD
from lab.grading.suite import ExerciseResult, run_exercise
from lab.grading.trace.why import NOT_YET, brief, told, write
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
