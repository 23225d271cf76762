"""Whatever a student's file holds: the lab looks at it in no time, or says that it is too large."""

import ast
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.base.source import LONGEST_SEARCHED, MAX_SOURCE_BYTES
from lab.checks.common.look import Look
from lab.collectives.lanes import Frame
from lab.grading import suite
from lab.grading.check import Check, Group
from lab.grading.diagnosis import ENDLESS, Diagnosis, Failed, LabError
from lab.grading.places import Place, place
from lab.grading.suite import run_exercise
from lab.syllabus.syllabus import Exercise

LAB = Path(__file__).resolve().parents[2] / "lab"
EXERCISE = Exercise("3.2", "Data", "data", "answer", 5, 10, (), ("One.", "Two."))
SECONDS = 15.0  # on a busy machine; before, some of these took minutes, or gigabytes

HEAD = "def answer(rank):\n    "
# As many bytes as the limit lets through, or what was found with more.
LINES = {
    "brackets": "y = '" + "[" * 45_000 + "'",
    "brackets and words": "y = '" + "[a" * 22_000 + "'",
    "underscores": "y = '" + "a_" * 22_000 + "'",
    "digits": "y = " + "1_" * 2_000 + "1",
    "spaces": "y = 1" + " " * 45_000 + "+ 1",
    "parentheses": "y = '" + "DataLoader(" * 4_000 + "'",
    "names": "y = '" + "valid" * 9_000 + "'",
    "ifs": "y = '" + "if " * 15_000 + "'",
    "a tree of sums": "y = " + "1 + " * 900 + "1",
    "a condition of many terms": "y = 1 if " + "rank + " * 900 + "1 else 2",
    "a condition of many words": "y = 1 if rank in (" + "'a', " * 8_000 + ") else 2",
    "parts of names": "y = " + "a." * 900 + "a",
}
WAY_TOO_LARGE = {
    "a line of 900 KB": "x = '" + "[" * 900_000 + "'\n",
    "a name of 900 KB": "import " + "a." * 450_000 + "a\n",  # the parser adds it up: terabytes
    "fields of 600 KB": "x = f'" + "{a}" * 200_000 + "'\n",  # 50 s in the parser
    "60 KB": "#" * 60_000 + "\n",
}


def patterns() -> Iterator[str]:
    """Every pattern that a judge looks for in a student's lines."""
    for file in (LAB / "checks").glob("*/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and "look" in node.func.id.lower():
                for argument in node.args:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        yield argument.value


@pytest.mark.parametrize("name", LINES)
def test_no_line_takes_time(tmp_path: Path, name: str):
    file = tmp_path / "data.py"
    file.write_text(f"{HEAD}{LINES[name]}\n    return y\n")
    assert file.stat().st_size <= MAX_SOURCE_BYTES
    found = set(patterns())
    assert len(found) > 50
    begin = time.process_time()
    for pattern in found:
        Look(tmp_path, "data.py", "answer")(pattern)
    assert place(Frame(str(file), 3, "answer", ""), tmp_path).text == "return y"
    place(Frame(str(file), 2, "answer", ""), tmp_path)
    assert time.process_time() - begin < SECONDS


def must_not_run(group: Group) -> None:
    raise AssertionError("no rank is needed to see this")


@pytest.mark.parametrize("name", WAY_TOO_LARGE)
def test_a_module_that_is_too_large_is_not_even_parsed(tmp_path: Path, name: str):
    file = tmp_path / "data.py"
    file.write_text(WAY_TOO_LARGE[name] + HEAD + "return 1\n")
    begin = time.process_time()
    outcome = run_exercise(EXERCISE, tmp_path, checks=[Check("3.2", "never", must_not_run)]).outcome
    assert isinstance(outcome, Failed)
    assert outcome.diagnosis.name == "file-too-large"
    assert outcome.diagnosis.means == "A module of this lab has a few kilobytes; over 50 kB is no code."
    # Nor is it where another module leads to it.
    assert Look(tmp_path, "data.py", "answer")(r"return") == "answer in data.py"
    assert place(Frame(str(file), 1, "answer", ""), tmp_path) == Place()
    assert time.process_time() - begin < SECONDS


def test_every_search_in_a_students_text_is_in_the_part_that_may_be_searched():
    """In the rooms where a student's lines and messages are read, outside of the ranks."""
    inside = {"rank.py"}  # runs in the rank itself
    found = []
    for room in ("checks", "collectives", "grading", "ranks"):
        for file in sorted((LAB / room).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                what, verb = ast.unparse(node.func.value), node.func.attr
                searches = verb in ("search", "match", "fullmatch", "findall", "finditer", "sub", "split")
                if searches and (what == "re" or what.lstrip("_").isupper()) and file.name not in inside:
                    found.append((f"{file.name}:{node.lineno}", "searchable(" in ast.unparse(node)))
    assert len(found) > 10
    assert [place for place, limited in found if not limited] == []
    assert LONGEST_SEARCHED < 1000


# An end to judging -------------------------------------------------------------------------------------------


def loops(group: Group) -> None:
    while True:
        pass


def searches_for_ever(group: Group) -> None:
    re.search(r"(a+)+$", "a" * 60 + "b")


def goes_on(group: Group) -> None:
    while True:
        try:
            loops(group)
        except Exception:  # noqa: BLE001
            continue


def raises(group: Group) -> None:
    raise Diagnosis("wrong", saw="a", means="b", look="c")


@pytest.mark.parametrize("judge", [loops, searches_for_ever, goes_on])
def test_a_judge_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judge):
    monkeypatch.setattr(suite, "JUDGE_SECONDS", 0.2)
    (tmp_path / "data.py").write_text("")
    checks = [Check("3.2", "x", judge), Check("3.2", "never", must_not_run)]
    result = run_exercise(EXERCISE, tmp_path, checks=checks)
    assert isinstance(result.outcome, Failed)
    assert result.outcome.diagnosis.name == ENDLESS
    assert len(result.checks) == 1


def test_one_that_ends_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(suite, "JUDGE_SECONDS", 0.2)
    (tmp_path / "data.py").write_text("")
    outcome = run_exercise(EXERCISE, tmp_path, checks=[Check("3.2", "x", raises)]).outcome
    assert not isinstance(outcome, LabError)
    end = time.process_time() + 0.5
    while time.process_time() < end:  # no clock goes on behind it
        pass
