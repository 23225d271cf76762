"""Inside one rank: what an observe function gets, and how its result leaves the process.

A rank is a fork of a process that has torch loaded but never any student's code. Everything that the harness
needs here is imported before the first line of a student's module runs.
"""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import os
import re
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

from lab.base import intact
from lab.base.paths import module_file
from lab.collectives import conduct, departures, recorder
from lab.collectives.point_to_point import Messages
from lab.ranks import confine, platform, wire
from lab.ranks.speaker import CONDUCT, Speaker

# Frames between a rank and the leader of its group; besides these, RECORDS and TELL of speaker.py. BEGUN comes
# before the first line of the student's runs: what a rank says from then on may be forged. TAMPERED tells which of
# the lab's functions were replaced. The first of RESULT, RAISED and EXITED ends the rank.
GO, BEGUN, TAMPERED, ASK, INPUTS = b"G", b"S", b"M", b"A", b"I"
RESULT, RAISED, EXITED = b"R", b"X", b"E"

LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
# Of one machine only: its processes are counted from 0, and are not all.
LOCAL = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")

_NOT_DONE = re.compile(r"Exercise (\S+) is not done yet")
_MESSAGE_LIMIT = 8_000  # characters
_LINE_LIMIT = 500  # characters
_NAMED = 5  # of the functions that were replaced


class _SourceLoader(SourceFileLoader):
    """Compiles the file as it is saved now; a cached __pycache__ may be of an edit in the same second."""

    def path_stats(self, path: str) -> Any:
        raise OSError("bytecode caches are not used for the student's files")

    def source_to_code(self, data: Any, path: Any, **_: Any) -> CodeType:  # type: ignore[override]
        return departures.compiled(data, path, conduct.Noting(path))


class Rank:
    """What an observe function gets: its place in the group, the student's modules, the judge's inputs."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        code: Path | None,
        channel: socket.socket,
        speaker: Speaker,
        messages: Messages,
    ) -> None:
        self.messages = messages  # those to and from single ranks
        self.rank = rank
        self.world_size = world_size
        self.code = code
        self._channel = channel
        self._speaker = speaker
        self._inputs: list[Any] = []
        self._changed: Callable[[], list[str]] | None = None

    def student(self, name: str) -> ModuleType:
        """Import the student's module `name`, such as "data" or "from_scratch.ring", as the file is saved now.

        Raises ModuleNotFoundError when there is no such file, and whatever the import itself raises. From
        here on the student's folder is first on sys.path, so main.py finds its siblings.
        """
        if self.code is None:
            raise ValueError("this group was started without a code folder")
        if self._changed is None:
            self._changed = intact.watched(_labs_own())
            sys.breakpointhook = _no_debugger
            self._speaker.send(wire.frame(BEGUN))
            conduct.begin(self.code)
        file = self.code / module_file(name)
        if not file.is_file():
            raise ModuleNotFoundError(f"There is no {module_file(name)} in {self.code}", name=name)
        if str(self.code) not in sys.path:
            self._open_folder(self.code)
        loaded = sys.modules.get(name)
        if loaded is not None and getattr(loaded, "__file__", None) == str(file):
            return loaded
        spec = importlib.util.spec_from_file_location(name, file, loader=_SourceLoader(name, str(file)))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(name, None)
            raise
        return module

    def receive(self) -> Any:
        """Return the judge's inputs, which reach this process only now. Call it after `student`."""
        if not self._inputs:
            self._speaker.send(wire.frame(ASK))
            kind, payload = wire.receive(self._channel)
            assert kind == INPUTS, kind
            self._inputs.append(wire.decode(payload))
        return self._inputs[0]

    def tampered(self) -> bytes:
        """The names of the lab's functions that are not what they were before `student` was called first."""
        return "\n".join(self._changed()[:_NAMED] if self._changed else []).encode()

    @staticmethod
    def _open_folder(code: Path) -> None:
        def finder(path: str) -> FileFinder:
            if not Path(path).is_relative_to(code):
                raise ImportError(path)
            return FileFinder(path, (_SourceLoader, [".py"]))

        sys.path_hooks.insert(0, finder)
        for path in list(sys.path_importer_cache):
            if f"{path}/".startswith(f"{code}/"):
                del sys.path_importer_cache[path]
        sys.path.insert(0, str(code))


def _no_debugger(*_: object, **__: object) -> NoReturn:
    """In place of the debugger that breakpoint() starts: it would read the end of an input that is not there."""
    raise RuntimeError("breakpoint() was left in the code, and nobody can type into a check: take it out")


def run_rank(rank: int, request: dict[str, Any], channel: socket.socket, output: int, stack: int) -> NoReturn:
    """Be rank `rank` of the group described by `request`, in a process just forked by the group's leader.

    `output` and `stack` are pipes to the leader: what the code prints, and the Python stack when asked for.
    Never returns: after its result is sent the rank waits to be killed, so that no rank's exit breaks the
    connections of another, and no process group needs to be destroyed (which can deadlock after a failure).
    """
    code = Path(request["code"]) if request["code"] is not None else None
    _isolate(channel, output, stack, code, request["sys_path"])
    kind, payload = wire.receive(channel)
    assert kind == GO, kind
    _set_environment(rank, request, port=wire.decode(payload))
    _rebuild_thread_pool()
    records = recorder.Recorder(__file__, _observe.__name__)
    if "torch" in sys.modules:
        records.one_to_one.watch()
    speaker = Speaker(channel, records)
    speaker.start()
    encode, frame = (intact.private(function, [wire]) for function in (wire.encode, wire.frame))
    here = Rank(rank, request["world_size"], code, channel, speaker, records.one_to_one)
    tampered, with_records = here.tampered, True
    try:
        result = _observe(here, request)
        answer = frame(RESULT, encode(result))
        with_records = request["trace"]
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        answer = frame(EXITED, encode({"exit_code": status, **describe(error)}))
    except BaseException as error:  # noqa: BLE001  (whatever it is, the grader is told)
        answer = frame(RAISED, encode(describe(error)))
    answer = frame(CONDUCT, encode(conduct.notes())) + answer
    if names := tampered():
        answer = frame(TAMPERED, names) + answer
    _flush()
    speaker.end(answer, with_records=with_records)
    while channel.recv(4096):
        speaker.tell()
    os._exit(0)


def _observe(rank: Rank, request: dict[str, Any]) -> object:
    module, _, qualname = request["observe"].partition(":")
    observe: Any = importlib.import_module(module)
    for part in qualname.split("."):
        observe = getattr(observe, part)
    function: Callable[[Rank], object] = intact.private(observe, intact.modules_below("lab.checks", module))
    if request["set_up_process_group"]:
        import torch.distributed

        torch.distributed.init_process_group("gloo")
        for name in LAUNCHER:  # under srun they were never there: whoever wants to know asks the group
            os.environ.pop(name, None)
        os.environ.update(
            (name, value)
            for name, value in on_nodes(rank.rank, rank.world_size).items()
            if name not in request["env"]
        )
    return function(rank)


def on_nodes(rank: int, world_size: int) -> dict[str, str]:
    """What torchrun says of a rank's own node, where no number of a node is one of the whole group by chance.

    As if the ranks were those from 2 on of a job on nodes of `world_size` + 1 each: the last one is alone, and the
    first of its node.
    """
    per_node = world_size + 1
    place = rank + 2
    values = (place % per_node, per_node, place // per_node)
    return dict(zip(LOCAL, map(str, values), strict=True))


def _labs_own() -> list[ModuleType]:
    return intact.modules_below("lab.checks", "lab.ranks", "lab.collectives")


def _isolate(channel: socket.socket, output: int, stack: int, code: Path | None, sys_path: list[str]) -> None:
    os.setsid()
    confine.hide_memory(False)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    platform.close_other_fds({channel.fileno(), stack})
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    platform.report_stack_to(stack)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # as in a process of its own; random and torch see to themselves
    sys.path[:] = sys_path
    sys.argv = ["main.py"]
    os.chdir(code if code is not None else "/")


def _rebuild_thread_pool() -> None:
    """Let torch replace the thread pool that the fork has left unusable, while this process has one thread.

    It does so at the first call that sets a number of threads, without a lock: if two of autograd's threads were
    the first to make one, now and then one of them would find no pool and abort the process.
    """
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _set_environment(rank: int, request: dict[str, Any], port: int) -> None:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(request["world_size"]),
        LOCAL_WORLD_SIZE=str(request["world_size"]),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
        GLOO_SOCKET_IFNAME=platform.LOOPBACK_INTERFACE,
    )
    os.environ[recorder.VARIABLE] = str(recorder.WHOLE_SIZE if request["trace"] else recorder.USUAL_SIZE)
    for name, value in request["env"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed or replaced by the student's code
            continue


def describe(error: BaseException) -> dict[str, Any]:
    """Return type, message, frames (outermost first, without the harness's own entry) and todo as plain data."""
    try:
        message = str(error)[:_MESSAGE_LIMIT]
    except Exception:  # noqa: BLE001  (a __str__ of the student's that raises)
        message = "(its message cannot be shown)"
    frames = [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename != __file__ and not frame.f_code.co_filename.startswith("<frozen importlib")
    ]
    if isinstance(error, SyntaxError) and isinstance(error.filename, str):
        frames.append((error.filename, error.lineno or 0, "<module>"))
    todo = _NOT_DONE.search(message) if isinstance(error, NotImplementedError) else None
    return {
        "type": type(error).__name__,
        "message": message,
        "frames": [
            [*frame, linecache.getline(frame[0], frame[1]).strip()[:_LINE_LIMIT]] for frame in frames[-100:]
        ],
        "todo": todo.group(1) if todo else None,
    }
