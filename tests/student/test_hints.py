"""lab hint: one at a time, remembered in the student's folder, in the words of the code they lead to."""

import json
import re
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.cli import main
from lab.student import hints
from lab.student.depends import code_hash
from lab.syllabus.syllabus import MODULES, syllabus

OF_3_2 = syllabus()["3.2"].hints


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "exercises").mkdir()
    for name in MODULES:
        (tmp_path / "exercises" / f"{name}.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    return tmp_path


def hint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["hint", *arguments]) == 0
    return capsys.readouterr().out


def shown(out: str) -> list[str]:
    """The hints of 3.2 in what was printed, however it was wrapped."""
    return [text for text in OF_3_2 if text in " ".join(out.split())]


def test_one_at_a_time_to_the_last_and_how_many_are_left(lab: Path, capsys):
    assert hint(capsys, "3.2") == (
        "3.2  Every rank its own samples\n"
        "  hint 1 of 4\n"
        "    The batch size of the DataLoader is this rank's share:\n"
        "    the global batch divided by the number of ranks. What if\n"
        "    it does not divide? Raise a ValueError; never round.\n"
        "\n"
        "3 more: lab hint 3.2\n"
    )
    for number in (2, 3):
        out = hint(capsys, "3.2")
        assert shown(out) == [OF_3_2[number - 1]]
        assert out.endswith(f"\n{4 - number} more: lab hint 3.2\n")
    assert hint(capsys, "3.2").endswith("\nThat was the last hint.\nAll of them: lab hint 3.2 --all\n")
    again = hint(capsys, "3.2")
    assert shown(again) == [OF_3_2[3]]
    assert again.endswith("\nThat was the last hint again.\nAll of them: lab hint 3.2 --all\n")
    assert "hint 1 of" in hint(capsys, "3.1"), "each exercise has its own count"


def test_all_at_once_changes_no_count(lab: Path, capsys):
    assert shown(hint(capsys, "3.2", "--all")) == list(OF_3_2)
    assert "hint 1 of 4" in hint(capsys, "3.2")


def test_without_an_id_it_is_for_the_first_exercise_that_has_not_passed(lab: Path, capsys):
    assert hint(capsys).startswith("1.1  ")
    entry = {"outcome": "passed", "code": code_hash(syllabus()["1.1"], lab / "exercises")}
    (lab / ".lab" / "progress.json").write_text(json.dumps({"exercises": {"1.1": entry}}))
    assert hint(capsys).startswith("2.1  ")


def test_they_begin_anew_with_the_exercise(lab: Path, capsys, root: Path):
    for name in MODULES:
        (lab / "exercises" / f"{name}.py").write_text((root / "solutions" / f"{name}.py").read_text())
    for _ in range(2):
        hint(capsys, "3.1")
        hint(capsys, "3.2")
    main(["reset", "3.2"])
    capsys.readouterr()
    assert "hint 1 of" in hint(capsys, "3.2")
    assert "hint 3 of" in hint(capsys, "3.1")
    main(["reset", "--file", "data.py"])
    capsys.readouterr()
    assert "hint 1 of" in hint(capsys, "3.1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["7.7"], "there is no exercise 7.7; choose from"),
        (["3"], "one exercise at a time: 3.1, 3.2, 3.3"),
        (["--code", "solutions"], "say for which exercise, for example lab hint 3.2"),
    ],
)
def test_a_wrong_name_is_one_sentence(lab: Path, capsys, arguments: list[str], message: str):
    assert main(["hint", *arguments]) == UsageError.exit_code
    assert capsys.readouterr().err.startswith(f"lab hint: {message}")


@pytest.mark.parametrize("garbage", [b"\xff", b"[]", b'{"3.2": "2"}', b'{"3.2": -4}', b'{"3.2": true}'])
def test_garbage_in_the_count_is_no_error(lab: Path, capsys, garbage: bytes):
    (lab / ".lab").mkdir()
    (lab / ".lab" / "hints.json").write_bytes(garbage)
    assert "hint 1 of 4" in hint(capsys, "3.2")
    assert hints.had(lab, syllabus()["3.2"]) == 1
    (lab / ".lab" / "hints.json").write_text('{"3.2": 99}')
    assert "hint 4 of 4" in hint(capsys, "3.2")


def test_where_nothing_can_be_remembered_it_says_so(lab: Path, capsys, root: Path):
    (lab / ".lab").write_text("a file where the folder should be")
    for code in ([], ["--code", "solutions"]):
        for _ in range(2):
            out = hint(capsys, "3.2", *code)
            assert "hint 1 of 4" in out
            assert out.endswith(
                "\n3 more; but which were shown cannot be remembered here.\nAll of them: lab hint 3.2 --all\n"
            )
    assert not (root / ".lab" / "hints.json").exists()


def test_hints_name_what_the_solution_uses(root: Path):
    """Every call and every dotted name in a hint is in the module that the exercise is in."""
    spoken_of = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)+|[A-Za-z_][A-Za-z_0-9]*(?=\()")
    elsewhere = {
        "os.environ": "what not to read",
        "int": "Python",
        "backward": "a method",
        "loss.backward": "one GPU",
    }
    for exercise in syllabus().every:
        text = (root / "solutions" / exercise.file).read_text()
        for name in spoken_of.findall(" ".join(exercise.hints)):
            known = name in text or name.rpartition(".")[2] in text
            assert known or name in elsewhere, f"{exercise.id}: {name} is not in {exercise.file}"
