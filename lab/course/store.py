"""Records on disk, one JSON file a submission, replaced at once: a run that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from lab.base.errors import UserError
from lab.course.config import ASSIGNMENT_TWO
from lab.course.folders import write_private
from lab.course.marks import SubmissionRecord
from lab.course.people.lateness import ClassRules
from lab.course.people.options import NONE, as_typed, together
from lab.course.people.roster import Roster, nfc
from lab.course.people.roster import few as shown

FOLDER = "results"
SETTINGS = "settings.json"  # beside it: the options that hold for a class
MAX_RECORD = 64 << 20  # bytes: ten times what the limits of lab/course/notebooks.py allow


def file_name(student: str, suffix: str) -> str:
    """A name for a file about a student, whatever the student is called.

    It can only be another's where somebody is called like the name made for another: no_clash() and load() see it.
    """
    plain = re.sub(r"[^\w.@+-]", "_", student, flags=re.ASCII)[:80].lstrip(".")
    if plain != student or not plain:
        plain += "-" + hashlib.sha256(student.encode()).hexdigest()[:10]
    return plain + suffix


def no_clash(students: Iterable[str]) -> None:
    """Raises UserError where two of them would have the same files."""
    names: dict[str, str] = {}
    for student in students:
        other = names.setdefault(file_name(student, ""), student)
        if other != student:
            raise UserError(
                f"{other} and {student} would both be {file_name(student, '')} in the tables: rename one of them"
            )


def load(out: Path, student: str) -> SubmissionRecord | None:
    """The record of a student; None when there is none, or it is of no use.

    Raises:
        UserError: it is of another student, whose name becomes the same.
    """
    file = out / FOLDER / file_name(student, ".json")
    record = _read(file)
    if record is not None and record.student != student:
        raise UserError(f"{file} is of {record.student}, and {student} would replace it: rename one of them")
    return record


def load_all(outs: Collection[Path]) -> list[SubmissionRecord]:
    """All records of these folders by student.

    Raises:
        UserError: a folder has none, holds a file that is no record, or two disagree about a student.
    """
    found: dict[str, SubmissionRecord] = {}
    files_of: dict[str, Path] = {}
    for out in outs:
        if not (out / FOLDER).is_dir():
            raise UserError(f"{out} holds no graded submissions; name the --out folder of a `lab grade` run")
        for file in sorted((out / FOLDER).glob("*.json")):  # none: a part of a small class may be empty
            record = _read(file)
            if record is None:
                raise UserError(f"{file} is no record of this lab's; grade that submission again with --force")
            other = found.setdefault(record.student, record)
            if other.key != record.key:
                older, newer = sorted((files_of[record.student], file), key=lambda one: one.stat().st_mtime)
                raise UserError(
                    f"{record.student} was graded twice, from different submissions: "
                    f"{older} is older than {newer}; delete the one that does not count"
                )
            files_of[record.student] = file
    if not found:
        raise UserError(f"{', '.join(map(str, outs))}: no graded submission is there")
    no_clash(found)
    labs = {record.lab for record in found.values()}
    if len(labs) > 1:
        last = max(files_of, key=lambda student: files_of[student].stat().st_mtime)
        old = [str(file) for student, file in files_of.items() if found[student].lab != found[last].lab]
        raise UserError(
            f"graded by different versions of the lab ({', '.join(sorted(labs))}): grade all with one, and delete "
            f"the records of students who have left; older are {', '.join(old[:5])}{', ...' * (len(old) > 5)}"
        )
    return sorted(found.values(), key=lambda record: record.student)


def any_of(out: Path) -> list[SubmissionRecord]:
    """One of the records in a folder, if there is any: all are of the same assignment."""
    files = sorted((out / FOLDER).glob("*.json"))
    return next(([record] for file in files if (record := _read(file)) is not None), [])


def with_others(
    out: Path, records: Sequence[SubmissionRecord], roster: Roster, *, few: bool = False
) -> tuple[list[SubmissionRecord], list[str]]:
    """Just graded, with those that were graded into the same folder before from other submissions: none is lost.

    Args:
        few: these were chosen, and the others are there on purpose.

    Returns:
        All of them by student, and what to say.
    """
    graded = {record.student: record for record in records}
    others = []
    said = []
    for file in sorted((out / FOLDER).glob("*.json")):
        if (record := _read(file)) is None or record.student in graded:
            continue
        now = graded.get(roster.person(nfc(record.student), record.name).id)
        if now is not None:  # graded when the roster, or a spelling, was another
            file.unlink()
            said.append(f"{record.student} is the same person as {now.student}, and in no table any more")
        else:
            others.append(record)
    names = shown([record.student for record in others])
    if others and not few:
        stay = f"Graded before, not among these submissions, and still in the tables: {names}"
        said.append(f"{stay}; to drop one, delete {out / FOLDER}/STUDENT.json")
    if records and any(record.lab != records[0].lab for record in others):
        said.append(f"Another version of the lab has graded some of {names}: grade all again to compare marks")
    return sorted([*records, *others], key=lambda record: record.student), said


def records(out: Path) -> list[SubmissionRecord]:
    """All that lie in a folder, by student.

    Raises:
        UserError: there is none.
    """
    found = (_read(file) for file in sorted((out / FOLDER).glob("*.json")))
    read = sorted((one for one in found if one is not None), key=lambda record: record.student)
    if not read:
        raise UserError(f"{out} holds no graded submissions; name the --out folder of a `lab grade` run")
    return read


def save(out: Path, record: SubmissionRecord) -> SubmissionRecord:
    """Write a record, with what it has changed of the one that was there.

    Raises OSError where that cannot be; UserError as for load().
    """
    before = load(out, record.student)
    if before is not None and {**before.earned, **record.earned} != {**record.earned, **before.earned}:
        when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        record = replace(record, changed={"when": when, "lab": before.lab, "points": before.earned})
    elif before is not None:
        record = replace(record, changed=record.changed or before.changed)
    write(out / FOLDER / file_name(record.student, ".json"), json.dumps(record.to_json(), indent=1))
    return record


def settings(out: Path) -> dict[str, str]:
    """The options that hold for a class; none where none were given.

    Raises:
        UserError: the file is damaged.
    """
    file = out / SETTINGS
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
        return {str(name): str(value) for name, value in known.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{file} cannot be read ({error}): delete it, and give its options again") from error


def class_rules(out: Path, typed: Mapping[str, str]) -> tuple[ClassRules, str]:
    """What holds for the class from now on, and what of it was remembered, as one would type it.

    Part two is the same class's: its roster is that of part one, unless it has its own, or `none`.

    Raises:
        UserError: an option or a file of it cannot be used; nothing is remembered then.
    """
    before = settings(out)
    own = {**before, **typed}.get("roster")
    theirs = settings(out.parent).get("roster") if out.name == ASSIGNMENT_TWO and own in (None, NONE) else None
    now = together({"roster": theirs or NONE, **before}, typed)
    rules = ClassRules.load(now)
    kept = {name: value for name, value in now.items() if name != "roster" or own}
    kept |= {"roster": NONE} if theirs and own else {}
    if kept != before:
        write(out / SETTINGS, json.dumps(kept, indent=1))
    return rules, as_typed({name: value for name, value in now.items() if name not in typed})


def write(path: Path, content: str) -> None:
    """Replace a text file that is the instructor's alone; what is no Unicode in it is written as escapes."""
    write_private(path, content.encode(errors="backslashreplace"))


def _read(file: Path) -> SubmissionRecord | None:
    try:
        if file.stat().st_size > MAX_RECORD:
            return None
        return SubmissionRecord.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
