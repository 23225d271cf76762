"""The lines in which a program tells how it trains: rank, step, loss, gradient norm, rate, sum of the weights."""

import math
import re
from dataclasses import dataclass

_RANK = re.compile(r"^\W{0,3}(?:\d{1,5}: +(?=\W?[Rr]ank))?(?:\[?[Rr]ank[ :_=]?(\d{1,6})\b\]?|(\d{1,5}): )")
_STEP = re.compile(
    r"(?<![A-Za-z])(?:step|iter(?:ation)?|update)s?\b\W{0,14}?(?P<step>\d{1,9})(?:\s{0,9}/\s{0,9}(?P<of>\d{1,9}))?\b",
    re.I,
)
_NUMBER = r"(?P<{}>[-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|nan|inf))(?![\w.])"
_LOSS = re.compile(rf"(?<![a-z])loss['\"]?\s?(?:[=:]|is)?\s{{0,4}}{_NUMBER.format('loss')}", re.I)
_NORM = re.compile(
    rf"(?<![a-z_])(?:g(?:rad(?:ient)?s?)?[ _-]?norm|\|g\|)['\"]?\W{{1,4}}{_NUMBER.format('norm')}", re.I
)
_RATE = re.compile(rf"(?<![a-z_])(?:lr|learning[_ -]rate)['\"]?\W{{1,4}}{_NUMBER.format('rate')}", re.I)
_SUM = re.compile(
    r"(?P<what>\|p\||\b(?:param(?:eter)?s?|weights?)[ _]?(?:sum|norm|mean|hash|checksum)|\b(?:checksum"
    r"|hash) of \w+)"
    r"(?:\.(?:sum|norm|mean)\(\))?['\"]?\W{1,4}(?P<sum>[-+]?[\da-f][\da-f.]*(?:[eE][-+]?\d+)?)\b",
    re.I,
)
_BESIDE = re.compile(r"\b(?:val(?:id\w*)?|eval\w*|test)\b", re.I)  # no line of a step of training

_WORDS = {
    _LOSS: ("loss",),
    _NORM: ("norm", "|g|"),
    _RATE: ("lr", "learning"),
    _SUM: ("|p|", "param", "weight", "checksum", "hash"),
}
_LONGEST = 1000  # characters of a line that are looked at


@dataclass(frozen=True)
class Told:
    """One line. Numbers are as they were printed; "" where it has none; rank and step are -1 there."""

    line: str
    rank: int
    step: int
    of: int
    loss: str
    norm: str
    rate: str
    weights: str


def told(log: str) -> list[Told]:
    """The lines that name a step, or a sum of the weights."""
    found = []
    for line in log.splitlines():
        line = line[:_LONGEST]
        small = line.lower()
        tells = {pattern: any(word in small for word in words) for pattern, words in _WORDS.items()}
        if not (tells[_LOSS] or tells[_NORM] or tells[_RATE] or tells[_SUM]):
            continue
        step, weights = _STEP.search(line), _SUM.search(line) if tells[_SUM] else None
        if (step is None and weights is None) or _BESIDE.search(small):
            continue
        who = _RANK.match(line)
        loss, norm, rate = (one.search(line) if tells[one] else None for one in (_LOSS, _NORM, _RATE))
        found.append(
            Told(
                line=line.strip(),
                rank=int(who[1] or who[2]) if who else -1,
                step=int(step["step"]) if step else -1,
                of=int(step["of"] or 0) if step else 0,
                loss=loss["loss"].lower() if loss else "",
                norm=norm["norm"].lower() if norm else "",
                rate=rate["rate"].lower() if rate else "",
                weights=weights["sum"].lower() if weights else "",
            )
        )
    return found


def value(text: str) -> float:
    """A printed number; nan where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def finest(numbers: list[str]) -> float:
    """The smallest difference that numbers printed so can show."""
    return min((_last_place(one) for one in numbers), default=1.0)


def _last_place(text: str) -> float:
    digits, _, power = text.partition("e")
    after = len(digits.partition(".")[2])
    return 10.0 ** (int(power or 0) - after) if power.lstrip("-+").isdecimal() or not power else 1.0


def is_exact_zero(text: str, others: list[str]) -> bool:
    """Whether a printed 0 is one, and no small number: by its exponent, or by what its like can show."""
    if value(text) != 0:
        return False
    most = max((abs(value(one)) for one in others), default=0.0)
    in_short = any("e" in one for one in others if value(one) > 0)  # as repr() and %g do, which round nothing to 0
    return "e" in text or in_short or (most > 0 and finest(others) * 1000 < most)
