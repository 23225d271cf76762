"""What a module of a student is called where it cannot be read: missing, too large, or no Python."""

import ast
import warnings
from pathlib import Path

from lab.base.source import MAX_SOURCE_BYTES, as_utf8
from lab.grading.diagnosis import Diagnosis

NO_FILE = "no-file"
MERGE = ("<<<<<<<", "=======", ">>>>>>>")  # how these lines begin


def unreadable(code: Path, name: str) -> Diagnosis | None:
    """A diagnosis when a student's file `name` is not there or cannot be parsed; None when it is fine."""
    file = code / name
    if not file.exists():
        return no_file(name)
    try:
        size = file.stat().st_size
        source = file.read_bytes() if file.is_file() and size <= MAX_SOURCE_BYTES else b""
    except OSError as error:
        return no_file(name, f"cannot be read: {error.strerror}")
    if not file.is_file():
        return no_file(name, "is no ordinary file")
    if size > MAX_SOURCE_BYTES:
        return Diagnosis(
            "file-too-large",
            saw=f"{name} is {_size(size)} large.",
            means=f"A module of this lab has a few kilobytes; over {MAX_SOURCE_BYTES // 1000} kB is no code.",
            look=f"what was pasted into {name}",
        )
    if as_utf8(source) is not None:
        return Diagnosis(
            "syntax-error",
            saw=f"Python cannot read {file.name}: it was saved in UTF-16, two bytes for each character.",
            means="Python reads UTF-8. Notepad and PowerShell's > may write the other one.",
            look=f"save {file.name} as UTF-8: editors have it where the encoding is named, or under Save As",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
    except SyntaxError as error:
        text = " ".join((error.text or "").split())[:80]
        place = f"{name}:{error.lineno}" if error.lineno else name
        means = "Nothing in this file can run until it can be read."
        if (error.text or "").startswith(MERGE):
            means = "A merge was not finished: git left its marks, and the lines of both sides between them."
        return Diagnosis(
            "syntax-error",
            saw=f"Python cannot read {place}: {error.msg}.",
            means=means,
            look=f"{place}, or just above it" + (f":  {text}" if text else ""),
        )
    except (ValueError, RecursionError, MemoryError) as error:
        return Diagnosis(
            "syntax-error",
            saw=f"Python cannot read {name}: {str(error) or type(error).__name__}.",
            means="Nothing in this file can run until it can be read.",
            look=f"{name}: characters that are no text, or thousands of nested brackets",
        )
    return None


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1_000_000 else f"{size / 1e3:.0f} kB"


def no_file(name: str, what: str = "is not there") -> Diagnosis:
    """The module `name` cannot be used at all."""
    return Diagnosis(
        NO_FILE,
        saw=f"{name} {what}.",
        means="The check imports it from the folder of your code.",
        look=f"lab reset --file {name} brings it back",
    )
