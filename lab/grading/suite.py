"""Runs the checks of exercises and says how each exercise ended."""

import errno
import importlib
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab.base.source import searchable
from lab.base.startup import no_collections
from lab.collectives.conduct import FAILING
from lab.grading.check import CHECKS, Check, Group, Order
from lab.grading.deadline import JUDGE_SECONDS, JudgeTookTooLong, ended_after
from lab.grading.diagnosis import (
    ENDLESS,
    Blocked,
    CheckEnded,
    Diagnosis,
    Failed,
    LabError,
    NotStarted,
    Outcome,
    Passed,
    unusable_report,
)
from lab.grading.explain import rank_from_torchrun
from lab.grading.parts import FAILED, HELD, Compared, Ledger, in_words, merged, noted
from lab.grading.places import asks_for_its_node, keeps_errors
from lab.grading.retelling import SO, SWALLOWED, retold, went_on
from lab.grading.unreadable import unreadable
from lab.ranks.rank import LOCAL
from lab.ranks.reports import GroupResult
from lab.ranks.server import RankServer, RankServerError
from lab.ranks.server import server as shared_server
from lab.syllabus.syllabus import Exercise, Syllabus, syllabus

_TRIES = 2  # places in which an error is made
_MADE = "an error that the check has made"
_RAISED = re.compile(r"\braised \w*(Error|Exception)")


@dataclass(frozen=True)
class CheckResult:
    """How one check ended, and what the ranks printed meanwhile: (rank, text).

    parts     state of each of the exercise's parts that the check has come to
    groups    every group of ranks: what it was to do, and what became of it
    compared  what the judge has compared
    """

    title: str
    outcome: Outcome
    seconds: float
    outputs: tuple[tuple[int, str], ...] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[tuple[Order, GroupResult], ...] = ()
    compared: tuple[Compared, ...] = ()


@dataclass(frozen=True)
class ExerciseResult:
    """How one exercise ended: passed when all its checks are, else the outcome of the first that is not.

    unsaid  checks that were run for the exercise's parts only: an earlier one has said what there is to say
    """

    exercise: Exercise
    outcome: Outcome
    checks: tuple[CheckResult, ...]
    seconds: float
    unsaid: tuple[CheckResult, ...] = ()

    @property
    def parts(self) -> dict[str, str]:
        """State of each part of the exercise; none where no check was run, or it has no parts."""
        if not self.checks:
            return {}
        if isinstance(self.outcome, Passed):
            return {part.name: HELD for part in self.exercise.parts}
        found = [check.parts for check in (*self.checks, *self.unsaid)]
        return merged(found, [part.name for part in self.exercise.parts])

    @property
    def parts_text(self) -> str:
        """What the parts give, in words; "" where it passed, or where the checks have come to no part."""
        states = self.parts
        if isinstance(self.outcome, Passed) or not {HELD, FAILED} & set(states.values()):
            return ""
        parts = [(part.name, part.points, states[part.name]) for part in self.exercise.parts]
        return in_words(self.points, self.exercise.points, parts)

    @property
    def points(self) -> int:
        """All of them where it passed, else those of the parts that hold."""
        if isinstance(self.outcome, Passed):
            return self.exercise.points
        states = self.parts
        return sum(part.points for part in self.exercise.parts if states.get(part.name) == HELD)


class Suite:
    """The exercises against one folder of student modules.

    Remembers what it has found in this run, to tell a wrong answer from one that stands on a wrong answer.
    Nothing is remembered from one run to the next: every check runs in fresh ranks.
    """

    def __init__(self, code: Path, *, server: RankServer | None = None, of: Syllabus | None = None) -> None:
        self.code = code
        self.syllabus = of or syllabus()
        self._server = server
        self._results: dict[str, ExerciseResult] = {}

    def run(self, exercise: Exercise) -> ExerciseResult:
        """Run all checks of one exercise. Only Ctrl-C gets out of here: all else is an outcome."""
        if exercise.id not in self._results:
            result = run_exercise(exercise, self.code, server=self._server)
            # Without any check run, the file itself is broken: no other exercise is to blame.
            if isinstance(result.outcome, Failed) and result.checks and (by := self._culprit(exercise)):
                result = replace(result, outcome=Blocked(by))
            self._results[exercise.id] = result
        return self._results[exercise.id]

    def _culprit(self, exercise: Exercise) -> str | None:
        """The first exercise this one builds on that is not right itself."""
        for other in exercise.builds_on:
            outcome = self.run(self.syllabus[other]).outcome
            if not isinstance(outcome, Passed | LabError):
                return outcome.by if isinstance(outcome, Blocked) else other
        return None


def run_exercise(
    exercise: Exercise,
    code: Path,
    *,
    server: RankServer | None = None,
    checks: Sequence[Check] | None = None,
) -> ExerciseResult:
    """Run all checks of one exercise in fresh ranks; after one that says "not started", no others.

    Args:
        checks: None for those in lab.checks.
    """
    start = time.monotonic()

    def ended(
        outcome: Outcome, results: Sequence[CheckResult] = (), unsaid: Sequence[CheckResult] = ()
    ) -> ExerciseResult:
        return ExerciseResult(exercise, outcome, tuple(results), time.monotonic() - start, tuple(unsaid))

    if diagnosis := unreadable(code, exercise.file):
        return ended(Failed(diagnosis))
    if checks is None:
        try:
            server = server or shared_server()  # it loads torch in the background, while checks_of loads it here
            checks = checks_of(exercise)
        except Exception as error:  # noqa: BLE001 - a broken check module is never the student's fault
            text = f"lab/checks/{exercise.module.replace('.', '/')}/checks.py cannot be imported: {error}"
            return ended(LabError(text, traceback.format_exc()))
    if not checks:
        room = exercise.module.replace(".", "/")
        return ended(LabError(f"lab/checks/{room}/checks.py has no check for {exercise.id}"))
    results: list[CheckResult] = []
    unsaid: list[CheckResult] = []
    for check in checks:
        needless = check.after_passed and any(isinstance(result.outcome, Failed) for result in results)
        if needless and not exercise.parts:
            continue
        result = run_check(check, code, server=server)
        (unsaid if needless else results).append(result)
        if _ends_the_exercise(result.outcome):
            break
    return ended(_headline([result.outcome for result in results]), results, unsaid)


def run_check(check: Check, code: Path, *, server: RankServer | None = None) -> CheckResult:
    """Run one check.

    An exception of the judge half itself is the lab's error, but not once it has got reports of a student's code:
    whatever it stumbles over then came from there, as far as anybody can tell. Code that asks for a number of its
    node runs once more as srun starts it, with none of torchrun's; what keeps errors to itself, with an error.
    """
    result = _run_once(check, Group(code, check.exercise, server=server))
    if isinstance(result.outcome, Passed) and (place := asks_for_its_node(check.exercise, code)):
        again = _run_once(check, Group(code, check.exercise, server=server, env=dict.fromkeys(LOCAL)))
        if isinstance(again.outcome, Failed):
            return replace(again, outcome=Failed(rank_from_torchrun(again.outcome.diagnosis.saw, place)))
    for line, handler in keeps_errors(check.exercise, code)[:_TRIES] if isinstance(result.outcome, Passed) else ():
        error = f"{Path(syllabus()[check.exercise].file).name}:{line}:{_MADE}"
        again = _run_once(check, Group(code, check.exercise, server=server, env={FAILING: error}))
        if isinstance(again.outcome, Failed) and not _comes_out(again, again.outcome.diagnosis):
            return replace(again, outcome=Failed(went_on(again.outcome.diagnosis.saw, handler, check, code)))
    return result


def _comes_out(result: CheckResult, told: Diagnosis) -> bool:
    """Whether some error came out of the student's code: the one that was made, or one that followed from it."""
    reports = [report for _, group in result.groups for report in group.reports]
    if told.name == SWALLOWED:  # at first: it may be raised later, when the others need not wait
        raised = [report.error.message for report in reports if report.error]
        return any(_MADE in said for said in (*raised, told.saw.partition(SO)[2]))
    return bool(_RAISED.search(searchable(told.saw))) or any(report.status == "raised" for report in reports)


def _run_once(check: Check, group: Group) -> CheckResult:
    start = time.monotonic()
    outcome: Outcome = Passed()
    ledger = Ledger(group)
    try:
        with ended_after(JUDGE_SECONDS), noted(ledger), _one_thread():
            check.function(group)
    except JudgeTookTooLong:
        outcome = Failed(_endless(check))
    except Diagnosis as diagnosis:
        outcome = Failed(retold(diagnosis, check, group))
    except CheckEnded as ended:
        outcome = ended.outcome
    except RankServerError as error:
        outcome = LabError(str(error), traceback.format_exc())
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in here
        outcome = _failed_itself(check, group, error)
    except BaseException:
        group.close(at_once=True)  # Ctrl-C
        raise
    group.close()
    return CheckResult(
        check.title,
        outcome,
        time.monotonic() - start,
        tuple(group.outputs),
        ledger.parts,
        ledger.groups,
        tuple(ledger.compared),
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Judges compute with small tensors: several threads would mostly wait for cores that the ranks need."""
    torch: Any = sys.modules.get("torch")  # a check without one imports none
    before = torch.get_num_threads() if torch else 0
    if torch:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if torch:
            torch.set_num_threads(before)


def _failed_itself(check: Check, group: Group, error: Exception) -> Outcome:
    if group.heard and not _short_of_something(error):
        stumbled = f"the check {check.name} stumbled over it with a {type(error).__name__}"
        return Failed(unusable_report(stumbled, traceback.format_exc()))
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return LabError(f"the check {check.name} failed itself: {said}", traceback.format_exc())


def _short_of_something(error: Exception) -> bool:
    """Whether the machine had no process, thread, memory or descriptor left for the lab itself."""
    if isinstance(error, OSError):
        return error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


def _endless(check: Check) -> Diagnosis:
    said = f"the check {check.name} had computed for {JUDGE_SECONDS:g} s when it was ended"
    return unusable_report(said, name=ENDLESS)


def checks_of(exercise: Exercise) -> Sequence[Check]:
    """The checks of an exercise in the order they run. Imports torch, through the check module."""
    with no_collections():
        importlib.import_module(f"lab.checks.{exercise.module}.checks")
    return CHECKS.get(exercise.id, [])


def _ends_the_exercise(outcome: Outcome) -> bool:
    """No use in running further checks: not done yet, or one more deadline to sit through."""
    if isinstance(outcome, Failed):
        return outcome.diagnosis.name in (
            "hang",
            "stuck-rank",
            "import-failed",
            "syntax-error",
            "no-file",
            ENDLESS,
        )
    return isinstance(outcome, NotStarted | Blocked | LabError)


def _headline(outcomes: list[Outcome]) -> Outcome:
    return next((outcome for outcome in outcomes if not isinstance(outcome, Passed)), Passed())
