"""What is known of a submission in a course and not in it: whose it is, and what was left out on its way there.

It lies beside the submission, in submitted/<student>/lab-notes.json, where no student writes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.base.files import write_whole
from lab.course.config import ASSIGNMENT

SUBMITTED = "submitted"  # nbgrader's name of the folder that it collects into
NAME = "lab-notes.json"


@dataclass(frozen=True)
class Notes:
    """What a person has to know of a submission besides its marks.

    owner   the user who has put it into the exchange; "" where it came another way
    copied  what was wrong with the submission itself: links in it, its time
    claims  what else lies in the exchange under this student's name, and was not collected
    """

    owner: str = ""
    copied: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()

    @property
    def look(self) -> tuple[str, ...]:
        """Sentences for the student's row."""
        return (*self.claims, *self.copied)


def in_course(home: Path) -> bool:
    """Whether this is a student's submission in nbgrader's submitted/."""
    return home.name == ASSIGNMENT and home.absolute().parent.parent.name == SUBMITTED


def read_notes(home: Path) -> Notes | None:
    """The notes on the submission in the folder `home`; None where there are none.

    Raises:
        ValueError: they are damaged.
    """
    if not in_course(home):
        return None
    file = home.parent / NAME
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
        return Notes(known["owner"], tuple(map(str, known["copied"])), tuple(map(str, known["claims"])))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} cannot be read ({error}): delete it, and collect again") from error


def write_notes(home: Path, notes: Notes) -> None:
    """Replace them; OSError as for any file."""
    home.parent.mkdir(parents=True, exist_ok=True)
    write_whole(home.parent / NAME, json.dumps(asdict(notes), indent=1), mode=0o600)
