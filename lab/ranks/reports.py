"""What a group of ranks left behind, as the grader reads it: nothing that a rank sent can raise here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lab.collectives.conduct import Conduct, read_conduct
from lab.collectives.deadlock import Mismatch, find_mismatch
from lab.collectives.lanes import Collective, Frame, Lane, Message
from lab.collectives.stall import Position, Stall, find_stall
from lab.ranks import wire

# Of an error: no more than rank.describe() sends.
_MOST_FRAMES, _LONGEST_MESSAGE, _LONGEST_TEXT = 100, 8_000, 1_000
_LAST_LINE = 1 << 31


class RankFailure(RuntimeError):
    """The values of a group were asked for, but a rank has not delivered one."""


@dataclass(frozen=True)
class RankError:
    """The exception that ended a rank.

    `frames` run from the observe function (outermost) to where it was raised; `student_frame` is the innermost
    one inside the student's folder; `todo` is the region ("3.1a") when it is a stub's NotImplementedError.
    """

    type: str
    message: str
    frames: list[Frame]
    student_frame: Frame | None
    todo: str | None


@dataclass(frozen=True)
class RankReport:
    """What became of one rank.

    - "ok": `value` is what the observe function returned.
    - "raised": `error` says what.
    - "exited": the process ended by itself, with `exit_code`; `error` says where if it was sys.exit.
    - "killed": by a signal of its own (`exit_code` is -signal), or by the lab because another rank had failed
      (`exit_code` is None, `stack` shows where it was).
    - "timeout": it was still running at the deadline, or when the group was in a deadlock for certain; `stack`
      shows where.

    `note` is a sentence where the status alone does not tell. `output` is what it printed, shortened in the
    middle, invalid bytes replaced; control characters are left in it. `seconds` counts from the group's start.
    `collectives` are the last it has issued, in order, where the group failed or was traced; `all_recorded` tells
    that they go on to its end. Their names and frames are whatever the rank says. `left` tells for (file,
    function) of the student's at which line it was last left; line 0 stands for its end.
    `begun` tells that the student's code was let into it: only before that can what the rank says be trusted.
    `tampered` names functions of the lab's in it that were replaced. `conduct` is what else its code did.
    """

    rank: int
    status: Literal["ok", "raised", "exited", "killed", "timeout"]
    value: Any = None
    error: RankError | None = None
    exit_code: int | None = None
    output: str = ""
    seconds: float = 0.0
    note: str = ""
    stack: list[Frame] = field(default_factory=list)
    student_frame: Frame | None = None  # innermost frame in the student's folder, of the error or of the stack
    collectives: list[Collective] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    in_wait: bool = False  # for a collective
    all_recorded: bool = False
    left: Mapping[tuple[str, str], Frame] = field(default_factory=dict)
    begun: bool = True
    tampered: str = ""
    conduct: Conduct = field(default_factory=Conduct)

    @property
    def garbled(self) -> bool:
        """Whether what it sent was no report at all."""
        return self.note.startswith(wire.GARBAGE)

    @property
    def cut_off(self) -> bool:
        """Whether the lab ended it: another rank had failed, or the group itself was lost."""
        return self.status == "killed" and self.exit_code is None

    def __str__(self) -> str:
        text = f"rank {self.rank}: {self.status}"
        if self.error:
            text += f", {self.error.type}: {self.error.message}"
        if self.exit_code is not None and self.status != "ok":
            text += f", exit code {self.exit_code}"
        if self.note:
            text += f" ({self.note})"
        if self.student_frame:
            text += f" at {Path(self.student_frame.file).name}:{self.student_frame.line}"
        return text


@dataclass(frozen=True)
class GroupResult:
    """The reports of all ranks, in order of rank, and the seconds that the whole call took."""

    reports: list[RankReport]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every rank delivered its value."""
        return all(report.status == "ok" for report in self.reports)

    @property
    def begun(self) -> bool:
        """Whether the student's code has run in any rank: if so, no failure is the lab's for certain."""
        return any(report.begun for report in self.reports)

    @property
    def values(self) -> list[Any]:
        """The value of each rank. Raises RankFailure naming every rank that has none."""
        if not self.ok:
            raise RankFailure("; ".join(str(report) for report in self.reports if report.status != "ok"))
        return [report.value for report in self.reports]

    @property
    def deadlock(self) -> Mismatch | None:
        """The first collective that does not match between the ranks and keeps one waiting, if it is known."""
        ended = [report.rank for report in self.reports if report.all_recorded]
        return find_mismatch({report.rank: report.collectives for report in self.reports}, ended)

    @property
    def stall(self) -> Stall | None:
        """Which ranks wait for messages that never come, if that is known."""
        ended = [report.rank for report in self.reports if report.all_recorded]
        return find_stall({r.rank: Position(r.messages, r.collectives, r.in_wait) for r in self.reports}, ended)

    @property
    def first_failed(self) -> RankReport | None:
        """The rank that failed first; the failures of the others may only follow from it.

        A process that ended by itself comes before an exception, whatever the clock says: its lost connections
        raise in other ranks before its end is noticed, while a rank that raises stays until all are ended.
        """
        order = {"exited": 0, "killed": 0, "raised": 1, "timeout": 2}
        failed = [report for report in self.reports if report.status != "ok"]
        return min(failed, key=lambda r: (3 if r.cut_off else order[r.status], r.seconds), default=None)


def read_report(answer: dict[str, Any], code: Path | None) -> RankReport:
    status, note = answer["status"], answer["note"]
    value, error, exit_code = None, None, answer["exit_code"]
    try:
        if status == "ok":
            value = wire.decode(answer["payload"])
        elif answer["payload"]:
            content = wire.decode(answer["payload"])
            exit_code = int(content["exit_code"]) if status == "exited" else exit_code
            error = _error(content, code)
        elif status == "raised":
            raise ValueError("an error that nothing is said about")
    except Exception as problem:  # noqa: BLE001  (whatever it wrote, it is the rank's)
        status, exit_code, value, error = "exited", None, None, None
        note = f"{wire.GARBAGE}: {type(problem).__name__}"
    stack = [Frame(*frame) for frame in answer["stack"]]
    lane = Lane()
    for message in answer["records"]:
        lane.feed(wire.decode(message))  # the leader has done so before: only what is right comes here
    return RankReport(
        rank=answer["rank"],
        status=status,
        value=value,
        error=error,
        exit_code=exit_code,
        output=answer["output"],
        seconds=answer["seconds"],
        note=note,
        stack=stack,
        student_frame=error.student_frame if error else innermost(stack, code),
        collectives=lane.collectives,
        messages=lane.one_to_one,
        in_wait=lane.in_wait,
        all_recorded=lane.final,
        left=lane.left,
        begun=answer["begun"],
        tampered=", ".join(answer["tampered"].decode("utf-8", "replace").splitlines()),
        conduct=_conduct(answer["conduct"]),
    )


def _conduct(payload: bytes) -> Conduct:
    try:
        return read_conduct(wire.decode(payload)) if payload else Conduct()
    except wire.WireError:
        return Conduct()


def _error(content: dict[str, Any], code: Path | None) -> RankError:
    frames = [_frame(*frame) for frame in content["frames"][:_MOST_FRAMES]]
    todo = None if content["todo"] is None else _text(content["todo"])
    message = str(content["message"])[:_LONGEST_MESSAGE]
    return RankError(_text(content["type"]), message, frames, innermost(frames, code), todo)


def _frame(file: Any, line: Any, function: Any, text: Any) -> Frame:
    if type(line) is not int or not 0 <= line < _LAST_LINE:
        raise ValueError("a frame without a line")
    return Frame(_text(file), line, _text(function), _text(text))


def _text(value: Any) -> str:
    return str(value)[:_LONGEST_TEXT]


def innermost(frames: Sequence[Frame], code: Path | None) -> Frame | None:
    """The innermost frame in the student's folder."""
    inside = [frame for frame in frames if code is not None and Path(frame.file).is_relative_to(code)]
    return inside[-1] if inside else None


def lost(world_size: int) -> list[RankReport]:
    note = "the process that watches the ranks was ended from outside, or did not answer"
    return [RankReport(rank, "killed", note=note) for rank in range(world_size)]
