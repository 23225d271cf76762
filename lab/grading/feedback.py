"""What a student reads in the terminal: the ladder, the three lines of a diagnosis, what to do next."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from lab.base.terminal import Page
from lab.base.words import printable
from lab.grading.diagnosis import Blocked, Diagnosis, Failed, LabError, NotStarted, Outcome, Passed
from lab.grading.looks import LOOKS
from lab.grading.suite import CheckResult, ExerciseResult
from lab.syllabus.syllabus import Exercise, Syllabus

OUTPUT_LINES, OUTPUT_CHARACTERS = 20, 2000

# The state of a reading of `lab doctor` -> the outcome that looks alike.
STATES: Mapping[str, Outcome] = {
    "good": Passed(),
    "absent": NotStarted(),
    "note": Blocked(""),
    "bad": Failed(Diagnosis("", saw="", means="", look="")),
}


class Feedback(Page):
    """Writes results to one stream, each line at once.

    Args:
        stream: where to.
        code: the folder of the student's modules, to say which file to open.
        width: columns; None for the terminal's own.
        colour: None for colour on a terminal, unless NO_COLOR is set.
        cwd: paths are shown relative to it.
    """

    def __init__(
        self,
        stream: TextIO,
        code: Path,
        *,
        width: int | None = None,
        colour: bool | None = None,
        cwd: Path | None = None,
    ) -> None:
        super().__init__(stream, width=width, colour=colour)
        self.code = code
        self.cwd = (cwd or Path.cwd()).resolve()

    # One exercise -----------------------------------------------------------------------------------------

    def running(self, exercise: Exercise) -> None:
        """Say what is being checked, on a terminal; result() writes over it."""
        self.terminal.show(self._row(exercise, "running" + ("…" if self.unicode else "...")))

    def result(self, result: ExerciseResult) -> None:
        """One line: id, title, outcome, seconds."""
        self.terminal.show("")
        outcome = result.outcome
        word = f"blocked: {outcome.by}" if isinstance(outcome, Blocked) else outcome.word
        self.line(self._row(result.exercise, f"{self._sign(outcome)} {word}", f"{result.seconds:5.1f} s", outcome))

    def details(self, result: ExerciseResult, *, verbose: bool = False, every_check: bool = True) -> None:
        """What each check of an exercise found.

        Args:
            verbose: also what the ranks printed.
            every_check: False for the first check that did not pass only.
        """
        checks = list(result.checks)
        if not checks or isinstance(result.outcome, Blocked):
            self._explain(result.exercise, result.outcome, "", verbose)
        if not isinstance(result.outcome, Blocked):
            self._each_check(result, verbose, every_check)
        if said := result.parts_text:
            self._text("    ", said)

    def _each_check(self, result: ExerciseResult, verbose: bool, every_check: bool) -> None:
        said: list[Outcome] = []
        for check in result.checks:
            if every_check or not isinstance(check.outcome, Passed):
                self._explain(result.exercise, check.outcome, check.title, verbose, again=check.outcome in said)
                said.append(check.outcome)
                if verbose:
                    self._outputs(check)
                if not every_check:
                    break

    def failures(self, results: Iterable[ExerciseResult], *, verbose: bool = False) -> None:
        """The details of every exercise that is wrong, under its own heading."""
        said: list[tuple[Outcome, Exercise]] = []
        for result in results:
            if not isinstance(result.outcome, Failed | LabError):
                continue
            self.line()
            self.line(self.bold(f"{result.exercise.id}  {result.exercise.title}"))
            # A file that cannot be read, or a lab that is broken, fails several exercises in one way.
            if same := [exercise.id for outcome, exercise in said if outcome == result.outcome]:
                lead, word = f"  {self._sign(result.outcome)} ", result.outcome.word
                self._text(lead, f"{word}, for the same reason as {same[0]}", result.outcome)
                continue
            said.append((result.outcome, result.exercise))
            self.details(result, verbose=verbose, every_check=False)

    # All of them ------------------------------------------------------------------------------------------

    def summary(self, results: Sequence[ExerciseResult], of: Syllabus) -> None:
        """How many passed, and what to do next."""
        passed = [result for result in results if isinstance(result.outcome, Passed)]
        points = sum(result.points for result in results)
        self.line()
        if len(passed) == len(of.exercises):
            self.line(f"All {len(passed)} exercises passed: {points} of {of.points} points.")
            self._text("Next: ", "train with it: ./run.sh --strategy ddp --epochs 3")
            return
        self.line(f"{len(passed)} of {len(results)} passed, {points} of {of.points} points.")
        self.next_step(results)

    def part_two(self) -> None:
        """The heading of what is there for who wants more."""
        self.line()
        self.line(self.bold("Part two, which counts for itself"))

    def tally(self, results: Sequence[ExerciseResult], of: Syllabus) -> None:
        """How many passed, and their points."""
        passed = sum(isinstance(result.outcome, Passed) for result in results)
        points = sum(result.points for result in results)
        self.line()
        self.line(f"{passed} of {len(results)} passed, {points} of {of.points} points.")

    def next_step(self, results: Sequence[ExerciseResult]) -> None:
        """The first exercise that can be worked on now, where it is, and how to check it."""
        for result in results:
            if isinstance(result.outcome, Failed):
                self.next_exercise(result.exercise, todo="")
                return
            if isinstance(result.outcome, NotStarted):
                self.next_exercise(result.exercise, todo=result.outcome.region or None)
                return

    def next_exercise(self, exercise: Exercise, todo: str | None = None) -> None:
        """Where to go on.

        Args:
            todo: the region to look for, None for the exercise's own; "" for none.
        """
        self._text("Next: ", f"{exercise.id} {exercise.title}", bold=True)
        self._text("      ", f"open {self.path(exercise)}")
        if todo != "":
            self._text("      ", f"look for TODO {todo or exercise.id}")
        self._text("      ", f"then type: lab check {exercise.id}")
        self._text("      ", f"stuck? lab hint {exercise.id}")

    def check_again(self, exercise: Exercise) -> None:
        """Where to go on when the exercise has passed, but in another version of its file."""
        self._text("Next: ", f"{exercise.id} {exercise.title}", bold=True)
        self._text("      ", f"{exercise.file} has changed since it passed")
        self._text("      ", f"type: lab check {exercise.id}")

    # Hints ------------------------------------------------------------------------------------------------

    def hints(self, exercise: Exercise, numbers: Iterable[int]) -> None:
        """Some hints of an exercise, counted from 1, under its title."""
        self._text("", f"{exercise.id}  {exercise.title}", bold=True)
        for number in numbers:
            self._text("  ", f"hint {number} of {len(exercise.hints)}")
            self._text("    ", exercise.hints[number - 1])

    def hints_left(self, exercise: Exercise, number: int, *, remembered: bool, again: bool) -> None:
        """How many hints come after the one that was just shown, and how to get them.

        Args:
            remembered: False where the next call will show the same hint, because nothing can be stored.
            again: the hint had been shown before.
        """
        left = len(exercise.hints) - number
        self.line()
        if left and remembered:
            self._text("", f"{left} more: lab hint {exercise.id}")
            return
        if left:
            self._text("", f"{left} more; but which were shown cannot be remembered here.")
        else:
            self._text("", "That was the last hint" + (" again." if again else "."))
        self._text("", f"All of them: lab hint {exercise.id} --all")

    # The machine ------------------------------------------------------------------------------------------

    def finding(self, name: str, state: str, what: str, do: str) -> None:
        """One line of `lab doctor`, and below it what to do.

        Args:
            state: a key of STATES.
        """
        outcome = STATES[state]
        self._text(f"{self._sign(outcome)} {name:10}  ", what, outcome)
        if do:
            self._text(" " * 14 + "do: ", do)

    # Pieces -----------------------------------------------------------------------------------------------

    def _explain(
        self, exercise: Exercise, outcome: Outcome, title: str, verbose: bool, again: bool = False
    ) -> None:
        lead = f"  {self._sign(outcome)} "
        title = title or outcome.word
        if isinstance(outcome, Passed):
            self._text(lead, title, outcome)
        elif isinstance(outcome, Failed):
            self._text(lead, title if title == outcome.word else f"failed: {title}", outcome)
            if again:
                self._text("    ", "for the same reason")
                return
            for name, text in zip(("saw", "means", "look"), outcome.diagnosis.lines, strict=True):
                lead = f"    {name:5}  "
                # "data.py:41  its source": the source on a line of its own where the two do not fit on one.
                parts = text.split("  ", 1) if len(lead) + len(text) > self.width else [text]
                for part in parts:
                    self._text(lead, part)
                    lead = " " * len(lead)
            self._lines(outcome.diagnosis.details if verbose else "")
        elif isinstance(outcome, NotStarted):
            region = outcome.region or exercise.id
            self._text(lead, f"not started: see TODO {region} in {self.path(exercise)}", outcome)
        elif isinstance(outcome, Blocked):
            self._text(lead, f"blocked: it builds on {outcome.by}, so get that one to pass first", outcome)
        else:
            self._text(lead, "lab error: the lab's fault, not yours; it costs you no points", outcome)
            self._text("    ", outcome.text)
            self._text("    ", "lab doctor looks whether it is this machine")
            self._lines(outcome.details if verbose else "")

    def _lines(self, text: str) -> None:
        for line in text.splitlines():
            self.line("    " + printable(line))

    def _outputs(self, check: CheckResult) -> None:
        for rank, text in check.outputs:
            self._text("    ", f"rank {rank} printed:")
            lines = text[-OUTPUT_CHARACTERS:].splitlines()
            if len(text) > OUTPUT_CHARACTERS or len(lines) > OUTPUT_LINES:
                self._text("    | ", "(only the end is shown)")
            for line in lines[-OUTPUT_LINES:]:
                self._text("    | ", line)

    def _row(self, exercise: Exercise, word: str, seconds: str = "", outcome: Outcome | None = None) -> str:
        room = self.width - 29
        title = exercise.title
        if len(title) > room:
            title = title[: room - 1].rstrip() + ("…" if self.unicode else ".")
        row = f" {exercise.id:4} {title:{min(room, 31)}}  {self.paint(f'{word:14}', _colour(outcome))}{seconds}"
        return row.rstrip()

    def path(self, exercise: Exercise) -> str:
        """The file an exercise is in, as it is named from the current folder."""
        path = os.path.relpath(self.code / exercise.file, self.cwd)
        return str(self.code / exercise.file) if path.startswith(os.path.join("..", "..")) else path

    def _sign(self, outcome: Outcome) -> str:
        look = LOOKS[outcome.word]
        return look.sign if self.unicode else look.ascii

    def _text(self, lead: str, text: str, outcome: Outcome | None = None, *, bold: bool = False) -> None:
        """Wrapped text after a lead in the outcome's colour."""
        self.say(text, lead=lead, code=_colour(outcome), bold=bold)


def _colour(outcome: Outcome | None) -> str:
    return LOOKS[outcome.word].ansi if outcome else ""
