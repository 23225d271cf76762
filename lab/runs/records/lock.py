"""One run in a folder at a time, on whatever nodes: a file that says who is at work there. Imports no torch.

The file is made under another name and linked to its own, which succeeds for one process only, on NFS too
(open(2), O_EXCL), where locks of the kernel may hold on one node alone. Its holder writes a growing number into it
every few seconds. No two clocks are compared: whoever finds the file watches whether the number grows.
"""

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lab.base.errors import UserError
from lab.runs.records.job import is_alive, read_json

LOCK_FILE = "lock.json"  # in the run's folder, while the run goes on
BEATS_EVERY = 10.0  # seconds
SILENT_FOR = 60.0  # seconds without a beat, after which a run on another machine counts as gone
WIDTH = 12  # digits of the number of beats, always as many, so that it is overwritten in its place


class RunLock:
    """Held from here to release(), or until this process ends.

    A file that a killed run has left is taken over: at once where its process was on this machine, or in an
    earlier start of this same Slurm job; else when it has been silent for a minute.

    Args:
        folder: of the run; it is there.
        job: Slurm's name for this job, or empty.
        restarts: how often Slurm has put this job back into the queue.
        say: told before a wait.

    Raises:
        UserError: another run is at work there.
        OSError: the folder takes no file.
    """

    def __init__(self, folder: Path, *, job: str, restarts: int, say: Callable[[str], None]) -> None:
        self.path = folder / LOCK_FILE
        self._token = secrets.token_hex(8)
        self._mine = {
            "token": self._token,
            "host": socket.gethostname(),
            "machine": _machine(),
            "process": os.getpid(),
            "process_started": _started(os.getpid()),
            "job": job,
            "restarts": restarts,
            "since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        }
        self._beats = 0
        self._lost = False
        self._ended = threading.Event()
        self._file_in_use = threading.Lock()
        while not self._take():
            self._clear_away(say)
        self.thread = threading.Thread(target=self._beat, name="lab-lock", daemon=True)
        self.thread.start()

    def check(self) -> None:
        """Raises UserError where another run has taken the folder, since this one was silent for so long."""
        if self._lost:
            raise UserError(
                f"{self.path.parent} now belongs to another run{_who(read_json(self.path))}, which found no sign "
                f"of life of this one for {SILENT_FOR:.0f} s: this one ends, so that their records do not mix"
            )

    def release(self) -> None:
        """Let others have the folder."""
        if self._ended.is_set():
            return
        self._ended.set()
        if read_json(self.path).get("token") == self._token:
            with contextlib.suppress(OSError):
                self.path.unlink()
        with self._file_in_use:  # its number may be another file's a moment later
            os.close(self._file)

    def _take(self) -> bool:
        """Whether the file is this run's now."""
        draft = self.path.with_name(f".{LOCK_FILE}.{self._token}.tmp")
        self._file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            self._write()
            os.link(draft, self.path)
            return True
        except FileExistsError:
            if read_json(self.path).get("token") == self._token:
                return True  # NFS can lose the answer to a link that was made, and ask again
            os.close(self._file)
            return False
        except OSError:  # no links on this file system
            os.close(self._file)
            try:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                return False
            self._write()
            return True
        finally:
            draft.unlink()

    def _write(self) -> None:
        # The number comes first, so that a beat changes nothing else.
        text = f'{{"beats": {self._beats:>{WIDTH}}, {json.dumps(self._mine)[1:]}\n'
        os.pwrite(self._file, text.encode(), 0)
        os.fsync(self._file)

    def _beat(self) -> None:
        """In a thread. It writes into the file that it has open, so that a file of another run stays as it is."""
        while not self._ended.wait(BEATS_EVERY):
            self._beats += 1
            with self._file_in_use, contextlib.suppress(OSError):  # a full disk: the next beat may come through
                if not self._ended.is_set():
                    self._write()
            if read_json(self.path).get("token", self._token) != self._token:
                self._lost = True
                return

    def _clear_away(self, say: Callable[[str], None]) -> None:
        """Return when the file may be gone. Raises UserError where the run that wrote it goes on."""
        found = read_json(self.path)
        ended = self._has_ended(found)
        if ended is None:
            say(
                f"{self.path} was left by a run{_who(found)}: waiting {SILENT_FOR:.0f} s for a sign of life, "
                "then going on in its place"
            )
            ended = self._is_silent(found)
        if ended:
            self._remove(found)
        elif ended is not None:
            raise UserError(
                f"{self.path.parent} belongs to a run that goes on{_who(found)}: wait until it ends, or choose "
                f"another --run-id; where it has certainly ended, remove {self.path}"
            )

    def _has_ended(self, found: Mapping[str, object]) -> bool | None:
        """Whether the run of a file that was found has ended; None where only its silence can tell."""
        same_job = found.get("job") and found.get("job") == self._mine["job"]
        if same_job and _number(found, "restarts") < _number(self._mine, "restarts"):
            return True  # Slurm ends a job's processes before it starts it again
        if found.get("machine") != self._mine["machine"]:
            return None
        process, started = _number(found, "process"), found.get("process_started")
        if process == os.getpid() or not is_alive(process):
            return True
        now = _started(process)
        return None if now is None or started is None else now != started

    def _is_silent(self, found: Mapping[str, object]) -> bool | None:
        """Whether its number does not grow; None where the file is gone meanwhile, or is another's."""
        end = time.monotonic() + SILENT_FOR
        while time.monotonic() < end:
            time.sleep(min(1.0, SILENT_FOR / 10))
            now = read_json(self.path)
            if now.get("token") != found.get("token") or not self.path.exists():
                return None
            if now.get("beats") != found.get("beats"):
                return False
        return True

    def _remove(self, found: Mapping[str, object]) -> None:
        """Take the file away, if it is still the one that was found: another run may have done so, and come in."""
        aside = self.path.with_name(f".{LOCK_FILE}.{self._token}.old")
        try:
            os.rename(self.path, aside)
        except FileNotFoundError:
            return
        if read_json(aside).get("token") != found.get("token"):
            with contextlib.suppress(OSError):
                os.link(aside, self.path)
        aside.unlink()


def _who(found: Mapping[str, object]) -> str:
    if not found:
        return ""
    job = f", Slurm job {found['job']}" if found.get("job") else ""
    return f" (process {found.get('process')} on {found.get('host')}{job}, since {found.get('since')})"


def _number(record: Mapping[str, object], name: str) -> int:
    value = record.get(name)
    return value if isinstance(value, int) else 0


def _machine() -> str:
    """This boot of this machine and this container: where a process's number means what it means here."""
    boot = _text_of("/proc/sys/kernel/random/boot_id") or ""
    try:
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:  # no Linux
        processes = ""
    return " ".join(filter(None, (socket.gethostname(), boot.strip(), processes)))


def _started(process: int) -> str | None:
    """When a process started, in the kernel's ticks: its number may be another's later. None where nobody tells.

    A process that has ended and that nobody has waited for has no time either, but another word.
    """
    text = _text_of(f"/proc/{process}/stat")
    if text is None:
        return None
    fields = text.rpartition(")")[2].split()
    return "ended" if fields[0] in "ZX" else fields[19]


def _text_of(file: str) -> str | None:
    """What the kernel says in a file of /proc; None where there is none."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError:
        return None
