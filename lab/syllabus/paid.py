"""What `lab check --why` costs before an exercise has passed, where a course says so: two files.

    exercises/course.toml   handed out: the share of an exercise's points
    exercises/paid.toml     the student's: the exercises that were looked into before they passed, and when

Both lie where students write: grading takes the share from the course, and paid.toml at a student's word.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lab.base.words import one_line
from lab.syllabus.syllabus import syllabus

COURSE, PAID = "course.toml", "paid.toml"
SHOWN = 5  # names in a sentence
SHARE, TABLE = "why_costs", "paid"  # what stands in them
MAX_BYTES = 16_384  # of either; with all exercises in it, paid.toml has a tenth of that

_COURSE = """\
# Once an exercise has passed, `lab check --why 3.2` shows for nothing what its check did. In your course you can
# see that before it has passed too: with --pay, and for this share of the points that the exercise earns you
# (0.25 is a quarter). Without --pay nothing is shown, and nothing taken.
# Changing the number here changes nothing: grading takes it from the course.
{name} = {share}
"""
_PAID = """\
# Written by `lab check --why ... --pay`: the exercises whose checks you looked into before they passed, and when.
# It is handed in with your modules, and lies in the same folder. Your course trusts that you leave it as it is.
[{name}]
"""


def course_text(share: float) -> str:
    """course.toml."""
    return _COURSE.format(name=SHARE, share=share)


def share_in(content: bytes) -> float:
    """The share in course.toml. Raises ValueError, with what is wrong."""
    share = toml(content).get(SHARE)
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise ValueError(f"no line {SHARE} = 0.25, or such")
    return checked(float(share))


def checked(share: float) -> float:
    """Raises ValueError: it is no share of an exercise's points."""
    if not (math.isfinite(share) and 0 < share <= 1):
        raise ValueError(f"{share:g} is no share over 0 and up to 1, such as 0.25")
    return share


def paid_text(paid: Mapping[str, datetime]) -> str:
    """paid.toml, by exercise."""
    lines = [f'"{name}" = {when.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z\n' for name, when in sorted(paid.items())]
    return _PAID.format(name=TABLE) + "".join(lines)


def paid_in(content: bytes) -> dict[str, Any]:
    """Exercise -> when, as it stands in paid.toml, whatever that is. Raises ValueError: there is no such table."""
    found = toml(content).get(TABLE)
    if not isinstance(found, dict):
        raise ValueError(f"no table [{TABLE}]")
    return found


def toml(content: bytes) -> dict[str, Any]:
    """The values in one of these files, which anybody may have written. Raises ValueError."""
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("it is no text in UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(one_line(str(error), 200)) from None


def points_off(points: float, share: float) -> float:
    """What is taken from these points, in hundredths as points are everywhere."""
    return round(points - round(points * (1 - share), 2), 2)


def paid_by_a_stranger(content: bytes | int | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The exercises in the paid.toml of a submission, and sentences on what of it does not count.

    Args:
        content: an int is the size of a file too large to be read; None where there is none.
    """
    if content is None:
        return (), ()
    if isinstance(content, int):
        return (), (f"{PAID} has {content} bytes, and was not read: nothing is taken off for it",)
    try:
        found = paid_in(content)
    except ValueError as error:
        return (), (f"{PAID} cannot be used ({error}): nothing is taken off for it",)
    known = {exercise.id for exercise in syllabus().every}
    right = {name for name in found.keys() & known if isinstance(found[name], datetime)}
    odd = [one_line(name, 40) for name in found if name not in right]
    more = f" and {len(odd) - SHOWN} more" * (len(odd) > SHOWN)
    said = f"{PAID} has lines that are none of the lab's, and cost nothing: {', '.join(odd[:SHOWN])}{more}"
    return tuple(sorted(right)), (said,) if odd else ()
