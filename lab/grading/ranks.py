"""Groups of real ranks for the checks: start them, wait for them, say what became of each.

    result = server().run("lab.checks.data:draw_indices", 2, code=Path("exercises"), inputs={"seed": 7})
    result.values    # what the function returned on each rank

The ranks are forked by a process that has torch loaded (lab/grading/nursery.py), so a group takes about a tenth
of a second. Student code runs in the ranks only; whatever it does, nothing of the group is left afterwards.
"""

from __future__ import annotations

import atexit
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from lab.grading import nursery, platform, wire
from lab.grading.leader import BROKEN, REPORT, REQUEST, STARTED
from lab.grading.rank import INPUTS, Rank

# torch._dynamo: optimizers import it at their first step, which takes half a second in every rank.
PRELOAD = (
    "torch",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.nn.parallel",
    "torch._dynamo",
    "lab.grading.rank",
)

# Variables of a launcher that must not leak from the grader's own job into the ranks.
_LAUNCHER_PREFIXES = (
    "SLURM", "SBATCH", "SRUN", "PMI", "OMPI_", "TORCHELASTIC_", "TORCH_DISTRIBUTED_", "TORCH_NCCL_", "TORCH_FR_",
    "NCCL_", "GLOO_", "LOCAL_", "GROUP_", "ROLE_", "MASTER_",
)  # fmt: skip
_LAUNCHER_NAMES = {"RANK", "WORLD_SIZE", "PYTHONSAFEPATH"}
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_START_LIMIT = 300.0  # seconds until the nursery has imported torch, on the slowest file system
_LEADER_LIMIT = 20.0  # seconds over the group's own deadline before its leader counts as lost


class RankServerError(RuntimeError):
    """The lab could not run the group; never the fault of a student's code."""


class RankFailure(RuntimeError):
    """The values of a group were asked for, but a rank has not delivered one."""


@dataclass(frozen=True)
class Frame:
    """One line of a stack: `text` is the source, stripped, or empty where it is not known."""

    file: str
    line: int
    function: str
    text: str


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
    - "timeout": it was still running at the deadline; `stack` shows where.

    `note` is a sentence where the status alone does not tell. `output` is what it printed, shortened in the
    middle, invalid bytes replaced; control characters are left in it. `seconds` counts from the group's start.
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
    def values(self) -> list[Any]:
        """The value of each rank. Raises RankFailure naming every rank that has none."""
        if not self.ok:
            raise RankFailure("; ".join(str(report) for report in self.reports if report.status != "ok"))
        return [report.value for report in self.reports]

    @property
    def first_failed(self) -> RankReport | None:
        """The rank whose failure came first; the others' failures may only follow from it."""
        failed = [report for report in self.reports if report.status != "ok"]
        return min(failed, key=lambda report: report.seconds, default=None)


class RankServer:
    """Runs groups of ranks, several at once if need be; a context manager.

    `preload` names the modules that every rank finds imported. They must start no threads, and no student code
    may be among them. The constructor returns at once, while the imports go on in the background.
    """

    def __init__(self, *, preload: Sequence[str] = PRELOAD) -> None:
        self._preload = tuple(preload)
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._closed = False
        self._start()
        _servers.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def run(
        self,
        observe: Callable[[Rank], object] | str,
        world_size: int,
        *,
        code: Path | None,
        inputs: object = None,
        env: Mapping[str, str | None] = {},
        timeout: float = 30.0,
        set_up_process_group: bool = True,
    ) -> GroupResult:
        """Run `observe(rank)` on `world_size` ranks and report what became of each.

        `observe` is a function at the top of a module, or "module:qualname"; `code` is the student's folder and
        becomes the working directory; `inputs` is what `rank.receive()` returns; `env` adds variables to the
        ranks' environment, or removes those given as None; `timeout` is in seconds from the start of the ranks.

        Whatever the student's code does is in the reports. Raises ValueError for arguments that make no sense,
        WireError for inputs that cannot be sent and RankServerError when the lab itself fails.
        """
        begin = time.monotonic()
        if world_size < 1 or not timeout > 0:
            raise ValueError(f"a group needs at least one rank and some time, not {world_size=} {timeout=}")
        folder = None if code is None else Path(code).resolve()
        if folder is not None and not folder.is_dir():
            raise ValueError(f"{code} is not a folder")
        request = wire.encode(
            {
                "observe": _name_of(observe),
                "world_size": world_size,
                "code": None if folder is None else str(folder),
                "env": dict(env),
                "timeout": float(timeout),
                "set_up_process_group": set_up_process_group,
                "sys_path": _harness_path(folder),
            }
        )
        payload = wire.encode(inputs)
        try:
            answers = self._exchange(request, payload, world_size, timeout)
        except _NurseryLost:
            answers = self._exchange(request, payload, world_size, timeout)  # with a new one
        reports = [_report(answer, folder) for answer in answers] if answers else _lost(world_size)
        return GroupResult(reports, time.monotonic() - begin)

    def close(self) -> None:
        """End the nursery and every group that still runs."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._control.close()
            try:
                self._nursery.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self._nursery.kill()
                self._nursery.wait()
            self._errors.close()

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        self._errors = platform.anonymous_file()
        env = {
            name: value
            for name, value in os.environ.items()
            if name not in _LAUNCHER_NAMES and not name.startswith(_LAUNCHER_PREFIXES)
        }
        env.update(dict.fromkeys(_ONE_THREAD, "1"), CUDA_VISIBLE_DEVICES="")
        self._served = False
        with theirs:
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "lab.grading.nursery", str(theirs.fileno()), *self._preload],
                cwd=_root(),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # so that Ctrl-C in a terminal is ours to handle
            )

    def _exchange(self, request: bytes, inputs: bytes, world_size: int, timeout: float) -> list[Any]:
        """Return one decoded report per rank, or nothing when the leader of the group was lost."""
        number, group = self._order_group()
        try:
            group.settimeout(_START_LIMIT)
            try:
                group.sendall(wire.frame(REQUEST, request))
                kind, payload = wire.receive(group)
            except (EOFError, OSError) as error:
                raise self._explain(error) from error
            if kind == STARTED:
                self._served = True
                group.settimeout(timeout + _LEADER_LIMIT)
                try:
                    group.sendall(wire.frame(INPUTS, inputs))
                    answers = []
                    for _ in range(world_size):
                        kind, payload = wire.receive(group, limit=2 * wire.MAX_PAYLOAD)
                        if kind != REPORT:
                            break
                        answers.append(wire.decode(payload))
                    else:
                        return answers
                except (EOFError, OSError):
                    self._kill_group(number)
                    return []
            assert kind == BROKEN, kind
            raise RankServerError(f"the ranks could not be started: {wire.decode(payload)}")
        finally:
            self._leave(group)

    def _order_group(self) -> tuple[int, socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            if self._closed:
                ours.close()
                raise RankServerError("this rank server has been closed")
            if self._nursery.poll() is not None and self._served:
                self._control.close()
                self._errors.close()
                self._start()
            number = next(self._numbers)
            try:
                socket.send_fds(self._control, [nursery.ORDER.pack(nursery.START, number)], [theirs.fileno()])
            except OSError:
                pass  # the nursery has just died: the reading end of `ours` will tell
            self._sockets.add(ours)
        return number, ours

    def _kill_group(self, number: int) -> None:
        with self._lock:
            if not self._closed:
                try:
                    self._control.sendall(nursery.ORDER.pack(nursery.KILL, number))
                except OSError:
                    return  # no nursery, no group

    def _leave(self, group: socket.socket) -> None:
        """Close the group's socket, which ends the group if it still runs, and wait until it has ended."""
        try:
            group.shutdown(socket.SHUT_WR)
            group.settimeout(_LEADER_LIMIT)
            while group.recv(1 << 16):
                pass
        except OSError:
            pass  # it has ended already
        finally:
            group.close()

    def _explain(self, error: Exception) -> RankServerError:
        code = self._nursery.poll()
        if code is None and isinstance(error, TimeoutError):
            return RankServerError(f"no rank has started within {_START_LIMIT:g} s")
        try:
            code = self._nursery.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return _NurseryLost("the group ended before it had started")
        if self._served:
            return _NurseryLost("the process that starts the ranks has ended")
        self._errors.seek(0)
        said = self._errors.read()[-4000:].decode("utf-8", "replace").strip()
        return RankServerError(f"the process that starts the ranks ended with code {code}: {said}")

    def _forget_after_fork(self) -> None:
        """In a forked child of the grader: let go of the sockets, so that they close when the grader dies."""
        self._closed = True
        for sock in (self._control, *self._sockets):
            sock.close()


class _NurseryLost(RankServerError):
    pass


_servers: weakref.WeakSet[RankServer] = weakref.WeakSet()
_shared: list[RankServer] = []
_shared_lock = threading.Lock()


def server() -> RankServer:
    """Return the rank server of this process, starting it at the first call; it ends with the process."""
    with _shared_lock:
        if not _shared:
            _shared.append(RankServer())
            atexit.register(_shared[0].close)
        return _shared[0]


def _after_fork_in_child() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()
    _shared.clear()
    for one in list(_servers):
        one._forget_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _name_of(observe: Callable[..., object] | str) -> str:
    name = observe if isinstance(observe, str) else f"{observe.__module__}:{observe.__qualname__}"
    module, _, qualname = name.partition(":")
    if not module or not qualname or module == "__main__" or "<" in qualname:
        raise ValueError(f"{name} cannot be imported by a rank: name a function at the top of a module")
    return name


def _root() -> Path:
    return Path(__file__).resolve().parents[2]


def _harness_path(code: Path | None) -> list[str]:
    """Return the grader's sys.path without the student's folder, and without "", which may be that folder."""
    path = [
        entry for entry in sys.path if entry and (code is None or not Path(entry).resolve().is_relative_to(code))
    ]
    return path if str(_root()) in path else [*path, str(_root())]


def _report(answer: dict[str, Any], code: Path | None) -> RankReport:
    status, note = answer["status"], answer["note"]
    value, error, exit_code = None, None, answer["exit_code"]
    try:
        content = wire.decode(answer["payload"]) if answer["payload"] else None
        if status == "ok":
            value = content
        elif content is not None:
            exit_code = int(content["exit_code"]) if status == "exited" else exit_code
            error = _error(content, code)
    except (wire.WireError, ValueError, TypeError, KeyError) as problem:
        status, exit_code, error = "exited", None, None
        note = f"wrote something on the lab's own channel: {problem}"
    stack = [Frame(*frame) for frame in answer["stack"]]
    where = error.student_frame if error else _student_frame(stack, code)
    return RankReport(
        answer["rank"], status, value, error, exit_code, answer["output"], answer["seconds"], note, stack, where
    )


def _error(content: dict[str, Any], code: Path | None) -> RankError:
    frames = [
        Frame(str(file), int(line), str(function), str(text)) for file, line, function, text in content["frames"]
    ]
    todo = None if content["todo"] is None else str(content["todo"])
    return RankError(str(content["type"]), str(content["message"]), frames, _student_frame(frames, code), todo)


def _student_frame(frames: list[Frame], code: Path | None) -> Frame | None:
    inside = [frame for frame in frames if code is not None and Path(frame.file).is_relative_to(code)]
    return inside[-1] if inside else None


def _lost(world_size: int) -> list[RankReport]:
    note = "the process that watches the ranks was ended from outside, or did not answer"
    return [RankReport(rank, "killed", note=note) for rank in range(world_size)]
