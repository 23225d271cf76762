"""What differs between Linux and macOS when processes must be watched and ended: the one such place.

| | Linux | elsewhere (macOS) |
|---|---|---|
| orphans of a rank | go to its leader (PR_SET_CHILD_SUBREAPER), killed | escape by a session of their own |
| a rank whose leader dies | is killed by the kernel (PR_SET_PDEATHSIG) | ends when it next speaks to its leader |
| output of the nursery | in a memory file | in an unlinked temporary file |
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import IO

LINUX = sys.platform == "linux"
# A process that has loaded torch is forked before it has any thread, which is what Apple's check is about.
FORK_ENVIRONMENT = {} if LINUX else {"OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES"}
LOOPBACK_INTERFACE = "lo" if LINUX else "lo0"
SHARED_MEMORY = Path("/dev/shm") if LINUX else None  # the folder, where shared memory has one
# Asks a rank for its Python stack. On Linux a real-time signal, which student code hardly ever uses.
STACK_SIGNAL: int = signal.SIGRTMIN + 13 if LINUX else signal.SIGUSR2  # type: ignore[attr-defined,unused-ignore]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, *arguments: int) -> None:
    """The system call of that name (Linux). Raises OSError; AttributeError elsewhere."""
    libc = ctypes.CDLL(None, use_errno=True)
    padded = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    if libc.prctl(option, *padded) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")


def adopt_orphans() -> None:
    """Make every descendant whose parent dies a child of this process (Linux)."""
    if LINUX:
        prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent, the process `parent`, is gone (Linux)."""
    if LINUX:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)


def close_other_fds(keep: Iterable[int]) -> None:
    """Close every file descriptor of this process above 2 that is not in `keep`."""
    kept = set(keep)
    for name in os.listdir("/dev/fd"):
        fd = int(name)
        if fd > 2 and fd not in kept:
            try:
                os.close(fd)
            except OSError:  # the one that listdir itself had open
                continue


def anonymous_file() -> IO[bytes]:
    """Return a file without a name, gone with its last descriptor."""
    if LINUX:
        return os.fdopen(os.memfd_create("lab-nursery"), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def children(pid: int) -> list[int]:
    """Return the ids of the children of `pid`, zombies too (Linux; elsewhere an empty list)."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    except OSError:  # it has just ended
        pass
    return found


def kill_descendants(started: Iterable[int] = (), *, keep: Collection[int] = (), patience: float = 10.0) -> None:
    """Kill and reap all processes below this one, except the children in `keep` and what is below those.

    On Linux with `adopt_orphans` none is left afterwards, whatever sessions they moved to. Elsewhere it covers
    `started`: children that lead their own process groups. Gives up after `patience` seconds on processes that
    the kernel cannot end.
    """
    groups = set() if LINUX else set(started) - set(keep)
    end = time.monotonic() + patience
    while time.monotonic() < end:
        stopped: set[int] = set()
        while new := _descendants(keep) - stopped:  # stop all first, so that none forks while others die
            for pid in new:
                _send(pid, signal.SIGSTOP)
            stopped |= new
        for pid in groups:
            _send(-pid, signal.SIGKILL)
        for pid in stopped:
            _send(pid, signal.SIGKILL)
        groups = {pid for pid in groups if not reap(pid)}
        for pid in stopped:
            reap(pid)
        if not stopped and not groups:
            return
        time.sleep(0.001)


def _descendants(keep: Collection[int]) -> set[int]:
    pending = [pid for pid in children(os.getpid()) if pid not in keep]
    found: set[int] = set()
    while pending:
        pid = pending.pop()
        found.add(pid)
        pending += children(pid)
    return found


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone already, or set-uid
        os.kill(pid, number)


def kill_stopped(started: Iterable[int]) -> None:
    """Kill those of these children that somebody has stopped (SIGSTOP): they would never end (Linux)."""
    for pid in started if LINUX else ():
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            if os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None:
                os.kill(pid, signal.SIGKILL)


def reap(pid: int) -> bool:
    """Collect the child `pid` if it has ended; tell whether it is no longer there to wait for."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def report_stack_to(fd: int) -> None:
    """Have this process write the Python stack of its main thread to `fd` whenever it gets STACK_SIGNAL."""
    faulthandler.register(STACK_SIGNAL, file=fd, all_threads=False, chain=False)


def no_core_dumps() -> None:
    """Keep this process and its children from leaving core files behind."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


_Handler = ctypes.CFUNCTYPE(None)
_handlers: list[object] = []  # kept alive: C++ has nothing but their addresses


def before_terminate(do: Callable[[], None]) -> None:
    """Have `do` called when this process is about to end by a C++ exception that nothing catches.

    It runs in the thread that has thrown, then the process ends as it would have. Without a C++ library of the
    usual name there is nothing to hook into, and `do` is never called.
    """
    try:
        library = ctypes.CDLL("libstdc++.so.6" if LINUX else "libc++.1.dylib")
        set_terminate = library["_ZSt13set_terminatePFvvE"]  # std::set_terminate(void (*)())
    except (OSError, AttributeError):
        return
    set_terminate.argtypes, set_terminate.restype = [ctypes.c_void_p], ctypes.c_void_p

    def handler() -> None:
        try:
            do()
        finally:
            usual()

    _handlers.append(_Handler(handler))
    usual = _Handler(set_terminate(ctypes.cast(_handlers[-1], ctypes.c_void_p)))  # type: ignore[arg-type]
