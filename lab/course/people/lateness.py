"""Due dates, extensions and what being late costs: decided for a whole submission, however it was handed in."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lab.base.errors import UsageError, UserError
from lab.course.people.csvfile import first_of, read_table
from lab.course.people.options import NONE
from lab.course.people.roster import EMAIL, ID, NUMBER, Roster, names_in, nfc
from lab.course.people.weights import read_points, share_typed

AMOUNT = r"(?P<amount>\d+(?:\.\d+)?) ?(?P<kind>%|points?)"
TIME = r"(?P<number>\d+(?:\.\d+)?) ?(?P<unit>minute|hour|day|week)s?"
UNITS = {name: timedelta(**{f"{name}s": 1}) for name in ("minute", "hour", "day", "week")}
# As people and platforms write a time of the day, besides ISO 8601.
WRITTEN = (
    "%A, %d %B %Y, %I:%M %p",
    "%A, %d %B %Y, %H:%M",
    "%d %B %Y, %I:%M %p",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y, %H:%M",
)
IN_A_NAME = re.compile(r"(?<!\d)(\d{4}-\d\d-\d\d)[T_ -](\d\d)[-:.](\d\d)(?:[-:.](\d\d))?(?!\d) ?(UTC|Z)?")
SAID_LATE = re.compile(r"[a-z]+_LATE_\d+")  # Canvas's name of a late submission, which has no time
RULES = (
    '"10% a day", "5 points a day, at most 20 points, after 15 minutes", "20%, zero after 7 days", zero or none'
)


@dataclass(frozen=True)
class LateRule:
    """What being late costs.

    amount      each `every` that has begun, or once where that is None; percent are of the points earned
    at_most     of the same kind; None: all that was earned
    grace       a delay that does not count
    zero_after  a delay after which nothing is left
    """

    text: str = "none"
    amount: float = 0.0
    percent: bool = False
    every: timedelta | None = None
    at_most: float | None = None
    grace: timedelta = timedelta()
    zero_after: timedelta | None = None

    @classmethod
    def parse(cls, text: str) -> LateRule:
        """Raises UsageError: it is no rule."""
        parts = [part.strip() for part in text.strip().lower().split(",")]
        if parts == ["none"]:
            return cls()
        if parts[0] == "zero":
            parts[0] = "100%"
        values: dict[str, object] = {"text": text.strip()}
        found = re.fullmatch(rf"{AMOUNT}(?: (?:a|an|per|each|every) (?P<every>minute|hour|day|week))?", parts[0])
        if found is None:
            raise UsageError(f"--late {text}: expected such as {RULES}")
        values |= {"amount": float(found["amount"]), "percent": found["kind"] == "%"}
        values["every"] = UNITS[found["every"]] if found["every"] else None
        for part in parts[1:]:
            if most := re.fullmatch(rf"at most {AMOUNT}", part):
                if (most["kind"] == "%") != values["percent"]:
                    raise UsageError(f"--late {text}: `{part}` and `{parts[0]}` count in different units")
                values["at_most"] = float(most["amount"])
            elif after := re.fullmatch(rf"(?P<zero>zero )?after {TIME}", part):
                delay = float(after["number"]) * UNITS[after["unit"]]
                values["zero_after" if after["zero"] else "grace"] = delay
            else:
                raise UsageError(f"--late {text}: `{part}` is not understood; expected such as {RULES}")
        return cls(**values)  # type: ignore[arg-type]

    def penalty(self, earned: float, late: timedelta) -> float:
        """The points that are taken from all that was earned; never more than there are."""
        if late <= self.grace:
            return 0.0
        if self.zero_after is not None and late > self.zero_after:
            return earned
        amount = self.amount * (math.ceil(late / self.every) if self.every else 1)
        amount = amount if self.at_most is None else min(amount, self.at_most)
        return round(max(0.0, min(earned, earned * amount / 100 if self.percent else amount)), 2)


@dataclass(frozen=True)
class Lateness:
    """Of one submission.

    handed_in  None where nobody knows
    due        with the student's extension; None where nothing is due
    flagged    a platform says that it is late, not how much
    """

    handed_in: datetime | None
    due: datetime | None
    extended: bool = False
    flagged: bool = False
    rule: LateRule = field(default_factory=LateRule)

    @property
    def late(self) -> timedelta:
        if self.handed_in is None or self.due is None:
            return timedelta()
        return max(timedelta(), self.handed_in - self.due)

    @property
    def unknown(self) -> str:
        """Why a person has to say how late it is; "" where that is known."""
        if self.due is None or self.handed_in is not None:
            return ""
        said = ", and its platform says that it is late" if self.flagged else ""
        return f"not known when it was handed in{said}: say so in a table for --times"

    def penalty(self, earned: float) -> float:
        return self.rule.penalty(earned, self.late)

    @property
    def words(self) -> str:
        """ "1 day 3 h"; "" where it is in time."""
        minutes = max(1, self.late // UNITS["minute"]) if self.late else 0
        days, hours, rest = minutes // 1440, minutes // 60 % 24, minutes % 60
        said = [f"{days} day{'s' * (days > 1)}"] if days else []
        said += [f"{hours} h"] * bool(hours) + [f"{rest} min"] * bool(rest and not days)
        return " ".join(said)


@dataclass(frozen=True)
class ClassRules:
    """What holds for a class, whatever was handed in.

    extensions, times  by the student's id, or by what the table calls them where no roster knows it
    points             exercise or question -> what it is worth in the final table, where a course decides that
    why_costs          the share of an exercise's points for having asked why before it passed
    decides            whether the lab decides what being late costs, and not a plugin of nbgrader's
    """

    roster: Roster = field(default_factory=Roster)
    due: datetime | None = None
    late: LateRule = field(default_factory=LateRule)
    extensions: Mapping[str, datetime | timedelta] = field(default_factory=dict)
    times: Mapping[str, datetime] = field(default_factory=dict)
    decides: bool = False
    points: Mapping[str, float] = field(default_factory=dict)
    why_costs: float = 0.0

    @classmethod
    def load(cls, settings: Mapping[str, str]) -> ClassRules:
        """From options of `lab grade`: roster, due, late, extensions, times, points, why-costs.

        Raises:
            UserError: a file or a value cannot be used, or an option needs another.
        """
        due = settings.get("due") if settings.get("due") != NONE else None
        for name in ("late", "extensions"):
            if settings.get(name) and not due:
                raise UsageError(f"--{name} {settings[name]}: add --due, from when on a submission is late")
        roster = Roster.read(Path(settings["roster"])) if settings.get("roster") else Roster()
        return cls(
            roster,
            _time(due, f"--due {due}", end_of_day=True) if due else None,
            LateRule.parse(settings.get("late", "none")),
            _extensions(Path(settings["extensions"]), roster) if settings.get("extensions") else {},
            _times(Path(settings["times"]), roster) if settings.get("times") else {},
            decides="due" in settings,
            points=read_points(Path(settings["points"])) if settings.get("points") else {},
            why_costs=share_typed(settings.get("why-costs", "0")),
        )

    def lateness(self, student: str, name: str = "", handed_in: str = "") -> Lateness:
        """Of one submission.

        Args:
            name: by which it came, if another than the student's id.
            handed_in: when, as time_of() has it.
        """
        person = self.roster.person(student, name)
        called = [nfc(one).casefold() for one in (student, person.id, person.name) if one]
        extension = next((self.extensions[one] for one in called if one in self.extensions), None)
        due = self.due
        if due is not None and extension is not None:
            due = due + extension if isinstance(extension, timedelta) else extension
        time = next((self.times[one] for one in called if one in self.times), None)
        if time is None and handed_in and handed_in != LATE:
            time = datetime.fromisoformat(handed_in)
        return Lateness(time, due, extension is not None, handed_in == LATE, self.late)

    def strangers(self, students: Mapping[str, str]) -> list[str]:
        """Who has a line in a table but is neither in the roster nor handed in (student -> name)."""
        known = {nfc(one).casefold() for pair in students.items() for one in pair}
        known |= {
            nfc(one).casefold() for person in self.roster.people.values() for one in (person.id, person.name)
        }
        for student, name in students.items():
            known.add(self.roster.person(student, name).id.casefold())
        return sorted({one for one in (*self.extensions, *self.times) if one not in known})


LATE = "late"  # what time_of() says where a platform says no more


def time_of(*names: str) -> str:
    """When something was handed in by its names, such as Blackboard's, in ISO 8601; LATE; "" where none tells."""
    for name in names:
        if found := IN_A_NAME.search(name):
            day, hour, minute, second, utc = found.groups()
            try:
                time = datetime.fromisoformat(f"{day}T{hour}:{minute}:{second or '00'}")
            except ValueError:
                continue
            return (time.replace(tzinfo=UTC) if utc else time.astimezone()).isoformat()
    return LATE if any(SAID_LATE.match(name) for name in names) else ""


def stamped(text: str) -> str:
    """The time in nbgrader's timestamp.txt in ISO 8601; "" for what is none. Without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(text.strip().removesuffix("UTC").strip())
    except ValueError:
        return ""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()


def _time(text: str, where: str, *, end_of_day: bool = False) -> datetime:
    """A time as people write it, of this machine's zone unless it says otherwise. Raises UserError."""
    text = " ".join(text.split())
    if end_of_day and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        text += "T23:59:59"
    time = None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        for form in WRITTEN:
            try:
                time = datetime.strptime(text, form)
                break
            except ValueError:
                continue
    if time is None:
        raise UserError(f"{where}: {text} is no time; write it as 2026-05-01 23:59")
    return time if time.tzinfo else time.astimezone()


def _extensions(path: Path, roster: Roster) -> dict[str, datetime | timedelta]:
    """Student -> the new due time, or what is added to everybody's."""
    found: dict[str, datetime | timedelta] = {}
    for where, student, text in _rows(
        path, roster, ("due", "until", "extension", "extended until", "new due date")
    ):
        added = re.fullmatch(rf"\+ ?{TIME}", text.lower())
        known = float(added["number"]) * UNITS[added["unit"]] if added else _time(text, where, end_of_day=True)
        found[student] = known
    return found


def _times(path: Path, roster: Roster) -> dict[str, datetime]:
    columns = ("handed in", "submitted", "time", "submission time", "last modified submission")
    rows = _rows(path, roster, columns)
    return {student: _time(text, where) for where, student, text in rows if text != "-"}  # Moodle: nothing


def _rows(path: Path, roster: Roster, columns: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """(file and line, student, what one of the columns says), where it says anything. Raises UserError."""
    rows = []
    lines: dict[str, int] = {}
    for line, row in read_table(path):
        if not any(name in row for name in columns):
            raise UserError(
                f"{path}: no column is called {columns[0]}; the columns are {', '.join(filter(None, row))}"
            )
        name, first, last = names_in(row)
        called = first_of(row, ("id", *ID, *NUMBER, *EMAIL)) or name or f"{first} {last}".strip()
        if not called:
            raise UserError(f"{path}:{line}: nobody is named; a column called id is needed")
        if roster.several(called):
            raise UserError(f"{path}:{line}: several in the roster are called {called}: write the id instead")
        if text := first_of(row, columns):
            person = roster.find(called)
            student = (person.id if person else nfc(called)).casefold()
            if student in lines:
                raise UserError(
                    f"{path}: lines {lines[student]} and {line} are both of {called}: keep one of them"
                )
            lines[student] = line
            rows.append((f"{path}:{line}", student, text))
    return rows
