"""What the nursery does to itself in the sandbox (lab/ranks/sandbox.py), before it forks its first group.

It gives up being root, and for good sets limits and a filter of system calls. While a group runs it adds up what
its processes use. After each group it kills whatever else is there and clears the folders in memory; where that
fails it ends, and the grader starts a fresh one.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform as machine
import resource
import shutil
import signal
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

NOBODY = 65534
CODE = "/submission/exercises"  # where a student's code is inside
FOLDERS = ("/tmp", "/dev/shm", "/submission")  # in memory, and cleared after each group
Packed = dict[str, bytes | int | None]  # a submission, as sandbox.pack() makes it

PERIOD = 0.05  # seconds between two looks at the memory of a group

_DESCRIPTORS = 1024  # of each process
_INODES = 20_000  # in each of the folders

_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_EPERM, _ENOSYS = 1, 38

# What no training needs: looking into other processes, memory that belongs to none, mounts, ways into the kernel.
_REFUSED = {
    "x86_64": {
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "memfd_create": 319, "shmget": 29,
        "semget": 64, "msgget": 68, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272,
        "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "bpf": 321,
        "perf_event_open": 298, "userfaultfd": 323,
    },
    "aarch64": {
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "memfd_create": 279, "shmget": 194,
        "semget": 190, "msgget": 186, "add_key": 217, "request_key": 218, "keyctl": 219, "unshare": 97,
        "setns": 268, "mount": 40, "umount2": 39, "pivot_root": 41, "bpf": 280,
        "perf_event_open": 241, "userfaultfd": 282,
    },
}  # fmt: skip
_EVERYWHERE = {"io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "memfd_secret": 447}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NEW_NAMESPACES = 0x7E020000  # the flags of clone() that make one
_X32 = 0x40000000  # the same calls by other numbers


@dataclass(frozen=True)
class Limits:
    """What one group may use.

    - `memory`: bytes of all its processes together, over what they share with the nursery, and of each by itself.
    - `processes`: more than so many end the group; the kernel refuses four times as many, threads included.
    - `folder`: bytes in each of the folders it can write to: its code, /tmp and /dev/shm.
    """

    memory: int = 4 << 30
    processes: int = 64
    folder: int = 64 << 20

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
            os.setresuid(NOBODY, NOBODY, NOBODY)
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
        _filter_system_calls()

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
        _prctl(_PR_SET_DUMPABLE, int(not hidden))


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


def _filter_system_calls() -> None:
    """Refuse the calls above from now on. On a machine of another kind only the other limits hold."""
    kind = machine.machine()
    if kind not in _ARCHITECTURE:
        return
    program = _program(kind)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(header))


def _program(kind: str) -> bytes:
    """Berkeley packet filter over struct seccomp_data: number at 0, architecture at 4, first argument at 16."""
    load, equal, at_least, any_of, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, refuse, missing = 0x7FFF0000, 0x00050000 | _EPERM, 0x00050000 | _ENOSYS
    refused = sorted([*_REFUSED[kind].values(), *_EVERYWHERE.values()])
    steps: list[tuple[int, int, str | None, str | None]] = [
        (load, 4, None, None),
        (equal, _ARCHITECTURE[kind], None, "missing"),
        (load, 0, None, None),
        (at_least, _X32, "refuse", None),
        *((equal, number, "refuse", None) for number in refused),
        (equal, _CLONE3, "missing", None),  # its flags lie in memory; the C library then takes clone
        (equal, _CLONE[kind], None, "allow"),
        (load, 16, None, None),
        (any_of, _NEW_NAMESPACES, "refuse", "allow"),
    ]
    ends = {"allow": len(steps), "refuse": len(steps) + 1, "missing": len(steps) + 2}
    code = b""
    for at, (operation, value, yes, no) in enumerate(steps):
        jumps = [0 if target is None else ends[target] - at - 1 for target in (yes, no)]
        code += struct.pack("HBBI", operation, *jumps, value)
    return code + b"".join(struct.pack("HBBI", give, 0, 0, value) for value in (allow, refuse, missing))


def _prctl(option: int, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    padded = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    if libc.prctl(option, *padded) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")
