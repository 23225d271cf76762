"""What asking why costs a student before an exercise has passed, and the record of what was paid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lab.base.errors import UsageError, UserError
from lab.base.files import write_whole
from lab.grading.diagnosis import LabError, Passed
from lab.grading.suite import ExerciseResult
from lab.syllabus.paid import COURSE, MAX_BYTES, PAID, paid_in, paid_text, points_off, share_in
from lab.syllabus.syllabus import Exercise

NOT_YET = "What was drawn, and what is right there, is shown when"
# How one says that one pays: the word for it, and all of it.
IN_TERMINAL = "--pay", "lab check --why {} --pay"
IN_NOTEBOOK = "pay=True", 'check("{}", why=True, pay=True)'


@dataclass(frozen=True)
class Terms:
    """What holds in a folder of modules.

    share  of an exercise's points; 0 where no course says so, and nothing can be paid
    paid   exercise -> when
    """

    code: Path
    share: float
    paid: Mapping[str, datetime]

    @classmethod
    def of(cls, code: Path) -> Terms:
        """Raises UserError: one of the two files is there and cannot be used."""
        agreed = _content(code / COURSE)
        if agreed is None:
            return cls(code, 0.0, {})
        try:
            share = share_in(agreed)
        except ValueError as error:
            raise UserError(f"{code / COURSE}: {error}; take the file as your course has handed it out") from error
        paid = {}
        try:
            for name, when in paid_in(_content(code / PAID) or paid_text({}).encode()).items():
                if not isinstance(when, datetime):
                    raise ValueError(f"{name} has no time")
                paid[name] = when
        except ValueError as error:
            raise UserError(
                f"{code / PAID}: {error}; mend it, or bring back the file that the lab wrote"
            ) from error
        return cls(code, share, paid)

    def refuse_to_pay(self, exercises: Sequence[Exercise], why: bool, way: tuple[str, str]) -> None:
        """Raises UsageError where what was typed cannot be paid for."""
        word, whole = way
        if not why or len(exercises) != 1:
            raise UsageError(
                f"{word} is for one exercise, and for what its check did: {whole.format(exercises[0].id)}"
            )
        if not self.share:
            raise UsageError(
                f"{word}: {self.code} has no {COURSE}, so there is nothing to pay for: what a check did is shown "
                "for nothing, once the exercise has passed"
            )

    def ask(
        self, result: ExerciseResult, *, reported: bool, pay: bool, way: tuple[str, str] = IN_TERMINAL
    ) -> tuple[bool, str]:
        """Whether what the checks did is shown now, and what to say; notes what is paid first.

        Args:
            reported: there is something to show of what has not passed.
            pay: the student wants to see it at its price.

        Raises UserError: it cannot be noted.
        """
        exercise = result.exercise
        if isinstance(result.outcome, Passed):
            return True, f"{exercise.id} has passed: what its check did costs nothing." if pay else ""
        if not self.share:
            return False, f"{NOT_YET} {exercise.id} has passed."
        if isinstance(result.outcome, LabError) or not reported:
            why = f"No rank has reported anything in the check of {exercise.id} that did not pass"
            why = "The lab has failed" if isinstance(result.outcome, LabError) else why
            return False, f"{why}: nothing can be shown, {'and nothing was taken' if pay else 'at no price'}."
        if when := self.paid.get(exercise.id):
            return True, f"Paid for on {when.astimezone():%Y-%m-%d at %H:%M}: it is shown for nothing."
        price = f"{points_off(exercise.points, self.share):g} of the {exercise.points} points"
        if not pay:
            word, whole = way
            return False, (
                f"{exercise.id} has not passed. {word} shows what the check did and takes {price}; "
                f"to see it: {whole.format(exercise.id)}"
            )
        self._note(exercise)
        return True, (
            f"This takes {price} of {exercise.id}. It is noted in {self.code.name}/{PAID}, which you hand in with "
            "your modules; from now on you can see it again for nothing."
        )

    def _note(self, exercise: Exercise) -> None:
        file = self.code / PAID
        try:
            write_whole(file, paid_text({**self.paid, exercise.id: datetime.now(UTC)}))
        except OSError as error:
            raise UserError(
                f"cannot write {file}: {error.strerror}; nothing is shown, and nothing taken"
            ) from error


def taken(code: Path, results: Iterable[ExerciseResult]) -> str:
    """What the course takes of the points of these results; "" for nothing, or where its files cannot be used."""
    try:
        terms = Terms.of(code)
    except UserError:  # said where one asks why
        return ""
    off = {
        one.exercise.id: points
        for one in results
        if one.exercise.id in terms.paid and (points := points_off(one.points, terms.share))
    }
    if not off:
        return ""
    return f"Of these, {sum(off.values()):g} will be off, as you asked why before it passed: {', '.join(off)}."


def _content(file: Path) -> bytes | None:
    """None where there is none. Raises UserError."""
    try:
        if not file.is_file():  # a pipe would never end
            return None
        with file.open("rb") as opened:
            return opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
