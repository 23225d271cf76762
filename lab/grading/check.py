"""What a check is written with: the `check` decorator, `Group` to observe with, `Diagnosis` to judge with.

A check is a plain function with two halves. *Observe* is a module-level function that runs inside each rank:
it imports the student's module and returns plain data. *Judge* is the body of the check: it runs in the
grader's process, never imports student code, and raises a `Diagnosis` when what the ranks report is wrong.

    def draw(rank: Rank) -> list[int]:                      # observe: in every rank
        data = rank.student("data")
        seed = rank.receive()                               # drawn by the judge, sent after the import
        ...

    @check("3.2", "every rank draws its own samples")       # judge: here
    def every_rank_draws_its_own_part(group: Group) -> None:
        drawn = group.observe(Order(draw, world_size=2, inputs=random.randrange(2**31)))
        if set(drawn[0]) & set(drawn[1]):
            raise Diagnosis("no-distributed-sampler", saw=..., means=..., look=...)
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from lab.base.words import one_line
from lab.grading.deadline import JUDGE_SECONDS, JudgeTookTooLong, ended_after
from lab.grading.diagnosis import CheckEnded, Diagnosis, Failed, tampered

if TYPE_CHECKING:
    from lab.ranks.rank import Rank
    from lab.ranks.reports import GroupResult
    from lab.ranks.server import RankServer

AT_ONCE = 4  # groups of one check


@dataclass(frozen=True)
class Check:
    """One check of one exercise; the title says what a right answer does.

    after_passed: it tells nothing where an earlier check of the exercise has failed, and is left out then.
    """

    exercise: str
    title: str
    function: Callable[["Group"], None]
    after_passed: bool = False

    @property
    def name(self) -> str:
        return self.function.__name__


# Exercise id -> its checks in file order, filled when lab.checks.<module> is imported.
CHECKS: dict[str, list[Check]] = {}


def check(
    exercise: str, title: str, *, after_passed: bool = False
) -> Callable[[Callable[["Group"], None]], Callable[["Group"], None]]:
    """Register a function as a check of `exercise`, e.g. "3.2". An exercise may have several."""

    def register(function: Callable[["Group"], None]) -> Callable[["Group"], None]:
        known = CHECKS.setdefault(exercise, [])
        # A reloaded module replaces its own checks instead of doubling them.
        known[:] = [
            c for c in known if (c.function.__module__, c.name) != (function.__module__, function.__name__)
        ]
        known.append(Check(exercise, title, function, after_passed))
        return function

    return register


@dataclass(frozen=True)
class Order:
    """What a group of fresh ranks is to do.

    observe               runs in each rank; a function at the top of a module, or "module:function", which spares
                          the grader's process the import of what only ranks need
    inputs                what `rank.receive()` returns there
    timeout               seconds from the start of the ranks
    env                   variables added to their environment; those given as None are removed
    set_up_process_group  whether they find a process group
    """

    observe: "Callable[[Rank], object] | str"
    world_size: int = 2
    inputs: object = None
    timeout: float = 30.0
    env: Mapping[str, str | None] = field(default_factory=dict)
    set_up_process_group: bool = True


# Call it for the report of a group that was started: it waits for its end.
Pending = Callable[[], "GroupResult"]


class Group:
    """Runs observe functions on fresh ranks with one student's code.

    code      the folder that holds the student's seven modules
    exercise  the id of the exercise under check, e.g. "3.2"
    env       variables for all ranks, besides those of each order
    """

    def __init__(
        self,
        code: Path,
        exercise: str,
        *,
        server: "RankServer | None" = None,
        env: Mapping[str, str | None] = {},
    ) -> None:
        self.code = code
        self.exercise = exercise
        self.outputs: list[tuple[int, str]] = []  # (rank, what it printed), for every group that has run
        self.results: list[GroupResult] = []  # of every group that has run
        self.orders: list[Order] = []  # what each of these was to do
        self.heard = False  # there was a report of ranks in which the student's code has run
        self._server, self.env = server, env
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="lab-groups")

    def observe(self, order: Order) -> list[Any]:
        """What `order.observe` returned on each rank, in rank order. Raises as `values` does."""
        return self.values(self.report(order))

    def report(self, order: Order) -> "GroupResult":
        """The ranks' reports as they came, for a check that judges failures itself."""
        return self._noted(order, self._run(order))

    def start(self, order: Order) -> Pending:
        """Start ranks and go on. So several groups run at the same time."""
        if not self._rank_server().several_at_once:
            return lambda: self.report(order)
        future = self._pool.submit(self._run, order)
        return lambda: self._noted(order, future.result())

    def values(self, result: "GroupResult") -> list[Any]:
        """The values of a group's report. Raises as `end` does where there are none."""
        return result.values if result.ok else self.end(result)

    def end(self, result: "GroupResult") -> NoReturn:
        """End the check with what became of a group in which a rank failed.

        Raises Diagnosis when a rank raised, exited, was killed or hung through the student's code, and
        CheckEnded when the stub is still there (not started, blocked) or the fault is the lab's.
        """
        from lab.grading.explain import explain

        outcome = explain(result, exercise=self.exercise, code=self.code)
        if isinstance(outcome, Failed):
            raise outcome.diagnosis
        raise CheckEnded(outcome)

    def again(self, env: Mapping[str, str | None]) -> "Group":
        """A new one like this, with these variables for all its ranks."""
        return Group(self.code, self.exercise, server=self._server, env=env)

    def close(self, *, at_once: bool = False) -> None:
        """Wait for the groups that were started and that nobody has asked for; `at_once` ends them."""
        if at_once:
            self._rank_server().end_groups()
        self._pool.shutdown(cancel_futures=at_once)

    def _run(self, order: Order) -> "GroupResult":
        return self._rank_server().run(code=self.code, **vars(order) | {"env": {**order.env, **self.env}})

    def _rank_server(self) -> "RankServer":
        from lab.ranks.server import server

        return self._server or server()

    def _noted(self, order: Order, result: "GroupResult") -> "GroupResult":
        self.heard = self.heard or result.begun
        self.results.append(result)
        self.orders.append(order)
        for report in result.reports:
            if report.tampered:
                raise tampered(f"rank {report.rank}: {one_line(report.tampered, 200)}")
        self.outputs += [(report.rank, report.output) for report in result.reports if report.output.strip()]
        return result


def left_with(env: Mapping[str, str | None], check: Check, group: Group) -> str:
    """The name of what is wrong where all ranks have these variables; "" where nothing is."""
    from lab.ranks.server import RankServerError

    trial = group.again(env)
    try:
        with ended_after(JUDGE_SECONDS):
            check.function(trial)
    except Diagnosis as diagnosis:
        return diagnosis.name
    except (CheckEnded, RankServerError, JudgeTookTooLong):
        return "hang"
    finally:
        trial.close()
    return ""
