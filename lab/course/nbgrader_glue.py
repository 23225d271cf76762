"""What nbgrader_config.py plugs into `nbgrader autograde`, so that it gives the marks of `lab grade`.

No notebook of a student's is ever run, or even read by nbgrader: it gets the released ones, with the answers put
in (GraftAnswers) and the marks of the modules' checks in place of outputs (ModuleMarks). Renamed, damaged or
missing notebooks thus cost nothing but what was in them. A kernel is started only for notebooks that an
instructor has given code cells of their own (SurvivingExecute).
"""

from __future__ import annotations

import atexit
import glob
import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbconvert.exporters import NotebookExporter
from nbgrader.api import Gradebook
from nbgrader.converters.autograde import Autograde
from nbgrader.preprocessors import (
    AssignLatePenalties,
    ClearSolutions,
    Execute,
    NbGraderPreprocessor,
    SaveAutoGrades,
)
from nbgrader.preprocessors.execute import UnresponsiveKernelError
from traitlets import Bool, Float

from lab.base.errors import UsageError, UserError
from lab.base.words import visible
from lab.course import marked, store
from lab.course.assess import assess, charged, dated, not_assessed
from lab.course.books import assignment_named, share_of
from lab.course.collect import drop_links
from lab.course.config import GRADES
from lab.course.folders import is_link
from lab.course.grafting import exercise_of, grade_id, graft, is_solution, put_marks, put_measured
from lab.course.marks import SubmissionRecord
from lab.course.modules import DEADLINE, TimedServer
from lab.course.notebooks import ANSWER
from lab.course.people.booking import take_once
from lab.course.people.lateness import ClassRules
from lab.course.submissions import read_submission
from lab.course.tables import lateness
from lab.ranks.sandbox import SandboxError

_SECRET = "submission_secret.txt"

_servers: list[TimedServer] = []


def _server() -> TimedServer:
    """The sandbox of this process, started when it is first needed."""
    if not _servers:
        server = TimedServer()
        atexit.register(server.close)
        server.warm_up()
        _servers.append(server)
    return _servers[0]


class SubmissionExporter(NotebookExporter):
    """Hands `nbgrader autograde` every released notebook for every student, whatever has been submitted."""

    deadline = Float(DEADLINE, help="Seconds that the checks of one submission may take.").tag(config=True)
    booking = Bool(
        False, help="Check no submission again that `lab grade` has just graded, open marks or not."
    ).tag(config=True)

    def __init__(self, config: Any = None, *, parent: Autograde, **options: Any) -> None:
        super().__init__(config=config, parent=parent, **options)
        self.converter = parent
        self.course = parent.coursedir
        self._records: dict[tuple[str, str], SubmissionRecord] = {}
        self.marked: dict[tuple[str, str], set[tuple[str, str]]] = {}
        os.environ["LAB_GRADING"] = "1"  # for the kernels: check cells leave the checks to us
        released = self._released(self.course.assignment_id)
        books = [path.name for path in sorted(released.glob("*.ipynb"))]
        if not books:
            parent.log.error("%s holds no notebook: run `nbgrader generate_assignment` first", released)
            return
        named = parent._format_source("(?P<assignment>.*)", "(?P<student>.*)", escape=True)
        pattern = parent._format_source(self.course.assignment_id, self.course.student_id)
        for submitted in sorted(glob.glob(pattern)):
            if is_link(Path(submitted)):
                parent.assignments.pop(submitted, None)
                parent.log.error("%s is a link, and is not followed: put a copy in its place", visible(submitted))
            elif os.path.isdir(submitted):
                parent.assignments[submitted] = [os.path.join(submitted, book) for book in books]
                for dropped in drop_links(Path(submitted)):
                    self.log.warning("%s was removed", visible(dropped))
                if found := re.match(named, submitted):
                    self.marked[found["student"], found["assignment"]] = marked.marked(
                        self.course.db_url, found["assignment"], found["student"]
                    )

    def from_filename(self, filename: str, resources: Any = None, **options: Any) -> Any:
        """Take the released notebook in place of the student's; in the second pass nbgrader's own."""
        if self.converter._sanitizing:
            assignment = resources["nbgrader"]["assignment"]
            filename = str(self._released(assignment) / os.path.basename(filename))
        else:
            self._complete(Path(filename).parent)
        return super().from_filename(filename, resources, **options)

    def record(self, student: str, assignment: str) -> SubmissionRecord:
        """How the submission ended: as graded before, if nothing has changed since."""
        if (student, assignment) not in self._records:
            self._records[student, assignment] = self._graded(student, assignment)
        return self._records[student, assignment]

    def _graded(self, student: str, assignment: str) -> SubmissionRecord:
        path = self.course.format_path(self.course.submitted_directory, student, assignment)
        known_as = assignment_named(assignment)
        submission = read_submission(visible(student), Path(path), assignment=known_as)
        out = self.grades(assignment)
        share = share_of(Path(self.course.root))  # never as the submission's own course.toml has it
        known = store.load(out, submission.student)
        if known is not None and known.final(submission.key, self.deadline):
            return charged(dated(known, Path(path), Path(path).parent.parent), share)
        # An open mark may be of a submission that kills whoever grades it: `lab grade` itself must not be next.
        if known is not None and self.booking and known.key == submission.key:
            return known
        try:
            record = assess(submission, _server(), self.deadline)
        except SandboxError:
            raise  # nothing runs without one
        except Exception as error:  # the lab's fault costs no marks, and never the whole class
            self.log.exception("the lab could not grade %s", student)
            record = not_assessed(submission, f"{type(error).__name__}: {error}", self.deadline)
        record = store.save(out, charged(dated(record, Path(path), Path(path).parent.parent), share))
        for why in record.to_look:
            self.log.warning("%s: %s", student, why)
        return record

    def grades(self, assignment: str) -> Path:
        """Where the records are."""
        return Path(self.course.root) / GRADES / assignment_named(assignment).below

    def rules(self, assignment: str) -> ClassRules:
        """Due dates and the rest, as the last `lab grade` had them."""
        try:
            return store.class_rules(self.grades(assignment), {})[0]
        except (UserError, UsageError) as error:
            self.log.error("no names and no due dates: %s", error)
            return ClassRules()

    def _released(self, assignment: str) -> Path:
        return Path(self.course.format_path(self.course.release_directory, ".", assignment))

    @staticmethod
    def _complete(autograded: Path) -> None:
        """Add what `nbgrader release_feedback` wants of everybody and only `nbgrader submit` gives."""
        for name, text in (("timestamp.txt", f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f} UTC"), (_SECRET, "")):
            if not (autograded / name).exists():
                (autograded / name).write_text(text or secrets.token_hex(32))


class ClearOtherSolutions(ClearSolutions):
    """Leaves the lab's questions as they are; an instructor's own cells are cleared as always."""

    def preprocess_cell(self, cell: Any, resources: Any, cell_index: int) -> Any:
        if grade_id(cell).startswith(ANSWER):
            return cell, resources
        return super().preprocess_cell(cell, resources, cell_index)


class _OfSubmission(NbGraderPreprocessor):
    """Knows the record of the submission that the notebook belongs to."""

    def record(self, resources: Any) -> SubmissionRecord:
        who = resources["nbgrader"]
        return self.parent.record(who["student"], who["assignment"])


class GraftAnswers(_OfSubmission):
    """Puts the student's answers into the released notebook."""

    def preprocess(self, nb: Any, resources: Any) -> Any:
        graft(nb, self.record(resources), resources["nbgrader"]["notebook"] + ".ipynb")
        return nb, resources


class ModuleMarks(_OfSubmission):
    """Replaces whatever a check cell has put out by the card and the points of its exercise; and measurements."""

    def preprocess(self, nb: Any, resources: Any) -> Any:
        put_marks(nb, self.record(resources).exercises)
        put_measured(nb, self.record(resources))
        return nb, resources


class SaveMarks(_OfSubmission, SaveAutoGrades):
    """Leaves a mark open in the gradebook where the lab was at fault: neither zero nor full, a person looks.

    A mark that a person gave an answer stays done while the answer is the same.
    """

    def preprocess(self, nb: Any, resources: Any) -> Any:
        who = resources["nbgrader"]
        before = self.marked(who)
        nb, resources = super().preprocess(nb, resources)
        marked.keep(who, nb, before, self.grades(who["assignment"]))
        record = self.record(resources)
        open_marks = {mark.exercise for mark in record.exercises if mark.points is None}
        cells = [cell for cell in nb.cells if exercise_of(cell) in open_marks]
        if cells:
            with Gradebook(who["db_url"]) as gradebook:
                for cell in cells:
                    name = cell.metadata.nbgrader["grade_id"]
                    grade = gradebook.find_grade(name, who["notebook"], who["assignment"], who["student"])
                    grade.auto_score = None
                    grade.needs_manual_grade = True
                gradebook.db.commit()
        return nb, resources

    def marked(self, who: dict[str, Any]) -> set[str]:
        """The answers in this notebook that a person had marked when nbgrader began."""
        found = self.parent.marked.get((who["student"], who["assignment"]), set())
        return {name for book, name in found if book == who["notebook"]}

    def grades(self, assignment: str) -> Path:
        """Where the records are."""
        folder: Path = self.parent.grades(assignment)
        return folder


class LatePenalties(_OfSubmission, AssignLatePenalties):
    """Takes what being late costs from the whole submission, not from each of its notebooks.

    By the due date and rule of `lab grade`, if it was given any; else by nbgrader's, and the course's plugin.
    """

    def preprocess(self, nb: Any, resources: Any) -> Any:
        who = resources["nbgrader"]
        rules = self.rules(who["assignment"])
        with Gradebook(who["db_url"]) as gradebook:
            submission = gradebook.find_submission(who["assignment"], who["student"])
            score, seconds = float(submission.score), submission.total_seconds_late
            penalty: float | None = None
            if rules.decides:
                penalty = lateness(self.record(resources), rules).penalty(score)
            elif seconds > 0:
                self.init_plugin()
                penalty = self.plugin_inst.late_submission_penalty(who["student"], score, seconds)
            take_once(submission, penalty or 0.0)
            gradebook.db.commit()
        return nb, resources

    def rules(self, assignment: str) -> ClassRules:
        """What holds for the class."""
        found: ClassRules = self.parent.rules(assignment)
        return found


class SurvivingExecute(Execute):
    """Runs a notebook only if students write code in it; a dead kernel costs the cells without an answer alone."""

    def preprocess(self, nb: Any, resources: Any, km: Any = None) -> Any:
        own = [cell for cell in nb.cells if cell.cell_type == "code" and (is_solution(cell) or _tests(cell))]
        if not own:
            return nb, resources
        self._answered: set[int] = set()
        try:
            nb, resources = super().preprocess(nb, resources, km)
        except (DeadKernelError, UnresponsiveKernelError, CellTimeoutError, TimeoutError, RuntimeError) as error:
            self.log.warning("%s: %s", resources["nbgrader"]["notebook"], error)
            text = re.sub(r"\s+", " ", str(error))[:200]
            for number, cell in enumerate(nb.cells):
                if cell.cell_type == "code" and number not in self._answered:
                    failed = nbformat.v4.new_output(
                        "error", ename=type(error).__name__, evalue=text, traceback=[text]
                    )
                    cell.outputs = [failed]
        return nb, resources

    def on_cell_executed(self, **told: Any) -> None:
        super().on_cell_executed(**told)
        self._answered.add(told["cell_index"])


def _tests(cell: Any) -> bool:
    """Whether a code cell is graded by running it: one of the instructor's, not one of the lab's."""
    return bool(cell.metadata.get("nbgrader", {}).get("grade")) and not exercise_of(cell)
