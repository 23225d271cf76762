"""The marker grammar, and that exercises/ is what solutions/ gives."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cli import main
from lab.syllabus import stubs
from lab.syllabus.generated import drift, write
from lab.syllabus.stubs import StubError
from lab.syllabus.syllabus import ALL_MODULES, syllabus

DATA = '''\
def load_once(load, is_first):
    """Load it."""
    # TODO 3.1: one first.
    ### BEGIN SOLUTION 3.1
    if is_first:
        dataset = load()
    return dataset
    ### END SOLUTION


class Shard:
    def __len__(self):
        if True:
            # TODO 3.3a: the length
            ### BEGIN SOLUTION 3.3a

            return 3
            ### END SOLUTION


AFTER = 1
'''


def test_a_region_becomes_an_error_that_names_exercise_function_and_file():
    stub = stubs.make_stub(DATA, "data.py", syllabus())
    assert (
        stub
        == '''\
def load_once(load, is_first):
    """Load it."""
    # TODO 3.1: one first.
    raise NotImplementedError("Exercise 3.1 is not done yet: load_once() in data.py")


class Shard:
    def __len__(self):
        if True:
            # TODO 3.3a: the length
            raise NotImplementedError("Exercise 3.3a is not done yet: Shard.__len__() in data.py")


AFTER = 1
'''
    )


def test_the_error_is_wrapped_as_the_formatter_would():
    name = "a_function_with_a_rather_long_name_that_does_not_fit"
    text = f"def {name}():\n    ### BEGIN SOLUTION 3.1\n    return 1\n    ### END SOLUTION\n"
    stub = stubs.make_stub(text, "data.py", syllabus())
    assert stub.splitlines()[1:] == [
        "    raise NotImplementedError(",
        f'        "Exercise 3.1 is not done yet: {name}() in data.py"',
        "    )",
    ]


BEGIN, END = "### BEGIN SOLUTION 3.1", "### END SOLUTION"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["### BEGIN SOLUTION 3.9", "x = 1", END], "data.py:1: syllabus.toml has no exercise 3.9"),
        (["### BEGIN SOLUTION 6.1", "x = 1", END], "data.py:1: exercise 6.1 belongs in train.py"),
        (["", BEGIN, "x = 1"], "data.py:2: region 3.1 has no END SOLUTION"),
        (["x = 1", END], "data.py:2: END SOLUTION without a BEGIN SOLUTION before it"),
        (
            [BEGIN, "x = 1", "### BEGIN SOLUTION 3.2", END],
            "data.py:3: region 3.2 begins inside 3.1 (line 1)",
        ),
        ([BEGIN, "x = 1", END, BEGIN, "x = 1", END], "data.py:4: region 3.1 is there twice"),
        ([BEGIN, "", END], "data.py:1: region 3.1 is empty"),
        (["### BEGIN SOLUTION", "x = 1", END], "data.py:1: not a marker: '### BEGIN SOLUTION'"),
        (["# begin solution 3.1", "x = 1", END], "data.py:1: not a marker"),
        ([BEGIN, "x = 1", "#### END SOLUTION"], "data.py:3: not a marker"),
        (["x = (1", ")", "y = "], "data.py:3: invalid syntax"),
        (
            ["x = [", BEGIN, "1,", END, "]"],
            "data.py:2: without region 3.1 the file does not parse",
        ),
    ],
)
def test_a_wrong_marker_is_named_with_file_and_line(lines: list[str], message: str):
    with pytest.raises(StubError, match=re.escape(message)):
        stubs.make_stub("\n".join(lines) + "\n", "data.py", syllabus())


def test_an_exercise_without_a_region_and_a_region_in_two_files_are_errors(tmp_path: Path):
    (tmp_path / "data.py").write_text(DATA)
    with pytest.raises(StubError, match=r"no region for exercise 1\.1, 2\.1"):
        stubs.generate(tmp_path, syllabus())
    with pytest.raises(StubError, match="holds no Python files"):
        stubs.generate(tmp_path / "nothing", syllabus())


def test_drift_names_changed_missing_and_left_over_files(tmp_path: Path):
    texts = {"data.py": "a = 1\n", "train.py": "b = 1\n", "main.py": "c = 1\n"}
    assert write(texts, tmp_path / "exercises", ".py") == ["data.py", "main.py", "train.py"]
    assert drift(texts, tmp_path / "exercises", ".py") == []
    (tmp_path / "exercises" / "data.py").write_text("a = 2\n")
    (tmp_path / "exercises" / "train.py").unlink()
    (tmp_path / "exercises" / "old.py").write_text("")
    assert drift(texts, tmp_path / "exercises", ".py") == ["data.py", "old.py", "train.py"]
    write(texts, tmp_path / "exercises", ".py")
    assert drift(texts, tmp_path / "exercises", ".py") == []


def test_the_command_exits_with_1_on_drift_and_repairs_it(tmp_path, monkeypatch, capsys, root: Path):
    shutil.copytree(root / "solutions", tmp_path / "solutions", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("lab.commands.stubs.checkout", lambda: tmp_path)
    assert main(["stubs"]) == 0
    assert main(["stubs", "--check"]) == 0
    with open(tmp_path / "exercises" / "train.py", "a") as file:
        file.write("# edited\n")
    capsys.readouterr()
    assert main(["stubs", "--check"]) == 1
    assert capsys.readouterr().out == "exercises/train.py is not what solutions/ gives: run `lab stubs`\n"
    assert main(["stubs"]) == 0
    assert main(["stubs", "--check"]) == 0


# The repository itself -------------------------------------------------------------------------------------


def test_exercises_are_what_solutions_give(root: Path):
    assert drift(stubs.generate(root / "solutions", syllabus()), root / "exercises", ".py") == []


def test_exercises_pass_the_linter(root: Path):
    for command in (["check"], ["format", "--check"]):
        result = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "exercises"], cwd=root, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stdout + result.stderr


def test_every_stub_imports(root: Path):
    program = f"import {', '.join(ALL_MODULES)}"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=root / "exercises", capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr


def solution_lines(root: Path) -> set[str]:
    """The lines of all regions that say something and that the code and the TODOs outside do not say as well."""
    inside: set[str] = set()
    outside = ""
    for path in (root / "solutions").rglob("*.py"):
        text = path.read_text()
        regions = stubs.find_regions(text, path.relative_to(root / "solutions").as_posix(), syllabus())
        numbers = {n for region in regions for n in range(region.begin, region.end)}
        for n, line in enumerate(text.splitlines()):
            if n in numbers:
                inside.add(squeeze(line))
            else:
                outside += squeeze(line.strip().removeprefix("#"))
    return {line for line in inside if len(line) >= 20 and line not in outside}


def squeeze(text: str) -> str:
    return "".join(text.split())


def test_no_solution_line_is_in_anything_students_get(root: Path):
    from lab.syllabus.package import package_files

    lines = solution_lines(root)
    assert len(lines) > 50
    texts = {str(path): source.read_text(errors="replace") for path, source in package_files().items()}
    texts["the hints"] = "\n".join(hint for exercise in syllabus().every for hint in exercise.hints)
    found = [f"{name}: {line}" for name, text in texts.items() for line in lines if line in squeeze(text)]
    assert found == []


def test_a_todo_comment_stands_before_every_error(root: Path):
    for path in (root / "exercises").rglob("*.py"):
        text = path.read_text()
        ast.parse(text)
        for match in re.finditer(r'"Exercise (\S+) is not done yet', text):
            assert f"# TODO {match[1]}: " in text[: match.start()], f"{path.name}: no TODO {match[1]}"
