"""What a student's code does that its results do not show, as a rank notes it and as the grader reads it."""

import builtins
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.collectives import conduct, departures

CODE = """
import os
from contextlib import suppress

def hides():
    try:
        int("x", y=1)
    except Exception:
        pass

def tells():
    try:
        int("x")
    except ValueError as error:
        raise KeyError("x") from error

def suppresses():
    with suppress(ValueError):
        int("x")

def parts(rank):
    if rank == 0:
        return 1
    rank > 1 and print(rank)
    return 2 if rank == 1 else 3

def sets():
    os.environ["MASTER_PORT"] = "12355"
    os.environ["OTHER"] = "1"

def chooses(rank, values):
    kept = [value for value in values if value is not None and value > rank]
    return kept if values and (rank == 0 or len(kept) > 1) else None
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    for name in ("_caught", "_took"):
        monkeypatch.setattr(conduct, name, {})
    for name in ("_set", "_forced"):
        monkeypatch.setattr(conduct, name, [])
    for name in ("__setitem__", "__delitem__"):  # put back afterwards
        monkeypatch.setattr(type(os.environ), name, getattr(type(os.environ), name))
    monkeypatch.setenv("MASTER_PORT", "29500")
    path = tmp_path / "train.py"
    path.write_text(CODE)
    conduct.begin(tmp_path)
    namespace: dict[str, Any] = {"__name__": "train"}
    exec(departures.compiled(path.read_bytes(), str(path), conduct.Noting(str(path))), namespace)
    yield namespace
    for name in ("__lab_note_caught__", "__lab_note_took__", "__lab_note_departure__"):
        delattr(builtins, name)


def noted() -> conduct.Conduct:
    return conduct.read_conduct(conduct.notes())


def test_an_error_that_is_caught_and_kept(module: dict[str, Any]):
    module["hides"]()
    (caught,) = noted().caught
    assert (caught.line, caught.function, caught.type, caught.handler, caught.broad) == (
        7,
        "hides",
        "TypeError",
        8,
        True,
    )


def test_one_that_leads_to_another_is_no_secret(module: dict[str, Any]):
    with pytest.raises(KeyError):
        module["tells"]()
    assert not noted().caught


def test_a_suppressed_error(module: dict[str, Any]):
    module["suppresses"]()
    (caught,) = noted().caught
    assert (caught.line, caught.type, caught.broad) == (19, "ValueError", False)


def test_conditions_and_the_ways_they_went(module: dict[str, Any]):
    assert [module["parts"](rank) for rank in (0, 1)] == [1, 2]
    ways = {text: sorted(way) for (_, _, text), way in noted().conditions}
    assert ways == {"rank == 0": [False, True], "rank > 1": [False], "rank == 1": [True]}


def test_each_part_of_a_condition_is_noted_by_itself_also_in_a_comprehension(
    module: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    assert module["chooses"](1, [None, 1, 2]) is None
    ways = {text: sorted(way) for (_, _, text), way in noted().conditions}
    assert ways == {
        "value is not None": [False, True],
        "value > rank": [False, True],
        "values": [True],
        "rank == 0": [False],
        "len(kept) > 1": [False],
    }
    # With one of them forced, the others still guard it: None is not compared.
    monkeypatch.setattr(conduct, "_forced", [("train.py", 32, True, "value > rank")])
    assert module["chooses"](1, [None, 1, 2]) == [1, 2]


def test_a_condition_goes_where_it_is_forced_to(module: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(conduct, "_forced", [("train.py", 22, True, "rank == 0")])
    assert module["parts"](5) == 1
    ((_, ways),) = noted().conditions
    assert ways == {False}  # as it would have gone


def test_the_launchers_variables_and_no_others(module: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTHER", "0")
    module["sets"]()
    (changed,) = noted().variables
    assert (changed.name, changed.before, changed.after, changed.line) == ("MASTER_PORT", "29500", "12355", 28)


@pytest.mark.parametrize(
    "said",
    [None, 1, [], {}, {"caught": [[1]], "conditions": [], "variables": []}, {"caught": 3, "conditions": []},
     {"caught": [], "conditions": [["f", 1, "x", 5]], "variables": []}],
)  # fmt: skip
def test_notes_of_something_else_are_none(said: Any):
    assert conduct.read_conduct(said) == conduct.Conduct()
