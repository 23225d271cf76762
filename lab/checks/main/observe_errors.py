"""What the stand-ins raise where main.py would go wrong only later, in a place that misleads; and on purpose."""

import contextlib
from collections.abc import Iterator
from typing import Any

from lab.ranks.rank import describe


@contextlib.contextmanager
def come_out_of(fails: bool, events: list[dict[str, Any]]) -> Iterator[list[str]]:
    """The type of the error that comes out where train() was to fail, and has been called; others go on their way.

    A program that ends with SystemExit(0) says that nothing was wrong.
    """
    out: list[str] = []
    try:
        yield out
    except (Exception, SystemExit) as error:
        if not fails or "train" not in [event["call"] for event in events] or describe(error)["todo"]:
            raise
        if getattr(error, "code", 1):
            out.append(type(error).__name__)


class UnresolvedOptionsError(Exception):
    """main.py uses an option as it was given, where only the run knows what it comes to."""


class GroupLeftError(Exception):
    """main.py has left the process group, and goes on."""


class NoTestImagesError(Exception):
    """main.py asks for a loader of test images where there are none."""


class RehearsedError(RuntimeError):
    """What train() raises where the judge wants to see what becomes of an error."""


class NeedlessWrapperError(Exception):
    """main.py wraps a model that trains on one device, without other ranks."""
