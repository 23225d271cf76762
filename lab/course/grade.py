"""`lab grade`, from its options to its exit code: hand in, grade or put together, write, book."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.base.errors import UsageError, UserError
from lab.base.machine import usable_cores
from lab.course import store
from lab.course.assess import charge_all, charged, dated, merged
from lab.course.books import ASSIGNMENTS, Assignment, assignment_of, refuse_two, share_for
from lab.course.folders import SUBMITTED, came, make_private
from lab.course.gradebook import Course, course_of
from lab.course.marks import SubmissionRecord
from lab.course.modules import DEADLINE
from lab.course.outputs import write_all
from lab.course.people.lateness import ClassRules
from lab.course.people.options import given
from lab.course.people.roster import few
from lab.course.people.shard import Shard
from lab.course.people.whose import the_one_called
from lab.course.pool import grade_all
from lab.course.sent.contents import few as few_files
from lab.course.sent.loose import nobodys
from lab.course.submissions import find_submissions, read_submission
from lab.course.tables import to_look, untimed
from lab.ranks.sandbox import Sandbox

Say = Callable[[str], None]


@dataclass(frozen=True)
class GradeChoices:
    """What is to be graded and how. The options go together, or there is none of these.

    submissions   empty with `merge`: the folders of graded submissions to put together
    course        whose gradebook gets the marks, if `out` is its own
    elsewhere     the submissions do not lie in the course's submitted/ yet
    hand_in_only  put them there, and grade nothing
    deadline      seconds for all checks of one submission
    assignment    what of the submissions
    students      the only ones to be graded, by what they are called; () for all
    typed         options that hold for the class, from now on
    """

    submissions: Path | None
    out: Path
    course: Course | None
    elsewhere: bool
    hand_in_only: bool
    merge: tuple[Path, ...]
    shard: Shard
    jobs: int
    deadline: float
    force: bool
    assignment: Assignment
    students: tuple[str, ...] = ()
    typed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> GradeChoices:
        """Raises UsageError: an option makes no sense, alone or beside another."""
        of_grading = ("submissions", "shard", "force", "jobs", "deadline", "hand_in", "student")
        if args.merge and any(getattr(args, name) for name in of_grading):
            raise UsageError(
                "--merge takes folders of graded submissions, and of the other options only --out, --course "
                "and those of the class"
            )
        if args.student and args.shard:
            raise UsageError("--student grades a few, and --shard one of many parts: choose one of them")
        if not args.merge and args.submissions is None:
            raise UsageError(
                "say which submissions: lab grade SUBMISSIONS, a folder with one folder or zip a student"
            )
        for name in ("jobs", "deadline"):
            value = getattr(args, name)
            if value is not None and not value > 0:
                raise UsageError(f"--{name} {value}: expected more than 0")
        shard = Shard.parse(args.shard) if args.shard else Shard()
        submissions = args.submissions.expanduser() if args.submissions else None
        home = args.course.expanduser() if args.course else course_of(submissions) if submissions else None
        refuse_two(home, args.why_costs)
        assignment = ASSIGNMENTS[args.assignment]
        course = Course(home, assignment) if home else None
        if course and args.course and args.out:
            raise UsageError(f"--out and --course: the grades of a course are in its own folder, {course.out}")
        elsewhere = course is not None and submissions is not None and not course.holds(submissions)
        if args.hand_in and not elsewhere:
            raise UsageError(
                "--hand-in is for submissions from elsewhere: add --course DIR, the course they belong to"
            )
        if args.shard and elsewhere:
            raise UsageError(
                "--shard: each part would write all of the course's submitted/. "
                f"First, once: lab grade {args.submissions} --course {args.course} --hand-in{assignment.option}, "
                f"then lab grade {args.course / SUBMITTED} --shard {args.shard}{assignment.option}"
            )
        default = course.out if course else default_out(submissions) / assignment.below
        out = args.out.expanduser() if args.out else default
        if submissions and out.resolve().is_relative_to(submissions.resolve()):
            raise UsageError(
                f"{out} is inside {args.submissions}, and would be graded as a submission: name another --out"
            )
        return cls(
            submissions,
            out,
            course,
            elsewhere,
            hand_in_only=args.hand_in,
            merge=tuple(folder.expanduser() for folder in args.merge or ()),
            shard=shard,
            jobs=args.jobs or usable_cores(),
            deadline=args.deadline or DEADLINE,
            force=args.force,
            assignment=assignment,
            students=tuple(args.student or ()),
            typed=given(args),
        )

    @property
    def books(self) -> Course | None:
        """The course whose gradebook gets the marks."""
        return self.course if self.course and self.out == self.course.out else None


def default_out(submissions: Path | None) -> Path:
    """grades, here; beside the submissions where "here" is among them, so that no grades are graded next time."""
    here = Path("grades")
    if submissions and here.resolve().is_relative_to(submissions.resolve()):
        return submissions.resolve().with_name("grades")
    return here


def grade_course(choices: GradeChoices, say: Say = print) -> int:
    """Do all that was chosen.

    Returns:
        The exit code. 0: all is graded, and `to_look` names those that an instructor should look at; 1: something
        could not be graded, handed in or booked.
    """
    submissions, out, course, shard = choices.submissions, choices.out, choices.course, choices.shard
    assignment = choices.assignment
    troubles: list[str] = []
    if assignment.below:
        make_private(out.parent)
    if not out.exists():
        out.mkdir(parents=True)
        out.chmod(0o700)
    _refuse_others(store.any_of(out), out, assignment)
    rules, kept = store.class_rules(out, choices.typed)
    share = share_for(course.folder if course else None, rules)
    if kept:
        say(f"As before: {kept}")
    if course and (advice := course.advice()):
        say(advice)
    wanted = choices.students
    if course and submissions and choices.elsewhere:
        found = _found(submissions, choices, rules, wanted)
        known = course.former(rules.roster.student)
        found = {known.get(student, student): path for student, path in found.items()}
        troubles += _hand_in(submissions, found, course, say)
        submissions = course.submitted
        wanted = wanted and tuple(store.file_name(student, "") for student in found)
        if choices.hand_in_only:
            say(f"{submissions} holds the submissions now, which are not graded yet.")
            return 1 if troubles else 0
    if submissions:
        records = _graded(submissions, _found(submissions, choices, rules, wanted), choices, share, say)
        if shard.count == 1:
            records, sentences = store.with_others(out, records, rules.roster, few=bool(choices.students))
            records = charge_all(out, records, share)
            for sentence in sentences:
                say(sentence)
    else:
        records = store.load_all(choices.merge)
        _refuse_others(records, choices.merge[0], assignment)
        records = [store.save(out, one) for one in merged(records, share, decided=bool(course or share))]
    if shard.count > 1:
        part = f"{shard.number}/{shard.count}"
        into = f" --course {course.folder}" if course else ""
        again = f"lab grade --merge {out} [other folders]{into}{assignment.option}"
        say(f"This was part {part}. When all are done: {again}")
        return 0
    if strangers := rules.strangers({record.student: record.name for record in records}):
        say(f"In a table, but neither in the roster nor handed in: {few(strangers)}")
    former = write_all(out, records, rules)
    say(f"{out}: marks.csv, answers.csv to mark by hand, feedback/ for the students, report.html about the class")
    if former:
        say(f"{former.path}: the answers.csv that was there; {former.why}")
    if course and choices.books:
        failed = course.book(
            records,
            choices.deadline,
            rules,
            force=choices.force,
            booked=lambda record: say(
                f"  in the gradebook: {rules.roster.person(record.student, record.name).label}"
            ),
        )
        say(f"Gradebook: {course.folder / 'gradebook.db'}; answers are marked in nbgrader's formgrader")
        for why in failed:
            say(f"  not in the gradebook: {why}")
        troubles += failed
    if everybody := untimed(records, rules):
        say(everybody)
    look = [record.student for record in records if to_look(record, rules, timed=not everybody)]
    if look:
        say(f"To look at (column to_look of marks.csv): {few(look)}")
    open_marks = any(mark.points is None for record in records for mark in record.exercises)
    return 1 if troubles or open_marks else 0


def _found(submissions: Path, choices: GradeChoices, rules: ClassRules, wanted: Sequence[str]) -> dict[str, Path]:
    """The submissions to grade: all, or those of the people that are named by id, name or e-mail.

    Raises UserError where somebody has none.
    """
    found = find_submissions(submissions, choices.assignment, rules.roster.student)
    if not wanted:
        return {student: path for student, path in found.items() if choices.shard.has(student)}
    names = {student: came(path, submissions)[0] for student, path in found.items()}
    people = {student: (rules.roster.person(student, name), name) for student, name in names.items()}
    chosen = [
        the_one_called(name, rules.roster.student(name), people, f"{submissions} holds no submission of {name}")
        for name in wanted
    ]
    return {student: path for student, path in found.items() if student in chosen}


def _refuse_others(records: Sequence[SubmissionRecord], folder: Path, assignment: Assignment) -> None:
    """Raises UserError where these grades are of another assignment: the points of both are never mixed."""
    if any(record.exercises for record in records) and (other := assignment_of(records)) is not assignment:
        raise UserError(
            f"{folder} holds grades of {other.name}, not of {assignment.name}: "
            f"name another folder, or --assignment {other.name}"
        )


def _hand_in(submissions: Path, found: Mapping[str, Path], course: Course, say: Say) -> list[str]:
    """Put them into the course. Returns what is not in it now; of all others the row in marks.csv tells."""
    for student in found:
        if (name := store.file_name(student, "")) != student:
            say(f"  {student} is called {name} in the course")
    said, lost = course.hand_in(submissions, found)
    for line in said:
        say(f"  handed in, to look at: {line}")
    return lost


def _graded(
    submissions: Path, found: Mapping[str, Path], choices: GradeChoices, share: float, say: Say
) -> list[SubmissionRecord]:
    """The records of the submissions that have not changed since they were graded; the others are graded now.

    Raises UserError where there is no sandbox to run one in.
    """
    records: list[SubmissionRecord] = []
    work: list[tuple[str, Path]] = []  # not what is in them: a whole class would not fit into memory
    assignment = choices.assignment
    for student, path in found.items():
        try:
            key = read_submission(student, path, parse=False, assignment=assignment).key
        except (OSError, MemoryError):  # in its own worker it is one student's trouble
            key = ""
        known = store.load(choices.out, student)
        if key and known and not choices.force and known.final(key, choices.deadline):
            if (known_now := charged(dated(known, path, submissions), share)) != known:
                known_now = store.save(choices.out, known_now)
            records.append(known_now)
        else:
            work.append((student, path))
    kept = len(records)
    of = assignment.of.points
    if work:
        Sandbox().require()
    changed: list[str] = []

    def done(record: SubmissionRecord) -> None:
        before = store.load(choices.out, record.student)
        record = store.save(choices.out, charged(dated(record, found[record.student], submissions), share))
        records.append(record)
        if before is not None and record.changed != before.changed:
            changed.append(f"{record.student} {record.changes_text}")
        graded = f"{len(records) - kept:4}/{len(work)}  {record.student:24} {record.points:6g} of {of}"
        look = f"  to look at: {'; '.join(record.to_look)}" if record.to_look else ""
        say(f"{graded}  {record.seconds:6.1f} s{look}")

    if unread := nobodys(submissions):
        say(f"Files in {submissions} that are no submissions, and were not read: {few_files(unread)}")
    make_private(choices.out / store.FOLDER)  # also for a shard that has nobody
    grade_all(work, jobs=choices.jobs, deadline=choices.deadline, done=done, assignment=assignment)
    before = f", {kept} had been graded before and have not changed" if kept else ""
    say(f"{len(work)} graded{before}.")
    if changed:
        say(f"Other marks than before: {'; '.join(changed)} (report.html has a table)")
    return sorted(records, key=lambda record: record.student)
