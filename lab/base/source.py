"""A student's module as text: its lines as Python counts them, how large it may be, what may be searched in it.

Nobody knows what a student's file holds, and it is looked at outside of the sandbox. Two limits keep it from
stopping a grader: Python's parser takes seconds and gigabytes for 100 kB of `import a.a.a.a...`, and a regular
expression that backtracks takes the square of a line's length.
"""

from __future__ import annotations

import ast
import functools
import io

MAX_MODULE_BYTES = 1_000_000  # of any file beside the modules, to be taken along at all
MAX_SOURCE_BYTES = 50_000  # of a module that is read as Python; the lab's own have 6,000 at most
LONGEST_SEARCHED = 800  # characters


def source_lines(text: str) -> list[str]:
    """The lines of a module with their ends, as Python's parser and its tracebacks count them.

    str.splitlines() also ends lines at a form feed, U+0085 or U+2028, which may stand in any comment or string.
    """
    return io.StringIO(text).readlines()


def searchable(text: str) -> str:
    """As much of a student's line, or of a message of its code, as a regular expression of the lab may run on."""
    return text[:LONGEST_SEARCHED]


@functools.lru_cache(maxsize=16)
def parsed(text: str) -> ast.Module | None:
    """The syntax tree of a module, to be read only; None where it has none, or is larger than MAX_SOURCE_BYTES."""
    if len(text) > MAX_SOURCE_BYTES:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def as_utf8(content: bytes) -> bytes | None:
    """A text that Windows has saved in two bytes a character, as Python reads it; None for any other."""
    code = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}.get(content[:2])
    if code is None and b"\0" in content[:2]:
        code = "utf-16-be" if content[:1] == b"\0" else "utf-16-le"
    try:
        return content.decode(code).encode() if code else None
    except UnicodeError:
        return None
