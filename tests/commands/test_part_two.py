"""Part two: shown below the first once it was begun, never counted as missing."""

import json
import re
import shutil
from pathlib import Path

import pytest

from lab.base.paths import module_file
from lab.cli import main
from lab.grading import suite
from lab.grading.check import Check, Group
from lab.grading.diagnosis import CheckEnded, Diagnosis, NotStarted
from lab.notebook.strip import strip_card
from lab.student import outcomes
from lab.syllabus.syllabus import ALL_MODULES, PART_TWO, Exercise, syllabus


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path) -> Path:
    """A student's package with part one finished, and part two as it was handed out."""
    (tmp_path / "exercises").mkdir()
    for name in ALL_MODULES:
        (tmp_path / "exercises" / module_file(name)).parent.mkdir(exist_ok=True)
        (tmp_path / "exercises" / module_file(name)).write_text("")
    for name in PART_TWO:
        stub = (root / "exercises" / module_file(name)).read_text()
        (tmp_path / "exercises" / module_file(name)).write_text(stub)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    return tmp_path


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception]:
    found: dict[str, Exception] = {}

    def checks_of(exercise: Exercise) -> list[Check]:
        def judge(group: Group) -> None:
            if exercise.id in found:
                raise found[exercise.id]

        return [Check(exercise.id, f"the check of {exercise.id}", judge)]

    monkeypatch.setattr(suite, "checks_of", checks_of)
    return found


def begin(lab: Path, root: Path, verdicts: dict[str, Exception]) -> None:
    """8.1 is written, the others are not."""
    stub, solution = (root / part / "fast.py" for part in ("exercises", "solutions"))
    done = solution.read_text().partition("### BEGIN SOLUTION 8.1\n")[2].partition("    ### END")[0]
    text = stub.read_text().replace(
        '    raise NotImplementedError("Exercise 8.1 is not done yet: time_by_cause() in fast.py")\n', done
    )
    assert text != stub.read_text()
    (lab / "exercises" / "fast.py").write_text(text)
    verdicts |= {e.id: CheckEnded(NotStarted(e.id)) for e in syllabus().optional if e.id != "8.1"}


def test_untouched_it_is_not_shown(lab: Path, verdicts, capsys):
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert "All 14 exercises passed: 100 of 100 points." in out
    assert "8.1" not in out
    assert "8.1" not in strip_card(lab / "exercises").text


def test_a_package_from_before_there_was_one_has_nothing_of_it(lab: Path, verdicts, capsys):
    (lab / "exercises" / "fast.py").unlink()
    shutil.rmtree(lab / "exercises" / "from_scratch")
    assert main(["check"]) == 0
    assert "8.1" not in capsys.readouterr().out
    assert "8.1" not in strip_card(lab / "exercises").text


def test_once_begun_it_stands_below_the_first_and_is_not_missing(lab: Path, verdicts, root: Path, capsys):
    begin(lab, root, verdicts)
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    first, _, second = out.partition("Part two, which counts for itself\n")
    assert "All 14 exercises passed: 100 of 100 points." in first
    two = syllabus().part_two
    count = len(two.ids)
    assert [line.split()[0] for line in second.splitlines()[:count]] == list(two.ids)
    assert second.endswith(f"1 of {count} passed, 4 of {two.points} points.\n")
    card = strip_card(lab / "exercises")
    assert card.text.startswith("14 of 14 exercises passed, 100 of 100 points\n")
    assert f"Part two: 1 of {count}, 4 of {two.points} points" in card.text
    assert "Next" not in card.text
    assert "<b>8.6</b>" in card.html


def test_a_package_from_before_section_9_lacks_nothing(lab: Path, verdicts, root: Path, capsys):
    begin(lab, root, verdicts)
    shutil.rmtree(lab / "exercises" / "from_scratch")
    assert main(["check"]) == 0
    assert capsys.readouterr().out.endswith("1 of 6 passed, 4 of 25 points.\n")
    assert "9.1" not in strip_card(lab / "exercises").text


def test_what_is_wrong_in_it_is_said_and_counts(lab: Path, verdicts, root: Path, capsys):
    begin(lab, root, verdicts)
    verdicts["8.1"] = Diagnosis("wrong", saw="one thing", means="another", look="fast.py:3")
    assert main(["check"]) == 1
    assert "saw    one thing" in capsys.readouterr().out.partition("Part two")[2]


def test_after_one_of_its_exercises_comes_the_next_of_them(lab: Path, verdicts, root: Path, capsys):
    begin(lab, root, verdicts)
    assert main(["check", "8.1"]) == 0
    assert "Next: 8.2 No waiting in the loop" in capsys.readouterr().out
    assert json.loads((lab / ".lab" / "progress.json").read_text())["exercises"]["8.1"]["outcome"] == "passed"
    assert outcomes.passed(lab / "exercises", syllabus()) == {"8.1"}


def test_after_one_of_section_9_comes_the_next_of_section_9(lab: Path, verdicts, root: Path, capsys):
    code = lab / "exercises" / "from_scratch"
    for name in ("ring", "pipeline"):  # 9.1 and 9.6
        solution = (root / "solutions" / "from_scratch" / f"{name}.py").read_text()
        (code / f"{name}.py").write_text(re.sub(r" *### (BEGIN|END) SOLUTION.*\n", "", solution))
    assert main(["check", "9.1"]) == 0
    assert "Next: 9.2 " in capsys.readouterr().out
    verdicts["9.2"] = CheckEnded(NotStarted("9.2"))
    assert main(["check", "9.6"]) == 0
    assert "Next: 9.7 " in capsys.readouterr().out


def test_hints_and_reset_know_it(lab: Path, verdicts, root: Path, capsys):
    begin(lab, root, verdicts)
    assert main(["hint", "8.4"]) == 0
    assert capsys.readouterr().out.startswith("8.4  Capture a step\n")
    assert main(["reset", "8.1"]) == 0
    assert (lab / "exercises" / "fast.py").read_text() == (root / "exercises" / "fast.py").read_text()


@pytest.mark.parametrize("what", [["9.1"], ["--file", "from_scratch/ring.py"]])
def test_a_module_in_a_folder_of_its_own_is_reset_too(lab: Path, root: Path, capsys, what: list[str]):
    file = lab / "exercises" / "from_scratch" / "ring.py"
    solution = (root / "solutions" / "from_scratch" / "ring.py").read_text()
    file.write_text(re.sub(r" *### (BEGIN|END) SOLUTION.*\n", "", solution))
    assert main(["reset", *what]) == 0
    assert file.read_text() == (root / "exercises" / "from_scratch" / "ring.py").read_text()
    [kept] = (lab / ".lab").glob("backup-*/from_scratch/ring.py")
    assert "isend" in kept.read_text()
