"""Rank groups that cannot harm anybody: the nursery, and all it forks, in bubblewrap (Linux).

What is inside has a network of its own with nothing but loopback, a read-only system of the few folders that
Python and torch need, its own /tmp and /dev/shm of bounded size, no privileges and no way to new ones. Of the
grader's files it sees Python, torch and the `lab` package: no home, no solutions/, no submission. A student's code
comes in as bytes, into memory, anew for each group. So no file of the grader's is ever writable, and one warm
nursery can serve a whole class, one group after the other (lab/ranks/confine.py: how it limits itself, and what
it clears away after each group).

Memory is limited in three ways, for none covers all. RLIMIT_DATA bounds each process in the kernel (RLIMIT_AS
would not do: torch built for CUDA reserves far more addresses than it uses). The nursery, which is process 1 in
there and so beyond a rank's signals, adds up all processes 20 times a second and ends a group that has too much.
The sizes of the folders in memory are fixed. A cgroup would be simpler, but an ordinary user rarely may make one.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.base.errors import UserError
from lab.base.paths import PACKAGE, ROOT
from lab.base.source import MAX_MODULE_BYTES
from lab.collectives.lanes import Frame
from lab.ranks import confine, platform
from lab.ranks.confine import FOLDERS, Limits, Packed

MAX_FILES = 500  # files and folders of a submission
MAX_BYTES = 16 << 20  # of all of them, but for those so large (MAX_MODULE_BYTES) that they are left out
MAX_DEPTH = 10

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")  # of /etc
_IN_PREFIX = ("bin", "lib", "lib64", "pyvenv.cfg")  # of a Python: its folder may hold somebody's work too
_ETC = {
    "hosts": "127.0.0.1 localhost lab\n::1 localhost\n",  # torchrun and gloo look up the machine's name
    "passwd": "nobody:x:{user}:65534:nobody:/tmp:/bin/false\n",
    "group": f"nogroup:x:{confine.NOBODY}:\n",
}
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH")


class SandboxError(UserError):
    """There can be no sandbox here, or a submission cannot be put into it. Nothing then runs without one."""


@dataclass(frozen=True)
class Sandbox:
    """What the ranks of a RankServer may see and use.

    `readable` are folders to show besides Python and the `lab` package, read-only, at the same place.
    """

    limits: Limits = field(default_factory=Limits)
    readable: Sequence[Path] = ()

    def popen(self, command: Sequence[str], *, pass_fds: Sequence[int] = (), **options: Any) -> subprocess.Popen:
        """Start a command inside; the options are those of subprocess.Popen. Raises SandboxError."""
        if not platform.LINUX:
            raise SandboxError("the sandbox needs bubblewrap, which is for Linux only: check on a Linux machine")
        program = shutil.which("bwrap")
        if program is None:
            raise SandboxError("the sandbox needs bubblewrap, and there is no bwrap here: install bubblewrap")
        with ExitStack() as stack:
            made: dict[str, int] = {}
            for name, text in _ETC.items():
                made[name] = os.memfd_create(f"lab-{name}")
                stack.callback(os.close, made[name])
                os.write(made[name], text.format(user=self.limits.user).encode())
                os.lseek(made[name], 0, os.SEEK_SET)
            argv = [program, *_isolation(), *self._files(made), "--", *command]
            return subprocess.Popen(argv, pass_fds=[*pass_fds, *made.values()], **options)

    def require(self) -> None:
        """Raise SandboxError, with the reason, unless a process can be started inside."""
        command = [sys.executable, "-I", "-S", "-c", ""]
        with self.popen(
            command,
            env=environment({}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as tried:
            said = tried.communicate(timeout=60)[0].decode("utf-8", "replace").strip()[-300:]
        if tried.returncode != 0:
            hint = "" if os.geteuid() == 0 else "; it needs user namespaces, or root"
            raise SandboxError(f"bubblewrap does not work here: {said or f'exit code {tried.returncode}'}{hint}")

    def _files(self, etc: Mapping[str, int]) -> list[str]:
        size = str(self.limits.folder)
        options = []
        for folder in _SYSTEM:
            if os.path.islink(folder):
                options += ["--symlink", os.readlink(folder), folder]
            elif os.path.isdir(folder):
                options += ["--ro-bind", folder, folder]
        shown = [*_python(), *(Path(path).resolve() for path in self.readable), PACKAGE]
        shown += [path for path in (Path("/sys/devices/system/cpu"),) if path.is_dir()]
        # The folders in memory come first: what is shown may lie below one of them, as a clone in /tmp does.
        options += ["--proc", "/proc", "--dev", "/dev"]
        for folder in FOLDERS:
            options += ["--perms", "1777", "--size", size, "--tmpfs", folder]
        there = {Path("/"), Path("/dev"), *map(Path, FOLDERS)}
        for parent in sorted({Path("/etc"), *(parent for path in shown for parent in path.parents)} - there):
            options += ["--perms", "0755", "--dir", str(parent)]
        for name in _SETTINGS:
            options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        for path in shown:
            options += ["--ro-bind", str(path), str(path)]
        for name, fd in etc.items():
            options += ["--perms", "0444", "--ro-bind-data", str(fd), f"/etc/{name}"]
        return [*options, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(ROOT)]


def _isolation() -> list[str]:
    options = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    options += ["--hostname", "lab", "--new-session", "--as-pid-1", "--cap-drop", "ALL"]
    if os.geteuid() == 0:
        # No user namespace: the nursery becomes a real nobody by itself. In one, nobody would still be root
        # outside, whose processes the kernel does not count.
        return [*options, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [*options, "--unshare-user", "--uid", str(confine.NOBODY), "--gid", str(confine.NOBODY)]


def _python() -> list[Path]:
    """The files of this Python and its packages. Not whole prefixes: a virtual environment may be anywhere."""
    places = {Path(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)}
    places.add(Path(os.path.realpath(sys.executable)).parent.parent)
    found = {place / name for place in places for name in _IN_PREFIX}
    found |= {Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")}
    inside = [path for path in sorted(found) if path.exists() and not path.is_relative_to("/usr")]
    return [path for path in inside if not any(path != other and path.is_relative_to(other) for other in inside)]


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for inside: a few of the grader's variables, and the numbers of threads in `base`."""
    own = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    threads = {name: value for name, value in base.items() if name.endswith("_NUM_THREADS")}
    return {**own, **threads, "CUDA_VISIBLE_DEVICES": "", "HOME": "/tmp", "USER": "nobody", "TMPDIR": "/tmp"}


def pack(folder: Path) -> Packed:
    """Return what is in a submission: relative path -> content, None for a folder, the size of a large file.

    Only regular files and real folders count. Links, whether or not they lead out of it, pipes, devices and what
    cannot be read are left out, as are files of bytecode. Raises SandboxError where it is too much.
    """
    found: Packed = {}
    _pack(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), "", found)
    return found


def _pack(directory: int, prefix: str, found: Packed) -> None:
    try:
        for name in sorted(os.listdir(directory)):
            if name == "__pycache__" or not _utf8(name):
                continue
            if len(found) >= MAX_FILES or prefix.count("/") > MAX_DEPTH:
                raise SandboxError(f"the submission has more than {MAX_FILES} files, or {MAX_DEPTH} folders deep")
            try:
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
            except OSError:  # a link, a socket, or not readable
                continue
            mode = os.fstat(fd).st_mode
            if stat.S_ISDIR(mode):
                found[prefix + name] = None
                _pack(fd, f"{prefix}{name}/", found)
                continue
            with open(fd, "rb") as file:
                if stat.S_ISREG(mode):
                    content = file.read(MAX_MODULE_BYTES + 1)
                    large = len(content) > MAX_MODULE_BYTES
                    found[prefix + name] = os.fstat(fd).st_size if large else content
                    if sum(len(one) for one in found.values() if isinstance(one, bytes)) > MAX_BYTES:
                        raise SandboxError(f"the submission has more than {MAX_BYTES >> 20} MB")
    finally:
        os.close(directory)


def _utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def copied(folder: Path) -> Iterator[Path]:
    """A copy of what `pack` takes from a submission, for as long as it is checked.

    The grader's own half reads the student's files too, to say where to look: of a submission it must read this
    copy, in which no link leads to files of the grader's.
    """
    with tempfile.TemporaryDirectory(prefix="lab-submission-") as place:
        copy = Path(place) / folder.name
        packed = pack(folder)
        confine.unpack(copy, packed)
        for name, content in packed.items():
            if isinstance(content, int):  # the checks say that it is too large, and how large
                with open(copy / name, "wb") as stand_in:
                    stand_in.truncate(content)
        yield copy


def moved(value: Any, inside: Path, folder: Path) -> Any:
    """Return a report in which the files of the student's code are named as they are outside."""
    if isinstance(value, Frame):
        path = Path(value.file)
        if not path.is_relative_to(inside):
            return value
        return dataclasses.replace(value, file=str(folder / path.relative_to(inside)))
    if isinstance(value, list | tuple):
        return type(value)(moved(item, inside, folder) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.name != "value"]
        return dataclasses.replace(value, **{name: moved(getattr(value, name), inside, folder) for name in fields})
    return value
