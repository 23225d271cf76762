"""Packages, courses and marks made before the rooms of lab/ were (handed_out/README.md) go on working."""

import ast
import csv
import importlib
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_folders import write_few_images, write_run
from traitlets.config import PyFileConfigLoader

from lab.cli import main
from lab.course import store
from lab.course.config import config_text


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pkg/, course/, class/ and grades/ of before."""
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(Path(__file__).parent / "handed_out" / "before_rooms.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def python(*command: object, cwd: Path, root: Path) -> str:
    """What the command has printed."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# The package ------------------------------------------------------------------------------------------------


def programs(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    """All Python in a folder: files, and the code cells of notebooks."""
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text())
    for path in sorted(folder.rglob("*.ipynb")):
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        yield path, ast.parse("\n".join(re.sub(r"(?m)^[!%].*", "", "".join(cell["source"])) for cell in cells))


@pytest.mark.parametrize("folder", ["pkg", "course/source", "class"])
def test_every_name_that_is_imported_from_the_lab_is_there(before: Path, folder: str):
    found = 0
    for path, tree in programs(before / folder):
        modules = {}  # name in the file -> what it stands for
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lab":
                for alias in node.names:
                    try:
                        value = getattr(importlib.import_module(node.module), alias.name, None)
                        modules[alias.name] = value or importlib.import_module(f"{node.module}.{alias.name}")
                    except ImportError:
                        pytest.fail(f"{path}, line {node.lineno}: {node.module} has no {alias.name}")
                    found += 1
            assert not (isinstance(node, ast.Import) and any(a.name.startswith("lab") for a in node.names)), path
        for node in ast.walk(tree):  # options.parse, figures.batch_parts
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                assert hasattr(modules[node.value.id], node.attr), f"{path}, line {node.lineno}: {node.attr}"
    assert found > 5


def test_solved_modules_train_on_two_ranks(before: Path, root: Path, tmp_path: Path):
    data = ("--dataset", "imagefolder", "--data-dir", write_few_images(tmp_path / "data"))
    launch = ("-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", 2)
    options = ("--strategy", "ddp", "--epochs", 1, "--global-batch-size", 32, "--output-dir", tmp_path, *data)
    code = before / "class" / "ada" / "exercises" / "main.py"
    assert "[METRIC] epoch=1 " in python(*launch, code, *options, "--run-id", "r", cwd=tmp_path, root=root)
    assert json.loads((tmp_path / "r" / "status.json").read_text())["status"] == "done"


def test_the_sweeps_programs_run(before: Path, root: Path, tmp_path: Path):
    package = before / "pkg"
    plan = ("--launcher", "local", "--devices", 1, "--dry-run", "--output-dir", tmp_path)
    assert "exercises/main.py --strategy fsdp" in python("run_benchmarks.py", *plan, cwd=package, root=root)
    write_run(tmp_path / "results", "none", 1)
    write_run(tmp_path / "results", "ddp", 2)
    assert "2 runs: 2 done" in python(package / "collect_results.py", cwd=tmp_path, root=root)
    assert "time_per_epoch.png" in python(package / "plot_results.py", cwd=tmp_path, root=root)


# The course -------------------------------------------------------------------------------------------------


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from strings(one)


def test_all_that_the_courses_configuration_names_is_there(before: Path, root: Path):
    config = PyFileConfigLoader("nbgrader_config.py", path=str(before / "course")).load_config()
    glue = [text for text in strings(config) if text.startswith("lab.")]
    assert len(glue) == 6
    assert set(glue) <= {  # courses made since name more
        "lab.grading." + name.removeprefix("lab.")
        for name in re.findall(r'"(lab\.course\.\w+\.\w+)"', config_text({}))
    }
    for text in glue:
        module, _, name = text.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), name), type), text
    templates = Path(config["HTMLExporter"]["extra_template_basedirs"][0])
    assert templates == root / "lab" / "grading" / "course" / "templates"
    files = {path.relative_to(templates): path.read_bytes() for path in templates.rglob("*") if path.is_file()}
    now = root / "lab" / "course" / "templates"
    assert files == {path.relative_to(now): path.read_bytes() for path in now.rglob("*") if path.is_file()} != {}


def test_no_folder_of_the_lab_is_a_link(root: Path):
    """A wheel has the files of a folder once, under the name that comes first."""
    assert [path for path in (root / "lab").rglob("*") if path.is_symlink() and path.is_dir()] == []


# The marks --------------------------------------------------------------------------------------------------


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


# What bob has got right of 3.2, in which he forgot to shuffle, is paid since exercises have parts.
PARTS = {"3.2": ("0", "7"), "points": ("40", "47")}


def test_grading_again_pays_parts_takes_nothing_away_and_keeps_what_was_marked_by_hand(
    before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    old, out = before / "grades", tmp_path / "grades"
    out.mkdir()
    for path in [*old.glob("*.csv"), *old.glob("results/*.json")]:
        (out / path.relative_to(old)).parent.mkdir(exist_ok=True)
        (out / path.relative_to(old)).write_bytes(path.read_bytes())
    by_hand = rows(old / "answers.csv")
    by_hand[0] |= {"points": "1.5"}
    with (out / "answers.csv").open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, [*by_hand[0], "note"], restval="")
        table.writeheader()
        table.writerows([by_hand[0] | {"note": "half"}, *by_hand[1:]])

    assert main(["grade", str(before / "class"), "--out", str(out), "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert "\n2 graded.\n" in said  # another lab than then: nothing is taken over
    assert "answers-before" not in said

    def marks(folder: Path) -> list[dict[str, str]]:
        """marks.csv without what differs from one grading to the next."""
        return [
            {name: row[name] for name in known if name not in ("seconds", "lab")}
            for row in rows(folder / "marks.csv")
        ]

    known = rows(old / "marks.csv")[0]  # today's table has more columns, behind these
    ada, bob = marks(old)
    assert {name: bob[name] for name in PARTS} == {name: before for name, (before, _) in PARTS.items()}
    assert marks(out) == [ada, bob | {name: now for name, (_, now) in PARTS.items()}]
    then, now = rows(old / "report.csv"), rows(out / "report.csv")  # outcomes and diagnoses
    then[1]["3.2"] = then[1]["3.2"].replace("failed", "partly")
    assert [{name: row[name] for name in then[0]} for row in now] == then
    assert rows(out / "answers.csv")[0] == by_hand[0] | {"note": "half"}
    assert [{**row, "note": ""} for row in by_hand[1:]] == rows(out / "answers.csv")[1:]
    for then, now in zip(store.load_all([old]), store.load_all([out]), strict=True):
        assert then.key != now.key
        assert (then.notebooks, then.answers) == (now.notebooks, now.answers)


def test_records_of_before_are_put_together_without_grading(before: Path, tmp_path: Path):
    assert main(["grade", "--merge", str(before / "grades"), "--out", str(tmp_path / "all")]) == 0
    now, then = (rows(folder / "marks.csv") for folder in (tmp_path / "all", before / "grades"))
    assert [{name: row[name] for name in then[0]} for row in now] == then
