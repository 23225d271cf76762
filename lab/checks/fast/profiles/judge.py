"""Judges what time_by_cause() makes of profiles of a step."""

from collections.abc import Callable, Sequence
from typing import Any

from lab.checks.common.look import RETURN, Look, line_of
from lab.checks.common.look_around import is_loop, kept_at
from lab.checks.common.report import ERROR, expect, expect_as_many, fail, fits
from lab.checks.common.tensors import number
from lab.checks.fast.profiles.draw import Span
from lab.checks.fast.profiles.look_cause import chosen_key, made_under, own_order, returned_from
from lab.checks.fast.profiles.mistakes import CAUSES, MISTAKES, OF_ONE_CAUSE, Times, by_priority
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

REPORT = {"answers": [{"error": (None, ERROR), "value": object, "kept": bool}], "shortened": [int]}


def judge_profiles(
    look: Look,
    reports: Sequence[Any],
    profiles: Sequence[Sequence[Span]],
    read: Callable[[Sequence[Sequence[Span]]], Sequence[Any]],
) -> None:
    """Args: `read` reports of other profiles, which are read where nobody has read any before."""
    expect(reports, REPORT)
    expect_as_many([report["answers"] for report in reports], len(profiles))
    answers = reports[0]["answers"]
    for answer in answers:
        if answer["error"]:
            fail(answer["error"], "time_by_cause()", look)
    found = [answer["value"] for answer in answers]
    judge_kind(look, found)
    right = [by_priority(spans, CAUSES, "launch") for spans in profiles]
    for step, (mine, wanted) in enumerate(zip(found, right, strict=True), start=1):
        compared(f"microseconds of step {step}", [mine], wanted)
    if all(map(same, found, right)):
        judge_kept(look, answers)
        return
    wrong = next(i for i, times in enumerate(found) if not same(times, right[i]))
    length = number(sum(right[wrong].values()))
    saw = f"a step of {length} us: you returned {told(found[wrong])}; it was {told(right[wrong])}."
    if all(map(in_whole_numbers, found, right, profiles)):
        raise Diagnosis(
            "whole-microseconds",
            saw=saw,
            means="A profile's times have fractions: what counts whole microseconds cuts kernels off.",
            look=look(*PLACES["whole-microseconds"], RETURN),
        )
    if wrong and right_alone(read([profiles[wrong]]), right[wrong]):
        raise Diagnosis(
            "times-kept",
            saw=saw.replace("a step", f"step {wrong + 1}", 1),
            means="Alone it is right. Each call is a step of its own: what outlives it is of the steps before.",
            look=kept_at(look) or look.kept(),
        )
    for name, times, means in MISTAKES:
        if all(same(mine, times(spans)) for mine, spans in zip(found, profiles, strict=True)):
            taken = [look.line(line) for line in reports[0]["shortened"] if not is_loop(look, line)]
            place = taken[0] if taken and name == "inner-end-taken" else place_of(look, name)
            raise Diagnosis(name, saw=saw, means=means, look=place)
    for name, times, means in OF_ONE_CAUSE:
        if cause := as_in(times, found, right, profiles):
            raise Diagnosis(
                name, saw=saw, means=means, look=made_under(look, cause) or look(r"\+=|\bsum\(", *PRIORITY, RETURN)
            )
    judge_scale(look, saw, found, right)
    raise Diagnosis(
        "wrong-times",
        saw=saw,
        means="Each piece between two edges goes to the first of CAUSES that is running, and else to launch.",
        look=place_of_piece(look, found, right),
    )


def right_alone(reports: Sequence[Any], right: dict[str, float]) -> bool:
    """Whether a profile's times are right where it is the first that is read."""
    expect(reports, REPORT)
    expect_as_many([report["answers"] for report in reports], 1)
    times = reports[0]["answers"][0]["value"]
    known = isinstance(times, dict) and all(fits(times.get(cause), (int, float)) for cause in CAUSES)
    return known and same(times, right)


def judge_kept(look: Look, answers: Sequence[dict[str, Any]]) -> None:
    """What came is still there after other calls."""
    if lost := [step for step, answer in enumerate(answers, start=1) if not answer["kept"]]:
        raise Diagnosis(
            "result-overwritten",
            saw=f"the times of step {lost[0]} were others when the next step had been read.",
            means="All calls return one dict: who compares two steps has the last one twice. Make it anew.",
            look=kept_at(look) or look.kept(),
        )


def judge_scale(
    look: Look, saw: str, found: Sequence[dict[str, float]], right: Sequence[dict[str, float]]
) -> None:
    """The right times, but in another unit, or as parts of something."""
    units = [
        sum(mine[cause] for cause in CAUSES) / sum(times.values())
        for mine, times in zip(found, right, strict=True)
    ]
    for mine, times, unit in zip(found, right, units, strict=True):
        if any(abs(mine[cause] - times[cause] * unit) > 1e-6 * unit for cause in CAUSES) or not unit > 0:
            return
    if max(units) - min(units) < 1e-6 * max(units):
        raise Diagnosis(
            "not-in-microseconds",
            saw=saw,
            means="Times stay in the unit of the spans.",
            look=look(r"1_?000|1e-?\d|[/*]=? ?\d", RETURN),
        )
    raise Diagnosis(
        "shares-returned",
        saw=saw,
        means="Microseconds can be added over steps and compared between runs; shares cannot.",
        look=look(r"(?<!/)/(?!/)", RETURN),
    )


def place_of_piece(look: Look, found: Sequence[dict[str, float]], right: Sequence[dict[str, float]]) -> str:
    """Where a piece gets its cause; where that is not all that is wrong, what is added, or between which edges."""
    lengths = [
        (sum(mine[cause] for cause in CAUSES), sum(times.values()))
        for mine, times in zip(found, right, strict=True)
    ]
    if not look.mentions("sorted") and not look.mentions("sort"):
        return look(r"\.(begin|end)\b", *PRIORITY, RETURN)
    if any(mine < length - 1e-6 for mine, length in lengths):
        return look(r"\bzip\(|pairwise\(|range\(", r"[+]=|\] = ", *PRIORITY, RETURN)
    if any(mine > length + 1e-6 for mine, length in lengths):
        return look(r"\+=|\] = ", *PRIORITY, RETURN)
    pairs = list(zip(found, right, strict=True))
    taken = [cause for cause in CAUSES[:-1] if any(mine[cause] > times[cause] + 1e-6 for mine, times in pairs)]
    for cause in taken:  # what is another's: it is asked for too early
        if line_of(early := asked_for(look, cause)):
            return early
    chosen = chosen_key(look)
    return look(COMPARES, r"running|begin", *PRIORITY, RETURN) if not chosen or "CAUSES" in chosen else chosen


def as_in(
    times: Times,
    found: Sequence[dict[str, float]],
    right: Sequence[dict[str, float]],
    profiles: Sequence[Sequence[Span]],
) -> str:
    """The first cause whose times are wrong, where all that are wrong are a mistake's; launch has the rest."""
    wrong = [cause for cause in CAUSES[:-1] if not all(map(close_in(cause), found, right))]
    mistaken = [times(spans) for spans in profiles]
    return wrong[0] if wrong and all(all(map(close_in(cause), found, mistaken)) for cause in wrong) else ""


def place_of(look: Look, name: str) -> str:
    """Where to look for a mistake that has a name: what it is known by, or where a piece gets its cause."""
    first, before, _ = name.partition("-before-")
    if before:
        own = own_order(look, ("compute", "communication"), but="CAUSES")
        named = asked_for(look, first)
        return own or (named if line_of(named) else "") or chosen_key(look) or look(*PRIORITY, RETURN)
    by_sign = look(*PLACES[name]) if name in PLACES else ""
    if name == "gaps-as-input":
        by_sign = look(r"['\"]input['\"](?!\s*:)", last=True)
    return by_sign if line_of(by_sign) else chosen_key(look) or look(*PRIORITY, RETURN)


def asked_for(look: Look, cause: str) -> str:
    """The `if` that asks whether a cause is running, or else some other line."""
    return look(rf"^(el)?if .*['\"]{cause}['\"]")


# Where a piece gets its cause; and where to look for a mistake first.
PRIORITY = (r"^(for|if) .*cause|\bnext\(", r"^for .* in ")
COMPARES = r"(?<!-)[<>]"
PLACES = {
    "gaps-left-out": (r"^continue\b|: continue\b", r"^if (not )?\w+( is not None)?:$", r"\bnext\("),
    "counted-from-zero": (r"[{\[(]0(\.0)?[,}\]]", r"[=,] 0(\.0)?$", r"sorted\("),
    "step-cut-short": (r"\[-1\]", r"end\b"),
    "whole-microseconds": (r"\bint\(|round\(|//|floor|ceil",),
    "touching-spans-counted": (COMPARES,),
    "edges-left-out": (r"sorted\(", r"\.(begin|end)\b"),
    "edges-not-counted": (COMPARES,),
    "one-end-ends-all": (r"discard\(|remove\(|\.pop\(|\bdel ", r"^\w+\[\w+\] = ", r"False|\.end\b"),
    "inner-end-taken": (r"^[^=<>!]*= (?!.*max\().*(\bend\b|\[[12]\])", r"\.end\b"),
    "last-of-causes": (r"reversed|::-1|\bmax\(", r"^\w+ = \w+$"),
    "order-of-the-profile": (r"\w\[(0|-1)\]\.what|\[\w+\.what\b.*\]\[(0|-1)\]",),
    "last-piece-only": (r"\] = ",),
    "pieces-counted": (r"\+= ?1(\.0)?$|Counter|count\(",),
}


def in_whole_numbers(times: dict[str, float], right: dict[str, float], spans: Sequence[Span]) -> bool:
    """About the right times, but each a whole number of microseconds."""
    about = all(abs(times[cause] - right[cause]) < len(spans) for cause in CAUSES)
    return about and all(float(times[cause]).is_integer() for cause in CAUSES)


def judge_kind(look: Look, found: Sequence[Any]) -> None:
    """A dict of numbers, with every cause."""
    for times in found:
        if not isinstance(times, dict):
            shown = repr(times) if isinstance(times, str) else f"a {type(times).__name__}"
            raise Diagnosis(
                "no-times",
                saw=f"time_by_cause() returned {shown}.",
                means="It returns a dict: how many microseconds each cause answers for.",
                look=look(RETURN, last=True),
            )
        if missing := [cause for cause in CAUSES if cause not in times]:
            raise Diagnosis(
                "cause-missing",
                saw=f"time_by_cause() returned no {missing[0]} for a step that had none.",
                means="All four are there, with 0.0 where there was nothing: whoever adds up steps relies on it.",
                look=filtered if line_of(filtered := look(r"^return .*\bif\b")) else returned_from(look),
            )
        if odd := [
            cause for cause in CAUSES if not (fits(times[cause], (int, float)) and abs(times[cause]) < 1e15)
        ]:
            raise Diagnosis(
                "no-times",
                saw=f"for {odd[0]} time_by_cause() returned a {type(times[odd[0]]).__name__}.",
                means="A number of microseconds for each cause.",
                look=look(RETURN, last=True),
            )


def same(mine: dict[str, float], other: dict[str, float]) -> bool:
    return all(close_in(cause)(mine, other) for cause in CAUSES)


def close_in(cause: str) -> Callable[[dict[str, float], dict[str, float]], bool]:
    return lambda mine, other: abs(mine[cause] - other[cause]) < 1e-6


def told(times: dict[str, float]) -> str:
    return ", ".join(f"{cause} {number(times[cause])}" for cause in CAUSES)
