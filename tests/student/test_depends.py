"""What a result depends on: an exercise's functions and what they use, not the whole file."""

from pathlib import Path

import pytest

from lab.student.depends import code_hash, own_names
from lab.syllabus.syllabus import syllabus

MODULE = '''\
"""The model."""

from __future__ import annotations

import math
import os as system

LIMIT = 3
OTHER = 4


def used(x):
    return math.floor(x) + LIMIT


class CNN:
    def forward(self, x):
        return used(x)


def build_model(name):
    return OTHER, system
'''


@pytest.fixture
def digest(tmp_path: Path):
    def of(text: str | bytes) -> str:
        (tmp_path / "model.py").write_bytes(text if isinstance(text, bytes) else text.encode())
        return code_hash(syllabus()["1.1"], tmp_path)

    return of


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return OTHER, system", "return system.path"),
        ("OTHER = 4", "OTHER = 5"),
        ("import os as system", "import sys as system"),
        ('"""The model."""', '"""My model."""'),
        ("return used(x)", "return used(\n            x  # a comment\n        )"),
    ],
)
def test_what_the_exercise_does_not_use_does_not_count(digest, old: str, new: str):
    assert digest(MODULE.replace(old, new)) == digest(MODULE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return used(x)", "return used(x) + 1"),
        ("LIMIT = 3", "LIMIT = 4"),
        ("import math", "import cmath as math"),
        ("return math.floor(x)", "return math.ceil(x)"),
        ("OTHER = 4", "OTHER = 4\nprint(OTHER)"),  # every import runs it
        ("return OTHER, system", "global LIMIT; LIMIT = 5"),
        ("def build_model", "def used(x): return 1\n\n\ndef build_model"),
        ("from __future__ import annotations", ""),
        ("def build_model(name):", "def build_model(name:"),  # does not parse: all of it counts
    ],
)
def test_what_it_uses_counts(digest, old: str, new: str):
    assert digest(MODULE.replace(old, new)) != digest(MODULE)


def test_a_module_without_the_exercise_counts_as_a_whole_and_one_that_cannot_be_read_as_nothing(digest, tmp_path):
    assert digest("# one\n") != digest("# two\n") != ""
    assert digest(b"\xff\n") != ""
    (tmp_path / "model.py").unlink()
    assert code_hash(syllabus()["1.1"], tmp_path) == ""
    (tmp_path / "model.py").mkdir()
    assert code_hash(syllabus()["1.1"], tmp_path) == ""


def test_every_exercise_has_the_functions_of_its_todos():
    of = syllabus()
    assert own_names(of["2.3"]) == {"cleanup", "is_main_process"}
    assert own_names(of["3.3"]) == {"ValidationShard"}
    assert own_names(of["5.1"]) == {"run", "wrap_model"}
    assert own_names(of["6.1"]) == {"train_step", "train_one_epoch"}
