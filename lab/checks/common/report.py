"""For judges: whether what ranks report is of the right types, and their errors in words."""

from collections.abc import Callable, Iterable, Sequence
from reprlib import Repr
from typing import Any, NoReturn

from lab.base.words import one_line
from lab.checks.common.look import Look, at
from lab.grading.diagnosis import Diagnosis, unusable_report

# An exception as lab.checks.common.attempt.plain reports it.
ERROR = {"type": str, "bases": [str], "message": str, "file": str, "line": int, "text": str}

_SHORT = Repr()  # repr() would write out a report of any size


def fits(value: object, shape: Any) -> bool:
    """Whether a value has the given shape: a type, [shape of each], {key: shape}, or (one, or another).

    None stands for itself, and a bool is no int.
    """
    if isinstance(shape, tuple):
        return any(fits(value, one) for one in shape)
    if isinstance(shape, list):
        return isinstance(value, list | tuple) and all(fits(item, shape[0]) for item in value)
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(
            key in value and fits(value[key], inner) for key, inner in shape.items()
        )
    if shape is None:
        return value is None
    if isinstance(value, bool):
        return shape in (bool, object)
    return isinstance(value, shape)


def expect(values: Sequence[object], shape: Any) -> None:
    """Raise a Diagnosis unless every rank's value has this shape: what comes back from a rank is not trusted."""
    for rank, value in enumerate(values):
        if not fits(value, shape):
            unusable(f"rank {rank}", value)


def expect_as_many(values: Sequence[Any], count: int) -> None:
    """Raise a Diagnosis unless every rank's list has this length."""
    for rank, value in enumerate(values):
        if len(value) != count:
            unusable(f"rank {rank}", value)


def expect_returned(look: Look, kind: str, means: str, place: str, *, who: str = "") -> None:
    """Raise a Diagnosis where the function that is looked at has returned None; `kind` is its result's type."""
    if kind == "NoneType":
        raise Diagnosis("nothing-returned", saw=f"{look.function}() returned None{who}.", means=means, look=place)


def remembered(look: Look, saw: str) -> Diagnosis:
    """The diagnosis where a call gave back what an earlier one, with other arguments, has kept."""
    return Diagnosis(
        "result-remembered",
        saw=saw,
        means="What one call keeps must not answer the next, which has other arguments: do it anew each time.",
        look=look.kept(),
    )


def unusable(who: str, value: object) -> NoReturn:
    """The diagnosis for a report that no right or wrong answer leads to."""
    raise unusable_report(f"{who} reported {one_line(_SHORT.repr(value), 80)}")


def error_text(error: dict[str, Any]) -> str:
    """ "KeyError: 'RANK'"."""
    return f"{error['type']}: {one_line(error['message'], 160)}" if error["message"] else error["type"]


def error_place(error: dict[str, Any], otherwise: Callable[[], str]) -> str:
    """The student's line that raised it, if it was one."""
    return at(error["file"], error["line"], error["text"]) if error["file"] else otherwise()


# What is in an error's text -> its cause.
_CAUSES = {
    "mat1 and mat2 shapes cannot be multiplied": "A Linear layer takes a row for each image: flatten from dim 1.",
    "Module [ModuleList] is missing the required": "A ModuleList is a list, not a layer: loop over it.",
}


def fail(error: dict[str, Any], what: str, otherwise: Callable[[], str]) -> NoReturn:
    """The diagnosis for an exception that should not have been: `what` raised it."""
    text = error_text(error)
    raise Diagnosis(
        "raised",
        saw=f"{what} raised {text}",
        means=next((means for said, means in _CAUSES.items() if said in text), "It did not come to its end."),
        look=error_place(error, otherwise),
    )


def numbers(values: Iterable[int], limit: int = 6) -> str:
    """ "0, 3, 7, 9, 12, 20, ..."."""
    ordered = list(values)
    return ", ".join(map(str, ordered[:limit])) + (", ..." if len(ordered) > limit else "")
