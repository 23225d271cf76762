"""Files that a student sent and no part of the lab reads: a person is told of them, of texts with the words.

Of README.md and other texts that were given out, the words are what the student has added.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import PurePosixPath

from lab.base.source import as_utf8
from lab.base.words import encodable, one_line
from lab.course.sent.contents import few
from lab.course.sent.loose import PAPERS
from lab.course.sent.places import is_own, plain
from lab.syllabus.given_before import given_before
from lab.syllabus.package import package_files

TEXTS = (".txt", ".md", ".rst", ".tex", ".org", ".adoc")
TABLES = (".xlsx", ".xls", ".ods")
PICTURES = (".png", ".jpg", ".jpeg", ".heic", ".svg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
OTHERS = (*PAPERS, *TABLES, *PICTURES, ".html", ".htm", ".pptx", ".odp", ".key", ".eml", ".msg")
OF_RUNS = ("results", "figures")  # how folders begin that the sweep's scripts write
BOOK, SCRIPTS = ".ipynb", (".py", ".qmd", ".rmd")  # 1_model.py: a notebook exported as a script
MOST, LONGEST = 5, 800  # texts that are shown, and characters of each
MAX_PLAIN = 50  # files without an ending that are looked into: most are data
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
NO_ANSWER = {"requirements.txt", "license.txt", "timestamp.txt", "submission_secret.txt", "license", "makefile"}
Read = Callable[[PurePosixPath], bytes | int | None]


def not_used(names: Sequence[PurePosixPath], read: Read) -> list[str]:
    """Sentences about what may hold answers and is read by nobody but a person."""
    given = set(package_files())
    books = tuple(path.stem.lower() for path in given if path.suffix == BOOK)
    misnamed = [name for name in names if BOOK in name.name.lower() and name.suffix != BOOK]
    others = [
        name
        for name in names
        if name not in misnamed
        and name.name.lower() not in NO_ANSWER
        and not name.name.startswith(".")
        and not any(part.lower().startswith(OF_RUNS) for part in name.parts[:-1])
    ]
    said = [
        f"{encodable(name)} is a notebook by its name, and was not read: its name has to end in {BOOK}"
        for name in misnamed[:MOST]
    ]
    rest = misnamed[MOST:]
    texts = {}
    plain_ones = [name for name in others if not name.suffix][:MAX_PLAIN]
    for name in [*(name for name in others if name.suffix.lower() in TEXTS), *plain_ones]:
        text = _text(read(name), is_text=bool(name.suffix))
        if text is None:
            rest.append(name)
        elif own := "\n".join(line for line in text.splitlines() if is_own(line, _given_lines())):
            texts[name] = own
    for name, own in list(texts.items())[:MOST]:
        said.append(f"{encodable(name)} was not used; it says: {one_line(own, LONGEST)}")
    rest += list(texts)[MOST:]
    rest += [
        name
        for name in others
        if (
            name.suffix.lower() in OTHERS
            or (name.suffix.lower() in SCRIPTS and name.name.lower().startswith(books))
        )
        and not any(PurePosixPath(*name.parts[at:]) in given for at in range(len(name.parts)))
    ]
    if rest:
        said.append(f"not used, and to be read by a person: {few(map(str, sorted(rest)))}")
    return said


def _text(content: bytes | int | None, *, is_text: bool) -> str | None:
    """The words of a file; "" where it cannot be read, which is told, or is none; None where it is too large.

    Args:
        is_text: by its name.
    """
    if isinstance(content, int):
        return None if is_text else ""
    if content is None or (not is_text and b"\0" in content and not content.startswith(UTF_16)):
        return ""
    content = as_utf8(content) or content
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


@cache
def _given_lines() -> frozenset[str]:
    """All lines of texts that students were given, now or before."""
    texts = [path.read_text(encoding="utf-8") for path in package_files().values() if path.suffix in TEXTS]
    lines = [*given_before(), *(line for text in texts for line in text.splitlines())]
    return frozenset(map(plain, lines))
