"""What a launcher writes into a run folder, job.json, and whether a folder is free for it.

main.py makes config.json, status.json and the rest. A job that dies before that (an import error, a node
that never came up) would be nameless without job.json.
"""

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from lab.base.errors import UserError
from lab.base.files import write_whole
from lab.runs.options.parser import build_parser
from lab.runs.records.folder import now
from lab.runs.records.job import JOB_FILE, earlier_slurm_job, is_alive, local_sweep, read_json
from lab.runs.records.provenance import variant
from lab.slurm import query, states
from lab.sweep.plan.sweep import Job


class StillQueuedError(UserError):
    """The same job was submitted to Slurm before and has not ended."""


def prepare(job: Job, launcher: str, command: str) -> bool:
    """Make the job's run folder and write job.json. Returns whether an earlier run had to give way.

    A folder with the job's name holds an earlier try at exactly this job, because the name is made of its
    settings. It is removed as a whole, so that no figure of the earlier try can survive in the new one.

    Raises:
        StillQueuedError: the earlier try still waits or runs in Slurm.
        UserError: the folder cannot be written to, or something else has this name, or Slurm does not say whether
            the earlier try has ended.
    """
    folder = job.folder
    try:
        earlier = folder.exists() and any(folder.iterdir())
        if earlier:
            if not (folder / JOB_FILE).is_file():
                raise UserError(f"{folder} was not made by a sweep: move it away, or choose another --output-dir")
            other = local_sweep(folder)
            if other not in (0, os.getpid()) and is_alive(other) and not _has_ended(folder):
                raise UserError(
                    f"{folder} is written by another sweep, process {other}: wait for it, or choose another "
                    "--output-dir"
                )
            refuse_while_queued(folder)
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_job(job, launcher, command)
    except OSError as error:
        raise UserError(
            f"cannot write to {error.filename or folder} ({error.strerror}): choose another --output-dir"
        ) from error
    return earlier


def refuse_while_queued(folder: Path) -> None:
    """Two jobs that write into one folder would mix their figures.

    Raises:
        StillQueuedError: the Slurm job of this folder waits or runs.
        UserError: Slurm does not say whether it does, nor does the run say that it has ended.
    """
    jobid = earlier_slurm_job(folder)
    if not jobid:
        return
    try:
        known = query.jobs([jobid], must_answer=True).get(jobid)
    except query.NoAnswerError as error:
        if read_json(folder / "status.json").get("status") in (states.DONE, *states.BAD_ENDS):
            return
        raise UserError(f"{error}, and {folder} is its: try again later, or choose another --output-dir") from None
    if known is not None and states.of_slurm(known.state) in (states.PENDING, states.RUNNING):
        raise StillQueuedError(
            f"job {jobid} for the same point is still {known.state.lower()}: wait for it, or scancel {jobid}"
        )


def write_job(job: Job, launcher: str, command: str, jobid: str = "") -> None:
    """job.json: what was asked for, how it was started, and Slurm's name for it."""
    flags = job.parsed_flags()
    record = {
        "run_id": job.run_id,
        "strategy": job.strategy,
        "model": flags.model,
        "dataset": flags.dataset,
        "precision": flags.precision,
        "world_size": job.devices,
        "global_batch": job.global_batch,
        "per_gpu_batch": job.global_batch // job.devices // flags.accumulate,
        "epochs": 1 if job.sweep.measure_steps else job.sweep.epochs,
        "scaling": job.scaling,
        "repeat": job.repeat,
        "input": flags.input,
        "bucket_cap_mb": f"{job.bucket_cap:g}" if job.strategy == "ddp" else "",
        "variant": variant(flags, build_parser().parse_args([])),
        "device": job.sweep.card,
        "code": job.sweep.code,
        "code_hash": code_hash(Path(job.sweep.code)),
        "flags": list(job.sweep.flags),
        "compare": " ".join(job.extra),
        "launcher": launcher,
        "command": command,
        "jobid": jobid,
        "launched_by": {"host": socket.gethostname(), "pid": os.getpid()},
        "planned": now(),
    }
    _write(job.folder, record)


def note_comparison(job: Job) -> None:
    """The job was made another way before: note for which comparison it counts from now on.

    Raises:
        UserError: its folder cannot be written to.
    """
    record = read_json(job.folder / JOB_FILE)
    if not job.extra or not record or record.get("compare"):
        return
    try:
        _write(job.folder, record | {"compare": " ".join(job.extra)})
    except OSError as error:
        raise UserError(f"cannot write to {job.folder} ({error.strerror}): choose another --output-dir") from error


def _has_ended(folder: Path) -> bool:
    return read_json(folder / "status.json").get("status") in (states.DONE, states.INTERRUPTED, *states.BAD_ENDS)


def code_hash(folder: Path) -> str:
    """Twelve hexadecimal digits for the Python files of a folder: other code, other results."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def code_has_changed(job: Job) -> bool:
    """Whether the folder's run was made by other code than there is now; False where it does not say."""
    made_by = read_json(job.folder / JOB_FILE).get("code_hash")
    return made_by is not None and made_by != code_hash(Path(job.sweep.code))


def note_seconds(folder: Path, seconds: float) -> None:
    """How long the job took from start to end, for the estimate of others like it."""
    _write(folder, read_json(folder / JOB_FILE) | {"seconds": round(seconds, 1)})


def _write(folder: Path, record: Mapping[str, object]) -> None:
    write_whole(folder / JOB_FILE, json.dumps(record, indent=2) + "\n")
