"""Marks into nbgrader's gradebook, by `nbgrader autograde` itself, which finds the records and checks no more."""

from __future__ import annotations

import logging
import os
import shutil
import warnings
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from lab.grading.course import store
from lab.grading.course.build import CONFIG
from lab.grading.course.config import ASSIGNMENT, GRADES
from lab.grading.course.marks import SubmissionRecord
from lab.grading.course.submissions import SUBMITTED, Submission, find_submissions, read_submission
from lab.training.errors import UserError

BOOKED = "booked"  # in GRADES: a file a student with the key of the submission whose marks are in the gradebook


class Course:
    """A course directory made by `lab course build`, after `nbgrader generate_assignment`.

    Raises:
        UserError: it is none, or nothing has been released yet, or nbgrader is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.submitted = self.folder / SUBMITTED
        self.out = self.folder / GRADES
        if not (self.folder / CONFIG).is_file():
            raise UserError(f"{folder} is no course directory: make one with `lab course build {folder}`")
        if not list((self.folder / "release" / ASSIGNMENT).glob("*.ipynb")):
            raise UserError(
                f"{folder}: nothing is released yet; run there: nbgrader generate_assignment {ASSIGNMENT}"
            )
        try:
            import nbgrader  # noqa: F401
        except ImportError:
            raise UserError("the gradebook needs nbgrader: pip install 'scaling-lab[notebooks]'") from None

    def holds(self, submissions: Path) -> bool:
        """Whether these are the course's own submitted/."""
        return submissions.resolve() == self.submitted

    def hand_in(self, submissions: Path) -> None:
        """Put submissions from elsewhere into submitted/, as nbgrader wants them; what is there is replaced."""
        for student, path in find_submissions(submissions).items():
            self._put(read_submission(student, path), path)

    def _put(self, submission: Submission, path: Path) -> None:
        home = self.submitted / store.file_name(submission.student, "") / ASSIGNMENT
        try:
            if home.exists():
                shutil.rmtree(home)
            for name, content in submission.modules.items():
                self._write(home / "exercises" / name, content)
            names: set[str] = set()
            for name, content in sorted(submission.notebooks.items(), key=lambda item: item[0].count("/")):
                book = PurePosixPath(name).name
                while book in names:  # two of one name: both are read, for their answers
                    book = f"copy-{book}"
                names.add(book)
                self._write(home / book, content)
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot write {error.filename or home}: {error.strerror} ({path.name})") from error

    @staticmethod
    def _write(target: Path, content: bytes | int) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:  # too large to be read: what remains is its size
                file.truncate(content)

    def book(self, records: Iterable[SubmissionRecord], deadline: float, *, force: bool = False) -> list[str]:
        """Have nbgrader write these marks into the gradebook, and the notebooks for the formgrader.

        Args:
            records: they lie in `out` already, where nbgrader's part finds them.
            force: also those that are in the gradebook already.

        Returns:
            Students whose marks nbgrader could not take, with its last words.
        """
        api = self._api(deadline)
        failed = []
        for record in records:
            mark = self.out / BOOKED / store.file_name(record.student, ".txt")
            done = (self.folder / "autograded" / record.student / ASSIGNMENT).is_dir()
            if not force and done and mark.is_file() and mark.read_text() == self._state(record):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = api.autograde(ASSIGNMENT, record.student, force=True)
            if result["success"]:
                store.write(mark, self._state(record))
            else:
                said = (result.get("error") or result.get("log") or "no reason given").strip().splitlines()
                failed.append(f"{record.student}: {said[-1]}")
        return failed

    @staticmethod
    def _state(record: SubmissionRecord) -> str:
        return f"{record.key} {[mark.points for mark in record.exercises]}\n"

    def _api(self, deadline: float) -> Any:
        """nbgrader with the course's own configuration."""
        from nbgrader.apps import NbGraderAPI
        from nbgrader.coursedir import CourseDirectory
        from traitlets.config import PyFileConfigLoader

        os.environ["LAB_GRADE_DEADLINE"] = str(deadline)
        config = PyFileConfigLoader(CONFIG, path=str(self.folder)).load_config()
        logging.getLogger("traitlets").setLevel(logging.ERROR)
        return NbGraderAPI(CourseDirectory(config=config), config=config)


def is_course(submissions: Path) -> Path | None:
    """The course directory that a submitted/ folder belongs to."""
    parent = submissions.resolve().parent
    return parent if submissions.name == SUBMITTED and (parent / CONFIG).is_file() else None
