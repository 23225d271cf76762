"""Judges the assertion: images of other sizes are refused, and by it."""

from collections.abc import Mapping
from typing import Any

from lab.checks.common.look import Look, line_of
from lab.checks.common.report import error_place, error_text
from lab.checks.model.observe import WRONG_IMAGES
from lab.grading.diagnosis import Diagnosis

# What makes other images of those that came in.
MADE_TO_FIT = (
    r"permute|transpose|movedim|moveaxis|swap(ax|dim)|reshape|\.view\(|interpolate|resize|pad|expand|repeat|cat\("
    r"|=\s*\w+\[[^\]]*[:,]"
)


# The key of what is reported of the same images, where the assertion has to be made too.
EVERYWHERE = {
    "in evaluation mode": "wrong_evaluated",
    "on a GPU (here only pretended)": "wrong_on_gpu",
}


def judge_everywhere(look: Look, results: Mapping[str, list[dict[str, Any]]]) -> None:
    """Args: `results` are those of the wrong images, in other settings: {setting in words: results}."""
    for where, wrong in results.items():
        for shape, result in zip(WRONG_IMAGES, wrong, strict=True):
            if result["error"] is None:
                raise Diagnosis(
                    "assertion-not-everywhere",
                    saw=f"images [B, {', '.join(map(str, shape))}] went through without an error {where}; "
                    "otherwise they are refused.",
                    means="A wrong image is wrong in each setting: assert its shape whatever else is so.",
                    look=look.under(r"\bassert\b") or look(r"\bassert\b"),
                )


def judge_wrong_images(look: Look, wrong: list[dict[str, Any]], odd: list[dict[str, Any]]) -> None:
    """Args: `odd` are the results of what is not even a batch of images."""
    never_fails = not any(one["error"] and "AssertionError" in one["error"]["bases"] for one in odd)
    missed = [
        (shape, result["error"])
        for shape, result in zip(WRONG_IMAGES, wrong, strict=True)
        if result["error"] is None or "AssertionError" not in result["error"]["bases"]
    ]
    if not missed:
        return
    shape, error = missed[0]
    entered = wrong[WRONG_IMAGES.index(shape)]["entered"][1:]
    place = look.asserts()
    batch = ["B", *shape]
    saw = f"images [{', '.join(map(str, batch))}] " + (
        f"raised {error_text(error)}" if error else "went through without an error."
    )
    if error and error["type"] not in ("RuntimeError", "IndexError"):
        raise Diagnosis(
            "not-an-assertion",
            saw=saw,
            means="A wrong image here is a mistake in the program, not in a user's input: that is what assert "
            "is for.",
            look=error_place(error, look),
        )
    above = bool(error and error["file"] == look.name and error["line"] < line_of(place))
    made_to_fit = look(MADE_TO_FIT)
    first = 0 < line_of(place) < line_of(made_to_fit)  # what came in is asserted, but too little of it
    changed = entered and entered != list(shape) and not first
    if above or (changed and (place or len(missed) < len(WRONG_IMAGES))):
        raise Diagnosis(
            "assertion-too-late",
            saw=f"{saw.rstrip('.')}, above the assertion."
            if above
            else f"{saw.rstrip('.')}; the blocks got [B, {', '.join(map(str, entered))}].",
            means="What is made to fit before it is compared always fits: first assert what came in.",
            look=error_place(error, look) if error and above else made_to_fit,
        )
    if len(missed) < len(WRONG_IMAGES):
        raise Diagnosis(
            "assertion-too-weak",
            saw=f"{saw.rstrip('.')}; other wrong sizes are refused.",
            means="The assertion must compare all three of channels, height and width.",
            look=look(r"\bassert\b"),
        )
    if place and never_fails:
        raise Diagnosis(
            "assertion-cannot-fail",
            saw=f"{saw.rstrip('.')}, and so does everything else: the assertion has never failed.",
            means="It is always true, as a tuple in brackets is, or never reached: assert CONDITION, MESSAGE.",
            look=look.under(r"\bassert\b") or place,
        )
    if place:
        raise Diagnosis(
            "assertion-too-weak",
            saw=f"{saw.rstrip('.')}; the assertion refuses other things.",
            means="The assertion must compare all three of channels, height and width.",
            look=place,
        )
    raise Diagnosis(
        "no-assertion",
        saw=saw,
        means="Without an assertion a wrong image is noticed layers later in a message about matrices, or never.",
        look=look(),
    )
