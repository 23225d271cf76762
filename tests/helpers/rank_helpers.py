"""Shared by the tests of rank groups: run some lines as a student's code, look for processes left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import rank_observers as observers

from lab.ranks.reports import GroupResult, RankReport
from lab.ranks.server import server


def act(student: Path, body: str, world_size: int = 1, *, timeout: float = 60, first: bool = False) -> GroupResult:
    """Run `def act(rank)` with this body as the student's code, on all ranks or the first."""
    lines = [
        "import os, signal, sys, time",
        "",
        "",
        "def act(rank):",
        *(f"    {line}" for line in body.splitlines()),
    ]
    (student / "work.py").write_text("\n".join(lines) + "\n")
    function = observers.call_first if first else observers.call
    return server().run(function, world_size, code=student, timeout=timeout)


def only(result: GroupResult) -> RankReport:
    (report,) = result.reports
    return report


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 90) -> None:
    """Return as soon as `condition()` holds; fail after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} has not happened within {seconds:g} s"
        time.sleep(0.02)


def living(pids: list[int]) -> list[int]:
    """Return those of `pids` that run; a zombie does not."""
    return [pid for pid in pids if _state(pid) not in ("", "Z", "X")]


def processes_in(folder: Path) -> list[int]:
    """Return the processes whose working directory is inside `folder`: the ranks and whatever they started."""
    found = set()
    for _ in range(5):  # one that forks all the time may slip through a single look
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if (entry / "cwd").readlink().is_relative_to(folder):
                    found.add(int(entry.name))
            except OSError:  # it has ended, or is not ours
                continue
    return sorted(found)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
