"""Files that a student sent and no part of the lab reads: a person is told of them, of texts with the words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from lab.base.words import encodable, one_line
from lab.course.sent.contents import few
from lab.course.sent.loose import PAPERS
from lab.syllabus.package import package_files

TEXTS = (".txt", ".md", ".rst", ".tex")
TABLES = (".xlsx", ".xls", ".ods")
PICTURES = (".png", ".jpg", ".jpeg", ".heic", ".svg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
OTHERS = (*PAPERS, *TABLES, *PICTURES, ".html", ".htm", ".pptx", ".odp", ".key")
OF_RUNS = ("results", "figures")  # how folders begin that the sweep's scripts write
BOOK, SCRIPTS = ".ipynb", (".py", ".qmd", ".rmd")  # 1_model.py: a notebook exported as a script
MOST, LONGEST = 5, 500  # texts that are shown, and characters of each
NO_ANSWER = {"requirements.txt", "readme.md", "license.txt", "timestamp.txt", "submission_secret.txt"}


def not_used(names: Sequence[PurePosixPath], read: Callable[[PurePosixPath], bytes | int | None]) -> list[str]:
    """Sentences about what may hold answers and is read by nobody but a person."""
    given = set(package_files())
    books = tuple(path.stem.lower() for path in given if path.suffix == BOOK)
    misnamed = [name for name in names if BOOK in name.name.lower() and name.suffix != BOOK]
    found = [
        name
        for name in names
        if name not in misnamed
        and (
            name.suffix.lower() in (*TEXTS, *OTHERS)
            or (name.suffix.lower() in SCRIPTS and name.name.lower().startswith(books))
        )
        and name.name.lower() not in NO_ANSWER
        and not any(part.lower().startswith(OF_RUNS) for part in name.parts[:-1])
        and not any(PurePosixPath(*name.parts[at:]) in given for at in range(len(name.parts)))
    ]
    said = [
        f"{encodable(name)} is a notebook by its name, and was not read: its name has to end in {BOOK}"
        for name in misnamed[:MOST]
    ]
    texts = [name for name in found if name.suffix.lower() in TEXTS][:MOST]
    for name in texts:
        content = read(name)
        text = content.decode("utf-8", "replace") if isinstance(content, bytes) else ""
        said.append(f"{encodable(name)} was not used; it says: {one_line(text, LONGEST)}")
    said += [
        f"{encodable(name)} is a notebook by its name and was not read: it has to end in {BOOK}"
        for name in found
        if BOOK in name.name.lower()
    ][:MOST]
    if rest := [*misnamed[MOST:], *(name for name in found if name not in texts)]:
        said.append(f"not used, and to be read by a person: {few(map(str, rest))}")
    return said
