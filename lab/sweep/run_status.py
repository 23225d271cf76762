"""In which state a run is and why, from its status.json, from Slurm, and from what its logs say of its end."""

from pathlib import Path

from lab.sweep import reasons, states
from lab.sweep.job_folder import JOB_FILE, is_alive, local_sweep, read_json
from lab.sweep.record_files import NotUsable, json_object, text_of
from lab.sweep.slurm_query import SlurmJob


def status_of(folder: Path, in_slurm: SlurmJob | None) -> tuple[str, str]:
    """One of states.STATES and why.

    The run's own word counts first where it says done, Slurm's where it does not, then what the logs say.
    """
    if not any(folder.iterdir()):
        raise NotUsable("the folder is empty")
    job = read_json(folder / JOB_FILE)
    jobid = text_of(job.get("jobid"))
    if (folder / "status.json").exists():
        record = json_object(folder / "status.json")
        status, said = record.get("status"), record.get("reason")
    else:
        status, said = (states.PENDING if jobid else None), ""
    said = reasons.one_line(said) if isinstance(said, str) else ""
    if status == states.DONE:
        return states.DONE, ""
    if status not in states.STATES:
        if status is None and not (folder / "status.json").exists():
            raise NotUsable("status.json is missing: the run ended before it began to write")
        raise NotUsable(f"status.json says {status!r}, which is no state of a run")
    log = reasons.tail(folder / "train.err")
    if in_slurm is not None and states.of_slurm(in_slurm.state):
        return _status_in_slurm(in_slurm, jobid, str(status), said, log)
    if status in (states.RUNNING, states.PENDING):
        state, ended = reasons.slurm_end(log) if jobid else ("", "")
        if state:
            return state, ended
        if status == states.PENDING:
            return states.PENDING, f"job {jobid} has written nothing yet; see squeue --me"
        if (sweep := local_sweep(folder)) and not is_alive(sweep):
            return states.FAILED, "the sweep that ran it has ended before it"
        return states.RUNNING, "has not ended" + (f"; see squeue --jobs={jobid}" if jobid else "")
    reason = said or reasons.from_log(log) or "no reason on record"
    return (states.of_failure(reason) if status == states.FAILED else str(status)), reason


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
    slurms = {states.TIMED_OUT: "ended by Slurm at its time limit", states.NODE_FAILURE: "a node failed"}
    reason = slurms.get(state, job.state)
    if said.startswith(reason):  # noted by an earlier collect
        return state, said
    return state, f"{reason}; {said}" if said and status != states.RUNNING else reason
