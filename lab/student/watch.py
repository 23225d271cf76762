"""Which exercise to check next, for somebody who works through them and saves now and then."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.base.paths import module_file
from lab.grading.diagnosis import Blocked, Passed
from lab.grading.suite import ExerciseResult, Suite
from lab.ranks.server import RankServer
from lab.student import outcomes
from lab.student.depends import code_hash
from lab.student.saves import POLL, Saves
from lab.syllabus.paths import is_labs_own
from lab.syllabus.syllabus import ALL_MODULES, Exercise, Syllabus

PATIENCE = 1.0  # seconds after which a check of code that is out of date is ended


class Watch:
    """Goes from one unfinished exercise to the next.

    An exercise is done when it has passed as it is now. `current` is the one to work on; None
    when all are done.
    """

    def __init__(self, exercises: Sequence[Exercise], code: Path, of: Syllabus, server: RankServer) -> None:
        self.exercises = exercises
        self.code = code
        self.current: Exercise | None = None
        self.saves = Saves(code, [module_file(name) for name in ALL_MODULES])
        self._syllabus = of
        self._server = server
        self._keeps_progress = not is_labs_own(code)
        self._passed: dict[str, str] = {}  # id -> hash of what it has passed with
        if self._keeps_progress:
            known = outcomes.passed(code, of)
            self._passed = {exercise.id: self._hash(exercise) for exercise in exercises if exercise.id in known}

    @property
    def done(self) -> list[Exercise]:
        return [exercise for exercise in self.exercises if self._is_done(exercise)]

    def begin(self) -> Iterator[Exercise | ExerciseResult]:
        """Check the first exercise that is not done, and go on as long as they pass."""
        self.current = self._next(None)
        return self._go_on()

    def after_save(self, files: set[str]) -> Iterator[Exercise | ExerciseResult]:
        """Check what was saved: the current exercise, or the first of the file that somebody has turned to.

        Yields each exercise before it is checked, and then its result. Ends early when a module has been saved
        again meanwhile: the result would be of code that is gone.
        """
        if self.current is None or self.current.file not in files:
            turned_to = [e for e in self.exercises if e.file in files and not self._is_done(e)]
            self.current = turned_to[0] if turned_to else self.current or self._next(None)
        return self._go_on()

    def _go_on(self) -> Iterator[Exercise | ExerciseResult]:
        suite = Suite(self.code, server=self._server, of=self._syllabus)
        while self.current:
            yield self.current
            result = self._run(suite, self.current)
            if result is None:
                return
            yield result
            if not isinstance(result.outcome, Passed):
                blocking = self._blocking(result)
                if blocking is None:
                    return
                self.current = blocking
            else:
                self.current = self._next(self.current)

    def _run(self, suite: Suite, exercise: Exercise) -> ExerciseResult | None:
        """The result; None when a module was saved while the check ran."""
        before = self._hash(exercise)
        with _EndedBySaves(self.saves, self._server):
            result = suite.run(exercise)
        if self.saves.pending():
            return None
        if isinstance(result.outcome, Passed):
            self._passed[exercise.id] = before
        if self._keeps_progress:
            outcomes.store(self.code, [result])
        return result

    def _blocking(self, result: ExerciseResult) -> Exercise | None:
        """The exercise to do first, when there is one and it is not done yet."""
        if not isinstance(result.outcome, Blocked):
            return None
        other = self._syllabus[result.outcome.by]
        return None if self._is_done(other) or other == result.exercise else other

    def _next(self, after: Exercise | None) -> Exercise | None:
        """The first that is not done; in the file just worked on if there is one, which a save may have undone."""
        left = [exercise for exercise in self.exercises if not self._is_done(exercise)]
        same_file = [exercise for exercise in left if after and exercise.file == after.file]
        return next(iter(same_file + left), None)

    def _is_done(self, exercise: Exercise) -> bool:
        return self._passed.get(exercise.id) == self._hash(exercise)

    def _hash(self, exercise: Exercise) -> str:
        return code_hash(exercise, self.code)


class _EndedBySaves:
    """While a check runs: end its ranks when a module has been saved, instead of sitting through a deadline."""

    def __init__(self, saves: Saves, server: RankServer) -> None:
        self._saves = saves
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        # Most checks are over before the first look.
        while not self._ended.wait(PATIENCE):
            while not self._ended.wait(POLL):
                if self._saves.pending():
                    self._server.end_groups()
