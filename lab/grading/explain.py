"""From the reports of a rank group that failed to an outcome: whose fault it was, in three lines."""

import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lab.base.paths import PACKAGE, module_file
from lab.base.source import MAX_SOURCE_BYTES, searchable
from lab.base.words import one_line, rank_list
from lab.grading import hang, stalled
from lab.grading.diagnosis import Blocked, Diagnosis, Failed, LabError, NotStarted, Outcome, unusable_report
from lab.grading.unreadable import no_file, unreadable
from lab.ranks.rank import LAUNCHER
from lab.syllabus.syllabus import ALL_MODULES, syllabus

if TYPE_CHECKING:
    from lab.collectives.lanes import Frame
    from lab.ranks.reports import GroupResult, RankError, RankReport

CHECKS = PACKAGE / "checks"

# What a rank says when another one has gone: a consequence, so never the headline if there is a cause.
PEER_GONE = re.compile(
    r"connection (closed|reset)|closed by peer|broken pipe|socket (closed|error)|pair is not connected|"
    r"timed out waiting \d+ms",
    re.I,
)

_RECEIVES = re.compile(r"\b(i?recv|recv_object_list)\(")
_ASKS_STORE = re.compile(r"store\w*(\(\))?\.(wait|get)\(")

# Raised by a check itself, these are mistakes in the check, whatever a student's function returned.
LABS_OWN_FAULT = ("NameError", "UnboundLocalError", "AssertionError", "ImportError", "ModuleNotFoundError")


def exercise_of(region: str) -> str:
    """The exercise a region belongs to: "3.1a" and "3.1" -> "3.1"."""
    return region.rstrip("abcdefghijklmnopqrstuvwxyz")


def explain(result: "GroupResult", *, exercise: str, code: Path) -> Outcome:
    """The outcome of a group in which at least one rank failed. Never Passed.

    Once the student's code has run in a rank, nothing that a rank says makes the failure the lab's.
    """
    code = code.resolve()
    if not result.begun:
        return LabError(f"the ranks failed before any code of yours had run: {_failures(result)}")
    # Any other is the student's own invention: an error like all others.
    ids = (exercise, *(known.id for known in syllabus().every))
    said = [r.error.todo for r in result.reports if r.error is not None and r.error.todo]
    todo = [region for region in said if exercise_of(region) in ids]
    own = [region for region in todo if exercise_of(region) == exercise]
    if own:
        return NotStarted(_first_todo(exercise, code) or own[0])
    if todo:
        return Blocked(exercise_of(todo[0]))
    cause = min((r for r in result.reports if r.status != "ok"), key=_weight)
    if not cause.begun and cause.status != "timeout" and not cause.cut_off:
        return Failed(unusable_report(f"rank {cause.rank} had ended before it came to your code"))
    if cause.garbled:
        return Failed(unusable_report(f"rank {cause.rank} {one_line(cause.note)}"))
    mismatch = None if _failed_by_itself(cause, result) else hang.diagnose(result, code)
    if mismatch is None:
        mismatch = stalled.sizes(result, code)
    if mismatch is None and (cause.status == "timeout" or cause.cut_off):
        mismatch = stalled.diagnose(result, code)
    if mismatch is not None:
        return Failed(mismatch)
    waits = hang.wait_for(result, code, rank=cause.rank)
    if cause.status == "raised":
        return _raised(cause, exercise, code, waits)
    if cause.status == "exited":
        return Failed(_exited(cause, waits))
    if cause.status == "killed":
        return Failed(_killed(cause))
    return Failed(hang.outside(result, code) or _hang(result.reports))


def _first_todo(exercise: str, code: Path) -> str:
    """The first region of the file that is still a stub: a later one may run before it. "" where none is found."""
    files = [code / known.file for known in syllabus().every if known.id == exercise]
    if not files or not files[0].is_file() or files[0].stat().st_size > MAX_SOURCE_BYTES:
        return ""
    text = files[0].read_text(encoding="utf-8", errors="replace")
    todo = re.compile(
        rf"^\s*raise NotImplementedError\(\s*[\"']Exercise ({re.escape(exercise)}[a-z]?) is not done yet", re.M
    )
    return found[1] if (found := todo.search(text)) else ""


def _failed_by_itself(cause: "RankReport", result: "GroupResult") -> bool:
    """Whether a rank's failure is the reason, and not a collective that did not match.

    gloo ends a process, or raises in it, when it receives a tensor of another size than it expects.
    """
    if cause.status == "timeout" or cause.cut_off:
        return False
    if cause.status == "raised":
        return cause.error is None or not PEER_GONE.search(searchable(cause.error.message))
    mismatch = result.deadlock
    return cause.exit_code != -signal.SIGABRT or mismatch is None or cause.rank not in mismatch.stuck


def _weight(report: "RankReport") -> tuple[int, float, int]:
    """Sorts causes before consequences: the first rank that failed by itself comes first."""
    if report.status == "raised":
        gone = report.error is not None and PEER_GONE.search(searchable(report.error.message))
        return (3 if gone else 0), report.seconds, report.rank
    if report.status == "killed" and report.exit_code is None:
        return 5, report.seconds, report.rank  # by the lab, since another rank had failed
    return {"exited": 1, "killed": 2, "timeout": 4}[report.status], report.seconds, report.rank


def _raised(report: "RankReport", exercise: str, code: Path, waits: str) -> Outcome:
    error = report.error
    assert error is not None  # or the report would be garbled
    rank, kind = report.rank, error.type
    said = f"{kind}: {one_line(error.message)}" if error.message else kind
    if kind == "BdbQuit":
        said = "BdbQuit: pdb.set_trace() was left in the code, and nobody can type into a check"
    if kind in ("SyntaxError", "IndentationError", "TabError"):
        for name in ALL_MODULES:
            if (code / module_file(name)).exists() and (diagnosis := unreadable(code, module_file(name))):
                return _neighbour(module_file(name), exercise) or Failed(diagnosis)
    frame = error.student_frame
    if frame is not None:
        if frame.function == "<module>":
            return _neighbour(frame.file, exercise) or Failed(
                Diagnosis(
                    "import-failed",
                    saw=f"{Path(frame.file).name} cannot be imported: {said}",
                    means="Python stops while it reads the file, so nothing in it can run.",
                    look=_at(frame),
                )
            )
        if unset_by_srun(kind, error.message):
            return Failed(rank_from_torchrun(said, _at(frame)))
        return Failed(
            Diagnosis(
                "raised",
                saw=f"rank {rank} raised {said}",
                means=f"{frame.function}() did not come to its end. {waits}".strip(),
                look=_at(frame),
            )
        )
    if kind in ("ModuleNotFoundError", "ImportError"):
        return _import_error(rank, said, error)
    innermost = error.frames[-1] if error.frames else None
    too_odd = kind == "WireError"  # what the student's function gave back is too large or too deep to be sent
    if not too_odd and (innermost is None or not _outside_harness(innermost.file)):
        return _of_the_lab(rank, said, error)
    gone = re.search(r"module '([\w.]+)' has no attribute '(\w+)'", searchable(error.message))
    if gone and gone[1] in ALL_MODULES:
        return Failed(
            Diagnosis(
                "no-function",
                saw=f"{module_file(gone[1])} has no {gone[2]}.",
                means="The check calls it by this name.",
                look=f"whether {gone[2]} was renamed or deleted; lab reset {exercise} brings it back",
            )
        )
    if innermost is not None and kind in LABS_OWN_FAULT and Path(innermost.file).is_relative_to(PACKAGE):
        return _of_the_lab(rank, said, error)
    # The check was using what the student's function gave back (often None: a missing return).
    return Failed(
        Diagnosis(
            "unusable-result",
            saw=f"rank {rank}: {said}",
            means="The check could not use what your function gave back.",
            look=f"the return in exercise {exercise}: is it there, and is it what the docstring says?",
        )
    )


def _neighbour(file: str, exercise: str) -> Blocked | None:
    """Blocked by the first exercise of a file that cannot be imported, if it is another exercise's."""
    module = Path(file).stem
    own = next((known for known in syllabus().every if known.id == exercise), None)
    theirs = next((known for known in syllabus().every if known.module == module), None)
    return Blocked(theirs.id) if own is not None and theirs is not None and own.module != module else None


def unset_by_srun(kind: str, message: str) -> bool:
    """Whether an exception is that of a variable of torchrun's which srun does not set."""
    return kind == "KeyError" and message.strip("'\"") in LAUNCHER


def rank_from_torchrun(said: str, look: str) -> Diagnosis:
    """Code that asks torchrun's variables for rank or world size. `said`: what came of it."""
    return Diagnosis(
        "rank-from-torchrun-only",
        saw=f"started as by srun: {said.removeprefix('started as by srun: ')}",
        means="srun sets other variables than torchrun. The process group knows rank and world size.",
        look=look,
    )


def _of_the_lab(rank: int, said: str, error: "RankError") -> Failed:
    """An error of the check's own, as the rank says: it may be a mistake of the lab, or forged."""
    details = f"rank {rank} said: {said}\n{_frames(error)}"
    return Failed(unusable_report(f"rank {rank} speaks of an error outside of your code", details))


def _failures(result: "GroupResult") -> str:
    return one_line("; ".join(str(report) for report in result.reports if report.status != "ok"))


def _import_error(rank: int, said: str, error: "RankError") -> Outcome:
    match = re.search(r"(?:No module named '|There is no )([\w./]+)", searchable(said))
    name = match[1].removesuffix(".py").replace("/", ".") if match else ""
    if name in ALL_MODULES:
        return Failed(no_file(module_file(name)))
    return _of_the_lab(rank, said, error)


def _outside_harness(file: str) -> bool:
    """Whether a frame can be reached by a student's result: torch, the standard library or a check."""
    path = Path(file)
    return not path.is_relative_to(PACKAGE) or path.is_relative_to(CHECKS)


def _exited(report: "RankReport", waits: str) -> Diagnosis:
    how = report.note or "ended" if report.exit_code is None else f"ended with exit code {report.exit_code}"
    return Diagnosis(
        "exited",
        saw=f"rank {report.rank} {how} in the middle of the check.",
        means=waits or "A rank that leaves early leaves the others waiting for it.",
        look=_at(report.student_frame) or "exit(), sys.exit() or os._exit() in your code",
    )


def _killed(report: "RankReport") -> Diagnosis:
    name = ""
    if report.exit_code is not None and report.exit_code < 0:
        try:
            name = f" by {signal.Signals(-report.exit_code).name}"
        except ValueError:
            name = f" by signal {-report.exit_code}"
    return Diagnosis(
        "killed",
        saw=f"rank {report.rank} was killed{name}.",
        means="The process died without a Python error: out of memory, or a crash in compiled code.",
        look="very large tensors, or an endless loop that keeps allocating",
    )


def _hang(reports: Sequence["RankReport"]) -> Diagnosis:
    stuck = [report for report in reports if report.status == "timeout"]
    done = [report.rank for report in reports if report.status == "ok"]
    seconds = max(report.seconds for report in stuck)
    saw = f"after {seconds:.0f} s {rank_list([report.rank for report in stuck])} had not finished"
    places = [f"rank {report.rank} was at {_at(report.student_frame)}" for report in stuck if report.student_frame]
    frames = [report.student_frame for report in stuck if report.student_frame]
    if len(frames) == len(stuck) and all(_RECEIVES.search(searchable(frame.text)) for frame in frames):
        return Diagnosis(
            "message-missing",
            saw=f"{saw}: each waits to receive.",
            means=stalled.MEANS["message-missing"],
            look=_at(frames[0]),
        )
    if len(frames) == len(stuck) and all(_ASKS_STORE.search(searchable(frame.text)) for frame in frames):
        return Diagnosis(
            "key-missing",
            saw=f"{saw}: {'each waits' if len(frames) > 1 else 'it waits'} for a key of the store.",
            means="A store's wait() and get() come back when some rank has set that very key: does one?",
            look=_at(frames[0]),
        )
    if done:
        return Diagnosis(
            "hang",
            saw=f"{saw}, while {rank_list(done)} had.",
            means="A collective ends only when every rank calls it; one was called on some ranks only.",
            look="; ".join(places) or "an if on the rank, an early return, or a loop of unequal length",
        )
    return Diagnosis(
        "hang",
        saw=f"{saw}.",
        means="The ranks wait for each other, or for something that never ends.",
        look="; ".join(places) or "collectives in a different order on different ranks, or an endless loop",
    )


def _at(frame: "Frame | None") -> str:
    """ "data.py:41  sampler = ..."; "" without a frame."""
    if frame is None:
        return ""
    text = one_line(frame.text, 80)
    return f"{Path(frame.file).name}:{frame.line}" + (f"  {text}" if text else "")


def _frames(error: "RankError") -> str:
    return "\n".join(f"{frame.file}:{frame.line} in {frame.function}" for frame in error.frames)
