"""The line at which a function of the student's was left is noted, and nothing else of the module is changed."""

import pytest

from lab.collectives import departures
from lab.collectives.departures import compiled

MODULE = b'''"""A module."""


def early(x):
    """Text."""
    if x:
        return x
    for _ in range(2):
        pass


def steps():
    yield 1
    return


async def later():
    yield 1
    return


class Net:
    def forward(self, x):
        def inner(y):
            return y

        return inner(x) + 1
'''


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.setattr(departures, "_left", {})
    names: dict = {}
    exec(compiled(MODULE, "/code/train.py"), names)
    return names


def test_the_last_departure_of_each_function_counts(module: dict):
    assert module["early"](5) == 5
    assert departures.departures() == [["/code/train.py", 7, "early"]]
    assert module["Net"]().forward(1) == 2
    assert module["early"](0) is None
    assert departures.departures() == [
        ["/code/train.py", 25, "inner"],
        ["/code/train.py", 27, "forward"],
        ["/code/train.py", departures.END, "early"],
    ]


def test_the_module_is_what_it_was(module: dict):
    assert module["__doc__"] == "A module."
    assert module["early"].__doc__ == "Text."
    assert list(module["steps"]()) == [1]
    assert module["early"].__code__.co_firstlineno == 4
    assert module["later"]().__aiter__()


@pytest.mark.parametrize("source", [b"def f(:", b"return 1", b"x = \x00", b"def f():\n  x = 1\n    y = 2"])
def test_a_file_that_python_refuses_is_refused_in_the_same_way(source: bytes):
    with pytest.raises((SyntaxError, ValueError)) as ours:
        compiled(source, "train.py")
    with pytest.raises((SyntaxError, ValueError)) as pythons:
        compile(source, "train.py", "exec")
    assert type(ours.value) is type(pythons.value)
    assert str(ours.value) == str(pythons.value)
