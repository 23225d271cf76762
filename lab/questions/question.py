"""What a question is: its text with the numbers of one student, its right answer, and what each slip means."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from lab.base.errors import UsageError

LETTERS = "abcdefgh"
PLACEHOLDER = "..."  # for an answer, where it is shown how to give one: never an answer itself


@dataclass(frozen=True)
class Judged:
    """Whether an answer is right, and a sentence: why, or what the slip was."""

    right: bool
    sentence: str


@dataclass(frozen=True)
class Number:
    """Asks for a number.

    Attributes:
        unit: in which it is meant; "" for a count.
        because: how it comes about, shown with the right answer.
        slips: numbers that other ways of reckoning give -> what went wrong.
        otherwise: what to think of, for every other number.
        within: how far off an answer may be, as a fraction: people round.
    """

    text: str
    right: float
    because: str
    slips: Mapping[float, str]
    otherwise: str
    unit: str = ""
    code: str = ""
    within: float = 0.01

    @property
    def options(self) -> Sequence[str]:
        return ()

    def judge(self, answer: object) -> Judged:
        said = str(answer).removesuffix(self.unit).strip()
        try:
            number = float(said)
        except ValueError:
            raise UsageError(f"{answer!r}: the answer is a number{self.unit and f', in {self.unit}'}") from None
        if self._meets(number, self.right):
            return Judged(True, self.because)
        for slip, why in self.slips.items():
            if self._meets(number, slip):
                return Judged(False, why)
        return Judged(False, self.otherwise)

    def _meets(self, number: float, value: float) -> bool:
        whole = not self.unit and float(value).is_integer()
        return number == value if whole else math.isclose(number, value, rel_tol=self.within)


@dataclass(frozen=True)
class Choice:
    """Asks for one of several options, each with its own sentence.

    Attributes:
        options: as they are shown, in this student's order.
        why: for each of them: why it is right, or what is wrong with it.
        best: index of the right one.
    """

    text: str
    options: Sequence[str]
    why: Sequence[str]
    best: int
    code: str = ""

    def judge(self, answer: object) -> Judged:
        letter = str(answer).strip().lower()
        if len(letter) != 1 or letter not in LETTERS[: len(self.options)]:
            raise UsageError(f"{answer!r}: the answer is a letter, from a to {LETTERS[len(self.options) - 1]}")
        chosen = LETTERS.index(letter)
        return Judged(chosen == self.best, self.why[chosen])


@dataclass(frozen=True)
class Order:
    """Asks to sort steps; each that obeys all rules is right.

    Attributes:
        options: the steps as they are shown.
        rules: (a step, one that must come after it, why).
    """

    text: str
    options: Sequence[str]
    rules: Sequence[tuple[str, str, str]]
    because: str
    code: str = ""

    def judge(self, answer: object) -> Judged:
        letters = re.sub(r"[^a-z]", "", str(answer).lower())
        if sorted(letters) != list(LETTERS[: len(self.options)]):
            letters = f"from a to {LETTERS[len(self.options) - 1]}, with a space between"
            raise UsageError(f"{answer!r}: the answer is each letter once, {letters}")
        place = {self.options[LETTERS.index(letter)]: number for number, letter in enumerate(letters)}
        for first, then, why in self.rules:
            if place[first] > place[then]:
                return Judged(False, f"“{first}” before “{then}”: {why}")
        return Judged(True, self.because)


Asked = Number | Choice | Order


@dataclass(frozen=True)
class Question:
    """One question: `draw` makes it for one student."""

    name: str
    section: int
    draw: Callable[[Random], Asked]

    def for_student(self, seed: int) -> Asked:
        """The same student is asked the same whenever they come back to it."""
        return self.draw(Random(f"{seed} {self.name}"))


BANK: dict[str, Question] = {}


def question(section: int, name: str) -> Callable[[Callable[[Random], Asked]], Callable[[Random], Asked]]:
    """Put a function that draws a question into the bank."""

    def added(draw: Callable[[Random], Asked]) -> Callable[[Random], Asked]:
        assert name not in BANK, name
        BANK[name] = Question(name, section, draw)
        return draw

    return added


def choice(draw: Random, text: str, options: Sequence[tuple[str, str]], *, code: str = "") -> Choice:
    """A choice with its options in a random order; the first of them is the right one."""
    order = draw.sample(range(len(options)), len(options))
    return Choice(text, [options[i][0] for i in order], [options[i][1] for i in order], order.index(0), code=code)


def shuffled(draw: Random, steps: Sequence[str]) -> list[str]:
    """The steps in another order than the given one."""
    while (mixed := draw.sample(list(steps), len(steps))) == list(steps):
        continue
    return mixed
