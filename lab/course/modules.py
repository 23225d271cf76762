"""The checks of all exercises on one submission's modules, in the sandbox, and never longer than its time."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.course import marks
from lab.course.marks import ExerciseMark
from lab.grading.diagnosis import UNUSABLE_REPORT, CheckEnded, Failed, LabError
from lab.grading.suite import ExerciseResult, Suite, checks_of, run_exercise
from lab.ranks.rank import Rank
from lab.ranks.reports import GroupResult
from lab.ranks.sandbox import Sandbox, SandboxError
from lab.ranks.server import PRELOAD, RankServer, RankServerError
from lab.syllabus.syllabus import Exercise, Syllabus, syllabus

DEADLINE = 180.0  # seconds for all exercises of a submission; ordinary ones take less than ten
LEAST = 1.0  # with less left no group is started any more
# What part of the time one group of ranks may use, so that something is left for the other exercises; and once
# another exercise of the same module has hung.
SHARE, SHARE_AFTER_A_HANG = 1 / 6, 1 / 18
HANGS = ("hang", "stuck-rank", "out-of-time")


class TimedServer(RankServer):
    """A rank server in the sandbox that gives the groups of a submission no more than what is left of its time."""

    def __init__(self, *, sandbox: Sandbox | None = None, preload: Sequence[str] = PRELOAD) -> None:
        super().__init__(sandbox=sandbox or Sandbox(), preload=preload)
        self._seconds = self._end = self._most = float("inf")

    def warm_up(self) -> None:
        """Load torch, in there and for the judges here, which shall not count as anybody's time."""
        for exercise in syllabus().every:
            _checks(exercise)
        with contextlib.suppress(RankServerError):  # the checks will meet it too, and say so
            super().run(nothing, 1, code=None, set_up_process_group=False)

    def begin(self, seconds: float) -> None:
        """The next submission, and how long it may take."""
        self._seconds, self._end = seconds, time.monotonic() + seconds

    def allow(self, share: float) -> None:
        """How much of that a group may use at most."""
        self._most = share * self._seconds

    def run(self, observe: Any, world_size: int, *, timeout: float = 30.0, **options: Any) -> GroupResult:
        left = self._end - time.monotonic()
        if left < LEAST:
            raise CheckEnded(Failed(marks.out_of_time(self._seconds)))
        return super().run(observe, world_size, timeout=min(timeout, left, self._most), **options)


def nothing(rank: Rank) -> None:
    """What a rank does to warm up."""


def check_modules(
    code: Path, server: TimedServer, deadline: float = DEADLINE, of: Syllabus | None = None
) -> list[ExerciseMark]:
    """The marks of all exercises of a part, by default the first, in the syllabus's order.

    What the sandbox does not take leaves its marks open. That there is no sandbox at all, warm_up() has raised.
    """
    of = of or syllabus()
    server.begin(deadline)
    suite = Suite(code, server=server, of=of)
    found: dict[str, ExerciseMark] = {}
    waiting = deque(of.exercises)
    hung: set[str] = set()
    postponed: set[str] = set()
    while waiting:
        exercise = waiting.popleft()
        if exercise.module in hung and exercise.id not in postponed:
            # The same module will probably hang again: first those that others need no time from.
            postponed.add(exercise.id)
            waiting.append(exercise)
            continue
        server.allow(SHARE_AFTER_A_HANG if exercise.module in hung else SHARE)
        result = _run(exercise, suite, server)
        if isinstance(result.outcome, Failed) and result.outcome.diagnosis.name in HANGS:
            hung |= {exercise.module, "main"}  # main imports the others
        found[exercise.id] = marks.mark(result, len(_checks(exercise)))
    return [found[exercise.id] for exercise in of.exercises]


def _run(exercise: Exercise, suite: Suite, server: TimedServer) -> ExerciseResult:
    """Once more where the lab was, or may have been, at fault: a machine may lack memory for a moment only."""
    try:
        result = suite.run(exercise)
        outcome = result.outcome
        if isinstance(outcome, LabError) or (
            isinstance(outcome, Failed) and outcome.diagnosis.name == UNUSABLE_REPORT
        ):
            result = run_exercise(exercise, suite.code, server=server)
    except SandboxError as error:  # what is in the submission cannot be put into the sandbox
        return ExerciseResult(exercise, LabError(str(error)), (), 0.0)
    return result


def _checks(exercise: Exercise) -> Sequence[object]:
    try:
        return checks_of(exercise)
    except ImportError:  # the exercise has ended as a lab error
        return ()
