"""What the nursery does to itself in the sandbox (lab/ranks/sandbox.py), before it forks its first group.

It gives up being root, and for good sets limits and a filter of system calls. While a group runs it adds up what
its processes use. After each group it kills whatever else is there and clears the folders in memory; where that
fails it ends, and the grader starts a fresh one.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.ranks import seccomp
from lab.ranks.platform import prctl

NOBODY = 65534
CODE = "/submission/exercises"  # where a student's code is inside
FOLDERS = ("/tmp", "/dev/shm", "/submission")  # in memory, and cleared after each group
Packed = dict[str, bytes | int | None]  # a submission, as sandbox.pack() makes it

PERIOD = 0.05  # seconds between two looks at the memory of a group

_DESCRIPTORS = 1024  # of each process
_INODES = 20_000  # in each of the folders

_PR_SET_DUMPABLE = 4


@dataclass(frozen=True)
class Limits:
    """What one group may use.

    - `memory`: bytes of all its processes together, over what they share with the nursery, and of each by itself.
    - `processes`: more than so many end the group; the kernel refuses four times as many, threads included.
    - `folder`: bytes in each of the folders it can write to: its code, /tmp and /dev/shm.
    - `user`: the id to run as, where root has started it. The kernel counts the processes of a user, wherever they
      are: two sandboxes of one user would take them from each other.
    """

    memory: int = 4 << 30
    processes: int = 64
    folder: int = 64 << 20
    user: int = NOBODY

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Limits:
        return cls(**json.loads(text))


class Confinement:
    """Puts the limits in force, for this process and all below it; then watches over them."""

    def __init__(self, limits: Limits) -> None:
        if os.getpid() != 1:
            raise RuntimeError("this process is not the first of its sandbox")
        self._limits = limits
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(limits.user, limits.user, limits.user)
        self._own = _kilobytes(1)
        self._standing = {path for folder in FOLDERS for path in _paths_below(folder)}
        data = 1024 * _status(1)["VmData"] + limits.memory
        for kind, value in (
            (resource.RLIMIT_DATA, data),
            (resource.RLIMIT_NPROC, 4 * limits.processes),
            (resource.RLIMIT_FSIZE, limits.folder),
            (resource.RLIMIT_NOFILE, _DESCRIPTORS),
            (resource.RLIMIT_MSGQUEUE, 0),
            (resource.RLIMIT_MEMLOCK, 0),
        ):
            resource.setrlimit(kind, (value, value))
        seccomp.refuse_system_calls()

    def exceeded(self) -> bool:
        """Whether there are too many other processes, with too much memory together, or too many files."""
        others = _others()
        if len(others) > self._limits.processes:
            return True
        used = sum(max(0, _kilobytes(pid) - self._own) for pid in others)
        return 1024 * used > self._limits.memory or any(_inodes(folder) > _INODES for folder in FOLDERS)

    def kill_all_but(self, keep: Collection[int]) -> None:
        """Kill every other process, however it hides: from process 1 none is out of reach."""
        for pid in _others():
            if pid not in keep:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def clear(self) -> None:
        """Kill everything else and empty the folders. Raises OSError or RecursionError where something stays."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        for folder in FOLDERS:
            if _inodes(folder) > _INODES:
                raise OSError(f"too many files in {folder}")
            _empty(folder, self._standing)


def _paths_below(folder: str) -> Iterator[str]:
    """What the sandbox itself has put into a folder in memory: the way to files that are shown read-only there."""
    for entry in os.scandir(folder):
        yield entry.path
        if entry.is_dir(follow_symlinks=False) and not os.path.ismount(entry.path):
            yield from _paths_below(entry.path)


def _empty(folder: str, standing: Collection[str]) -> None:
    """Remove everything from a folder but `standing`."""
    for entry in os.scandir(folder):
        if entry.path in standing:
            if entry.is_dir(follow_symlinks=False) and not os.path.ismount(entry.path):
                _empty(entry.path, standing)
        elif entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def unpack(folder: Path, files: Mapping[str, bytes | int | None]) -> None:
    """Write what sandbox.pack() has found into a new folder, without the large files."""
    folder.mkdir()
    for name, content in files.items():
        if content is None:
            (folder / name).mkdir()
        elif isinstance(content, bytes):
            (folder / name).write_bytes(content)


def hide_memory(hidden: bool) -> None:
    """Keep other processes of this user out of this one's memory and descriptors (/proc, ptrace), or let them in.

    A rank shares its user with the process that watches it, which holds the judge's inputs; the children of a
    process that hides do so too. Does nothing where there is no such call.
    """
    with contextlib.suppress(OSError, AttributeError):
        prctl(_PR_SET_DUMPABLE, int(not hidden))


def _others() -> list[int]:
    return [pid for entry in os.listdir("/proc") if entry.isdigit() and (pid := int(entry)) != 1]


def _kilobytes(pid: int) -> int:
    """Memory of a process that no file stands behind; 0 for one that has ended."""
    status = _status(pid)
    return status.get("RssAnon", 0) + status.get("RssShmem", 0)


def _status(pid: int) -> dict[str, int]:
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            parts = [line.split() for line in file]
    except OSError:
        return {}
    return {part[0].rstrip(":"): int(part[1]) for part in parts if len(part) == 3 and part[2] == "kB"}


def _inodes(folder: str) -> int:
    info = os.statvfs(folder)
    return info.f_files - info.f_ffree
