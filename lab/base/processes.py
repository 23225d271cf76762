"""End a process and everything it started.

torchrun puts every rank into a session of its own, so one signal to one process group does not reach them,
and a rank whose torchrun is gone belongs to nobody. So the tree is read before anything is ended.
"""

import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

GRACE = 5.0  # seconds that torchrun gets to end its ranks


def _parents() -> dict[int, int]:
    """The parent of every process on this machine."""
    proc = Path("/proc")
    if (proc / "self" / "stat").exists():  # Linux; a slim container may not have ps
        parents = {}
        for entry in proc.iterdir():
            if entry.name.isdecimal():
                try:
                    # pid (name) state ppid ...; the name may hold spaces and brackets
                    stat = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                except OSError:
                    continue  # it ended meanwhile
                parents[int(entry.name)] = int(stat[1])
        return parents
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    return {int(pid): int(parent) for pid, parent in map(str.split, listing.stdout.splitlines())}


def descendants(pid: int) -> set[int]:
    """The processes that `pid` started, and those that they started."""
    children = defaultdict(list)
    for child, parent in _parents().items():
        children[parent].append(child)
    found: set[int] = set()
    todo = [pid]
    while todo:
        for child in children[todo.pop()]:
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


def _groups(pids: set[int]) -> set[int]:
    """The process groups of those of `pids` that are alive, without our own."""
    groups = set()
    for pid in pids:
        try:
            groups.add(os.getpgid(pid))
        except ProcessLookupError:
            continue
    return groups - {os.getpgrp()}


def kill_groups(groups: Iterable[int]) -> None:
    """Kill those of these process groups that are still there."""
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
            os.killpg(group, signal.SIGKILL)


class ProcessTree:
    """A process that leads a session of its own, and everything below it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._groups = {process.pid}

    def look(self) -> None:
        """Learn which groups belong to the tree now. Call it now and then while the process runs.

        The groups of the last look are what `end` can still find when the process has died before the rest.
        """
        if self.process.poll() is None:
            self._groups = {self.process.pid} | _groups(descendants(self.process.pid))

    def end(self) -> None:
        """End everything, and return when the process itself is gone.

        First politely, so that torchrun ends its ranks itself; what is left after the grace is killed.
        """
        if self.process.poll() is None:
            self.look()
            groups = self._groups
            self.process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + GRACE
            while self.process.poll() is None and time.monotonic() < deadline:
                self.look()
                groups |= self._groups
                time.sleep(0.05)
            self._groups = groups
        kill_groups(self._groups)
        self.process.wait()
