"""The folders of a course: who may read them, and what is noted beside a submission.

What is known of a submission and not in it, whose it is and what was left out on its way into the course, lies in
submitted/<student>/<assignment>-notes.json, where no student writes.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath

from lab.base.files import write_whole
from lab.course.config import ASSIGNMENT, ASSIGNMENT_TWO, GRADES
from lab.course.people.lateness import stamped, time_of
from lab.course.sent.contents import FolderContents, Unusable

SUBMITTED = "submitted"  # nbgrader's name of the folder that it collects into
NAME = "{}-notes.json"  # with the assignment's name
STAMP = "timestamp.txt"  # where nbgrader writes when a submission came
LONGEST_STAMP = 100  # characters
# What no student may read, of a course on a machine that they share: answers and marks, and the model answers.
FOLDERS = (SUBMITTED, "autograded", "feedback", GRADES)
EXISTING = ("instructor", "gradebook.db", ".nbgrader.log")


def close_folders(course: Path, *, shared: bool, make: bool = False) -> None:
    """Let nobody else read what is the instructor's, or the group only where the course is `shared` with it.

    nbgrader makes its own files as the umask says, mostly for all to read: what they lie in is closed.

    Args:
        make: also folders that are not there yet, before nbgrader makes them.

    Raises OSError. What belongs to another user, who shares the course, stays as it is.
    """
    if make and os.access(course, os.W_OK):  # who may only read a course makes nothing in it
        for name in FOLDERS:
            (course / name).mkdir(exist_ok=True)
    for name in (*FOLDERS, *EXISTING):
        path = course / name
        if path.is_symlink() or not path.exists() or path.stat().st_uid != os.geteuid():
            continue
        path.chmod(_mode(path.is_dir(), shared))


def make_private(folder: Path) -> None:
    """Make a folder that is not there, with its parents; for the group too where the one that it is in is."""
    if not folder.exists():
        make_private(folder.parent)
        folder.mkdir(exist_ok=True)
        folder.chmod(_mode(True, is_shared(folder.parent)))


def write_private(path: Path, content: str | bytes) -> None:
    """Replace a file that nobody else can read, or the group only, whatever the umask says."""
    make_private(path.parent)
    write_whole(path, content, mode=_mode(False, is_shared(path.parent)))


def is_shared(folder: Path) -> bool:
    """Whether a folder is the group's too and nobody else's, as close_folders() and groupshared have it."""
    return folder.stat().st_mode & 0o2027 == 0o2020


def _mode(folder: bool, shared: bool) -> int:
    if folder:
        return 0o2770 if shared else 0o700
    return 0o660 if shared else 0o600


@dataclass(frozen=True)
class Notes:
    """What a person has to know of a submission besides its marks.

    student the name by which it came, of which the folder's name is made
    owner   the user who has put it into the exchange; "" where it came another way
    copied  what was wrong with the submission itself: links in it, its time
    claims  what else lies in the exchange under this student's name, and was not collected
    handed_in  when, of one that came from elsewhere, as time_of() has it
    """

    student: str = ""
    owner: str = ""
    copied: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    handed_in: str = ""

    @property
    def look(self) -> tuple[str, ...]:
        """Sentences for the student's row."""
        return (*self.claims, *self.copied)


def in_course(home: Path) -> bool:
    """Whether this is a student's submission in nbgrader's submitted/."""
    return home.name in (ASSIGNMENT, ASSIGNMENT_TWO) and home.absolute().parent.parent.name == SUBMITTED


def is_link(home: Path) -> bool:
    """Whether a submission, or its student's folder in the course, only leads to another."""
    return home.is_symlink() or (in_course(home) and home.parent.is_symlink())


def read_notes(home: Path) -> Notes | None:
    """The notes on the submission in the folder `home`; None where there are none.

    Raises:
        ValueError: they are damaged.
    """
    if not in_course(home):
        return None
    file = home.parent / NAME.format(home.name)
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
        copied, claims = (tuple(map(str, known[name])) for name in ("copied", "claims"))
        handed_in = str(known.get("handed_in", ""))
        return Notes(str(known["student"]), str(known["owner"]), copied, claims, handed_in)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} cannot be read ({error}): delete it, and collect again") from error


def write_notes(home: Path, notes: Notes) -> None:
    """Replace them; OSError as for any file."""
    write_private(home.parent / NAME.format(home.name), json.dumps(asdict(notes), indent=1))


def add_note(home: Path, student: str, sentence: str) -> None:
    """Put a sentence into the student's row, once; damaged notes stay: grading tells. OSError as above."""
    with suppress(ValueError):
        notes = read_notes(home) or Notes(student)
        if not any(sentence.startswith(one) for one in notes.copied):
            write_notes(home, replace(notes, copied=(*notes.copied, sentence)))


def came(home: Path, submissions: Path) -> tuple[str, str]:
    """By which name a submission came, "" where that is not noted, and when, as time_of() has it.

    Args:
        submissions: the folder of all of them. Elsewhere than in a course, the names of what lies in it tell when.
    """
    if not in_course(home):
        return "", time_of(*(() if home.parent == submissions else (home.parent.name,)), home.name)
    try:
        notes = read_notes(home) or Notes()
    except ValueError:  # damaged, which stands in the row already
        notes = Notes()
    if notes.handed_in or is_link(home):
        return notes.student, notes.handed_in
    try:
        with FolderContents(home).open(PurePosixPath(STAMP)) as (file, _):
            return notes.student, stamped(file.read(LONGEST_STAMP).decode("utf-8", "replace"))
    except (Unusable, OSError):
        return notes.student, ""


def came_as(submitted: Path, assignment: str) -> list[str]:
    """By which names the submissions in a course came, of those that came from elsewhere."""
    found = []
    for home in sorted(submitted.glob(f"*/{assignment}")):
        with suppress(ValueError):  # damaged notes, which grading will tell
            if (notes := read_notes(home)) and notes.student:
                found.append(notes.student)
    return found
