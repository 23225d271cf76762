"""%%ranks: a cell on real ranks, in a kernel and through its function."""

import json
import re
from pathlib import Path

import pytest
from notebook_runs import errors, run_cells, shown

from lab.cli import main
from lab.grading.trace.cell import MARK, split_output

IMPORT = "from lab.notebook import check"
# How rows begin of which every number is known.
EXPERIMENTS = ("largest difference", "DDP: it", "DDP: early", "FSDP: it", "FSDP: early", "padded: accuracy")
EXPERIMENTS += ("each once: accuracy", "mean of the means")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("LAB_GRADING", "1")  # importing it starts nothing
    from lab.notebook import ranks_cell, session

    monkeypatch.setattr(session, "HERE", tmp_path)
    return ranks_cell.run


def test_in_a_notebook_what_ranks_show_stands_side_by_side_above_their_collectives(tmp_path: Path):
    source = (
        "x = torch.ones(2) * rank\nshow('before', x)\ndist.all_reduce(x)\nshow('after', x)\nprint('I am', rank)"
    )
    cells = run_cells(tmp_path, [IMPORT, f"%%ranks 3\n{source}", "'x' in globals()"])
    assert errors(cells) == []
    said = shown(cells[1]).splitlines()
    assert said[1:3] == ["before: [0, 0]  [1, 1]  [2, 2]", "after: [3, 3]  [3, 3]  [3, 3]"]
    assert "rank 2: I am 2" in said
    assert "   1  ●───●───●  all_reduce [2]  cell.py:4" in said, "lines are counted as in the cell"
    html = cells[1].outputs[0]["data"]["text/html"]
    assert "<svg" in html
    assert html.count("<td>[3, 3]</td>") == 3
    assert shown(cells[2]) == "False", "nothing of it stays in the notebook"


def test_a_cell_that_shows_nothing_shows_the_tensors_that_it_leaves(run):
    text = run(2, "x = torch.arange(2) + rank\n_hidden = x\nbig = torch.zeros(9, 9)\nword = 'x'").text
    assert text.splitlines()[1:] == ["x: [0, 1]  [1, 2]", "big: float32 [9, 9]  float32 [9, 9]"]


def test_a_hang_is_explained_and_what_came_before_it_is_shown(run):
    card = run(3, "show('mine', rank)\nif rank == 0:\n    dist.barrier()")
    assert "mine: 0  1  2" in card.text
    assert (
        "saw    rank 0 waits in barrier at cell.py:4; ranks 1 and 2 had gone on without calling it." in card.text
    )
    assert (
        "means  A barrier opens only when every rank has come to it, so it must not stand in a branch."
        in card.text
    )
    assert "◐   ✗   ✗  barrier" in card.text
    assert "<dt>saw</dt>" in card.html


def test_an_error_names_its_rank_and_line(run):
    text = run(2, "if rank == 1:\n    raise ValueError('<b>no</b>')\ndist.barrier()").text
    assert "saw    rank 1 raised ValueError: <b>no</b>" in text
    assert "look   cell.py:3  raise ValueError('<b>no</b>')" in text
    assert "&lt;b&gt;" in run(1, "print('<b>')").html


def test_a_students_modules_can_be_used_and_one_that_is_not_done_is_named(run, tmp_path: Path, root: Path):
    assert main(["start", str(tmp_path / "lab")]) == 0
    from lab.notebook import session

    session.HERE = tmp_path / "lab" / "notebooks"  # the fixture puts it back
    code = (
        "from ddp_utils import average_gradients\nw = torch.nn.Linear(1, 1)\nw(torch.ones(1) * rank).backward()\n"
        "average_gradients(w)\nshow('gradient', w.weight.grad)"
    )
    assert "the cell uses exercise 4.0, which is not done yet" in run(2, code).text
    solution = (root / "solutions" / "ddp_utils.py").read_text()
    (tmp_path / "lab" / "exercises" / "ddp_utils.py").write_text(solution)
    assert "gradient: [[0.5]]  [[0.5]]" in run(2, code).text


@pytest.mark.parametrize(
    ("line", "cell", "sentence"),
    [
        ("", "1", "how many ranks, from 1 to 8"),
        ("9", "1", "how many ranks, from 1 to 8"),
        ("2", "x = (", r"line 2 of the cell: '\(' was never closed"),
    ],
)
def test_what_is_misused_is_said_in_one_sentence(run, monkeypatch, line: str, cell: str, sentence: str):
    from lab.notebook.ranks_cell import ranks
    from lab.notebook.show import Said

    monkeypatch.delenv("LAB_GRADING")
    with pytest.raises(Said, match=sentence):
        ranks(line, cell)


def test_while_it_is_graded_nothing_runs(run, capsys):
    from lab.notebook.ranks_cell import ranks

    ranks("2", "raise SystemExit")
    assert capsys.readouterr().out == "Not run while it is graded.\n"


def test_output_that_was_cut_is_still_output():
    output = f'one\n{MARK}["a", "1"]\ntwo{MARK}["b", "2"]\n{MARK}["c"\n{MARK}3\nend'
    assert split_output(output) == ([("a", "1"), ("b", "2")], f'one\ntwo\n{MARK}["c"\n{MARK}3\nend')


def test_every_cell_of_the_notebooks_ends_as_it_should(run, root: Path, monkeypatch: pytest.MonkeyPatch):
    """With all exercises done; those that hang on purpose are explained."""
    from lab.notebook import session

    monkeypatch.setattr(session, "HERE", root / "solutions")
    hang, ran, said = [], 0, []
    for book in sorted((root / "notebooks").glob("*.ipynb")):
        for cell in json.loads(book.read_text())["cells"]:
            magic, _, code = "".join(cell["source"]).partition("\n")
            if magic.startswith("%%ranks"):
                ran += 1
                text = run(int(magic.split()[1]), code).text
                assert "Warning" not in text, code
                said += text.splitlines()
                if "saw  " in text:
                    hang.append(book.stem)
    assert ran >= 11
    assert hang == ["2_distributed_setup"]
    assert [line for line in said if line.startswith(EXPERIMENTS)] == [
        "largest difference: 0  0",  # averaged by hand and by DDP, to the last digit
        "DDP: it keeps: 113738  113738",
        "DDP: early optimizer: its parameters  its parameters",
        "FSDP: it keeps: 56869  56869",
        "FSDP: early optimizer: others  others",
        "padded: accuracy: 0.625  0.625",
        "each once: accuracy: 0.5714  0.5714",  # 4/7
        "mean of the means: 0.5833  0.5833",
    ]
    drawn = [line.partition(": ") for line in said if line.startswith(("told", "not told"))]
    assert [name for name, _, _ in drawn] == [f"{how}, epoch {n}" for how in ("not told", "told") for n in (1, 2)]
    for _, _, row in drawn:
        assert sorted(map(int, re.findall(r"\d+", row))) == list(range(12)), "each sample once, told or not"
    assert drawn[0][2] == drawn[1][2]
    assert len({row for _, _, row in drawn[1:]}) == 3
    assert [line for line in said if re.match(r"16384 KB: [\d.]+ ms  [\d.]+ ms", line)]
