"""Where a line of a student's module stands, read from its text."""

from pathlib import Path
from textwrap import dedent

import pytest

from lab.collectives.lanes import Frame
from lab.grading.places import Place, place, read_lines

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
