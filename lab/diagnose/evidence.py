"""Everything that a job left behind, read once. Nothing in a file can raise here: it may be cut off or garbled."""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.diagnose.dumps import is_dump, read_dump
from lab.grading.records import Lane
from lab.sweep import slurm_query
from lab.training.errors import UserError

HEAD, TAIL = 1 << 20, 8 << 20  # bytes of a log: causes stand where the errors begin, or at the very end
_LOGS = ("*.log", "*.err", "*.out")
_RECORDS = ("status.json", "config.json", "job.json")
_DEEP = 3  # folders below a run's own: checkpoints and traces lie there too, dumps and records of Slurm


@dataclass(frozen=True)
class Evidence:
    """What is known of one job.

    log      what it printed: standard output, then errors
    status   what status.json says: running, done, interrupted, failed; "" without one
    state    what Slurm says: TIMEOUT, NODE_FAIL, ...; "" where nothing does
    config   of the run, as far as it could be read
    lanes    rank -> its collectives, from the flight recorder's dumps
    """

    name: str
    log: str
    status: str = ""
    reason: str = ""
    state: str = ""
    jobid: str = ""
    run_id: str = ""
    config: Mapping[str, object] = field(default_factory=dict)
    lanes: Mapping[int, Lane] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()

    @property
    def world_size(self) -> int:
        size = self.config.get("world_size")
        return size if isinstance(size, int) and not isinstance(size, bool) else 0


def gather(path: Path) -> Evidence:
    """Read a run's folder, a log, or a flight recorder's dump (and those of the other ranks beside it).

    Raises:
        UserError: there is nothing to read at `path`.
    """
    try:
        if path.is_dir():
            return _folder(path)
        if not path.is_file():
            raise UserError(f"{path} is not there: name a run's folder in results/, or a log such as train.err")
        if is_dump(path):
            return _folder(path.parent, log=False)
        if path.resolve().name in ("train.log", "train.err") and any(
            (path.resolve().parent / name).is_file() for name in _RECORDS
        ):
            return _folder(path.resolve().parent)  # train.err beside run.sh is a link to a run's own
        log = _other_half(path) + _text(path)
        return Evidence(name=str(path), log=log, jobid=_job_in(log))
    except OSError as error:
        raise UserError(f"{error.filename or path} cannot be read: {error.strerror}") from None


def _folder(folder: Path, *, log: bool = True) -> Evidence:
    status, config, job = (_json(folder / name) for name in ("status.json", "config.json", "job.json"))
    files = [file for file in _walk(folder, _DEEP) if file.is_file()]
    dumps = sorted(file for file in files if is_dump(file))
    logs = sorted({file for pattern in _LOGS for file in folder.glob(pattern) if file.is_file()}, key=_errors_last)
    if not (status or config or job or logs or dumps):
        raise UserError(f"{folder} holds no log, no records of a run and no flight recorder dump")
    lanes: dict[int, Lane] = {}
    unreadable = []
    for dump in dumps:
        rank, lane = read_dump(dump)
        if lane is None:
            unreadable.append(dump.name)
        else:
            lanes[rank] = lane
    text = "".join(_text(file) for file in logs) if log else ""
    jobid = _word(job.get("jobid")) or _word(config.get("jobid")) or _job_in(text)
    return Evidence(
        name=str(folder),
        log=text,
        status=_word(status.get("status")),
        reason=_word(status.get("reason")),
        state=_state(files, jobid),
        jobid=jobid,
        run_id=folder.name if status or config or job else "",
        config=config,
        lanes=lanes,
        unreadable=tuple(unreadable),
    )


def _walk(folder: Path, deep: int) -> list[Path]:
    found = []
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            if deep:
                found += _walk(entry, deep - 1)
        else:
            found.append(entry)
    return found


def _errors_last(file: Path) -> tuple[bool, str]:
    return file.suffix == ".err", file.name


def _other_half(log: Path) -> str:
    """What went to standard output, where `log` is what went to standard error."""
    other = log.with_suffix(".log") if log.suffix == ".err" else log.with_suffix(".out")
    return _text(other) if log.suffix == ".err" and other.is_file() else ""


def _text(file: Path) -> str:
    """A log as text; of a very long one its beginning and its end."""
    with file.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        if size <= HEAD + TAIL:
            content = stream.read(HEAD + TAIL)
        else:
            content = stream.read(HEAD) + b"\n"
            stream.seek(size - TAIL)
            content += stream.read(TAIL)
    text = content.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    return text if text.endswith("\n") or not text else text + "\n"


def _json(file: Path) -> Mapping[str, object]:
    try:
        with file.open("rb") as stream:
            value = json.loads(stream.read(TAIL))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _word(value: object) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _job_in(log: str) -> str:
    found = re.search(r"^job (\d+(?:_\d+)?): \d+ tasks? on ", log, re.M) or re.search(
        r"\b(?:JOB|STEP) (\d+)(?:\.\w+)? ON \S+ CANCELLED", log
    )
    return found[1] if found else ""


def _state(files: list[Path], jobid: str) -> str:
    """What Slurm says of the job: now, where it answers; else what its records in the run's folder said.

    A job's own line is meant, not its steps': a step is CANCELLED when one of its ranks has failed. After a
    requeue the last of several lines counts.
    """
    now = slurm_query.jobs([jobid]).get(jobid) if jobid and shutil.which("sacct") else None
    states = [now.state] if now else []
    if not states:
        for file in files:
            if file.name.startswith("sacct"):
                header, *lines = [line.split("|") for line in _text(file).splitlines() if "|" in line] or [[]]
                if {"JobID", "State"} <= set(header):
                    rows = [dict(zip(header, line, strict=False)) for line in lines]
                    states += [row["State"] for row in rows if "." not in row["JobID"] and "State" in row]
    known = [state.split()[0] for state in states if state.split()]
    return next((state for state in reversed(known) if state not in ("RUNNING", "PENDING", "COMPLETING")), "")
