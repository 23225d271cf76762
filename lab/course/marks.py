"""How a submission ended and how many points that is worth: decided here only, for `lab grade` and nbgrader.

What an exercise is worth is the sum of its parts that hold; one without parts, its points times the share of its
checks that passed. The lab's own fault leaves a mark open, which is neither zero nor full: an instructor looks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from lab.base.words import encodable
from lab.course.version import version
from lab.grading.diagnosis import TO_LOOK, Blocked, Diagnosis, Failed, LabError, NotStarted, Outcome, Passed
from lab.grading.looks import PARTLY
from lab.grading.parts import FAILED, HELD, in_words
from lab.grading.suite import ExerciseResult

OUT_OF_TIME = "out-of-time"


@dataclass(frozen=True)
class OutcomeRecord:
    """How one check, or a whole exercise, ended: the outcome's word, and what a diagnosis says.

    detail  the region not started, the exercise it is blocked by, or the lab's own fault
    """

    title: str
    outcome: str
    name: str = ""
    saw: str = ""
    means: str = ""
    look: str = ""
    detail: str = ""

    @classmethod
    def of(cls, title: str, outcome: Outcome) -> OutcomeRecord:
        if isinstance(outcome, Failed):
            return cls(title, outcome.word, outcome.diagnosis.name, *map(encodable, outcome.diagnosis.lines))
        detail = ""
        if isinstance(outcome, NotStarted):
            detail = outcome.region
        elif isinstance(outcome, Blocked):
            detail = outcome.by
        elif isinstance(outcome, LabError):
            detail = encodable(outcome.text)
        return cls(title, outcome.word, detail=detail)


class PartMark(NamedTuple):
    """A part of an exercise, what it is worth, and whether it holds: a state of lab.grading.parts."""

    name: str
    of: int
    state: str


@dataclass(frozen=True)
class ExerciseMark:
    """The mark of one exercise.

    points  None while it is open
    off     what was taken off them, as the student has asked why before it passed
    """

    exercise: str
    title: str
    points: float | None
    of: int
    outcome: OutcomeRecord
    checks: tuple[OutcomeRecord, ...] = ()
    parts: tuple[PartMark, ...] = ()
    off: float = 0.0

    @property
    def earned(self) -> float:
        """The points before anything was taken off."""
        return round((self.points or 0.0) + self.off, 2)

    @property
    def off_text(self) -> str:
        """ "0.5 points off: asked why before it passed"; "" where nothing is."""
        return f"{self.off:g} point{'s' * (self.off != 1)} off: asked why before it passed" if self.off else ""

    @property
    def word(self) -> str:
        return self.outcome.outcome

    @property
    def label(self) -> str:
        """The word, with what blocks it: "blocked: 2.1"."""
        return f"{self.word}: {self.outcome.detail}" if self.word == Blocked.word else self.word

    @property
    def state(self) -> str:
        """The word; "partly" where some of it is right."""
        return PARTLY if self.word == Failed.word and self.earned else self.word

    @property
    def summary(self) -> str:
        """The state and the diagnoses' names: "failed: no-set-epoch"."""
        names = ", ".join(sorted({finding.name for finding in self.diagnoses}))
        return f"{self.state}: {names}" if names else self.state

    @property
    def points_text(self) -> str:
        """ "8 of 10 points", or that the mark is open."""
        return f"open, of {self.of} points" if self.points is None else f"{self.points:g} of {self.of} points"

    @property
    def parts_text(self) -> str:
        """What its parts give; "" where it passed, is open, or the checks have come to no part."""
        if self.passed or self.points is None or not {HELD, FAILED} & {part.state for part in self.parts}:
            return ""
        return in_words(self.earned, self.of, self.parts)

    @property
    def passed(self) -> bool:
        return self.word == Passed.word

    @property
    def found(self) -> tuple[OutcomeRecord, ...]:
        """How it ended as a whole, and each of its checks."""
        return self.outcome, *self.checks

    @property
    def diagnoses(self) -> list[OutcomeRecord]:
        """What is wrong with this exercise itself; what stands on another wrong exercise is not its fault."""
        if self.word == Blocked.word:
            return []
        found = [check for check in self.checks if check.name]
        return found or ([self.outcome] if self.outcome.name else [])


@dataclass(frozen=True)
class SubmissionRecord:
    """All that is known of a graded submission: what results/*.json hold, and every table and page is made from.

    key        of the submission and the lab: the same key, the same marks
    notebooks  path -> the cells with a grade id that it holds, each (grade id, type of the cell)
    answers    grade id -> the texts found for it, each (path of the notebook, text)
    pictures   grade id -> the pictures pasted into them: name -> type -> base64
    remarks    about the submission, for the instructor and the student
    unread     why modules of it could not be read, if so
    look       what an instructor should look at, whatever the marks are
    deadline   seconds that the checks could have
    reaches    where its code reaches beyond its exercises
    measured   folder of runs -> the table of what was measured in it
    name       by which it came, where that is not the student's id
    handed_in  when, in ISO 8601; "late" where a platform says no more; "" where nobody knows
    code       module -> its text, of those that could be read
    changed    when the last grading was that gave other points, and lab and points before it
    paid       exercises whose checks were looked into before they passed
    paid_odd   what of the list of them does not count, and why
    why_costs  the share of an exercise's points that was taken for that; 0 where the class has none
    """

    student: str
    key: str
    exercises: tuple[ExerciseMark, ...]
    notebooks: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    answers: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    deadline: float = 0.0
    seconds: float = 0.0
    lab: str = field(default_factory=version)
    unread: str = ""
    look: tuple[str, ...] = ()
    pictures: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    reaches: tuple[str, ...] = ()
    measured: dict[str, str] = field(default_factory=dict)
    name: str = ""
    handed_in: str = ""
    code: dict[str, str] = field(default_factory=dict)
    changed: dict[str, Any] = field(default_factory=dict)
    paid: tuple[str, ...] = ()
    paid_odd: tuple[str, ...] = ()
    why_costs: float = 0.0

    @property
    def points(self) -> float:
        """The sum of what is not open."""
        return round(sum(mark.points or 0.0 for mark in self.exercises), 2)

    @property
    def to_look(self) -> list[str]:
        """Why an instructor has to look at it; empty when there is no need."""
        open_ = [mark.exercise for mark in self.exercises if mark.points is None]
        late = [mark.exercise for mark in self.exercises if mark.outcome.name == OUT_OF_TIME]
        said = [f"the lab could not check {', '.join(open_)}"] if open_ else []
        said += [self.unread] if self.unread else []
        odd = [mark.exercise for mark in self.exercises if {one.name for one in mark.found} & set(TO_LOOK)]
        said += [f"the report of {', '.join(odd)} could not be used"] if odd else []
        said += [*self.look, *(self.paid_odd if self.why_costs else ())]
        said += [f"code that reaches beyond its exercises: {'; '.join(self.reaches)}"] if self.reaches else []
        return said + ([f"no time was left for {', '.join(late)}"] if late else [])

    @property
    def charges(self) -> list[str]:
        """ "3.2: 0.5 points off: asked why before it passed"."""
        return [f"{mark.exercise}: {mark.off_text}" for mark in self.exercises if mark.off]

    def final(self, key: str, deadline: float) -> bool:
        """Whether grading the same again would find the same."""
        if self.key != key or any(mark.points is None for mark in self.exercises):
            return False
        return self.deadline >= deadline or all(mark.outcome.name != OUT_OF_TIME for mark in self.exercises)

    @property
    def earned(self) -> dict[str, float | None]:
        """Exercise -> points."""
        return {mark.exercise: mark.points for mark in self.exercises}

    @property
    def changes(self) -> list[tuple[str, float | None, float | None]]:
        """(exercise, points before, points now) of the last grading that gave others."""
        before = self.changed.get("points", {})
        return [(name, before[name], now) for name, now in self.earned.items() if before.get(name, now) != now]

    @property
    def changes_text(self) -> str:
        """The same in words: "3.2 10 -> 0, 6.1 open -> 8"."""
        points = [["open" if one is None else f"{one:g}" for one in both] for _, *both in self.changes]
        pairs = zip(self.changes, points, strict=True)
        return ", ".join(f"{change[0]} {before} -> {now}" for change, (before, now) in pairs)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SubmissionRecord:
        """Raises KeyError or TypeError for what to_json() has not made."""
        exercises = tuple(
            ExerciseMark(
                **{
                    **mark,
                    "outcome": OutcomeRecord(**mark["outcome"]),
                    "checks": tuple(OutcomeRecord(**check) for check in mark["checks"]),
                    "parts": tuple(PartMark(*part) for part in mark.get("parts", ())),
                }
            )
            for mark in data["exercises"]
        )
        pairs = {
            name: {key: [(first, second) for first, second in found] for key, found in data[name].items()}
            for name in ("notebooks", "answers")
        }
        words = {name: tuple(data.get(name, ())) for name in ("remarks", "look", "reaches", "paid", "paid_odd")}
        return cls(**{**data, "exercises": exercises, **words, **pairs})


def mark(result: ExerciseResult, checks: int) -> ExerciseMark:
    """The mark of an exercise.

    Args:
        checks: how many it has; those that were not run count as not passed.
    """
    exercise = result.exercise
    passed = sum(isinstance(check.outcome, Passed) for check in result.checks)
    outcomes = [check.outcome for check in (*result.checks, *result.unsaid)]
    points: float | None
    if isinstance(result.outcome, Passed):
        points = float(exercise.points)
    elif any(isinstance(outcome, LabError) for outcome in (result.outcome, *outcomes)):
        points = None
    elif exercise.parts:
        points = float(result.points)
    else:
        points = round(exercise.points * passed / max(checks, passed + 1), 2)
    found = tuple(OutcomeRecord.of(check.title, check.outcome) for check in result.checks)
    states = result.parts
    parts = tuple(PartMark(part.name, part.points, states[part.name]) for part in exercise.parts if states)
    return ExerciseMark(
        exercise.id,
        exercise.title,
        points,
        exercise.points,
        OutcomeRecord.of(exercise.title, result.outcome),
        found,
        parts,
    )


def out_of_time(seconds: float) -> Diagnosis:
    """For the exercises a submission had no time left for."""
    return Diagnosis(
        OUT_OF_TIME,
        saw=f"The time for one submission, {seconds:g} s, was used up before this exercise was checked.",
        means="Something else in the submission waits or computes without end.",
        look="the exercises that ended with a hang",
    )
