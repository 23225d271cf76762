"""lab grade --similar: copies come first, however they were disguised, and what is common says nothing."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from textwrap import dedent

import pytest
from class_of_answers import copied, independent

from lab.course import store
from lab.course.marks import ExerciseMark, OutcomeRecord, SubmissionRecord
from lab.course.similar.fingerprint import fingerprint
from lab.course.similar.pairs import Comparison, compared
from lab.course.similar.write import write_similar

ROOT = Path(__file__).resolve().parents[2]
STUBS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "exercises").glob("*.py")}
PLANTED = [(f"copy{number:02}", f"s{number:02}") for number in (3, 17, 29, 41, 55)]


@pytest.fixture(scope="module")
def class_of_65() -> dict[str, dict[str, str]]:
    students = {f"s{number:02}": independent(number) for number in range(60)}
    return students | {copy: copied(students[student], int(student[1:])) for copy, student in PLANTED}


@pytest.fixture(scope="module")
def found(class_of_65: dict[str, dict[str, str]]) -> Comparison:
    return compared(class_of_65, STUBS)


def test_five_planted_copies_of_sixty_independent_right_answers_come_first(found: Comparison):
    assert sorted(pair.students for pair in found.pairs[:5]) == sorted(PLANTED)
    scores = [pair.score for pair in found.pairs]
    assert scores[4] > 1.5 * scores[5]  # and stand out
    assert found.unread == []


def test_most_of_a_copy_is_marked(class_of_65: dict[str, dict[str, str]], found: Comparison):
    pair = found.pairs[0]
    for alike in pair.modules[:2]:
        assert alike.share > 0.6
        for student in pair.students:
            lines = class_of_65[student][alike.module].splitlines()
            assert len(found.lines(student, alike)) > 10
            assert max(found.lines(student, alike)) <= len(lines)


RIGHT = '''
def average(model):
    """The mean of all gradients."""
    total = dist.get_world_size()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad = p.grad / total

class Box:
    def __init__(self, size: int = 3) -> None:
        self.size = size
        self.other = size * 4 - 2

    def double(self, by):
        return [x * by + self.size ** 2 for x in range(self.other) if x % 3 != by]
'''
BEGIN = "import torch.distributed as dist\n"


@pytest.mark.parametrize(
    "other",
    [
        BEGIN + RIGHT.replace("total", "w").replace("p.", "param.").replace("for p ", "for param "),
        BEGIN
        + RIGHT.replace(
            "        dist.all_reduce(p.grad)", "        # sum\n\n        dist.all_reduce(\n   p.grad,\n  )"
        ),
        "import torch.distributed as td\n" + RIGHT.replace("dist.", "td."),
        "from torch import distributed as dist\n" + RIGHT,
        BEGIN + re.sub(r"\bsize\b", "grösse", RIGHT).replace("other", "ä").replace("double", "twice"),
        BEGIN
        + RIGHT.replace('    """The mean of all gradients."""\n', "").replace(" -> None", "").replace(": int", ""),
        BEGIN + RIGHT[RIGHT.index("class Box") :] + RIGHT[: RIGHT.index("class Box")],
        BEGIN + RIGHT.replace("p.grad / total", "((p.grad) / (total))"),
    ],
)
def test_a_fingerprint_is_the_same_however_a_program_is_written_down(other: str):
    one, two = fingerprint(BEGIN + RIGHT), fingerprint(other)
    assert one is not None
    assert two is not None
    assert one.kept == two.kept
    assert len(one.kept) > 5


def test_another_program_has_another_fingerprint():
    one = fingerprint(BEGIN + RIGHT)
    two = fingerprint(BEGIN + RIGHT.replace("dist.all_reduce(p.grad)", "dist.broadcast(p.grad, 0)"))
    assert one is not None
    assert two is not None
    assert one.kept != two.kept
    assert fingerprint("def f(:\n") is None


HINTED = """
def f(x, y):
    result = [x * 2 + 1 for x in range(10) if x % 2 != 0]
    for y in result:
        print(y, sum(result) / len(result), sorted(result)[-1])
    return result
"""
RARE = """
def g(z):
    while z > 3 and not z % 7 == 0:
        z -= max(1, z // 5) if z < 100 else min(z, 17)
    return abs(z) ** 3 - 12
"""


def test_what_many_have_weighs_less_than_what_two_have():
    own = [
        f"\ndef h{n}(a):\n    return a" + "".join(f" {'+-*/'[(n + k) % 4]} {n * 7 + k}" for k in range(14))
        for n in range(9)
    ]
    class_ = {f"s{n}": {"data.py": (HINTED * 3 if n > 1 else HINTED) + own[n]} for n in range(9)}
    for student in ("s0", "s1"):
        class_[student] = {"data.py": class_[student]["data.py"] + RARE}
    pairs = compared(class_, {}).pairs
    assert pairs[0].students == ("s0", "s1")
    assert pairs[0].score > 3 * pairs[1].score


def test_what_everybody_was_given_counts_for_nobody():
    assert compared({"a": {"data.py": HINTED}, "b": {"data.py": HINTED}}, {"data.py": HINTED}).pairs == []
    assert compared({"a": {"data.py": HINTED}, "b": {"data.py": HINTED}}, {}).pairs != []


def graded(student: str, name: str, **code: str) -> SubmissionRecord:
    mark = ExerciseMark("1.1", "t", 8.0, 8, OutcomeRecord("t", "passed"))
    modules = {f"{module}.py": dedent(text) for module, text in code.items()}
    return SubmissionRecord(student, "k", (mark,), name=name, code=modules)


def test_the_page_shows_both_and_accuses_nobody(tmp_path: Path):
    evil = "x = '<script>alert(1)</script>'\n"
    for one in (
        graded("ada", "Ada L.", data=RARE + evil, model=RARE),
        graded("bob", "Bob Hope", data=evil + RARE, model="def f(:\n"),
        graded("eve", "", data=HINTED),
        graded("old", ""),
    ):
        store.save(tmp_path, one)
    said: list[str] = []
    write_similar(tmp_path, said.append)
    page = (tmp_path / "similar.html").read_text(encoding="utf-8")
    assert '<h2 id="p1">1. Ada L. (ada) and Bob Hope (bob)</h2>' in page
    assert "accuses nobody" in page
    assert "<script" not in page
    assert '<span class="same">    while z &gt; 3' in page
    assert "Bob Hope's model.py" in page
    assert "an older lab has graded them: old" in page
    assert said[1] == "Not compared, as an older lab has graded them: 1; grade them again with --force"
    [row] = csv.DictReader((tmp_path / "similar.csv").open(encoding="utf-8"))
    assert (row["student"], row["other_name"], row["module"], row["share"]) == (
        "ada",
        "Bob Hope",
        "data.py",
        "1.00",
    )
    assert row["lines"].startswith("2 3")
    assert (tmp_path / "similar.html").stat().st_mode & 0o777 == 0o600
