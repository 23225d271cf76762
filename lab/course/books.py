"""The assignments of the course, and their notebooks as they were handed out.

Part one of the lab is one assignment and part two another, each with exercises and points of its own. Of a
notebook it matters which cells are graded, and what their questions are. What asking why costs before an exercise
has passed stands in the course (RECORD), and beside the modules of both, for students.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from lab.base.errors import UsageError, UserError
from lab.base.paths import module_file, student_sources
from lab.course.config import ASSIGNMENT, ASSIGNMENT_TWO, RELEASE
from lab.course.folders import in_course
from lab.course.marks import SubmissionRecord
from lab.course.people.lateness import ClassRules
from lab.syllabus.package import in_part_two
from lab.syllabus.paid import COURSE, course_text, share_in
from lab.syllabus.syllabus import MODULES, PART_TWO, Syllabus, syllabus

QUESTION = "**Question.**"
RECORD = PurePosixPath("instructor", COURSE)  # what asking why costs in a course: what grading goes by


@dataclass(frozen=True)
class Assignment:
    """One assignment of the course.

    name     nbgrader's name of it
    modules  what a student hands in: the names of the modules, "data" or "from_scratch.ring"
    guide    the questions with model answers, in notebooks/source
    page     the page that is made of it, in the course directory
    below    where its grades are, in the folder of the first assignment's
    option   what to add to `lab grade`
    """

    name: str
    modules: tuple[str, ...]
    guide: str
    page: PurePosixPath
    below: str = ""
    option: str = ""

    @property
    def of(self) -> Syllabus:
        """Its exercises."""
        return syllabus().part_two if self.modules == PART_TWO else syllabus()

    def has(self, path: PurePosixPath) -> bool:
        """Whether a notebook of the package is one of this assignment's."""
        return in_part_two(path) == (self.modules == PART_TWO)

    @property
    def module_files(self) -> frozenset[str]:
        return frozenset(map(module_file, self.modules))


LAB = Assignment(ASSIGNMENT, MODULES, "marking_guide.toml", PurePosixPath("instructor/marking_guide.md"))
LAB_TWO = Assignment(
    ASSIGNMENT_TWO,
    PART_TWO,
    "marking_guide_two.toml",
    PurePosixPath("instructor/marking_guide_two.md"),
    below=ASSIGNMENT_TWO,
    option=f" --assignment {ASSIGNMENT_TWO}",
)
ASSIGNMENTS = {one.name: one for one in (LAB, LAB_TWO)}
PLACES = (RECORD, *(PurePosixPath("source", name, "exercises", COURSE) for name in ASSIGNMENTS))


def assignment_named(name: str) -> Assignment:
    """The assignment of this name; one that an instructor has added is graded as the first."""
    return ASSIGNMENTS.get(name, LAB)


def assignment_of(records: Iterable[SubmissionRecord]) -> Assignment:
    """The one that all of these are of; the first where there is no mark at all.

    Raises:
        UserError: they are of several, whose points must not be mixed.
    """
    optional = {exercise.id for exercise in syllabus().optional}
    found = {mark.exercise in optional for record in records for mark in record.exercises}
    if len(found) > 1:
        raise UserError(
            f"these are grades of {LAB.name} and of {LAB_TWO.name}, which have points of their own: "
            "name the folders of one of them"
        )
    return LAB_TWO if True in found else LAB


@dataclass(frozen=True)
class GradedCell:
    """A cell that nbgrader grades.

    question     the text above an answer's cell
    placeholder  what the cell says before it is answered
    """

    grade_id: str
    points: float
    is_answer: bool
    question: str
    placeholder: str


Books = dict[str, list[GradedCell]]  # file name of the notebook -> its graded cells


def given_out(path: Path) -> tuple[Path, ...]:
    """The folders with the notebooks as they were given out, to any student and, in a course, to this one's."""
    release = path.absolute().parent.parent.parent / RELEASE / path.name
    return (student_sources() / "notebooks", *([release] if in_course(path) and release.is_dir() else []))


@cache
def book_names() -> frozenset[str]:
    """The file names of the notebooks in the student's package."""
    return frozenset(path.name for path in (student_sources() / "notebooks").glob("*.ipynb"))


def released_books(folder: Path | None = None, assignment: Assignment = LAB) -> Books:
    """The graded cells of an assignment's notebooks in a folder; by default of those in the student's package."""
    books: Books = {}
    for path in sorted((folder or student_sources() / "notebooks").glob("*.ipynb")):
        if not assignment.has(PurePosixPath(path.name)):
            continue
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        books[path.name] = []
        before = ""
        for cell in cells:
            source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
            graded = cell["metadata"].get("nbgrader")
            if graded and graded.get("grade"):
                books[path.name].append(
                    GradedCell(
                        graded["grade_id"],
                        float(graded["points"]),
                        bool(graded["solution"]),
                        _question(before) if graded["solution"] else "",
                        source,
                    )
                )
            elif cell["cell_type"] == "markdown":
                before = source
    return books


def _question(text: str) -> str:
    """What is asked: behind the word, or the last paragraph below its heading."""
    if QUESTION in text:
        return text.rpartition(QUESTION)[2].strip()
    heading = next((line.strip("# ") + ": " for line in text.splitlines() if line.startswith("#")), "")
    return heading + text.strip().split("\n\n")[-1]


def share_files(share: float) -> dict[PurePosixPath, bytes]:
    """Path in the course directory -> content; none where asking costs nothing."""
    return dict.fromkeys(PLACES, course_text(share).encode()) if share else {}


def share_of(course: Path) -> float:
    """What the course takes; 0 where it says nothing.

    Raises:
        UserError: it says something that is no share.
    """
    file = course / RECORD
    try:
        return share_in(file.read_bytes())
    except FileNotFoundError:
        return 0.0
    except (OSError, ValueError) as error:
        raise UserError(
            f"{file}: {error}; write it anew: lab course build {course} --why-costs 0.25 (0 for none)"
        ) from error


def share_for(course: Path | None, rules: ClassRules) -> float:
    """What holds for a class: as its course has it, or as was typed where there is none."""
    return share_of(course) if course else rules.why_costs


def refuse_two(course: Path | None, typed: str | None) -> None:
    """Raises UsageError: a course has a share of its own, which students have read."""
    if course and typed is not None:
        raise UsageError(
            f"--why-costs {typed}: a course has its own, of which students are told: "
            f"lab course build {course} --why-costs {typed}"
        )
