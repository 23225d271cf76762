"""Where a line of a student's module stands, read from its text."""

import ast
from pathlib import Path
from textwrap import dedent, indent

import pytest

from lab.collectives.conduct import Conduct
from lab.collectives.lanes import Frame
from lab.grading.places import Place, fixed_loop, kept_from, place, read_lines, ways_in

TEXT = dedent("""
    import torch.distributed as dist

    def evaluate(rank):
        if rank == 0: dist.barrier()
        if (dist.get_rank()
                == dist.barrier()):
            pass
        for batch in range(3):
            if batch > 1:
                return dist.all_reduce(batch)
        dist.barrier()
        while True:
            dist.barrier()

        def inner():
            dist.barrier()
        return rank

    if rank:
        dist.barrier()
""")


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TEXT)
    return tmp_path


def look_up(code: Path, line: int) -> Place:
    return place(Frame(str(code / "train.py"), line, "evaluate", ""), code)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (5, Place("if rank == 0: dist.barrier()", "rank == 0", True, False)),
        (7, Place("== dist.barrier()):", "", False, False)),
        (11, Place("return dist.all_reduce(batch)", "batch > 1", False, True)),
        (12, Place("dist.barrier()", "", False, False)),
        (14, Place("dist.barrier()", "", False, True)),
        (17, Place("dist.barrier()", "", False, False)),
        (21, Place("dist.barrier()", "rank", True, False)),
        (99, Place()),
        (0, Place()),
    ],
)
def test_branches_and_loops(code: Path, line: int, expected: Place):
    assert look_up(code, line) == expected


def test_a_file_that_cannot_be_parsed_has_lines_all_the_same(code: Path):
    (code / "train.py").write_text("def (:\n    dist.barrier()\n")
    assert look_up(code, 2) == Place("dist.barrier()")


def test_only_ordinary_files_of_the_folder_itself_are_read(code: Path, tmp_path: Path):
    outside = tmp_path.parent / f"{tmp_path.name}-secret.py"
    outside.write_text("secret\n")
    (code / "link.py").symlink_to(outside)
    (code / "sub").mkdir()
    (code / "sub" / "inner.py").write_text("x = 1\n")
    (code / "large.py").write_text("x = 1\n" * 200_000)
    assert len(read_lines(str(code / "train.py"), code)) == TEXT.count("\n")
    for file in (
        outside,
        code / "link.py",
        code / "sub",
        code / "sub" / "inner.py",
        code / "large.py",
        code / "..",
        code / "no.py",
        f"{code}/../{outside.name}",
        f"{code}/\0",
        "train.py",
        "",
    ):
        assert read_lines(str(file), code) == []


# A function that calls there(), which ways its conditions went, and the line of the `if` that kept it away, or 0.
KEPT = {
    "around it": ("if a:\n    there()", {(2, "a"): {False}}, 2),
    "around it, and taken": ("if a:\n    there()", {(2, "a"): {True}}, 0),
    "around it, and taken once": ("if a:\n    there()", {(2, "a"): {True, False}}, 0),
    "around it, and not asked": ("if a:\n    there()", {}, 0),
    "the other branch": ("if a:\n    pass\nelse:\n    there()", {(2, "a"): {True}}, 2),
    "the other branch, which makes the same": (
        "if a:\n    b = 1\nelse:\n    b = there()",
        {(2, "a"): {True}},
        3,
    ),
    "the first branch, and the other makes the same": (
        "if a:\n    b = there()\nelse:\n    b = 1",
        {(2, "a"): {False}},
        5,
    ),
    "an elif": ("if a:\n    pass\nelif b:\n    there()", {(2, "a"): {False}, (4, "b"): {False}}, 4),
    "the outer one of two": ("if a:\n    if b:\n        there()", {(2, "a"): {False}}, 2),
    "the inner one of two": ("if a:\n    if b:\n        there()", {(2, "a"): {True}, (3, "b"): {False}}, 3),
    "and": ("if a and b:\n    there()", {(2, "a"): {True}, (2, "b"): {False}}, 2),
    "and, taken": ("if a and b:\n    there()", {(2, "a"): {True}, (2, "b"): {True}}, 0),
    "or": ("if a or b:\n    there()", {(2, "a"): {False}, (2, "b"): {False}}, 2),
    "or, taken": ("if a or b:\n    there()", {(2, "a"): {True}}, 0),
    "a return above it": ("if a:\n    return\nthere()", {(2, "a"): {True}}, 2),
    "a return above it, not taken": ("if a:\n    return\nthere()", {(2, "a"): {False}}, 0),
    "a return above it, taken once": ("if a:\n    return\nthere()", {(2, "a"): {True, False}}, 0),
    "an error above it": ("if a:\n    pass\nelse:\n    raise E\nthere()", {(2, "a"): {False}}, 2),
    "in another function": ("def g():\n    if a:\n        return\nthere()", {(3, "a"): {True}}, 0),
}


@pytest.mark.parametrize(("text", "went", "line"), KEPT.values(), ids=KEPT)
def test_what_kept_a_line_from_being_reached(
    text: str, went: dict[tuple[int, str], set[bool]], line: int, tmp_path: Path
):
    source = "def f():\n" + indent(text, "    ")
    number = next(i for i, one in enumerate(source.splitlines(), 1) if "there" in one)
    noted = tuple(((str(tmp_path / "train.py"), *place), frozenset(ways)) for place, ways in went.items())
    elsewhere = tuple(((str(tmp_path / "data.py"), *place), frozenset({True, False})) for place in went)
    ways = ways_in("train.py", [Conduct(conditions=noted), Conduct(conditions=elsewhere)])
    assert kept_from(ast.parse(source).body[0], number, ways) == line


LOOPS = {
    "range": ("for i in range(3):\n    there(blocks[i])", 1),
    "numbers": ("for i in (0, 1, 2):\n    there(blocks[i])", 1),
    "a name for the number": ("n = 3\nfor i in range(n):\n    there(blocks[i])", 2),
    "a comprehension": ("[there(blocks[i]) for i in range(3)]", 1),
    "as many as there are": ("for i in range(len(blocks)):\n    there(blocks[i])", 0),
    "a name for as many": ("n = len(blocks)\nfor i in range(n):\n    there(blocks[i])", 0),
    "an item that is not the loop's": ("for i in range(3):\n    there(blocks[j])", 0),
    "no loop": ("there(blocks[3])", 0),
}


@pytest.mark.parametrize(("text", "line"), LOOPS.values(), ids=LOOPS)
def test_a_loop_of_fixed_length(text: str, line: int):
    number = next(i for i, one in enumerate(text.splitlines(), 1) if "there" in one)
    assert fixed_loop(ast.parse(text), number) == line
