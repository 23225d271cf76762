"""How a check can end: the outcomes, and the diagnosis a wrong answer gets. Imports nothing heavy."""

from collections.abc import Iterable
from dataclasses import dataclass, field

UNUSABLE_REPORT, ENDLESS, TAMPERED = "unusable-report", "endless-check", "check-tampered-with"
# Diagnoses that come of what code does to the check, not of the answer: a person has to look.
TO_LOOK = (UNUSABLE_REPORT, ENDLESS, TAMPERED)


class Diagnosis(Exception):
    """A wrong answer explained in three short lines. Raised by the judge half of a check.

    name   kebab-case id of the mistake, e.g. "no-set-epoch"; tests and class reports count by it
    saw    what the check saw, with the numbers
    means  what that means for training
    look   where to look: a file and line of the student's code where it can be known
    details  for whoever looks into the lab itself; never compared
    """

    def __init__(self, name: str, *, saw: str, means: str, look: str, details: str = "") -> None:
        super().__init__(f"{name}: {saw}")
        self.name = name
        self.saw = saw
        self.means = means
        self.look = look
        self.details = details

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Diagnosis) and self.lines == other.lines and self.name == other.name

    def __hash__(self) -> int:
        return hash((self.name, self.lines))

    @property
    def lines(self) -> tuple[str, str, str]:
        """Saw, means, look."""
        return self.saw, self.means, self.look


def unusable_report(saw: str, details: str = "", *, name: str = UNUSABLE_REPORT) -> Diagnosis:
    """For what came from a rank and no answer, right or wrong, leads to: it may be forged, so a person looks."""
    return Diagnosis(
        name,
        saw=f"The report could not be used: {saw}.",
        means="Code that reaches into the check, or a mistake of the lab: whoever grades this will look at it.",
        look="code that changes more than what the exercise asks for",
        details=details,
    )


def tampered(what: str) -> Diagnosis:
    """For functions of the lab's that the student's code has replaced. `what`: where, and which."""
    return Diagnosis(
        TAMPERED,
        saw=f"Functions of the check were replaced while it ran: on {what}.",
        means="What the check then sees is not what your code does: whoever grades this will look at it.",
        look="code that imports modules of the lab other than lab.training, or looks for them",
    )


@dataclass(frozen=True)
class Passed:
    """The check has nothing to say against the answer."""

    word = "passed"


@dataclass(frozen=True)
class Failed:
    """The answer is wrong, and this is why."""

    diagnosis: Diagnosis
    word = "failed"


@dataclass(frozen=True)
class NotStarted:
    """A region of the exercise still raises the stub's NotImplementedError."""

    region: str = ""
    word = "not started"


@dataclass(frozen=True)
class Blocked:
    """The check ran into another exercise that is not done yet."""

    by: str
    word = "blocked"


@dataclass(frozen=True)
class LabError:
    """The lab's own fault. Never counts against the student."""

    text: str
    details: str = field(default="", compare=False)
    word = "lab error"


Outcome = Passed | Failed | NotStarted | Blocked | LabError


class CheckEnded(Exception):
    """Ends a check with an outcome that is no diagnosis: not started, blocked, lab error."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.word)
        self.outcome = outcome


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """Of a command that has run checks. 0: all passed; 1: some did not; 3: the lab itself failed."""
    found = list(outcomes)
    if any(isinstance(outcome, LabError) for outcome in found):
        return 3
    return 0 if all(isinstance(outcome, Passed) for outcome in found) else 1
