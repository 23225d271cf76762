"""In which state a run is and why, from its status.json, from Slurm, and from what its logs say of its end."""

import contextlib
import re
from datetime import datetime
from pathlib import Path

from lab.runs.records.job import JOB_FILE, is_alive, local_sweep, read_json
from lab.slurm import reasons, states
from lab.slurm.query import SlurmJob
from lab.sweep.collect.record_files import NotUsable, csv_rows, json_object, text_of

NEVER_BEGAN = "status.json is missing: the run ended before it began to write"
STARTING = "still starting: its sweep goes on; draw again when it is done"
LATE = 60.0  # seconds by which the clocks of Slurm and of the file system may differ


def slurm_job(folder: Path) -> str:
    """The Slurm job that runs or ran this run; empty where nothing names one.

    A sweep's job.json does; of a plain `sbatch run.sh` the folder slurm-JOB/, or run.csv once an epoch has ended.
    """
    job = read_json(folder / JOB_FILE)
    named = [text_of(job.get("jobid")), *(path.name.removeprefix("slurm-") for path in folder.glob("slurm-*"))]
    found = [jobid for jobid in named if re.fullmatch(r"\d+(_\d+)?", jobid)]
    if found or job:  # the latest: a run can be resumed by another job
        return max(found, key=lambda jobid: [int(part) for part in jobid.split("_")], default=named[0])
    with contextlib.suppress(NotUsable, OSError):
        return "".join(text_of(row["jobid"]) for row in csv_rows(folder / "run.csv", ("jobid",))[-1:])
    return ""


def status_of(folder: Path, jobid: str, in_slurm: SlurmJob | None) -> tuple[str, str]:
    """One of states.STATES and why.

    The run's own word counts first where it says done, Slurm's where it does not, then what the logs say.

    Args:
        jobid: what slurm_job() says; in_slurm: what Slurm says of it.
    """
    if not any(folder.iterdir()):
        raise NotUsable("the folder is empty")
    job = read_json(folder / JOB_FILE)
    if (folder / "status.json").exists():
        record = json_object(folder / "status.json")
        status, said = record.get("status"), record.get("reason")
    elif _is_starting(folder):
        return states.RUNNING, STARTING
    else:
        status, said = (states.PENDING if jobid and not (folder / "run.csv").exists() else None), ""
    said = reasons.one_line(said) if isinstance(said, str) else ""
    if status == states.DONE:
        return states.DONE, ""
    if status not in states.STATES:
        if status is None and not (folder / "status.json").exists():
            raise NotUsable(NEVER_BEGAN)
        raise NotUsable(f"status.json says {status!r}, which is no state of a run")
    log = reasons.tail(folder / "train.err")
    submitted = jobid == text_of(job.get("jobid"))  # by a sweep; that of a plain sbatch is known since it began
    if in_slurm is not None and not submitted and _went_on_after(folder, in_slurm):
        jobid, in_slurm = "", None
    # In an allocation of salloc a run can end long before the job, and otherwise.
    its_own = submitted or status in (states.RUNNING, states.PENDING)
    in_state = states.of_slurm(in_slurm.state) if in_slurm else ""
    if in_slurm is not None and in_state and (its_own or in_state == states.PENDING):
        return _status_in_slurm(in_slurm, jobid, str(status), said, log)
    if status in (states.RUNNING, states.PENDING):
        state, ended = reasons.slurm_end(log) if jobid else ("", "")
        if state:
            return state, ended
        if status == states.PENDING and not submitted and (log or reasons.tail(folder / "train.log")):
            reason = reasons.from_log(log) or NEVER_BEGAN
            return states.of_failure(reason), reason
        if status == states.PENDING:
            return states.PENDING, f"job {jobid} has written nothing yet; see squeue --me"
        if (sweep := local_sweep(folder)) and not is_alive(sweep):
            return states.FAILED, "the sweep that ran it has ended before it"
        return states.RUNNING, "has not ended" + (f"; see squeue --jobs={jobid}" if jobid else "")
    reason = said or reasons.from_log(log) or "no reason on record"
    return (states.of_failure(reason) if status == states.FAILED else str(status)), reason


def _is_starting(folder: Path) -> bool:
    """Whether a run without status.json is one that its sweep, alive on this machine, has just started.

    A sweep runs one job at a time, and writes status.json for a job that has ended without one.
    """
    sweep = local_sweep(folder)
    return sweep != 0 and is_alive(sweep) and not (folder / "run.csv").exists()


def _went_on_after(folder: Path, job: SlurmJob) -> bool:
    """Whether the run has told of itself since the job's end: it goes on outside of Slurm."""
    if not job.ended or states.of_slurm(job.state) in (states.PENDING, states.RUNNING):
        return False
    try:
        told = (folder / "status.json").stat().st_mtime
    except OSError:
        return False
    return told > datetime.fromisoformat(job.ended).timestamp() + LATE


def _status_in_slurm(job: SlurmJob, jobid: str, status: str, said: str, log: str) -> tuple[str, str]:
    """The state of a job that is not done by its own word, and of which Slurm knows."""
    state = states.of_slurm(job.state)
    if state == states.PENDING:
        return state, f"job {jobid} waits" + (f" ({job.reason})" if job.reason else "")
    if state == states.RUNNING:
        return state, f"job {jobid} runs"
    if state == states.DONE:
        if status in states.BAD_ENDS:
            return status, said or "no reason on record"
        return states.FAILED, "Slurm says COMPLETED, but the run did not train to the end"
    if state == states.FAILED and status == states.INTERRUPTED:  # run.sh ends with a code of its own then
        return (states.TIMED_OUT if "SIGUSR1" in said else states.INTERRUPTED), said  # USR1: Slurm's warning
    if state == states.FAILED:
        by_log, meaning = reasons.slurm_end(log)
        if by_log == states.TIMED_OUT and not said:
            return by_log, meaning
        reason = (
            said or reasons.from_log(log) or f"exit code {job.exit_code.split(':')[0]}; train.err does not say why"
        )
        return states.of_failure(reason), reason
    slurms = {states.TIMED_OUT: reasons.TIME_LIMIT, states.NODE_FAILURE: reasons.NODE}
    reason = slurms.get(state, job.state)
    if said.startswith(reason):  # noted by an earlier collect
        return state, said
    return state, f"{reason}; {said}" if said and status != states.RUNNING else reason
