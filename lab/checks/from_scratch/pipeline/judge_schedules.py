"""Judges the order of actions: each micro-batch once forward and once backward, with a small bubble."""

import ast
from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import RETURN, Look, line_of
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
            if len(found) != ranks or any(len(own) != 2 for own in found):
                raise unusable_report("schedules of other ranks were reported")
            expect([own for own, _ in found], [[object]])
            schedule = [[_action(action) for action in own] for own, _ in found]
            lines = [own for _, own in found]
            if any([type(line) for line in own] != [int] * len(schedule[rank]) for rank, own in enumerate(lines)):
                raise unusable_report("the lines of a schedule are not those of its actions")
            case = f"{name}({ranks} ranks, {micros}): actions"
            compared(case, [[len(actions) for actions in schedule]], [2 * micros] * ranks)
            judge_schedule(look.into(name), name, schedule, lines, micros)


def made_at(look: Look, lines: Sequence[int], at: int, *, counts: bool = True) -> str:
    """The line that made an action; with `counts` the loop around it where that only counts for this one."""
    _, _, node = look.source()
    if _in_other(look, lines[at]):
        return look(RETURN)
    for loop in ast.walk(node) if node else ():
        if counts and isinstance(loop, ast.For) and loop.lineno < lines[at] <= (loop.end_lineno or 0):
            pairs = [one for one in ast.walk(loop) if isinstance(one, ast.Tuple) and len(one.elts) == 2]
            counted = [one.lineno for one in pairs if ast.dump(one.elts[1]) == ast.dump(_read(loop.target))]
            if counted == [one.lineno for one in pairs if one.lineno == lines[at]]:
                return look.line(loop.lineno)
    return look.line(lines[at])


def _in_other(look: Look, line: int) -> bool:
    """Whether a line is one of the other schedule's, which this function has called."""
    others = [look.into(name).source()[2] for name in SCHEDULES if name != look.function]
    return any(node is not None and node.lineno <= line <= (node.end_lineno or 0) for node in others)


def _read(target: ast.expr) -> ast.expr:
    """The variable of a loop as its body reads it."""
    return ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else target


def _action(action: list[Any]) -> Action:
    if len(action) != 2 or action[0] not in (FORWARD, BACKWARD) or type(action[1]) is not int:
        raise Diagnosis(
            "no-action",
            saw=f"a schedule has {str(tuple(action))[:60]} among its actions.",
            means="An action is (FORWARD, number) or (BACKWARD, number).",
            look="pipeline.py",
        )
    return action[0], action[1]


def _before_forward(actions: Sequence[Action]) -> list[int]:
    """Which actions are backward passes of micro-batches that have not gone forward yet, on one rank."""
    return [
        at for at, (kind, micro) in enumerate(actions) if (FORWARD, micro) not in actions[:at] and kind == BACKWARD
    ]


def _turn(actions: Sequence[Action], at: int) -> int:
    """How many actions of the same kind come before."""
    return sum(kind == actions[at][0] for kind, _ in actions[:at])


def _first_other(actions: Sequence[Action]) -> int:
    """The first action that is none of GPipe's."""
    kinds = [FORWARD] * (len(actions) // 2) + [BACKWARD] * (len(actions) // 2)
    return next(at for at, ((kind, _), wanted) in enumerate(zip(actions, kinds, strict=True)) if kind != wanted)


def in_words(actions: Sequence[Action], limit: int = 14) -> str:
    """ "F0 F1 B0 F2"."""
    return " ".join(f"{kind}{micro}" for kind, micro in actions[:limit]) + (" ..." if len(actions) > limit else "")


def judge_schedule(
    look: Look, name: str, schedule: list[list[Action]], lines: list[list[int]], micros: int
) -> None:
    ranks = len(schedule)
    turned = look(r"reversed|\[::-1\]|reverse\(|sort")  # a list that was made in another order
    turned = turned if line_of(turned) else ""
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
                wrong = [at for at, (_, micro) in enumerate(actions) if micro != _turn(actions, at)]
                place = made_at(look, lines[rank], wrong[0]) if wrong else look(RETURN)
                if (
                    name == "no-such-micro-batch" and micros < ranks
                ):  # with as many as ranks there are none too many
                    place = look(r"= .*ranks") if line_of(look(r"= .*ranks")) else place
                raise Diagnosis(
                    name,
                    saw=f"{said}.",
                    means=f"Each of the {micros} micro-batches goes forward once and backward once on every rank.",
                    look=place,
                )
            if numbers != sorted(numbers):
                wrong = [at for at, one in enumerate(actions) if one[0] == kind and one[1] != _turn(actions, at)]
                raise Diagnosis(
                    "other-order",
                    saw=f"{said}.",
                    means="Micro-batches come from the first on, forward and backward: so they meet on all ranks.",
                    look=turned or made_at(look, lines[rank], wrong[0]),
                )
    played = play(schedule)
    if played.stuck:
        rank, (kind, micro) = min(played.stuck.items())
        early = [(one, at) for one, own in enumerate(schedule) for at in _before_forward(own)]
        raise Diagnosis(
            "backward-before-forward",
            saw=f"{ranks} ranks, {micros} micro-batches: rank {rank}, {in_words(schedule[rank])}, never comes to "
            f"{kind}{micro}.",
            means="A backward pass needs its forward pass first, and the backward pass of the rank behind.",
            look=turned or made_at(look, lines[early[0][0]], early[0][1], counts=False)
            if early
            else look(r"min\(", r"\brank\b", r"BACKWARD"),
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
                look=made_at(look, lines[wrong[0]], _first_other(schedule[wrong[0]]), counts=False),
            )
        return
    if played.bubble > least + 1e-9:
        raise Diagnosis(
            "bubble-too-large",
            saw=f"{ranks} ranks, {micros} micro-batches: waiting takes {played.bubble:.0%}, not {least:.0%}; "
            f"rank 0: {in_words(schedule[0])}.",
            means="Before its first backward pass a rank does a forward pass for each rank behind, and one more.",
            look=look(r"min\(", r"\brank\b", r"range\("),
        )
    for rank, most in enumerate(played.in_between):
        if most > min(ranks - rank, micros):
            raise Diagnosis(
                "too-many-in-between",
                saw=f"{name}({rank}, {ranks}, {micros}) is {in_words(schedule[rank])}: {most} are in between.",
                means=f"Rank {rank} of {ranks} keeps the activations of {ranks - rank} at most: that is its gain.",
                look=look(r"min\(", r"\brank\b", r"range\(", RETURN),
            )
