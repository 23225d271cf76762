"""Worker processes that grade side by side. A worker that hangs or dies costs its own submission only."""

from __future__ import annotations

import errno
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.base.paths import ROOT
from lab.course.assess import not_assessed
from lab.course.books import LAB, Assignment
from lab.course.marks import SubmissionRecord
from lab.course.submissions import Submission, read_submission
from lab.ranks.environment import clean_environment

GRACE = 90.0  # seconds over a submission's own deadline, the start of a worker included, before it is given up
TRIES = 2
# In the lab's own words for what it could not do: EAGAIN and ENOMEM, a thread, ranks that did not come to begin.
SHORT = (
    os.strerror(errno.EAGAIN),
    os.strerror(errno.ENOMEM),
    "can't start new thread",
    "before any code of yours",
)
COMMAND = (sys.executable, "-m", "lab.course.worker")


class Worker:
    """One process of lab/course/worker.py, started when it is first needed and again when it has died."""

    def __init__(self, deadline: float, assignment: Assignment = LAB) -> None:
        self.deadline = deadline
        self.assignment = assignment
        self._process: subprocess.Popen[str] | None = None
        self._scratch: TemporaryDirectory[str] | None = None  # its own, because one that is killed clears nothing
        self._closed = False
        self._lock = threading.Lock()

    def grade(self, student: str, path: Path) -> SubmissionRecord:
        """The record; with all marks open where even a second worker gave none."""
        why = ""
        for _ in range(TRIES):
            process = self._started()
            if process is None:
                return self.lost(student, path, "grading was stopped")
            late = threading.Event()

            def give_up(process: subprocess.Popen[str] = process, late: threading.Event = late) -> None:
                late.set()
                process.kill()

            timer = threading.Timer(self.deadline + GRACE, give_up)
            timer.start()
            try:
                answer = self._ask(process, student, path)
            finally:
                timer.cancel()
            if answer is not None:
                return answer
            process.kill()  # whatever it said instead, it is not to be asked again
            code = process.wait()
            why = (
                f"grading took over {self.deadline + GRACE:g} s" if late.is_set() else f"it ended with code {code}"
            )
        return self.lost(student, path, f"the process that grades gave no marks: {why}")

    def lost(self, student: str, path: Path, why: str) -> SubmissionRecord:
        """With all marks open, whatever happens: the batch waits for one record of each submission."""
        try:
            return not_assessed(read_submission(student, path, assignment=self.assignment), why, self.deadline)
        except Exception as error:  # noqa: BLE001 - such as no file descriptors left, which may be why it was lost
            unread = f"the submission could not be read: {type(error).__name__}: {error}"
            submission = Submission(student, {}, {}, unread=unread, assignment=self.assignment)
            return not_assessed(submission, why, self.deadline)

    def close(self) -> None:
        """End the process at once, from any thread."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()
            self._clear()

    def _started(self) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._closed:
                return None
            if self._process is None or self._process.poll() is not None:
                self._clear()
                self._scratch = TemporaryDirectory(prefix="lab-worker-")
                self._process = subprocess.Popen(
                    COMMAND,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    encoding="utf-8",
                    cwd=ROOT,
                    env=clean_environment() | {"TMPDIR": self._scratch.name},
                    start_new_session=True,  # Ctrl-C is for the one that has the workers
                )
            return self._process

    def _clear(self) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _ask(self, process: subprocess.Popen[str], student: str, path: Path) -> SubmissionRecord | None:
        assert process.stdin is not None
        assert process.stdout is not None
        job = {
            "student": student,
            "path": os.fsencode(path.absolute()).decode("latin-1"),
            "deadline": self.deadline,
            "assignment": self.assignment.name,
        }
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            return SubmissionRecord.from_json(json.loads(line)) if line.endswith("\n") else None
        except (OSError, ValueError):
            return None


def _graded(worker: Worker, student: str, path: Path) -> SubmissionRecord:
    try:
        return worker.grade(student, path)
    except Exception as error:  # noqa: BLE001 - a record there must be, or the batch would wait for it
        return worker.lost(student, path, f"{type(error).__name__}: {error}")


def _short_of_something(record: SubmissionRecord) -> bool:
    """Whether marks are open because the machine had nothing left, not because the submission ended its worker."""
    said = [mark.outcome.detail for mark in record.exercises if mark.points is None]
    return any(words in one for one in said for words in SHORT)


def grade_all(
    work: Iterable[tuple[str, Path]],
    *,
    jobs: int,
    deadline: float,
    done: Callable[[SubmissionRecord], None],
    assignment: Assignment = LAB,
) -> None:
    """Grade with `jobs` workers; `done` is called in this thread, once for each submission as it ends.

    Where the machine had no process, thread or memory left for the lab, a submission is graded once more, when all
    others have been and nothing else runs.

    Args:
        work: (student, where the submission is); it is read when its turn comes.
    """
    waiting: queue.SimpleQueue[tuple[str, Path]] = queue.SimpleQueue()
    count = 0
    for item in work:
        waiting.put(item)
        count += 1
    records: queue.SimpleQueue[tuple[SubmissionRecord, Path]] = queue.SimpleQueue()
    workers = [Worker(deadline, assignment) for _ in range(min(jobs, count))]

    def work_off(worker: Worker) -> None:
        while True:
            try:
                student, path = waiting.get_nowait()
            except queue.Empty:
                return
            records.put((_graded(worker, student, path), path))

    threads = [threading.Thread(target=work_off, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    again: list[tuple[str, Path]] = []
    try:
        for _ in range(count):
            record, path = records.get()
            if _short_of_something(record):
                again.append((record.student, path))
            else:
                done(record)
        for other in workers[1:]:
            other.close()
        for student, path in again:
            done(_graded(workers[0], student, path))
    finally:
        for worker in workers:
            worker.close()
