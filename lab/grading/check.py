"""What a check is written with: the `check` decorator, `Ranks` to observe with, `Diagnosis` to judge with.

A check is a plain function with two halves. *Observe* is a module-level function that runs inside each rank:
it imports the student's module and returns plain data. *Judge* is the body of the check: it runs in the
grader's process, never imports student code, and raises a `Diagnosis` when what the ranks report is wrong.

    def draw(rank: Rank) -> list[int]:                      # observe: in every rank
        data = rank.student("data")
        seed = rank.receive()                               # drawn by the judge, sent after the import
        ...

    @check("3.2", "every rank draws its own samples")       # judge: here
    def every_rank_draws_its_own_part(ranks: Ranks) -> None:
        drawn = ranks.observe(draw, world_size=2, inputs=random.randrange(2**31))
        if set(drawn[0]) & set(drawn[1]):
            raise Diagnosis("no-distributed-sampler", saw=..., means=..., look=...)
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.grading.diagnosis import (
    Blocked,
    CheckEnded,
    Diagnosis,
    Failed,
    LabError,
    NotStarted,
    Outcome,
    Passed,
)

if TYPE_CHECKING:
    from lab.ranks.rank import Rank
    from lab.ranks.reports import GroupResult
    from lab.ranks.server import RankServer

__all__ = [
    "CHECKS",
    "Blocked",
    "Check",
    "CheckEnded",
    "Diagnosis",
    "Failed",
    "LabError",
    "NotStarted",
    "Outcome",
    "Passed",
    "Ranks",
    "check",
]


AT_ONCE = 4  # groups of one check


@dataclass(frozen=True)
class Check:
    """One check of one exercise; the title says what a right answer does.

    after_passed: it tells nothing where an earlier check of the exercise has failed, and is left out then.
    """

    exercise: str
    title: str
    function: Callable[["Ranks"], None]
    after_passed: bool = False

    @property
    def name(self) -> str:
        return self.function.__name__


# Exercise id -> its checks in file order, filled when lab.checks.<module> is imported.
CHECKS: dict[str, list[Check]] = {}


def check(
    exercise: str, title: str, *, after_passed: bool = False
) -> Callable[[Callable[["Ranks"], None]], Callable[["Ranks"], None]]:
    """Register a function as a check of `exercise`, e.g. "3.2". An exercise may have several."""

    def register(function: Callable[["Ranks"], None]) -> Callable[["Ranks"], None]:
        known = CHECKS.setdefault(exercise, [])
        # A reloaded module replaces its own checks instead of doubling them.
        known[:] = [
            c for c in known if (c.function.__module__, c.name) != (function.__module__, function.__name__)
        ]
        known.append(Check(exercise, title, function, after_passed))
        return function

    return register


class Ranks:
    """Runs observe functions on fresh ranks with one student's code.

    code      the folder that holds the student's seven modules
    exercise  the id of the exercise under check, e.g. "3.2"
    """

    def __init__(self, code: Path, exercise: str, *, server: "RankServer | None" = None) -> None:
        self.code = code
        self.exercise = exercise
        self.outputs: list[tuple[int, str]] = []  # (rank, what it printed), for every group that has run
        self._server = server
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="lab-groups")

    def observe(
        self,
        observe: "Callable[[Rank], object]",
        world_size: int = 2,
        inputs: object = None,
        *,
        timeout: float = 30.0,
        env: Mapping[str, str | None] | None = None,
        set_up_process_group: bool = True,
    ) -> list[Any]:
        """What `observe` returned on each rank, in rank order.

        Raises Diagnosis when a rank raised, exited, was killed or hung through the student's code, and
        CheckEnded when the stub is still there (not started, blocked) or the fault is the lab's.
        """
        result = self.report(
            observe, world_size, inputs, timeout=timeout, env=env, set_up_process_group=set_up_process_group
        )
        return self.values(result)

    def values(self, result: "GroupResult") -> list[Any]:
        """The values of a group's report. Raises as `observe` does where there are none."""
        from lab.grading.explain import explain

        if result.ok:
            return result.values
        outcome = explain(result, exercise=self.exercise, code=self.code)
        if isinstance(outcome, Failed):
            raise outcome.diagnosis
        raise CheckEnded(outcome)

    def report(
        self,
        observe: "Callable[[Rank], object]",
        world_size: int = 2,
        inputs: object = None,
        *,
        timeout: float = 30.0,
        env: Mapping[str, str | None] | None = None,
        set_up_process_group: bool = True,
    ) -> "GroupResult":
        """The ranks' reports as they came, for a check that judges failures itself."""
        result = self._rank_server().run(
            observe,
            world_size,
            code=self.code,
            inputs=inputs,
            env=env or {},
            timeout=timeout,
            set_up_process_group=set_up_process_group,
        )
        return self._noted(result)

    def start(
        self,
        observe: "Callable[[Rank], object]",
        world_size: int = 2,
        inputs: object = None,
        *,
        timeout: float = 30.0,
        set_up_process_group: bool = True,
    ) -> "Callable[[], GroupResult]":
        """Start a group and go on; call what comes back for its report. So several groups run at the same time."""
        options: dict[str, Any] = {"timeout": timeout, "set_up_process_group": set_up_process_group}
        server = self._rank_server()
        if not server.several_at_once:
            return lambda: self.report(observe, world_size, inputs, **options)
        future = self._pool.submit(server.run, observe, world_size, code=self.code, inputs=inputs, **options)
        return lambda: self._noted(future.result())

    def close(self, *, at_once: bool = False) -> None:
        """Wait for the groups that were started and that nobody has asked for; `at_once` ends them."""
        if at_once:
            self._rank_server().end_groups()
        self._pool.shutdown(cancel_futures=at_once)

    def _rank_server(self) -> "RankServer":
        from lab.ranks.server import server

        return self._server or server()

    def _noted(self, result: "GroupResult") -> "GroupResult":
        self.outputs += [(report.rank, report.output) for report in result.reports if report.output.strip()]
        return result
