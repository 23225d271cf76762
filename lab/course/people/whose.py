"""What lies in a folder of submissions that is none: one student's own files, or work for another assignment."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NoReturn

from lab.base.errors import UserError
from lab.base.words import visible
from lab.course.people.roster import Person, few, nfc

DEEPEST = 4  # folders below a student's, in which a module is looked for
FEW = 2  # modules at the top of a folder that make it one student's


def refuse_one_students(
    folder: Path, modules: Collection[str], assignments: Collection[str], submitted: str
) -> None:
    """Raises UserError where these are the files of one submission, not a folder with one for each student.

    Args:
        folder: its whole path.
        modules: names of the files that a student hands in.
        assignments: names of the folders that a student has in a course.
        submitted: the folder in which a course has one for each student.
    """
    top, inside = _names(folder), _names(folder / "exercises")
    mine = top & set(assignments) if folder.parent.name == submitted else set()
    if len(top & set(modules)) >= FEW or inside & set(modules) or mine:
        home = next(
            (one for one in (folder, *folder.parents) if one.name not in ("exercises", *assignments)), folder
        )
        raise UserError(
            f"{folder} holds no submissions, but the work of one student: to grade it alone, as one of the class, "
            f"type lab grade {home.parent} --student {visible(home.name)}"
        )


def refuse_twice(folder: Path, student: str, *both: Path) -> NoReturn:
    """Raises UserError: a student has handed in both of these."""
    names = ", ".join(visible(one.relative_to(folder)) for one in both)
    raise UserError(f"{folder}: {student} is there twice ({names}); remove one of them")


def the_one_called(name: str, known: str, people: Mapping[str, tuple[Person, str]], nobody: str) -> str:
    """The student whom a person means: by id, e-mail or what was handed in, else by name, else by a part of it.

    Args:
        known: the id that the roster has for this name.
        people: student -> who it is, and the name of what was handed in.
        nobody: what to say where there is none.

    Raises:
        UserError: there is none, or several.
    """
    wanted = nfc(name).casefold()
    ways: list[list[str]] = [[], [], []]
    for student, (person, came) in people.items():
        ids = (student, person.id, person.email, came)
        names = (person.name, f"{person.last}, {person.first}")
        for way, called in zip(ways, (ids, names, (person.last, person.first)), strict=True):
            if wanted in [nfc(one).casefold() for one in called] or (
                way is ways[0] and known in (student, person.id)
            ):
                way.append(student)
    found = next(filter(None, ways), [])
    if len(found) == 1:
        return found[0]
    if found:
        labels = [people[student][0].label for student in found]
        raise UserError(f"--student {name}: {' and '.join(labels)} are called so: write the id instead")
    raise UserError(f"{nobody}; there are {few(list(people))}")


def _names(folder: Path) -> set[str]:
    """None of a folder that cannot be read, or is not there."""
    try:
        return {entry.name for entry in os.scandir(folder)}
    except OSError:
        return set()


def is_for_others(home: Path, files: Collection[str]) -> bool:
    """Whether a student's folder in nbgrader's submitted/ has folders of other assignments alone.

    Args:
        files: names of our modules and notebooks: where one of them lies, a person may have put it there.
    """
    try:
        inside = [entry for entry in os.scandir(home) if not entry.name.startswith(".")]
    except OSError:
        return False  # reading it will say why
    folders = [entry for entry in inside if entry.is_dir(follow_symlinks=False)]
    if not folders or any(not entry.name.endswith("-notes.json") for entry in inside if entry not in folders):
        return False
    for here, below, names in os.walk(home):
        if set(names) & set(files):
            return False
        if len(Path(here).relative_to(home).parts) >= DEEPEST:
            below.clear()
    return True
