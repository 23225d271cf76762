"""Everything that a job left behind, read once. Nothing in a file can raise here: it may be cut off or "
"garbled."""

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.base.errors import UserError
from lab.collectives.lanes import Lane
from lab.diagnose.places import named_after, records_of, where_submitted
from lab.diagnose.slurm_job import stuck, submitted
from lab.diagnose.told.dumps import is_dump, read_dump
from lab.diagnose.torchrun_logs import last_attempt, told_apart
from lab.slurm import accounting, messages, query
from lab.slurm.query import SlurmJob

HEAD, TAIL = 1 << 20, 8 << 20  # bytes of a log: causes stand where the errors begin, or at the very end
STUCK = 3  # jobs that can never start, to be named without being asked for
LATEST = ("train.err", "train.log")  # beside run.sh, of the latest job
_LOGS = ("*.log", "*.err", "*.out")
_RECORDS = ("status.json", "config.json", "job.json")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[(?:0|1|[349]\d)(?:;\d{1,3})*m")  # of some the escape was lost
_JOB = re.compile(r"\d+(?:_\d+)?")
_OF_JOB = re.compile(r"(?:slurm|train)-(\d+)\.(?:out|err|log)")  # as Slurm and run.sh name them
_NOT_ENDED = ("", "PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED")
_DEEP = 3  # folders below a run's own: checkpoints and traces lie there too, dumps and records of Slurm


@dataclass(frozen=True)
class Evidence:
    """What is known of one job.

    log      what it printed: standard output, then errors
    earlier  what the runs before it printed, of a job that was started again and writes to the same log
    files    the files that hold that, errors last; those that are empty are left out
    status   what status.json says: running, done, interrupted, failed; "" without one
    state    what Slurm says of its end: TIMEOUT, NODE_FAIL, ...; "" where nothing does
    now      what Slurm says of it now, if it answers and knows the job
    missing_log  the file in which Slurm says that its errors are, where that is not there
    command  that submits it again: "sbatch --ntasks-per-node=2 run.sh --epochs 3"; "" if not known
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
    now: SlurmJob | None = None
    command: str = ""
    missing_log: str = ""
    files: tuple[str, ...] = ()
    earlier: str = ""

    @property
    def world_size(self) -> int:
        size = self.config.get("world_size")
        return size if isinstance(size, int) and not isinstance(size, bool) else 0


def gather(path: Path) -> Evidence:
    """Read a run's folder, a log, a job's number, or a flight recorder's dump (and those of the ranks "
    "beside it).

    Raises:
        UserError: there is nothing to read at `path`.
    """
    try:
        if path.is_dir():
            return _folder(path)
        if _JOB.fullmatch(str(path)) and not path.exists():
            return _job(str(path))
        if not path.is_file():
            raise UserError(f"{path} is not there: name a run's folder in results/, or a log such as train.err")
        if is_dump(path):
            return _folder(path.parent, log=False)
        beside = path.resolve().parent
        if path.resolve().name in ("train.log", "train.err") and (
            any((beside / name).is_file() for name in _RECORDS) or any(beside.glob("slurm-*/scontrol.txt"))
        ):
            return _folder(beside)  # train.err beside run.sh is a link to a run's own
        halves = [*_other_half(path), path]
        named = _OF_JOB.fullmatch(path.name)
        earlier, log = _said(halves, named[1] if named else "")
        jobid = named[1] if named else _job_in(log)
        files = _not_empty(halves)
        return Evidence(name=str(path), log=log, jobid=jobid, now=_now(jobid), files=files, earlier=earlier)
    except OSError as error:
        raise UserError(f"{error.filename or path} cannot be read: {error.strerror}") from None


def _job(number: str) -> Evidence:
    """A job by its number: its run's folder, its log where there is no folder, or what Slurm says of it."""
    if records := records_of(number):
        return gather(records[0].parent)
    for folder in named_after(number):
        if _job_of(folder) == number:
            return gather(folder)
    now = _now(number)
    record = query.submission(number) if shutil.which("sacct") else query.Submission()
    if records := records_of(number, where_submitted(record)):
        return gather(records[0].parent)
    for log in filter(None, (f"train-{number}.err", f"slurm-{number}.out", record.log)):
        if Path(log).is_file():
            return gather(Path(log))
    if now is None:
        raise UserError(f"job {number}: there is no log of it here, and Slurm does not know it")
    begun = not now.state.startswith("PENDING")
    return Evidence(
        name=f"job {number}",
        log="",
        jobid=number,
        now=now,
        state=_ended(now),
        missing_log=record.log if begun else "",
    )


def latest_jobs() -> list[Path]:
    """The job that ran last here; before it those that wait for what they will never get, and so have no log."""
    found = [Path(job) for job in stuck()[:STUCK]]
    links = [Path(name) for name in LATEST if Path(name).exists()]
    # Slurm opens train-12.err before run.sh begins, and run.sh makes a link of it: if it has not come that far,
    # this is all there is.
    early = [file for file in Path().glob("train-*.err") if not file.is_symlink()]
    logs = sorted((*links[:1], *early), key=lambda file: file.lstat().st_mtime)
    found += logs[-1:]
    if not found:
        raise UserError("there is no train.err here: name a log, a run's folder in results/, or a job's number")
    return found


def tasks(path: Path) -> list[Path]:
    """The tasks that have left records here, where `path` is the number of an array; else `path` itself."""
    number = str(path)
    if not number.isdecimal() or path.exists() or records_of(number):
        return [path]
    indices = sorted(int(records.name.rpartition("_")[2]) for records in records_of(f"{number}_*[0-9]"))
    return [Path(f"{number}_{index}") for index in dict.fromkeys(indices)] or [path]


def _job_of(folder: Path) -> str:
    """The job that a run's folder names as its own."""
    said = [_word(_json(folder / name).get("jobid")) for name in ("job.json", "config.json")]
    return said[0] or said[1] or _job_in("".join(_text(log) for log in sorted(folder.glob("train.log"))))


def _folder(folder: Path, *, log: bool = True) -> Evidence:
    status, config, job = (_json(folder / name) for name in ("status.json", "config.json", "job.json"))
    files = [file for file in _walk(folder, _DEEP) if file.is_file()]
    dumps = sorted(file for file in files if is_dump(file))
    logs = sorted({file for pattern in _LOGS for file in folder.glob(pattern) if file.is_file()}, key=_errors_last)
    ranks = last_attempt(folder)
    if not (status or config or job or logs or dumps or ranks):
        raise UserError(f"{folder} holds no log, no records of a run and no flight recorder dump")
    lanes: dict[int, Lane] = {}
    unreadable = []
    for dump in dumps:
        rank, lane = read_dump(dump)
        if lane is None:
            unreadable.append(dump.name)
        else:
            lanes[rank] = lane
    number = _word(job.get("jobid")) or _word(config.get("jobid"))
    earlier, text = _said(logs, number) if log else ("", "")
    text += told_apart(ranks, _text) if log else ""
    jobid = number or _job_in(text)
    now = _now(jobid)
    if now is not None and _ended(now):
        for file in files:
            if file.match(f"slurm-{jobid}/sacct.txt") and os.access(file.parent, os.W_OK):
                accounting.complete(file, jobid)
    asked = [file for file in files if file.name == "scontrol.txt"]
    return Evidence(
        name=str(folder),
        log=text,
        status=_word(status.get("status")),
        reason=_word(status.get("reason")),
        state=_ended(now) if now else _state(files),
        jobid=jobid,
        run_id=folder.name if status or config or job else "",
        config=config,
        lanes=lanes,
        unreadable=tuple(unreadable),
        now=now,
        command=submitted(_text(max(asked, key=lambda file: file.stat().st_mtime))) if asked else "",
        files=_not_empty([*logs, *ranks]) if log else (),
        earlier=earlier,
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


def _other_half(log: Path) -> list[Path]:
    """The log of standard output, where `log` is that of standard error."""
    other = log.with_suffix(".log")
    return [other] if log.suffix == ".err" and other.is_file() else []


def _not_empty(files: Iterable[Path]) -> tuple[str, ...]:
    return tuple(str(file) for file in files if file.stat().st_size)


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
    text = _COLOURS.sub("", content.decode("utf-8", errors="replace")).replace("\r\n", "\n").replace("\r", "\n")
    return text if text.endswith("\n") or not text else text + "\n"


def _said(files: Iterable[Path], job: str) -> tuple[str, str]:
    """What a job wrote into its logs: the runs before its last one, and that."""
    texts = [messages.of_job(_text(file), job) for file in files]
    last = [messages.latest(text) for text in texts]
    return "".join(map(str.removesuffix, texts, last)), "".join(last)


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
    """The job that wrote a log; the last one, where several have gone on in it."""
    found = re.findall(r"^job (\d+(?:_\d+)?): \d+ ranks? on ", log, re.M) or re.findall(
        r"\b(?:JOB |STEP |StepId=)(\d+)", log
    )
    return found[-1] if found else ""


def _now(jobid: str) -> SlurmJob | None:
    """What Slurm says of the job, where it answers."""
    return query.jobs([jobid]).get(jobid) if jobid and shutil.which("sacct") else None


def _ended(job: SlurmJob) -> str:
    """How it ended, in one word; "" while it has not."""
    state = job.state.partition(" ")[0]
    return "" if state in _NOT_ENDED else state


def _state(files: list[Path]) -> str:
    """What Slurm's records in the run's folder say of the job's end.

    A job's own line is meant, not its steps': a step is CANCELLED when one of its ranks has failed. After a
    requeue the last of several lines counts.
    """
    states: list[str] = []
    for file in files:
        if file.name.startswith("sacct"):
            header, *lines = [line.split("|") for line in _text(file).splitlines() if "|" in line] or [[]]
            if {"JobID", "State"} <= set(header):
                rows = [dict(zip(header, line, strict=False)) for line in lines]
                states += [row["State"] for row in rows if "." not in row["JobID"] and "State" in row][-1:]
    known = [state.split()[0] for state in states if state.split()]
    return next((state for state in reversed(known) if state not in _NOT_ENDED), "")
