"""When a program came to which stage of its start, since its process began; a start without collections.

Imports no torch.
"""

import functools
import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_reached: dict[str, float] = {}  # on the clock of time.monotonic(), in the order in which they were first reached


def reach(stage: str) -> None:
    """What `stage` names is done."""
    _reached[stage] = time.monotonic()


def reaches(stage: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator: what `stage` names is done when the function has returned."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def decorated(*args: P.args, **kwargs: P.kwargs) -> T:
            result = function(*args, **kwargs)
            reach(stage)
            return result

        return decorated

    return decorate


def seconds() -> dict[str, float]:
    """For each stage, what it took since the one before it; the first one since the process began.

    The first one is left out where nobody can tell when that was (not on Linux).
    """
    ends = list(_reached.items())
    begins = [_process_began(), *(end for _, end in ends)]
    return {
        stage: end - begin
        for (stage, end), begin in zip(ends, begins, strict=False)
        if begin is not None and begin <= end
    }


def _process_began() -> float | None:
    """On the clock of time.monotonic(), to a hundredth of a second; see proc(5), /proc/pid/stat, starttime."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        after_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return None
    return time.monotonic() - time.clock_gettime(time.CLOCK_BOOTTIME) + after_boot


@contextmanager
def no_collections() -> Iterator[None]:
    """Leave the garbage collector off meanwhile, for imports: what they make stays.

    To look through all of it again and again takes a fifth of the time in which torch is imported.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
