"""Ranks that report what they are told to."""

import dataclasses
import random
from typing import Any

import torch
from answers.bank import SOLUTIONS

from lab.grading.check import Group, Order, Pending
from lab.ranks.reports import GroupResult

JUNK = [
    None, True, -1, 10**30, float("nan"), float("inf"), "", "x", b"\xff", [], {}, (), [None], {"value": 1},
    [[[[]]]], torch.zeros(()), torch.zeros(0), torch.full((2, 3), float("nan")), torch.ones(4, dtype=torch.int32),
    torch.ones(2, dtype=torch.complex64),
]  # fmt: skip


class Replay(Group):
    """Gives a judge the recorded reports, or, with `damage`, reports in which something is replaced by junk."""

    def __init__(self, exercise: str) -> None:
        super().__init__(SOLUTIONS, exercise)
        self.recorded: list[GroupResult] = []
        self.position: int | None = None  # None while recording
        self.damage: random.Random | None = None

    def start(self, order: Order) -> Pending:
        return lambda: self.report(order)

    def report(self, order: Order) -> GroupResult:
        if self.position is None:
            self.recorded.append(super().report(order))
            return self.recorded[-1]
        result = self.recorded[
            min(self.position, len(self.recorded) - 1)
        ]  # after a failure a judge may ask once more
        self.position += 1
        if self.damage is None:
            return result
        reports = list(result.reports)
        victim = self.damage.randrange(len(reports))
        reports[victim] = dataclasses.replace(
            reports[victim], value=damaged(reports[victim].value, self.damage, self.damage.randrange(6))
        )
        return GroupResult(reports, result.seconds)


def damaged(value: Any, choose: random.Random, depth: int) -> Any:
    """A copy with one part, so many levels down, replaced, removed or doubled."""
    if depth == 0 or not isinstance(value, list | tuple | dict) or not value:
        return choose.choice(JUNK)
    copy = dict(value) if isinstance(value, dict) else list(value)
    key = choose.choice(list(value)) if isinstance(value, dict) else choose.randrange(len(value))
    fate = choose.random()
    if fate < 0.1:
        del copy[key]
    elif fate < 0.2 and isinstance(copy, list):
        copy.insert(key, copy[key])
    else:
        copy[key] = damaged(copy[key], choose, depth - 1)
    return copy
