"""One entry of the bank of answers, and how an exercise's file writes its entries down.

    bank = Bank("6.1", {"6.1a": "optimizer.zero_grad()  # zero\n..."})
    bank.right("cleared at the end of the step", zero="", step="optimizer.step()\noptimizer.zero_grad()")
    bank.wrong("gradients-pile-up", "zero_grad is missing", zero="")

The first text is a right answer, one for each region; a comment at a line's end is that line's name. An entry says
which lines are different, so that only the mistake is written down; `whole` replaces all the code of a region.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from answers.bank import with_answer
from answers.templates import changed, labels

# What the lab calls a deadlock, by what has led to it. All answers that hang take their names from here.
ON_ONE_RANK = "collective-on-one-rank"
EARLY_RETURN = "early-return"
UNEVEN_STEPS = "uneven-steps"
OTHER_SIZES = "different-sizes"
BACKWARD_SKIPPED = "backward-skipped"


@dataclass(frozen=True)
class Answer:
    """A right or wrong answer to an exercise.

    name       what is special about it, in a few words; no other answer to the exercise has the same
    regions    region id ("3.3a") -> the code in place of the reference's
    diagnosis  the name of the diagnosis it must get; "" for a right answer
    slow       like others that CI runs: only the slow tests run it
    """

    exercise: str
    name: str
    regions: Mapping[str, str]
    diagnosis: str = ""
    slow: bool = False

    @property
    def id(self) -> str:
        return f"{self.exercise}-{self.name}"

    def install(self, folder: Path) -> Path:
        """A folder with all solutions but this answer."""
        code = folder
        for region, text in self.regions.items():
            code = with_answer(folder, region, text)
        return code


class Bank:
    """The answers to one exercise.

    Args:
        exercise: "3.3".
        texts: region id -> a right answer with named lines.
    """

    def __init__(self, exercise: str, texts: Mapping[str, str]) -> None:
        self.exercise = exercise
        self.texts = texts
        self.answers: list[Answer] = []
        self.right("the same in other words")

    def right(
        self, name: str, *, whole: Mapping[str, str] | None = None, slow: bool = False, **lines: str
    ) -> None:
        """An answer that must pass."""
        self._add(name, "", whole, slow, lines)

    def wrong(
        self,
        diagnosis: str,
        name: str,
        *,
        whole: Mapping[str, str] | None = None,
        slow: bool = False,
        **lines: str,
    ) -> None:
        """An answer that must get this diagnosis."""
        self._add(name, diagnosis, whole, slow, lines)

    def _add(
        self, name: str, diagnosis: str, whole: Mapping[str, str] | None, slow: bool, lines: dict[str, str]
    ) -> None:
        if name in [answer.name for answer in self.answers]:
            raise ValueError(f"{self.exercise} has two answers called {name!r}")
        regions = {}
        for region, text in self.texts.items():
            own = {label: lines.pop(label) for label in labels(text) if label in lines}
            regions[region] = changed(text, **own)
        if lines:
            raise ValueError(f"{self.exercise}, {name!r}: no line is called {', '.join(lines)}")
        self.answers.append(Answer(self.exercise, name, regions | dict(whole or {}), diagnosis, slow))


def replaced(texts: Mapping[str, str], *pairs: tuple[str, str]) -> dict[str, str]:
    """Texts of regions in which parts are exchanged, (old, new), one after the other.

    Raises:
        ValueError: an old part is in none of the texts.
    """
    made = dict(texts)
    for old, new in pairs:
        if not any(old in text for text in made.values()):
            raise ValueError(f"no text has {old!r}")
        made = {region: text.replace(old, new) for region, text in made.items()}
    return made
