"""Groups of real ranks for the checks: start them, wait for them, say what became of each.

    result = server().run("lab.checks.data.checks:draw_indices", 2, code=Path("exercises"), inputs={"seed": 7})
    result.values    # what the function returned on each rank

The ranks are forked by a process that has torch loaded (lab/ranks/nursery.py), so a group takes about a tenth
of a second. Student code runs in the ranks only; whatever it does, nothing of the group is left afterwards.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from lab.base.paths import PACKAGE
from lab.ranks import nursery, wire
from lab.ranks.confine import CODE
from lab.ranks.environment import harness_path, importable_name
from lab.ranks.leader import BROKEN, REPORT, REQUEST, STARTED
from lab.ranks.nursery_process import NurseryProcess
from lab.ranks.rank import INPUTS, Rank
from lab.ranks.reports import GroupResult, lost, read_report
from lab.ranks.sandbox import Sandbox, moved, pack

# The observe halves of the checks, with all of lab.training that they need: 50 modules in every rank.
OBSERVERS = tuple(
    f"lab.checks.{file.parent.name}.{file.stem}" for file in sorted(PACKAGE.glob("checks/*/observe*.py"))
)

# torch._dynamo: optimizers import it at their first step, which takes half a second in every rank.
PRELOAD = (
    "torch",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint.state_dict",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch._dynamo",
    *OBSERVERS,
)

_START_LIMIT = 300.0  # seconds until the nursery has imported torch, on the slowest file system
_SERVED_LIMIT = 60.0  # seconds until a nursery that has served before has forked a group
_LEADER_LIMIT = 20.0  # seconds over the group's own deadline before its leader counts as lost


class RankServerError(RuntimeError):
    """The lab could not run the group; never the fault of a student's code."""


class RankServer:
    """Runs groups of ranks, several at once if need be; a context manager.

    `preload` names the modules that every rank finds imported. They must start no threads, and no student code
    may be among them. The constructor returns at once, while the imports go on in the background.

    With a `sandbox` nobody's code can harm this machine or another's results: each group gets a copy of the code,
    and nothing else of what is here; groups run one after the other. Raises SandboxError where there can be none.
    """

    def __init__(self, *, preload: Sequence[str] = PRELOAD, sandbox: Sandbox | None = None) -> None:
        self._preload = tuple(preload)
        self._sandbox = sandbox
        self._turn = threading.Lock() if sandbox else contextlib.nullcontext()
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._ended: weakref.WeakSet[socket.socket] = weakref.WeakSet()  # those of groups ended by end_groups()
        self._closed = False
        self._start()
        _servers.add(self)

    @property
    def several_at_once(self) -> bool:
        """Whether groups that are started together run side by side."""
        return self._sandbox is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
        trace: bool = False,
    ) -> GroupResult:
        """Run `observe(rank)` on `world_size` ranks and report what became of each.

        `observe` is a function at the top of a module, or "module:qualname"; `code` is the student's folder and
        becomes the working directory; `inputs` is what `rank.receive()` returns; `env` adds variables to the
        ranks' environment, or removes those given as None; `timeout` is in seconds from the start of the ranks;
        `trace` asks for the collectives of all ranks, whether or not something fails.

        Whatever the student's code does is in the reports. Raises ValueError for arguments that make no sense,
        WireError for inputs that cannot be sent and RankServerError when the lab itself fails.
        """
        begin = time.monotonic()
        if world_size < 1 or not timeout > 0:
            raise ValueError(f"a group needs at least one rank and some time, not {world_size=} {timeout=}")
        folder = None if code is None else Path(code).resolve()
        if folder is not None and not folder.is_dir():
            raise ValueError(f"{code} is not a folder")
        place, files = folder, None
        if self._sandbox and folder:
            place, files = Path(CODE), pack(folder)
        request = wire.encode(
            {
                "observe": importable_name(observe),
                "world_size": world_size,
                "code": None if place is None else str(place),
                "files": files,
                "env": dict(env),
                "timeout": float(timeout),
                "set_up_process_group": set_up_process_group,
                "trace": trace,
                "sys_path": harness_path(folder),
            }
        )
        payload = wire.encode(inputs)
        with self._turn:
            try:
                answers = self._exchange(request, payload, world_size, timeout)
            except _NurseryLost:
                answers = self._exchange(request, payload, world_size, timeout)  # with a new one
        reports = [read_report(answer, place) for answer in answers] if answers else lost(world_size)
        if place and folder and place != folder:
            reports = moved(reports, place, folder)
        return GroupResult(reports, time.monotonic() - begin)

    def end_groups(self) -> None:
        """End every group that runs now, from any thread: its ranks are then reported as killed."""
        with self._lock:
            for group in list(self._sockets):
                self._ended.add(group)
                with contextlib.suppress(OSError):
                    group.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the nursery and every group that still runs."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.end_groups()
            self._nursery.end(at_once=not self._served)  # if so it still imports, and has no children

    def _start(self) -> None:
        self._nursery = NurseryProcess(self._preload, self._sandbox)
        self._served = False

    def _exchange(self, request: bytes, inputs: bytes, world_size: int, timeout: float) -> list[Any]:
        """Return one decoded report per rank, or nothing when the leader of the group was lost."""
        number, group = self._order_group()
        try:
            self._begin(group, request)
            answers = self._collect(group, inputs, world_size, timeout)
            group.close()  # everything below the leader is gone, and it has nothing left to do
            return answers
        except (EOFError, TimeoutError, ConnectionError):
            self._kill_group(number)
            return []
        finally:
            self._leave(group)

    def _begin(self, group: socket.socket, request: bytes) -> None:
        group.settimeout(_SERVED_LIMIT if self._served else _START_LIMIT)
        try:
            group.sendall(wire.frame(REQUEST, request))
            kind, payload = wire.receive(group)
        except (EOFError, OSError) as error:
            raise (EOFError() if group in self._ended else self._explain(error)) from error
        if kind != STARTED:
            raise _broken(kind, payload)
        self._served = True

    def _collect(self, group: socket.socket, inputs: bytes, world_size: int, timeout: float) -> list[Any]:
        group.settimeout(timeout + _LEADER_LIMIT)
        group.sendall(wire.frame(INPUTS, inputs))
        answers = []
        for _ in range(world_size):
            kind, payload = wire.receive(group, limit=2 * wire.MAX_PAYLOAD)
            if kind != REPORT:
                raise _broken(kind, payload)
            answers.append(wire.decode(payload))
        return answers

    def _order_group(self) -> tuple[int, socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            if self._closed:
                ours.close()
                raise RankServerError("this rank server has been closed")
            if self._nursery.poll() is not None:
                self._nursery.end(at_once=False)
                self._start()
            number = next(self._numbers)
            with contextlib.suppress(OSError):  # the nursery has just died: the other end of `ours` will tell
                self._nursery.order(nursery.START, number, theirs)
            self._sockets.add(ours)
        return number, ours

    def _kill_group(self, number: int) -> None:
        with self._lock:
            if not self._closed:
                try:
                    self._nursery.order(nursery.KILL, number)
                except OSError:
                    return  # no nursery, no group

    def _leave(self, group: socket.socket) -> None:
        """Close the group's socket, which ends the group if it still runs, and wait until it has ended."""
        if group.fileno() < 0:
            return
        if not self._served:  # it still imports, perhaps for seconds: there is no group to wait for
            group.close()
            return
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
        """Return the error for a group that has not started; a _NurseryLost where another try makes sense."""
        if isinstance(error, TimeoutError):
            self._nursery.kill()
        try:
            code = self._nursery.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return _NurseryLost("the group ended before it had started")
        if self._served:
            return _NurseryLost(f"the process that starts the ranks has ended with code {code}")
        if isinstance(error, TimeoutError):
            return RankServerError(f"no rank has started within {_START_LIMIT:g} s")
        said = self._nursery.said()
        return RankServerError(f"the process that starts the ranks has ended with code {code}: {said}")

    def _forget_after_fork(self) -> None:
        """In a forked child of the grader: let go of the sockets, so that they close when the grader dies."""
        self._lock = threading.RLock()  # another thread may have held it
        self._closed = True
        for sock in (self._nursery.control, *self._sockets):
            sock.close()


class _NurseryLost(RankServerError):
    """The nursery had served before and is gone."""


def _broken(kind: bytes, payload: bytes) -> RankServerError:
    assert kind == BROKEN, kind
    return RankServerError(f"the ranks could not be started: {wire.decode(payload)}")


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
