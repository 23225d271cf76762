"""Submit a sweep's jobs to Slurm: one `sbatch run.sh` each."""

import os
import shlex
import subprocess
from collections.abc import Iterable

from lab.base.errors import UsageError, UserError
from lab.runs.records.folder import now
from lab.runs.records.job import mark
from lab.slurm import query, states
from lab.sweep.launch import job_folder
from lab.sweep.plan.sweep import Job

SCRIPT = "run.sh"
DEVICES_PER_NODE = 4  # as in run.sh


def layout(devices: int) -> tuple[int, int]:
    """Number of nodes and of tasks (one for each device) per node, as few nodes as possible.

    Raises:
        UsageError: the devices cannot be spread evenly over nodes.
    """
    nodes = -(-devices // DEVICES_PER_NODE)
    if devices % nodes:
        raise UsageError(
            f"{devices} devices cannot be spread evenly over {nodes} nodes of {DEVICES_PER_NODE}: "
            f"leave {devices} out of --devices"
        )
    return nodes, devices // nodes


def command(job: Job) -> list[str]:
    """Options on the command line override the #SBATCH lines in run.sh.

    The log goes into the run folder: with run.sh's own train.log, jobs that run at once would write into one
    file. Account, partition and the like come from run.sh or from Slurm's own variables (SBATCH_ACCOUNT,
    SBATCH_PARTITION, ...), so they are not repeated here.
    """
    nodes, tasks_per_node = layout(job.devices)
    return [
        "sbatch",
        "--parsable",
        *([f"--time={job.sweep.time_limit}"] if job.sweep.time_limit else []),
        f"--nodes={nodes}",
        f"--ntasks-per-node={tasks_per_node}",
        f"--gpus-per-node={0 if job.sweep.cpu else tasks_per_node}",  # run.sh's four would be paid for, unused
        f"--job-name={job.run_id}",
        f"--output={job.folder / 'train.log'}",
        f"--error={job.folder / 'train.err'}",
        SCRIPT,
        *job.main_flags,
    ]


def command_line(job: Job) -> str:
    """The command as a person would type it."""
    hidden = "CUDA_VISIBLE_DEVICES= " if job.sweep.cpu else ""
    return hidden + f"CODE={shlex.quote(job.sweep.code)} {shlex.join(command(job))}"


def submit(job: Job) -> str:
    """Hand the job to Slurm. Returns its job id.

    Raises:
        StillQueuedError: the same job is still waiting or running.
        UserError: sbatch refuses it, with Slurm's own reason.
    """
    job_folder.prepare(job, "slurm", command_line(job))
    environment = os.environ | {"CODE": job.sweep.code} | ({"CUDA_VISIBLE_DEVICES": ""} if job.sweep.cpu else {})
    try:
        done = subprocess.run(command(job), env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(f"sbatch cannot be started ({error.strerror}): use --launcher local") from error
    if done.returncode != 0:
        reason = "sbatch: " + (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[
            -1
        ].removeprefix("sbatch: error: ")
        mark(job.folder, states.FAILED, reason, started=now(), ended=now())  # it took no time
        raise UserError(reason)
    jobid = done.stdout.strip().split(";")[0]  # "12" or "12;cluster"
    job_folder.write_job(job, "slurm", command_line(job), jobid)
    return jobid


def in_queue(jobids: Iterable[str]) -> int:
    """How many of these jobs wait or run.

    Raises:
        NoAnswerError: Slurm does not say.
    """
    known = query.jobs(jobids, must_answer=True).values()
    return sum(states.of_slurm(job.state) in (states.PENDING, states.RUNNING) for job in known)
