"""The notebooks: what is committed is what the sources give, every question is there and has its marking guide."""

import csv
import json
import re
import subprocess
import tomllib
from pathlib import Path, PurePosixPath
from statistics import median

import nbformat
import pytest

from lab.cli import main
from lab.questions.asking import BANK
from lab.syllabus import given_before, notebooks
from lab.syllabus.generated import drift
from lab.syllabus.notebooks import NotebookError, build_notebook, check_id
from lab.syllabus.package import package_files
from lab.syllabus.syllabus import syllabus

POINTS = notebooks.points_of(syllabus())

# Section -> the questions that belong to it.
QUESTIONS = {
    "1_model": ["why-shape"],
    "2_distributed_setup": ["why-local-rank", "srun-or-torchrun", "no-cleanup"],
    "3_data": ["sync-after-download", "no-sampler"],
    "4_wrapping": [
        *("replicated-or-sharded", "auto-wrap-policy", "mixed-precision-policy", "full-shard", "when-fsdp"),
    ],
    "5_putting_it_together": ["optimizer-after-wrapping"],
    "6_training_loop": [
        *("zero-grad-forgotten", "why-no-grad", "why-all-reduce", "why-train-again"),
        *("loss-falls", "ddp-against-fsdp"),
    ],
    "7_benchmarks": [
        *("three-plots", "scaling-ideal", "accuracy-suffers", "less-memory"),
        *("explore-batch", "explore-epochs", "explore-precision"),
    ],
    "8_fast": ["launch-bound", "hidden-waits", "no-branches", "when-not-to-capture"],
    "9_from_scratch": [
        *("ring-latency", "buckets-in-order", "zero-states", "fsdp-bytes", "tensor-parallel-where"),
        "pipeline-bubble",
        "hsdp-bytes",
    ],
}


@pytest.fixture(scope="module")
def built(root: Path) -> dict[str, nbformat.NotebookNode]:
    found = notebooks.sources(root / "notebooks" / "source")
    return {path.stem: build_notebook(path, POINTS) for path in found}


@pytest.fixture(scope="module")
def guide(root: Path) -> dict[str, dict]:
    folder = root / "notebooks" / "source"
    one, two = (tomllib.loads((folder / f"marking_guide{part}.toml").read_text()) for part in ("", "_two"))
    assert not set(one) & set(two)
    return one | two


def source(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "1_model.py"
    path.write_text(text)
    return path


# The notation ---------------------------------------------------------------------------------------------

GOOD = """\
# %% [markdown]
# Look at [model.py](../exercises/model.py).

# %% check="1.1"
check("1.1")

# %% [markdown] answer="why-shape" points=2
# *Write your answer here.*
"""


def test_the_notation_becomes_nbgraders_cells(tmp_path):
    plain, check, answer = build_notebook(source(tmp_path, GOOD), POINTS).cells
    assert "nbgrader" not in plain.metadata
    assert check.metadata["nbgrader"] == {
        "schema_version": 3,
        "grade": True,
        "grade_id": "check-1-1",
        "locked": True,
        "points": 6,
        "solution": False,
        "task": False,
    }
    assert check.id == "check-1-1"
    assert answer.metadata["nbgrader"] == {
        "schema_version": 3,
        "grade": True,
        "grade_id": "answer-why-shape",
        "locked": False,
        "points": 2,
        "solution": True,
        "task": False,
    }
    assert answer.cell_type == "markdown"


def test_links_follow_where_the_notebook_will_lie(tmp_path):
    in_folder = build_notebook(source(tmp_path, GOOD), POINTS)
    beside = build_notebook(source(tmp_path, GOOD), POINTS, beside_exercises=True)
    assert "(../exercises/model.py)" in in_folder.cells[0].source
    assert "(exercises/model.py)" in beside.cells[0].source


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('check="1.1"', 'check="9.9"'), "cell 2: check='9.9': the syllabus has no such exercise"),
        (('check("1.1")', 'check("1.2")'), 'cell 2: the cell must be exactly check("1.1")'),
        (("points=2", 'points="2"'), "cell 3: points='2': expected a whole number"),
        (("why-shape", "why shape"), "cell 3: answer='why shape': a name is small letters with dashes"),
        ((" points=2", ""), 'cell 3: expected check="3.2", or answer="why-shape" points=2'),
        (('check="1.1"', 'chekc="1.1"'), "cell 2: chekc means nothing here"),
        (("# %% [markdown] answer", "# %% answer"), "cell 3: an answer is a [markdown] cell"),
    ],
)
def test_a_wrong_notation_is_named_with_its_cell(tmp_path, change, message):
    with pytest.raises(NotebookError, match=re.escape(f"1_model.py: {message}")):
        build_notebook(source(tmp_path, GOOD.replace(*change)), POINTS)


def test_a_cell_that_is_there_twice_is_an_error_in_one_notebook_and_in_two(tmp_path):
    again = GOOD.replace("# %% [markdown]\n", '# %% check="1.1"\ncheck("1.1")\n\n# %% [markdown]\n', 1)
    with pytest.raises(NotebookError, match="check-1-1 is there twice"):
        build_notebook(source(tmp_path, again), POINTS)
    folder = tmp_path / "source"
    folder.mkdir()
    for name in ("1_model.py", "2_other.py"):
        (folder / name).write_text(GOOD)
    with pytest.raises(NotebookError, match=r"2_other\.ipynb: check-1-1 is in 1_model\.ipynb already"):
        notebooks.generate(tmp_path, POINTS)


# What is committed ----------------------------------------------------------------------------------------


def test_the_notebooks_are_what_the_sources_give(root: Path):
    texts = notebooks.generate(root / "notebooks", POINTS)
    assert list(texts) == [f"{name}.ipynb" for name in ("0_start", *QUESTIONS)]
    assert drift(texts, root / "notebooks", ".ipynb") == []
    assert notebooks.generate(root / "notebooks", POINTS) == texts


def test_the_command_exits_with_1_on_drift_and_repairs_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "notebooks" / "source").mkdir(parents=True)
    (tmp_path / "notebooks" / "source" / "1_model.py").write_text(GOOD)
    (tmp_path / "notebooks" / "old.ipynb").write_text("{}")
    monkeypatch.setattr("lab.commands.notebooks.checkout", lambda: tmp_path)
    assert main(["notebooks", "--check"]) == 1
    assert capsys.readouterr().out.count("run `lab notebooks`") == 2
    assert main(["notebooks"]) == 0
    assert main(["notebooks", "--check"]) == 0
    assert [path.name for path in (tmp_path / "notebooks").glob("*.ipynb")] == ["1_model.ipynb"]


def test_every_exercise_has_its_check_cell_in_its_section_and_every_question_its_answer_cell(built):
    for name, notebook in built.items():
        section = int(name[0])
        checks = [check_id(e.id) for e in syllabus().every if e.section == section]
        answers = [f"answer-{question}" for question in QUESTIONS.get(name, [])]
        assert sorted(notebooks.grade_ids(notebook.cells)) == sorted(checks + answers), name


def test_the_question_stands_before_its_answer(built):
    for name, notebook in built.items():
        for before, cell in zip(notebook.cells, notebook.cells[1:], strict=False):
            grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
            if grade_id.startswith("answer-explore"):
                assert "*Prediction:*" in cell.source, name
            elif grade_id.startswith("answer-"):
                assert before.source.startswith("**Question.**"), grade_id
                assert "?" in before.source, grade_id
                assert cell.source == "*Write your answer here.*"


def test_every_answer_is_in_the_marking_guide_with_its_points(built, guide):
    worth = {}
    for notebook in built.values():
        for cell in notebook.cells:
            grading = cell.metadata.get("nbgrader", {})
            if grading.get("solution"):
                worth[grading["grade_id"].removeprefix("answer-")] = grading["points"]
    assert {name: entry["points"] for name, entry in guide.items()} == worth
    for name, entry in guide.items():
        assert set(entry) == {"points", "question", "answer", "full", "half"}, name
        assert all(entry[key].strip() for key in ("question", "answer", "full", "half")), name


def test_every_notebook_says_how_long_it_takes_and_what_one_can_do_afterwards(built):
    for name, notebook in built.items():
        first = notebook.cells[0].source
        assert first.startswith(f"# {name[0]} · "), name
        assert "**Afterwards you can**" in first
        [minutes] = re.findall(r"^\| (\d+) \|", first, flags=re.MULTILINE)
        exercises = [e.minutes for e in syllabus().every if e.section == int(name[0])]
        assert int(minutes) == sum(exercises) or not exercises, name


def test_every_exercise_says_how_difficult_and_important_it_is_before_its_check(built):
    for name, notebook in built.items():
        text = "\n".join(cell.source for cell in notebook.cells)
        for exercise in syllabus().every:
            if exercise.section == int(name[0]) <= 8:
                heading = rf"^## Exercise {re.escape(exercise.id)}: .+\n\n"
                line = rf"\*Difficulty ●+○*, importance ●+○*, {exercise.minutes} minutes\.\*\n\n"
                assert re.search(heading + line, text, re.M), exercise.id


def test_every_section_ends_with_what_one_could_not_do_before_and_most_have_a_bonus(built):
    for name, notebook in built.items():
        if int(name[0]) <= 8:
            text = "\n".join(cell.source for cell in notebook.cells[-4:])
            assert "**What you could not do before:**" in text, name
            assert ("**Bonus:**" in text) == (name != "0_start"), name


def test_every_small_question_is_asked_once_in_its_section(built):
    asked = {
        question: int(name[0])
        for name, notebook in built.items()
        for cell in notebook.cells
        for question in re.findall(r'^question\("([\w-]+)"\)$', cell.source, re.M)
    }
    assert asked == {one.name: one.section for one in BANK.values()}


def test_every_section_from_2_to_7_has_an_experiment_on_real_ranks(built):
    ran = {
        int(name[0]) for name, book in built.items() for cell in book.cells if cell.source.startswith("%%ranks")
    }
    assert ran >= {2, 3, 4, 5, 6, 7}


def test_the_worked_reading_says_what_was_measured(built, root: Path):
    """Of docs/scaling-plot.png, which results.csv's eager weak runs have drawn."""
    rows = csv.DictReader((root / "docs" / "results" / "gpu" / "results.csv").read_text().splitlines())
    speeds: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        eager = row["scaling"] == "weak" and "--capture" not in row["variant"] and row["epoch"] == "summary"
        if eager and row["status"] == "done":
            one = (row["strategy"], int(row["world_size"]))
            speeds.setdefault(one, []).append(float(row["images_per_sec"]))
    base = median(speeds["none", 1])
    text = "\n".join(cell.source for cell in built["7_benchmarks"].cells)
    per_cent = {
        strategy: [round(100 * median(speeds[strategy, n]) / n / base) for n in (1, 2, 4)]
        for strategy in ("ddp", "fsdp")
    }
    for strategy, (one, two, four) in per_cent.items():
        assert f"{strategy} {one}, {two} and {four}%" in text
    assert f"{base:,.0f} images/s" in text
    ddp = median(speeds["ddp", 1])
    assert f"({ddp:,.0f})" in text
    assert f"{100 * median(speeds['ddp', 4]) / 4 / ddp:.0f}% in place of {per_cent['ddp'][2]}%" in text


DOCUMENTATION = (
    *("https://docs.pytorch.org/", "https://docs.nvidia.com/deeplearning/nccl/", "https://slurm.schedmd.com/"),
    "https://pandas.pydata.org/docs/",
    "https://arxiv.org/abs/",
)


def test_links_lead_to_notebooks_and_files_that_are_there_and_to_the_documentation(built, root: Path):
    for name, notebook in built.items():
        documentation = 0
        for target in re.findall(r"\]\(([^)]+)\)", "\n".join(cell.source for cell in notebook.cells)):
            documentation += target.startswith(DOCUMENTATION)
            if not target.startswith(DOCUMENTATION):
                file, _, word = target.partition("#")
                assert (root / "notebooks" / file).exists(), f"{name}: {target}"
                if word:
                    headings = re.findall(r"^## (.+)$", (root / "notebooks" / file).read_text(), re.MULTILINE)
                    assert word in [one.lower().replace(" ", "-") for one in headings], f"{name}: {target}"
        assert documentation >= 2 or name == "0_start", f"{name} does not say where to look things up"


def test_every_todo_that_a_notebook_names_is_in_the_file(built, root: Path):
    stubs = "\n".join(path.read_text() for path in (root / "exercises").rglob("*.py"))
    found = 0
    for notebook in built.values():
        for todo in re.findall(r"`TODO (\d\.\d[a-z]?)`", "\n".join(cell.source for cell in notebook.cells)):
            assert f"# TODO {todo}: " in stubs
            found += 1
    assert found >= len(syllabus().every)


def test_students_get_the_notebooks_but_neither_sources_nor_marking_guide(guide):
    files = {str(path): file for path, file in package_files().items()}
    assert sum(name.endswith(".ipynb") for name in files) == 10
    assert not [name for name in files if "source" in name or "guide" in name]
    everything = "\n".join(file.read_text(errors="replace") for file in files.values())
    for name, entry in guide.items():
        assert entry["answer"][:40] not in everything, name


# What was given out before --------------------------------------------------------------------------------


def test_lines_that_students_are_given_no_more_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def git(*command: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a", *command], cwd=tmp_path, check=True)

    def saved(*lines: str) -> None:
        (tmp_path / "1.ipynb").write_text(json.dumps({"cells": [{"source": "\n".join(lines)}]}))
        git("add", ".")
        git("commit", "--quiet", "--message", "text")

    monkeypatch.setattr(given_before, "FILE", tmp_path / "before.txt")
    monkeypatch.setattr(given_before, "package_files", lambda: {PurePosixPath("1.ipynb"): tmp_path / "1.ipynb"})
    given_before.FILE.write_text("known before\n")
    git("init", "--quiet")
    saved("old  one", "known before", "today")
    saved("today", "new")
    assert given_before.missing(tmp_path) == ["old one"]
    assert given_before.add_missing(tmp_path) == 1
    assert given_before.FILE.read_text() == "known before\nold one\n"


@pytest.mark.slow
def test_nothing_that_this_history_has_given_out_is_forgotten(root: Path):
    if not (root / ".git").exists():
        pytest.skip("needs the repository's history")
    assert given_before.missing(root) == [], (
        "type `lab notebooks`, which adds them to lab/syllabus/given_before.txt"
    )
