"""Marks into nbgrader's gradebook, by `nbgrader autograde` itself, which finds the records and checks no more."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from lab.base.errors import UserError
from lab.base.words import encodable
from lab.course import store
from lab.course.books import LAB, Assignment
from lab.course.build import CONFIG
from lab.course.config import COLLECT, GRADES
from lab.course.earlier import side_by_side, stays
from lab.course.folders import (
    SUBMITTED,
    Notes,
    add_note,
    came,
    came_as,
    close_folders,
    is_link,
    make_private,
    read_notes,
    write_notes,
)
from lab.course.marks import SubmissionRecord
from lab.course.modules import DEADLINE
from lab.course.notebooks import HandedInNotebook, stand_in
from lab.course.people.booking import Booked, book_people, booked_marks, telling
from lab.course.people.lateness import ClassRules
from lab.course.people.roster import Who
from lab.course.sent.contents import MEASURED, Unusable, limit_of, pieces
from lab.course.sent.opening import opened
from lab.course.submissions import Submission, find_submissions, read_submission
from lab.course.tables import lateness

BOOKED = "booked"  # in GRADES: a file a student with the key of the submission whose marks are in the gradebook


class Course:
    """A course directory made by `lab course build`, after `nbgrader generate_assignment`: one assignment of it.

    Raises:
        UserError: it is none, or nothing has been released yet, or nbgrader is not installed.
    """

    def __init__(self, folder: Path, assignment: Assignment = LAB) -> None:
        self.assignment = assignment
        self.folder = folder.resolve()
        self.submitted = self.folder / SUBMITTED
        self.out = self.folder / GRADES / assignment.below
        if not (self.folder / CONFIG).is_file():
            raise UserError(f"{folder} is no course directory: make one with `lab course build {folder}`")
        if not list((self.folder / "release" / assignment.name).glob("*.ipynb")):
            if assignment is not LAB and not (self.folder / "source" / assignment.name).is_dir():
                raise UserError(
                    f"{folder} has no {assignment.name}: bring it up to date with `lab course build {folder}`"
                )
            raise UserError(
                f"{folder}: nothing is released yet; run there: nbgrader generate_assignment {assignment.name}"
            )
        try:
            import nbgrader  # noqa: F401
        except ImportError:
            raise UserError("the gradebook needs nbgrader: pip install 'scaling-lab[notebooks]'") from None
        try:
            self._prepare()
        except OSError as error:
            raise UserError(f"cannot write {error.filename}: {error.strerror}") from error

    def _prepare(self) -> None:
        """Close what students must not read, and let nbgrader know those who have handed in no notebook."""
        close_folders(self.folder, shared=bool(self._config().CourseDirectory.get("groupshared", False)))
        for home in self.submitted.glob(f"*/{self.assignment.name}"):
            if home.is_dir() and not is_link(home):
                stand_in(home)

    def advice(self) -> str:
        """What a course that an older lab has built lacks; "" for one of today."""
        if COLLECT in (self.folder / CONFIG).read_text(encoding="utf-8", errors="replace"):
            return ""
        return (
            f"{self.folder / CONFIG} is of an older lab: `nbgrader collect` follows links, and answers may run "
            f"in your browser. Bring it up to date, and collect again: lab course build {self.folder}"
        )

    def holds(self, submissions: Path) -> bool:
        """Whether these are the course's own submitted/."""
        return submissions.resolve() == self.submitted

    def hand_in(
        self, submissions: Path, students: Mapping[str, Path] | None = None
    ) -> tuple[list[str], list[str]]:
        """Put submissions from elsewhere into submitted/, as nbgrader wants them; what is there is replaced.

        What a new one lacks, or has as it was given out, stays (lab/course/earlier.py). By default all of them;
        else `students`, as find_submissions() has them. Returns what to say, a line each, and those lines
        that tell of somebody who is not in the course now.
        """
        if students is None:
            students = find_submissions(submissions, self.assignment)
        said, lost = [], []
        for student, path in students.items():
            home = self._home(student)
            if other := self._other(home, student):
                lost.append(
                    f"{student} and {other} would both be {home.parent.name} in the course: rename one of them"
                )
                continue
            submission = self._read(student, path, parse=home.exists())
            keep = not (submission.modules or submission.notebooks) and home.exists()
            stay = None
            if home.exists() and not keep:
                before = self._read(student, home, parse=True)
                stay = stays(before, submission)
            if stay and stay.said:
                modules = {**before.modules, **submission.modules, **stay.modules}
                submission = replace(submission, modules=modules, look=(*submission.look, stay.said))
            if stay:
                submission = replace(submission, results={**before.results, **submission.results})
            if submission.unread or (stay and stay.said):
                why = [submission.unread] if submission.unread else []
                why += ["what was handed in before stays"] if keep else [stay.said] if stay and stay.said else []
                said.append(f"{student}: {'; '.join(why)}")
            if keep:
                add_note(home, student, "; ".join(why))
                continue
            try:
                self._put(submission, path, home, stay.notebooks if stay else {}, came(path, submissions)[1])
            except OSError as error:
                lost.append(f"{student}: cannot write {encodable(str(error.filename or home))}: {error.strerror}")
        return [*said, *lost], lost

    def former(self, who: Who) -> dict[str, str]:
        """Student's id -> the name under which the same person's work lies here already, where these differ."""
        names = [name for name in came_as(self.submitted, self.assignment.name) if who(name) != name]
        return {who(name): name for name in names if not self._home(who(name)).exists()}

    def _home(self, student: str) -> Path:
        return self.submitted / store.file_name(student, "") / self.assignment.name

    def _read(self, student: str, path: Path, parse: bool) -> Submission:
        return read_submission(student, path, parse=parse, assignment=self.assignment)

    @staticmethod
    def _other(home: Path, student: str) -> str:
        """Whose submission is in this folder, if it is another student's."""
        try:
            notes = read_notes(home)
        except ValueError:  # damaged, which grading will tell
            return ""
        return notes.student if notes and notes.student not in ("", student) else ""

    def _put(
        self, submission: Submission, path: Path, home: Path, stay: Mapping[str, HandedInNotebook], time: str
    ) -> None:
        """Replace what is in `home` but the notebooks that `stay`, once all is written. Raises OSError.

        Args:
            time: when it was handed in, as time_of() has it.
        """
        new = home.with_name(f".{home.name}.new")
        try:
            shutil.rmtree(new, ignore_errors=True)
            make_private(new)
            for name, content in submission.modules.items():
                self._write(new / "exercises" / name, content)
            for folder, content in submission.results.items():
                self._write(new / PurePosixPath(folder).name / MEASURED.name, content)
            for book, notebook in {**side_by_side(submission.notebooks), **submission.hidden}.items():
                self._copy(path, notebook, new / book)
            for book, notebook in stay.items():
                self._copy(home, notebook, new / book)
            stand_in(new)
            if home.exists():
                shutil.rmtree(home)
            new.rename(home)
            said = tuple(filter(None, (submission.unread, *submission.look)))  # all that nobody sees in the course
            write_notes(home, Notes(submission.student, copied=said, handed_in=time))
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _copy(self, path: Path, notebook: HandedInNotebook, target: Path) -> None:
        """A notebook out of the submission, which need not fit into memory."""
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(notebook.digest, int):
            self._write(target, notebook.digest)
            return
        with opened(path) as contents:
            contents.names()
            try:
                with open(target, "wb") as file:
                    file.writelines(pieces(contents, notebook.place, limit_of(notebook.place)))
            except Unusable as error:  # it was read a moment ago
                raise OSError(errno.EIO, str(error), str(target)) from error

    @staticmethod
    def _write(target: Path, content: bytes | int) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:  # too large to be read: what remains is its size
                file.truncate(content)

    def book(
        self,
        records: Sequence[SubmissionRecord],
        deadline: float,
        rules: ClassRules | None = None,
        *,
        force: bool = False,
        booked: Callable[[SubmissionRecord], None] = lambda record: None,
    ) -> list[str]:
        """Have nbgrader write these marks into the gradebook, and the notebooks for the formgrader.

        Args:
            records: they lie in `out` already, where nbgrader's part finds them.
            rules: of the class: what the students are called, and what being late costs.
            force: also those that are in the gradebook already.
            booked: called with each record that nbgrader has taken.

        Returns:
            Students whose marks nbgrader could not take, with its last words.
        """
        from sqlalchemy.exc import SQLAlchemyError

        api = self._api(deadline)
        failed = []
        for record in records:
            mark = self.out / BOOKED / store.file_name(record.student, ".txt")
            done = (self.folder / "autograded" / record.student / self.assignment.name).is_dir()
            if not force and done and mark.is_file() and mark.read_text() == self._state(record):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = api.autograde(self.assignment.name, record.student, force=True)
            said = (result.get("error") or result.get("log") or "no reason given").strip().splitlines()
            if result["success"]:
                store.write(mark, self._state(record))
                booked(record)
            elif said[-1].startswith("KeyboardInterrupt"):  # nbgrader catches whatever there is
                raise KeyboardInterrupt
            else:
                failed.append(f"{record.student}: {telling(said)}")
        rules = rules or ClassRules()
        people = {
            one.student: (rules.roster.person(one.student, one.name), lateness(one, rules)) for one in records
        }
        try:
            book_people(api.coursedir.db_url, self.assignment.name, people, late=rules.decides)
        except SQLAlchemyError as error:
            failed.append(f"names and lateness: {telling(str(error).splitlines())}")
        return failed

    def marks(self) -> dict[str, dict[str, Booked]]:
        """Student -> grade id -> what is in the gradebook."""
        return booked_marks(self._api(DEADLINE).coursedir.db_url, self.assignment.name)

    @staticmethod
    def _state(record: SubmissionRecord) -> str:
        return f"{record.key} {[mark.points for mark in record.exercises]}\n"

    def _config(self) -> Any:
        """The course's own configuration of nbgrader."""
        from traitlets.config import PyFileConfigLoader

        return PyFileConfigLoader(CONFIG, path=str(self.folder)).load_config()

    def _api(self, deadline: float) -> Any:
        """nbgrader with the course's own configuration."""
        from nbgrader.apps import NbGraderAPI
        from nbgrader.coursedir import CourseDirectory

        os.environ["LAB_GRADE_DEADLINE"] = str(deadline)
        config = self._config()
        config.SubmissionExporter.booking = True
        logging.getLogger("traitlets").setLevel(logging.ERROR)
        return NbGraderAPI(CourseDirectory(config=config), config=config)


def course_of(submissions: Path) -> Path | None:
    """The course directory that a submitted/ folder belongs to; None for any other folder."""
    parent = submissions.resolve().parent
    name = Path(os.path.abspath(submissions)).name  # "." has none by itself
    return parent if name == SUBMITTED and (parent / CONFIG).is_file() else None
