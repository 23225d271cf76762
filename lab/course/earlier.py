"""A later hand-in takes the place of an earlier one, but nobody's work: what it lacks, or has blank, stays.

Who hands in the corrected train.py alone has not withdrawn the other six modules, nor the answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lab.course.books import Books, assignment_named, released_books
from lab.course.folders import is_link, write_private
from lab.course.notebooks import HandedInNotebook
from lab.course.sent.choice import begun
from lab.course.sent.contents import MEASURED, limit_of, pieces
from lab.course.sent.opening import opened
from lab.course.submissions import Submission, read_submission
from lab.syllabus.paid import PAID


@dataclass(frozen=True)
class Stays:
    """What of an earlier hand-in counts beside a later one.

    modules    as in Submission, with everything that lay beside them
    notebooks  name -> the notebook, which takes the place of a blank one of this name
    """

    modules: Mapping[str, bytes | int]
    notebooks: Mapping[str, HandedInNotebook]

    @property
    def said(self) -> str:
        """A sentence for the student's row; "" where nothing stays."""
        names = [*sorted(self.modules), *sorted(self.notebooks)]
        return f"as handed in before, as the last hand-in lacks them: {', '.join(names)}" if names else ""


def stays(before: Submission, new: Submission) -> Stays:
    """What of `before` counts; both are of one student and assignment, with what their notebooks hold."""
    files = new.assignment.module_files
    modules = {
        name: before.modules[name]
        for name in sorted(files & before.modules.keys())
        if name not in new.modules or (begun(name, before.modules[name]) and not begun(name, new.modules[name]))
    }
    if PAID in before.modules and PAID not in new.modules:
        modules[PAID] = before.modules[PAID]
    books = released_books(assignment=new.assignment)
    later = {PurePosixPath(path).name: book for path, book in new.notebooks.items() if _answered(book, books)}
    notebooks = {
        name: book
        for path, book in before.notebooks.items()
        if (name := PurePosixPath(path).name) in books and name not in later and _answered(book, books)
    }
    return Stays(modules, notebooks)


def side_by_side(notebooks: Mapping[str, HandedInNotebook]) -> dict[str, HandedInNotebook]:
    """File name -> notebook, for one folder. Of two of one name both are there: both are read, for answers."""
    found: dict[str, HandedInNotebook] = {}
    for path, notebook in sorted(notebooks.items(), key=lambda item: item[0].count("/")):
        plain = PurePosixPath(path).name
        tried = itertools.chain([plain], (f"copy-{number}-{plain}" for number in itertools.count(1)))
        found[next(one for one in tried if one not in found)] = notebook
    return found


def keep_earlier(student: str, home: Path, new: Path, assignment: str) -> list[str]:
    """Add to the folder of a `new` submission what it lacks of the one at `home`; returns what to say of it.

    Raises OSError.
    """
    if not home.is_dir() or is_link(home):
        return []
    of = assignment_named(assignment)
    before = read_submission(student, home, assignment=of)
    later = read_submission(student, new, assignment=of)
    stay = stays(before, later)
    for folder in before.results.keys() - later.results.keys():
        write_private(new / folder / MEASURED.name, before.results[folder])
    for name, content in stay.modules.items():
        if isinstance(content, bytes):
            write_private(new / "exercises" / name, content)
    for name, book in stay.notebooks.items():
        with opened(home) as contents:
            contents.names()
            write_private(new / name, b"".join(pieces(contents, book.place, limit_of(book.place))))
    return [stay.said] if stay.said else []


def _answered(notebook: HandedInNotebook, books: Books) -> bool:
    """Whether anything is written in it, or it cannot be read, which a person has to be told."""
    blank = {" ".join(cell.placeholder.split()) for cells in books.values() for cell in cells}
    texts = (" ".join(text.split()) for _, text in notebook.answers)
    return bool(notebook.remarks) or any(text and text not in blank for text in texts)
