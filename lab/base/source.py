"""A student's module as text: its lines as Python counts them, and how large it may be."""

import io

MAX_MODULE_BYTES = 1_000_000


def source_lines(text: str) -> list[str]:
    """The lines of a module with their ends, as Python's parser and its tracebacks count them.

    str.splitlines() also ends lines at a form feed, U+0085 or U+2028, which may stand in any comment or string.
    """
    return io.StringIO(text).readlines()
