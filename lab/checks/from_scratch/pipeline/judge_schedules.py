"""Judges the order of actions: each micro-batch once forward and once backward, with a small bubble."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import RETURN, Look
from lab.checks.common.report import expect
from lab.checks.from_scratch.pipeline.observe import SCHEDULES
from lab.checks.from_scratch.pipeline.schedule import BACKWARD, FORWARD, Action, bubble, play
from lab.grading.diagnosis import Diagnosis, unusable_report
from lab.grading.parts import compared

CASES = [(3, 5), (4, 4), (2, 6), (4, 2), (1, 3)]  # ranks, micro-batches: more, as many, and fewer of these
GPIPE, ONE_BY_ONE = SCHEDULES


def judge_schedules(look: Look, reports: Sequence[Any]) -> None:
    expect(reports, {name: [[[[object]]]] for name in SCHEDULES})
    for name in SCHEDULES:
        for (ranks, micros), found in zip(CASES, reports[0][name], strict=False):
            if len(found) != ranks:
                raise unusable_report("schedules of other ranks were reported")
            schedule = [[_action(action) for action in own] for own in found]
            case = f"{name}({ranks} ranks, {micros}): actions"
            compared(case, [[len(actions) for actions in schedule]], [2 * micros] * ranks)
            judge_schedule(look.into(name), name, schedule, ranks, micros)


def _action(action: list[Any]) -> Action:
    if len(action) != 2 or action[0] not in (FORWARD, BACKWARD) or type(action[1]) is not int:
        raise Diagnosis(
            "no-action",
            saw=f"a schedule has {str(tuple(action))[:60]} among its actions.",
            means="An action is (FORWARD, number) or (BACKWARD, number).",
            look="pipeline.py",
        )
    return action[0], action[1]


def _before_itself(actions: Sequence[Action]) -> bool:
    """Whether a micro-batch goes backward before it went forward, on one rank."""
    return any(
        actions.index((FORWARD, micro)) > at for at, (kind, micro) in enumerate(actions) if kind == BACKWARD
    )


def in_words(actions: Sequence[Action], limit: int = 14) -> str:
    """ "F0 F1 B0 F2"."""
    return " ".join(f"{kind}{micro}" for kind, micro in actions[:limit]) + (" ..." if len(actions) > limit else "")


def judge_schedule(look: Look, name: str, schedule: list[list[Action]], ranks: int, micros: int) -> None:
    for rank, actions in enumerate(schedule):
        said = f"{name}({rank}, {ranks}, {micros}) is {in_words(actions) or 'empty'}"
        for kind in (FORWARD, BACKWARD):
            numbers = [micro for one, micro in actions if one == kind]
            if sorted(numbers) != list(range(micros)):
                name = "micro-batches-twice"
                if not set(numbers) <= set(range(micros)):
                    name = "no-such-micro-batch"
                elif len(set(numbers)) < micros:
                    name = "micro-batches-missing"
                raise Diagnosis(
                    name,
                    saw=f"{said}.",
                    means=f"Each of the {micros} micro-batches goes forward once and backward once on every rank.",
                    look=look(r"= .*ranks", RETURN) if name == "no-such-micro-batch" else look(RETURN),
                )
            if numbers != sorted(numbers):
                raise Diagnosis(
                    "other-order",
                    saw=f"{said}.",
                    means="Micro-batches come from the first on, forward and backward: so they meet on all ranks.",
                    look=look(r"reversed|\[::-1\]", *([r"BACKWARD"] if kind == BACKWARD else []), r"range\("),
                )
    played = play(schedule)
    if played.stuck:
        rank, (kind, micro) = min(played.stuck.items())
        raise Diagnosis(
            "backward-before-forward",
            saw=f"{ranks} ranks, {micros} micro-batches: rank {rank}, {in_words(schedule[rank])}, never comes to "
            f"{kind}{micro}.",
            means="A backward pass needs its forward pass first, and the backward pass of the rank behind.",
            look=look(r"BACKWARD", RETURN) if any(map(_before_itself, schedule)) else look(r"min\(", r"BACKWARD"),
        )
    least = bubble(ranks, micros)
    if name == GPIPE:
        if wrong := [
            rank for rank, own in enumerate(schedule) if [k for k, _ in own] != sorted("FB" * micros)[::-1]
        ]:
            raise Diagnosis(
                "not-gpipe",
                saw=f"{name}({wrong[0]}, {ranks}, {micros}) is {in_words(schedule[wrong[0]])}.",
                means="GPipe does all forward passes, and then all backward passes.",
                look=look(RETURN),
            )
        return
    if played.bubble > least + 1e-9:
        raise Diagnosis(
            "bubble-too-large",
            saw=f"{ranks} ranks, {micros} micro-batches: waiting takes {played.bubble:.0%}, not {least:.0%}; "
            f"rank 0: {in_words(schedule[0])}.",
            means="Before its first backward pass a rank does a forward pass for each rank behind, and one more.",
            look=look(r"min\(", r"range\("),
        )
    for rank, most in enumerate(played.in_between):
        if most > min(ranks - rank, micros):
            raise Diagnosis(
                "too-many-in-between",
                saw=f"{name}({rank}, {ranks}, {micros}) is {in_words(schedule[rank])}: {most} are in between.",
                means=f"Rank {rank} of {ranks} keeps the activations of {ranks - rank} at most: that is its gain.",
                look=look(r"min\(", r"range\(", RETURN),
            )
