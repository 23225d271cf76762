"""The plan in parallel.py names files that are there; a run in several processes says how many it left out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from parallel import LONG, SPREAD, TOGETHER, group_of, turn_of

FILES = {path.name for path in Path(__file__).parent.rglob("test_*.py")}


def test_every_file_that_is_named_is_there():
    named = {*SPREAD, *(name for files in TOGETHER.values() for name in files), *LONG} - TOGETHER.keys()
    assert named - FILES == set()


def test_groups_begin_with_the_longest_and_end_with_what_is_spread():
    ids = [f"tests/x/{name}::test[{number}]" for name in sorted(FILES) for number in (1, 2)]
    groups = list(dict.fromkeys(group_of(one) for one in sorted(ids, key=turn_of)))
    assert groups[: len(LONG)] == list(LONG)
    assert groups[-2 * len(SPREAD) :] == [one for one in ids if one.split("/")[-1].split("::")[0] in SPREAD]
    assert len(groups) == len(set(groups))


@pytest.mark.parametrize("processes", [[], ["-n", "2"]])
def test_the_last_line_counts_what_was_deselected(processes: list[str], tmp_path: Path, root: Path):
    (tmp_path / "conftest.py").write_text("pytest_plugins = ('parallel',)\n")
    text = "import pytest\n" + "".join(f"def test_{n}(): pass\n@pytest.mark.slow\n" for n in range(3))
    (tmp_path / "test_some.py").write_text(f"{text}def test_last(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow:\n    long:\n")
    command = [sys.executable, "-m", "pytest", "-m", "not slow", "-p", "no:cacheprovider", *processes]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["PYTHONPATH"] = str(root / "tests")
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "1 passed, 3 deselected in" in done.stdout.splitlines()[-1], done.stdout
