"""What Slurm says of a job: that it waits, for what, and how it was submitted."""

import re
import shlex
import subprocess
from pathlib import Path

from lab.diagnose.finding import Finding
from lab.sweep.slurm_query import SlurmJob

ASKS = {"--nodes": "1", "--ntasks-per-node": "4", "--gpus-per-node": "4", "--cpus-per-task": "4"}  # in run.sh
_AGAIN = ("--run-id", "--resume")  # what names a run that is there already
PATIENCE = 20.0  # seconds

# Reasons for which a job waits for ever, in Slurm's words (man squeue, JOB REASON CODES).
_MEANS = {
    "PartitionConfig": "it asks for more nodes, or more of one node, than the partition has",
    "PartitionNodeLimit": "it asks for more nodes than one job of the partition may have",
    "PartitionTimeLimit": "it asks for more time than the partition allows",
    "BadConstraints": "no node is as it asks for",
    "DependencyNeverSatisfied": "the job that it waits for did not end as it should have",
    "InvalidAccount": "its account is none of yours, or may not use this partition",
    "InvalidQOS": "its QOS is none of yours, or may not be used with this partition",
}
_SIZES = (
    "sinfo --format='%P %l %D %c %m %G'   # partition, time limit, nodes, and of each: cores, memory, GPUs",
    "scancel {job}   # it would wait for ever; then submit it with less",
)


def never_starts(reason: str) -> bool:
    return reason in _MEANS or bool(re.match(r"(?:Assoc|QOS)\w*(?:Max|Limit)\w*PerJob", reason))


def waiting(number: str, job: SlurmJob, *, saved: bool) -> Finding | None:
    """What there is to say of a job that has not begun, or begins again; None of any other."""
    state = job.state.split()[0] if job.state.split() else ""
    if state == "PENDING" and never_starts(job.reason):
        why = _MEANS.get(job.reason, "it asks for more than one job of yours may have")
        return Finding(
            "never-starts",
            f"Job {number} is in the queue and cannot start: {job.reason}.",
            f"{why[:1].upper()}{why[1:]}. Slurm keeps it all the same.",
            _SIZES,
            order=0,
        )
    if saved and state in ("PENDING", "RUNNING", "CONFIGURING"):
        where = "in the queue again" if state == "PENDING" else "running again"
        return Finding(
            "goes-on",
            f"The run was told to stop, and has saved. Its job, {number}, is {where}.",
            "It goes on from there by itself: do not submit it a second time.",
            ("squeue --me", "tail -f train.log"),
            order=-1,
        )
    if state == "PENDING":
        return Finding(
            "in-queue",
            f"Job {number} is in the queue{f' ({job.reason})' if job.reason else ''}, and has not begun.",
            "Slurm starts it when what it asks for is free.",
            ("squeue --me --start   # when Slurm expects that",),
            order=0,
        )
    return None


def stuck() -> list[str]:
    """The numbers of your jobs that will never start, where Slurm answers."""
    try:
        done = subprocess.run(
            ["squeue", "--me", "--noheader", "--states=PENDING", "--format=%i|%r"],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []  # no Slurm here
    lines = [line.split("|") for line in done.stdout.splitlines() if line.count("|") == 1]
    return [job for job, reason in lines if job.isdecimal() and never_starts(reason)]


def submitted(scontrol: str) -> str:
    """The command that submits a job again, from what `scontrol show job` said of it; "" if that is incomplete.

    The options that named an older run are left out.
    """
    fields = dict(re.findall(r"^\s*(?:.*? )?(Command|WorkDir|TresPerNode)=(.*)$", scontrol, re.M))
    numbers = dict(re.findall(r"(NumNodes|NtasksPerN:B:S:C|CPUs/Task|ArrayTaskId)=(\d+)", scontrol))
    script, *words = fields.get("Command", "").split() or [""]
    if not script.startswith("/") or "NumNodes" not in numbers:
        return ""
    folder = fields.get("WorkDir", "")
    here = Path(script).is_relative_to(folder) if folder else False
    gpus = re.search(r"gpu\D*(\d+)", fields.get("TresPerNode", ""))
    asked = {
        "--nodes": numbers["NumNodes"],
        "--ntasks-per-node": numbers.get("NtasksPerN:B:S:C", "0"),
        "--gpus-per-node": gpus[1] if gpus else "0",
        "--cpus-per-task": numbers.get("CPUs/Task", "1"),
    }
    if asked["--ntasks-per-node"] == "0":
        return ""
    options = [f"{name}={value}" for name, value in asked.items() if value != ASKS[name]]
    if "ArrayTaskId" in numbers:
        options.insert(0, f"--array={numbers['ArrayTaskId']}")
    name = str(Path(script).relative_to(folder)) if here else script
    return shlex.join(["sbatch", *options, name, *_without(words)])


def _without(words: list[str]) -> list[str]:
    kept, left_out = [], False
    for word in words:
        if left_out:
            left_out = False
        elif word in _AGAIN:
            left_out = True
        elif not word.startswith(tuple(f"{name}=" for name in _AGAIN)):
            kept.append(word)
    return kept
