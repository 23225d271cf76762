"""lab start and lab reset: the student's package, and no work ever lost."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from lab.base.paths import module_file
from lab.cli import main
from lab.syllabus import package
from lab.syllabus.syllabus import ALL_MODULES

STUBS = {module_file(name) for name in ALL_MODULES} | {"from_scratch/main.py"}  # which has no TODO


def stub(root: Path, name: str) -> str:
    return (root / "exercises" / name).read_text()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A fresh student's package, and the current folder in it."""
    folder = tmp_path / "my-lab"
    assert main(["start", str(folder)]) == 0
    capsys.readouterr()
    monkeypatch.chdir(folder)
    return folder


def backups(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder / ".lab").as_posix().partition("/")[2]
        for path in (folder / ".lab").glob("backup-*/**/*")
        if path.is_file()
    )


def test_start_writes_the_exercises_the_scripts_and_a_readme(lab: Path, root: Path):
    here = lab / "exercises"
    assert {path.relative_to(here).as_posix() for path in here.rglob("*.py")} == STUBS
    for name in STUBS:
        assert (lab / "exercises" / name).read_text() == stub(root, name)
    assert (lab / "README.md").read_text().startswith("# Scaling Lab: your copy")
    for name in package.CONTENTS:
        assert (lab / name).exists() == (root / name).exists(), name
    assert os.access(lab / "run.sh", os.X_OK)
    assert not list(lab.rglob("__pycache__"))
    assert not list(lab.rglob("*solution*"))


@pytest.mark.parametrize("kind", ["package", "course"])
def test_every_link_in_what_students_get_leads_somewhere(tmp_path: Path, kind: str):
    folder = tmp_path / kind
    assert main(["start", str(folder)] if kind == "package" else ["course", "build", str(folder)]) == 0
    home = folder if kind == "package" else folder / "source" / "lab"
    links = 0
    for page in [*home.rglob("*.md"), *home.rglob("*.ipynb")]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if not re.match(r"https?://|#", target):
                links += 1
                place = page.parent / target.partition("#")[0]
                assert place.exists(), f"{page.relative_to(home)}: {target}"
    assert links > 25


def test_start_says_what_to_type_next(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["start", "my-lab"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Your lab is in my-lab. To begin:\n  cd my-lab\n  lab check ")
    assert "lab jupyter" in said


def test_start_refuses_a_folder_that_is_not_empty(lab: Path, capsys):
    (lab / "exercises" / "data.py").write_text("mine\n")
    assert main(["start", "."]) == 1
    error = capsys.readouterr().err
    assert error.startswith("lab start: . is not empty and was left as it is")
    assert error.count("\n") == 1
    assert (lab / "exercises" / "data.py").read_text() == "mine\n"


def test_force_backs_up_what_it_overwrites_and_touches_nothing_else(lab: Path, root: Path, capsys):
    (lab / "exercises" / "data.py").write_text("mine\n")
    (lab / "exercises" / "notes.txt").write_text("keep\n")
    (lab / "run.sh").unlink()
    assert main(["start", ".", "--force"]) == 0
    assert "What was there before is kept in .lab/backup-" in capsys.readouterr().out
    assert (lab / "exercises" / "data.py").read_text() == stub(root, "data.py")
    assert (lab / "exercises" / "notes.txt").read_text() == "keep\n"
    assert (lab / "run.sh").exists()
    assert backups(lab) == ["exercises/data.py"]


def test_force_without_a_difference_makes_no_backup(lab: Path, capsys):
    assert main(["start", ".", "--force"]) == 0
    assert "kept in" not in capsys.readouterr().out
    assert not (lab / ".lab").exists()


def test_two_backups_in_one_second_do_not_meet(lab: Path):
    for text in ("first\n", "second\n"):
        (lab / "exercises" / "data.py").write_text(text)
        assert main(["start", ".", "--force"]) == 0
    kept = {path.read_text() for path in (lab / ".lab").glob("backup-*/exercises/data.py")}
    assert kept == {"first\n", "second\n"}


def test_start_refuses_a_file_the_lab_itself_and_a_folder_it_cannot_write(tmp_path: Path, root: Path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["start", str(tmp_path / "file")]) == 1
    assert "is a file" in capsys.readouterr().err
    assert main(["start", str(root), "--force"]) == 1
    assert "is the lab itself" in capsys.readouterr().err
    assert main(["start", str(tmp_path / "file" / "below")]) == 1
    assert capsys.readouterr().err.startswith("lab start: cannot write")


# reset ------------------------------------------------------------------------------------------------------


def test_reset_restores_the_functions_of_the_exercise_and_keeps_the_rest(lab: Path, root: Path, capsys):
    file = lab / "exercises" / "data.py"
    mine = file.read_text()
    mine = mine.replace('raise NotImplementedError("Exercise 3.1 is', 'return load()  # ("Exercise 3.1 is')
    before = mine
    mine = mine.replace('raise NotImplementedError("Exercise 3.2 is', 'return 1, 2  # ("Exercise 3.2 is')
    odd = "# pasted: \u2028 \x85 \x0c\n"  # Python sees one line, str.splitlines() four
    mine = odd + mine + "\n\ndef helper():\n    return 1\n"
    file.write_text(mine)
    assert main(["reset", "3.2"]) == 0
    assert file.read_text() == odd + before + "\n\ndef helper():\n    return 1\n"
    out = capsys.readouterr().out
    assert out.startswith("3.2 (get_dataloaders in data.py) is as it was at the beginning; yours is kept in .lab/")
    [kept] = (lab / ".lab").glob("backup-*/data.py")
    assert kept.read_text() == mine


def test_reset_restores_all_regions_of_an_exercise_even_where_the_function_is_gone(lab: Path, root: Path):
    file = lab / "exercises" / "train.py"
    text = file.read_text()
    begin, end = text.index("def train_one_epoch"), text.index("def evaluate")
    file.write_text(text[:begin] + "@decorated\ndef train_step():\n    pass\n\n\n" + text[end:].rstrip("\n"))
    assert main(["reset", "6.1"]) == 0
    restored = file.read_text()
    assert "@decorated" not in restored
    assert restored.count('"Exercise 6.1b is not done yet: train_one_epoch() in train.py"') == 1
    compile(restored, "train.py", "exec")


def test_reset_of_an_untouched_exercise_changes_nothing(lab: Path, capsys):
    assert main(["reset", "3.2"]) == 0
    assert "is as it was at the beginning already" in capsys.readouterr().out
    assert not (lab / ".lab").exists()


def test_reset_of_a_file_that_does_not_parse_offers_the_whole_file(lab: Path, root: Path, capsys):
    file = lab / "exercises" / "data.py"
    file.write_text("def (\n")
    assert main(["reset", "3.2"]) == 1
    error = capsys.readouterr().err
    assert "data.py does not parse" in error
    assert "`lab reset --file data.py`" in error
    assert main(["reset", "--file", "data.py"]) == 0
    assert file.read_text() == stub(root, "data.py")
    assert backups(lab) == ["data.py"]


def test_reset_brings_back_a_missing_file(lab: Path, root: Path, capsys):
    (lab / "exercises" / "data.py").unlink()
    assert main(["reset", "3.2"]) == 1
    assert "data.py is not there" in capsys.readouterr().err
    assert main(["reset", "--file", "data.py"]) == 0
    assert (lab / "exercises" / "data.py").read_text() == stub(root, "data.py")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["9.9"], 2, "there is no exercise 9.9; choose from 1.1"),
        (["--file", "../run.sh"], 1, "there is no ../run.sh among the exercises; choose from data.py"),
        (["--file", "utils.py"], 1, "there is no utils.py among the exercises"),
        ([], 2, "say either which exercise to reset"),
        (["3.2", "--file", "data.py"], 2, "say either which exercise to reset"),
    ],
)
def test_reset_refuses_what_it_does_not_know(lab: Path, capsys, arguments: list[str], code: int, message: str):
    assert main(["reset", *arguments]) == code
    assert message in capsys.readouterr().err


def test_reset_leaves_the_labs_own_solutions_alone(root: Path, capsys):
    before = {path: path.read_text() for path in (root / "solutions").rglob("*.py")}
    assert main(["reset", "3.2", "--code", "solutions"]) == 1
    assert "is the lab's own and was left as it is" in capsys.readouterr().err
    assert {path: path.read_text() for path in (root / "solutions").rglob("*.py")} == before


# The wheel --------------------------------------------------------------------------------------------------


def test_the_wheel_is_told_to_carry_the_same_files(root: Path):
    config = tomllib.loads((root / "pyproject.toml").read_text())
    included = config["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    names = [name for name in package.CONTENTS if name != "notebooks" and (root / name).exists()]
    # The notebooks one by one: the folder also holds their sources and the marking guide.
    names += [f"notebooks/{path.name}" for path in (root / "notebooks").glob("*.ipynb")]
    assert included == {name: f"lab/student_package/{name}" for name in names}


@pytest.mark.slow
def test_a_wheel_carries_the_package_but_no_solution_and_starts_a_lab(root: Path, tmp_path: Path):
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(tmp_path), str(root)]
    subprocess.run(command, check=True, timeout=300)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    assert {f"lab/student_package/exercises/{name}" for name in STUBS} <= set(names)
    assert {f"lab/templates/{path.name}" for path in (root / "lab" / "templates").iterdir()} <= set(names)
    assert [name for name in names if any(word in name for word in ("solutions", "__pycache__", "source/"))] == []
    # The second for courses that were built before lab/course was there.
    for room in ("lab/course", "lab/grading/course"):
        assert f"{room}/templates/base/mathjax.html.j2" in names
    program = "import sys; from lab.cli import main; sys.exit(main(['start', 'my-lab']))"
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    subprocess.run([sys.executable, "-P", "-c", program], cwd=tmp_path, env=env, check=True, timeout=60)
    exercises = tmp_path / "my-lab" / "exercises"
    assert {path.relative_to(exercises).as_posix() for path in exercises.rglob("*.py")} == STUBS
