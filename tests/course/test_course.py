"""The nbgrader course directory: complete, always the same bytes, and nothing in it that students may not see."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from pathlib import Path, PurePosixPath

import pytest
from forbidden import forbidden

from lab.base.errors import UserError
from lab.base.paths import module_file
from lab.cli import main
from lab.course import build as building
from lab.course.guide import guide_text
from lab.syllabus import package
from lab.syllabus.notebooks import check_id, sources
from lab.syllabus.syllabus import MODULES, PART_TWO, syllabus


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "course"
    assert main(["course", "build", str(folder)]) == 0
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def configuration(course: Path) -> dict:
    from traitlets.config import PyFileConfigLoader

    return PyFileConfigLoader("nbgrader_config.py", path=str(course)).load_config()


def test_building_again_gives_the_same_bytes_and_writes_nothing(course: Path, tmp_path: Path, capsys):
    other = tmp_path / "elsewhere"
    assert main(["course", "build", str(other)]) == 0
    assert content(other) == content(course)
    stamps = {path: path.stat().st_mtime_ns for path in other.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main(["course", "build", str(other)]) == 0
    assert f"{other} is up to date" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in other.rglob("*") if path.is_file()} == stamps


def test_the_assignment_is_the_students_package_with_the_notebooks_beside_exercises(course: Path):
    home = course / "source" / "lab"
    inside = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    given = {str(path) for path in package.package_files() if not package.in_part_two(path)}
    assert not {"exercises/fast.py", "exercises/from_scratch/ring.py"} & given
    assert inside == {name.removeprefix("notebooks/") for name in given}
    assert len(list(home.glob("*.ipynb"))) == 8
    assert os.access(home / "run.sh", os.X_OK)


def test_part_two_is_an_assignment_with_its_own_notebook_and_module(course: Path):
    home = course / "source" / "lab2"
    inside = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    given = {str(path) for path in package.package_files()}
    assert inside == {name for name in given if not name.startswith("notebooks/")} | {
        "8_fast.ipynb",
        "9_from_scratch.ipynb",
    }
    assert os.access(home / "run.sh", os.X_OK)


def test_each_assignment_has_the_points_of_its_part_and_no_others(course: Path):
    for name, of in (("lab", syllabus()), ("lab2", syllabus().part_two)):
        points = {}
        for book in (course / "source" / name).glob("*.ipynb"):
            for cell in json.loads(book.read_text())["cells"]:
                graded = cell["metadata"].get("nbgrader", {})
                if graded.get("grade_id", "").startswith("check-"):
                    points[graded["grade_id"]] = graded["points"]
        assert points == {check_id(exercise.id): exercise.points for exercise in of.exercises}
        assert sum(points.values()) == {"lab": 100, "lab2": syllabus().part_two.points}[name]


@pytest.mark.parametrize(("name", "least"), [("lab", 10), ("lab2", 1)])
def test_links_in_the_notebooks_lead_to_files_that_are_there(course: Path, name: str, least: int):
    import re

    home = course / "source" / name
    links = 0
    for book in home.glob("*.ipynb"):
        for cell in json.loads(book.read_text())["cells"]:
            for target in re.findall(r"\]\(([^)#:]+)\)", "".join(cell["source"])):
                links += 1
                assert (home / target).is_file(), f"{book.name}: {target}"
    assert links >= least


def test_exactly_the_students_modules_are_not_overwritten(course: Path):
    found = configuration(course)["Autograde"]["exclude_overwriting"]
    modules = sorted(f"exercises/{name}.py" for name in MODULES)
    assert found == {"lab": modules, "lab2": sorted(f"exercises/{module_file(name)}" for name in PART_TWO)}
    for assignment, names in found.items():
        for name in names:
            assert (course / "source" / assignment / name).is_file()


def test_settings_of_ones_own_stay_and_count(course: Path, tmp_path: Path):
    folder = tmp_path / "mine"
    main(["course", "build", str(folder)])
    (folder / "nbgrader_config_local.py").write_text('c = get_config()\nc.Exchange.root = "/srv/exchange"\n')
    (folder / "gradebook.db").write_text("marks")
    (folder / "source" / "lab" / "extra.ipynb").write_text("{}")
    main(["course", "build", str(folder)])
    assert configuration(folder)["Exchange"]["root"] == "/srv/exchange"
    assert (folder / "gradebook.db").read_text() == "marks"
    (folder / "source" / "lab2" / "more.py").write_text("")
    assert building.strangers(folder) == ["source/lab/extra.ipynb", "source/lab2/more.py"]


def changed(monkeypatch: pytest.MonkeyPatch, path: str, content: bytes) -> None:
    """Let a newer lab have another version of a file of the course."""
    files = building.course_files() | {PurePosixPath(path): content}
    monkeypatch.setattr(building, "course_files", lambda: files)


def test_what_an_instructor_has_changed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "course"
    mine, other = "source/lab/1_model.ipynb", "source/lab/run.sh"
    assert main(["course", "build", str(folder)]) == 0
    (folder / mine).write_text("my question")
    changed(monkeypatch, other, b"# newer\n")
    capsys.readouterr()
    assert main(["course", "build", str(folder)]) == 0
    said = capsys.readouterr().out
    assert f"{mine} is as you have changed it" in said
    assert "1 files written" in said
    assert (folder / mine).read_text() == "my question"
    assert (folder / other).read_text() == "# newer\n"

    changed(monkeypatch, mine, b"newer")
    changed(monkeypatch, other, b"# newest\n")
    assert main(["course", "build", str(folder)]) == 1
    assert f"{mine}: changed by you, and in the lab; nothing was written" in capsys.readouterr().err
    assert (folder / mine).read_text() == "my question"
    assert (folder / other).read_text() == "# newer\n"
    for _ in range(2):
        assert main(["course", "build", str(folder), "--keep-mine"]) == 0
        assert (folder / mine).read_text() == "my question"
        assert (folder / other).read_text() == "# newest\n"
    assert main(["course", "build", str(folder)]) == 0  # what the lab has is known now


def test_of_a_course_of_an_older_lab_what_is_replaced_is_kept_beside(tmp_path: Path):
    folder = tmp_path / "course"
    assert main(["course", "build", str(folder)]) == 0
    (folder / building.WRITTEN).unlink()
    (folder / "source/lab/1_model.ipynb").write_text("older, or mine")
    assert main(["course", "build", str(folder)]) == 0
    assert (folder / building.SAVED / "source/lab/1_model.ipynb").read_text() == "older, or mine"
    assert json.loads((folder / "source/lab/1_model.ipynb").read_text())


def test_a_folder_with_something_else_is_left_as_it_is(course: Path, tmp_path: Path, root: Path, capsys):
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "file").write_text("")
    for folder, said in ((tmp_path, "is not empty"), (tmp_path / "file", "is a file"), (root, "is not empty")):
        assert main(["course", "build", str(folder)]) == 1
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "notes.txt"]


@pytest.mark.parametrize("name", ["marking_guide", "marking_guide_two"])
def test_the_guide_has_every_question_in_order_and_is_outside_of_the_release(course: Path, root: Path, name: str):
    page = (course / "instructor" / f"{name}.md").read_text()
    guide = tomllib.loads((root / "notebooks" / "source" / f"{name}.toml").read_text())
    places = [page.index(f"`answer-{name}`") for name in guide]
    assert len(places) == len(guide)
    for entry in guide.values():
        assert entry["answer"] in page
    assert {path.split("/")[0] for path in content(course)} == {"instructor", "nbgrader_config.py", "source"}


def test_a_guide_that_does_not_fit_the_notebooks_is_an_error(tmp_path: Path, root: Path):
    books = sources(root / "notebooks" / "source")[:8]
    file = root / "notebooks" / "source" / "marking_guide.toml"
    copy = tmp_path / "marking_guide.toml"
    copy.write_text(file.read_text().replace("[why-shape]", "[why-form]"))
    with pytest.raises(UserError, match=r"differ in why-form, why-shape"):
        guide_text(copy, books)
    copy.write_text(file.read_text().replace("points = 2", 'points = "2"', 1))
    with pytest.raises(UserError, match=r"\[why-shape\]: points must be int"):
        guide_text(copy, books)


def test_no_solution_answer_or_source_is_in_the_assignment(course: Path, root: Path):
    """What nbgrader releases is made of source/ alone; the chain's test looks at the release itself."""
    assert forbidden(root, course / "source") == []


PRICED = {"instructor/course.toml", "source/lab/exercises/course.toml", "source/lab2/exercises/course.toml"}


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course that takes a quarter for asking why too early."""
    folder = tmp_path_factory.mktemp("priced") / "course"
    assert main(["course", "build", str(folder), "--why-costs", "0.25"]) == 0
    return folder


def test_a_price_for_asking_why_is_in_the_course_and_in_what_students_get_and_nowhere_else(
    course: Path, priced: Path
):
    with_it, without = content(priced), content(course)
    assert with_it.keys() - without.keys() == PRICED
    differ = {name for name in without if with_it[name] != without[name]}
    assert differ == {"instructor/written.json"}
    for name in PRICED:
        assert tomllib.loads(with_it[name].decode()) == {"why_costs": 0.25}
    assert b"# Once an exercise has passed, `lab check --why 3.2` shows for nothing" in with_it[min(PRICED)]
    assert building.strangers(priced) == []
    assert not any(path.name == "course.toml" for path in package.package_files())


def test_a_price_stays_until_it_is_taken_out_or_another(
    course: Path, priced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = Path(shutil.copytree(priced, tmp_path / "course"))
    capsys.readouterr()
    assert main(["course", "build", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "is up to date" in said
    assert "takes 0.25 of its points; --why-costs 0 ends that" in said
    assert content(folder) == content(priced)
    assert main(["course", "build", str(folder), "--why-costs", "0,5"]) == 0
    assert "3 files written" in capsys.readouterr().out
    assert {tomllib.loads((folder / name).read_text())["why_costs"] for name in PRICED} == {0.5}
    assert main(["course", "build", str(folder), "--why-costs", "0"]) == 0
    said = capsys.readouterr().out
    assert "0 files written, 3 taken out" in said
    assert "takes" not in said.replace("taken", "")
    assert content(folder) == content(course)
    assert main(["course", "build", str(folder)]) == 0
    assert content(folder) == content(course)


def test_words_of_an_instructor_to_the_price_stay_and_are_not_thrown_away(
    priced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = Path(shutil.copytree(priced, tmp_path / "course"))
    mine = folder / "source" / "lab" / "exercises" / "course.toml"
    mine.write_text("# As we said on Monday.\n" + mine.read_text())
    before = content(folder)
    assert main(["course", "build", str(folder)]) == 0
    assert "source/lab/exercises/course.toml is as you have changed it" in capsys.readouterr().out
    for share in ("0.5", "0"):
        assert main(["course", "build", str(folder), "--why-costs", share]) == 1
        assert "source/lab/exercises/course.toml: changed by you" in capsys.readouterr().err
        assert content(folder) == before


@pytest.mark.parametrize("share", ["25", "-0.1", "nan", "a quarter", "25%"])
def test_what_is_no_share_is_refused(share: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["course", "build", str(tmp_path / "course"), f"--why-costs={share}"]) == 2
    assert f"--why-costs {share}: expected a share of an exercise's points" in capsys.readouterr().err
    assert not (tmp_path / "course").exists()


def test_a_record_of_the_price_that_is_damaged_is_named(priced: Path, tmp_path: Path, capsys):
    folder = Path(shutil.copytree(priced, tmp_path / "course"))
    (folder / "instructor" / "course.toml").write_text("why_costs = 7\n")
    assert main(["course", "build", str(folder)]) == 1
    assert f"{folder / 'instructor' / 'course.toml'}: 7 is no share" in capsys.readouterr().err
    assert main(["course", "build", str(folder), "--why-costs", "0.25"]) == 0
    assert content(folder) == content(priced)
