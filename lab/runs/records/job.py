"""job.json and status.json in a run folder, for launchers and readers of run folders. Imports no torch."""

import json
import os
import socket
from pathlib import Path

from lab.base.files import write_whole

JOB_FILE = "job.json"
LARGEST = 16 << 20  # bytes; records are a few kilobytes


def local_sweep(folder: Path) -> int:
    """The process of the sweep on this machine that runs or ran the job here; 0 where there is none."""
    job = read_json(folder / JOB_FILE)
    launcher = job.get("launched_by")
    if job.get("launcher") != "local" or not isinstance(launcher, dict):
        return 0
    pid = launcher.get("pid")
    here = launcher.get("host") == socket.gethostname()
    return pid if here and isinstance(pid, int) and pid > 0 else 0


def is_alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's; a number that is none
        return True
    return True


def read_json(path: Path) -> dict[str, object]:
    """A JSON object from a file; {} when there is none that can be read."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            return {}
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def earlier_slurm_job(folder: Path) -> str:
    """The Slurm job that was submitted for this folder; empty when there was none."""
    return str(read_json(folder / JOB_FILE).get("jobid") or "")


def mark(folder: Path, state: str, reason: str, *, started: str, ended: str) -> None:
    """Set status.json to one of the bad ends; a time that the run itself wrote stays as it was.

    Args:
        started, ended: when, for a run that could not write it; empty where nobody knows.
    """
    record = read_json(folder / "status.json")
    times = {"started": record.get("started") or started or None, "ended": record.get("ended") or ended or None}
    record |= {"status": state, "reason": reason, **times}
    write_whole(folder / "status.json", json.dumps(record, indent=2) + "\n")
