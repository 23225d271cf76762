"""In a rank: from which lines of the student's file something came. Only a failed check tells of them."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from unittest import mock

_SHOWN = 200  # elements of a list that are looked at


def lines_on_the_way(file: str | None) -> list[tuple[str, int]]:
    """(function, line) of each frame of this file, from the innermost."""
    found, frame = [], sys._getframe(1)
    at: FrameType | None = frame
    while at is not None:
        if at.f_code.co_filename == file:
            found.append((at.f_code.co_name, at.f_lineno))
        at = at.f_back
    return found


@contextmanager
def made_noted(module: Any, names: Iterable[str]) -> Iterator[list[tuple[Any, int]]]:
    """In its context, the objects that are made of these classes of a module, and the line that made each."""
    made: list[tuple[Any, int]] = []

    def noting(original: Callable[..., None]) -> Callable[..., None]:
        def begin(one: Any, *args: Any, **kwargs: Any) -> None:
            lines = lines_on_the_way(module.__file__)
            made.append((one, lines[0][1] if lines else 0))
            original(one, *args, **kwargs)

        return begin

    classes = [getattr(module, name, None) for name in names]
    patches = [
        mock.patch.object(one, "__init__", noting(one.__init__))  # type: ignore[misc]
        for one in classes
        if isinstance(one, type)
    ]
    for patch in patches:
        patch.start()
    try:
        yield made
    finally:
        for patch in patches:
            patch.stop()


def with_lines(module: Any, function: Callable[..., Iterable[Any]], *args: Any) -> tuple[list[Any], list[int]]:
    """A list of pairs that a function returns or yields, and for each the line that made it.

    While it runs, what its lists hold is looked at behind each line: a pair that was not there came from this one.
    Those that nothing held came from the last `return`.
    """
    seen: dict[int, tuple[Any, int]] = {}  # with the pair itself, so that its id stays its own
    running: dict[int, int] = {}  # frame -> the line that it is in
    returned = 0

    def note(value: Any, line: int, depth: int = 0) -> None:
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
            seen.setdefault(id(value), (value, line))
        elif isinstance(value, list | tuple) and depth < 2:
            for one in value[:_SHOWN]:
                note(one, line, depth + 1)

    def step(frame: FrameType, event: str, result: Any) -> Any:
        nonlocal returned
        if event in ("line", "return"):
            line = running.get(id(frame), frame.f_lineno)
            for value in list(frame.f_locals.values()):
                note(value, line)
            running[id(frame)] = frame.f_lineno
        if event == "return":
            note(result, frame.f_lineno)
            returned = frame.f_lineno
            running.pop(id(frame), None)
        return step

    before = sys.gettrace()
    sys.settrace(lambda frame, *_: step if frame.f_code.co_filename == module.__file__ else None)
    try:
        pairs = list(function(*args))
    finally:
        sys.settrace(before)
    return pairs, [seen[id(one)][1] if id(one) in seen else returned for one in pairs]
