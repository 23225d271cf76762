"""Looks at the machine and says what is there and what to do: `lab doctor`.

Each probe has a deadline of its own and runs in a thread of its own, for it may wait for what never answers: a
name server, a network disk, a scheduler that is down. What starts programs does so through `ask`, so that none is
left behind.
"""

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.base.processes import kill_groups

ASK = "ask who runs this machine"
HANGS = f"something here hangs: {ASK}"


@dataclass(frozen=True)
class Reading:
    """What a probe found.

    state  "good"; "absent": not there, and only needed by those who want it; "note": the lab works, with a
           limit; "bad": the lab cannot work like this
    what   what is, in a few words
    do     what to do about it; "" for nothing
    """

    state: str
    what: str
    do: str = ""

    @property
    def needs_repair(self) -> bool:
        return self.state == "bad"


@dataclass(frozen=True)
class Probe:
    """One line of the examination. `find` must not print; what it raises is then the reading.

    needed  whether the lab cannot work without what is looked for
    """

    name: str
    find: Callable[[], Reading]
    seconds: float
    needed: bool = False

    def failed(self, what: str, do: str) -> Reading:
        return Reading("bad" if self.needed else "note", what, do)


@dataclass(frozen=True)
class Answer:
    """How a program that was asked has ended: `code` is None when it did not answer in time."""

    code: int | None
    out: str  # standard output
    said: str  # the last line of both outputs, for a sentence about it

    @property
    def ok(self) -> bool:
        return self.code == 0


def examine(probes: Sequence[Probe]) -> Iterator[tuple[Probe, Reading]]:
    """Run all probes at once; yield the readings in their order, each as soon as those before it are there."""
    begin = time.monotonic()
    _programs.open()
    found: dict[str, Reading] = {}
    threads = [threading.Thread(target=_find, args=(probe, found), daemon=True) for probe in probes]
    for thread in threads:
        thread.start()
    try:
        for probe, thread in zip(probes, threads, strict=True):
            thread.join(max(0.0, begin + probe.seconds - time.monotonic()))
            late = probe.failed(f"no answer within {probe.seconds:g} s", HANGS)
            yield probe, found.get(probe.name, late)
    finally:
        _programs.close()  # by Ctrl-C, or those that belong to a probe that is late


def _find(probe: Probe, found: dict[str, Reading]) -> None:
    try:
        found[probe.name] = probe.find()
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        found[probe.name] = probe.failed(what, ASK)
    except Exception as error:  # noqa: BLE001 - one probe that stumbles over an odd machine must not look like a hang
        found[probe.name] = probe.failed(f"{type(error).__name__}: {error}", ASK)


class _Programs:
    """The programs that are being asked now, each the leader of a process group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._closed = False

    def open(self) -> None:
        self._closed = False

    def start(self, command: Sequence[str | Path], cwd: str | Path) -> subprocess.Popen[str]:
        """Raises OSError when it cannot be started."""
        with self._lock:
            if self._closed:
                raise OSError("the examination is over")
            program = subprocess.Popen(
                [str(part) for part in command],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._running.add(program.pid)
        return program

    def end(self, program: subprocess.Popen[str]) -> None:
        """Kill it and its children, if they still run."""
        with self._lock:
            self._running.discard(program.pid)
            kill_groups([program.pid])
        program.wait()
        for pipe in (program.stdout, program.stderr):
            if pipe:
                pipe.close()

    def close(self) -> None:
        """Kill all of them; none is started any more."""
        with self._lock:
            self._closed = True
            kill_groups(self._running)


_programs = _Programs()


def ask(command: Sequence[str | Path], seconds: float, *, cwd: str | Path = "/") -> Answer:
    """Run a program that answers on its standard output; it and its children are killed after `seconds`.

    The folder it runs in is not the student's, so that a json.py of theirs is not in its way.
    """
    try:
        program = _programs.start(command, cwd)
    except OSError as error:
        return Answer(-1, "", error.strerror or str(error))
    code: int | None = None
    try:
        out, err = program.communicate(timeout=seconds)
        code = program.returncode
    except subprocess.TimeoutExpired:
        out, err = "", f"no answer within {seconds:g} s"
    finally:
        _programs.end(program)
    return Answer(code, out, _last_line(err) or _last_line(out) or how_it_ended(code))


def how_it_ended(code: int | None) -> str:
    """A program's exit code in words."""
    if code is None:
        return "did not answer"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
