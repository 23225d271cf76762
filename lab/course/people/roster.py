"""The roster: whose the submissions are. Ids are for files, names for people.

A CSV with one row a person. Its columns are known by the names that people and learning platforms give them: what
Moodle, Canvas and Blackboard export as their lists of participants or grades is read as it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.base.errors import UserError
from lab.base.words import visible
from lab.course.people.csvfile import Row, first_of, read_table

GERMAN_ID = ("benutzername", "nutzername", "anmeldename", "kennung", "benutzerkennung", "nutzerkennung")
ID = ("student", "username", "login", "user name", "sis login id", "login id", *GERMAN_ID)
# An id where there is no login.
NUMBER = ("id number", "student id", "sis user id", "matrikelnummer", "matrikelnr", "matrikel nr", "matrikel")
NAME = ("name", "full name", "student name", "vollständiger name")
FIRST = ("first name", "first", "given name", "vorname")
LAST = ("last name", "last", "surname", "family name", "nachname", "familienname")
EMAIL = ("e mail", "email", "email address", "e mail address", "mail", "e mail adresse", "mailadresse")
KNOWN = "id, username or student ID (Matrikelnummer), e-mail; name, or first and last name (Vorname, Nachname)"
PLATFORM = ("platform id", "platform", "moodle id", "canvas id", "blackboard id")
SAFE = re.compile(r"[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]{0,79}")
Who = Callable[[str], str]  # a student's id, of the name by which something was handed in
NO_PERSON = ("points possible", "student, test")  # rows of Canvas's own
# How platforms name what they export: a part of the name says whose it is.
EXPORTED = (
    re.compile(
        r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_"
    ),  # Moodle: Zoë Müller_1234_assignsubmission_file_
    re.compile(
        r".*_(?P<name>[^_]+)_attempt_\d{4}-"
    ),  # Blackboard: lab_zmueller_attempt_2026-05-01-22-10-05_hw.zip
    re.compile(r"[a-z]+(?:_LATE)?_(?P<name>\d+)(?:_\d+_|$)"),  # Canvas: muellerzoe_LATE_1234_56789_hw.zip
)


@dataclass(frozen=True)
class Person:
    """One student.

    id           for files and the gradebook
    platform_id  by which a learning platform knows the person
    row          the roster's row, with all of its columns
    """

    id: str
    name: str = ""
    first: str = ""
    last: str = ""
    email: str = ""
    platform_id: str = ""
    row: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """For one line: "Zoë Müller (zmueller)"."""
        return self.id if self.name == self.id else f"{self.name} ({self.id})"

    @classmethod
    def called(cls, student: str, name: str = "") -> Person:
        """Somebody who is in no roster."""
        name = nfc(name) or student
        return cls(student, name, *_parts(name))


def few(students: Sequence[str]) -> str:
    """As many as fit into a sentence."""
    return f"{', '.join(students[:10])}{', ...' * (len(students) > 10)}"


def nfc(text: str) -> str:
    """One spelling of each letter: "ü" can be one sign or two, which look the same."""
    return unicodedata.normalize("NFC", text)


class Roster:
    """The people of a class by whatever they are called; without a file nobody.

    Raises:
        UserError: a row has no id, one that is no name for a file, or another row's; or no column has ids.
    """

    def __init__(self, people: Iterable[Person] = ()) -> None:
        self.people = {person.id: person for person in people}
        self._known: dict[str, Person | None] = {}  # None: of several
        for person in self.people.values():
            turned = f"{person.last} {person.first}".strip()
            for key in {
                _key(key)
                for key in (
                    person.email,
                    person.platform_id,
                    person.name,
                    turned,
                    f"{person.last}, {person.first}",
                )
                if _key(key)
            }:
                self._known[key] = None if key in self._known else person
        self._known |= {_key(name): person for name, person in self.people.items()}

    @classmethod
    def read(cls, path: Path) -> Roster:
        people: dict[str, Person] = {}
        lines: dict[str, int] = {}
        for line, row in read_table(path):
            person = _person(row, f"{path}:{line}")
            if person is None:
                continue
            other = next((one for one in lines if one.casefold() == person.id.casefold()), None)
            if other is not None:
                raise UserError(f"{path}:{line}: the id {person.id} stands in line {lines[other]} already")
            people[person.id], lines[person.id] = person, line
        return cls(people.values())

    def find(self, called: str) -> Person | None:
        """Whose id, name, e-mail or platform's id this is, or who is named in a platform's name of a file."""
        for name in _named(called):
            if found := self._known.get(_key(name)):
                return found
        number = EXPORTED[0].match(nfc(called))  # of two with one name, the one with this platform's id
        found = self._known.get(number["number"]) if number else None
        return found if found and number and _key(found.name) == _key(number["name"]) else None

    def several(self, called: str) -> bool:
        """Whether more than one person is called so."""
        return self.find(called) is None and any(
            self._known.get(_key(name), "") is None for name in _named(called)
        )

    def student(self, called: str) -> str:
        """The id under which a submission of this name is kept; the name itself where nobody is found."""
        person = self.find(called)
        return person.id if person else nfc(called)

    def person(self, student: str, name: str = "") -> Person:
        """Who it is. `name`: by which the submission came, if another."""
        return self.find(student) or (self.find(name) if name else None) or Person.called(student, name)


def _named(called: str) -> list[str]:
    """A name, and the name within it where a platform has made it."""
    return [called, *(found["name"] for one in EXPORTED if (found := one.match(nfc(called))))]


def _key(text: str) -> str:
    return " ".join(nfc(text).replace("_", " ").split()).casefold()


def _person(row: Row, where: str) -> Person | None:
    canvas = "sis login id" in row  # its "ID" is Canvas's own, its "Student" the name
    ids = ID[1:] if canvas else ("id", *ID)
    names = ("student", *NAME) if canvas else NAME
    if not any(name in row for name in (*ids, *NUMBER, *EMAIL)):
        columns = ", ".join(filter(None, row))
        raise UserError(f"{where}: no column is called id; the columns are {columns}; known are {KNOWN}")
    name, first, last = names_in(row, names)
    if name.casefold() in NO_PERSON:
        return None
    student = nfc(first_of(row, (*ids, *NUMBER, *EMAIL)))
    if not student:
        raise UserError(f"{where}: {name or last or 'this row'} has no id")
    if not SAFE.fullmatch(student):
        raise UserError(
            f"{where}: the id {student} is no name for a file: letters without accents, digits, and . _ @ + - "
            "alone; the name has a column of its own"
        )
    if name and not (first or last):
        first, last = _parts(name)
    if "," in name:
        name = f"{first} {last}".strip()
    name = visible(name or f"{first} {last}".strip() or student)
    platform = first_of(row, ("id", *PLATFORM) if canvas else (*PLATFORM, *NUMBER))
    return Person(student, name, visible(first), visible(last), first_of(row, EMAIL), platform, row)


def names_in(row: Row, names: tuple[str, ...] = NAME) -> tuple[str, str, str]:
    """The whole name, first and last name that a row has. Beside a first name, German lists call the last Name."""
    name, first, last = (nfc(first_of(row, columns)) for columns in (names, FIRST, LAST))
    return (f"{first} {name}", first, name) if name and first and not last else (name, first, last)


def _parts(name: str) -> tuple[str, str]:
    """First and last name: "Müller, Zoë", or the last word."""
    last, comma, first = (part.strip() for part in name.partition(","))
    if comma:
        return first, last
    first, _, last = name.rpartition(" ")
    return first, last
