"""Run a sweep's jobs on this machine, one at a time, through torchrun."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from lab.base.machine import gpus, usable_cores
from lab.base.processes import ProcessTree
from lab.runs.records.folder import now
from lab.runs.records.job import mark, read_json
from lab.slurm import reasons, states
from lab.sweep.launch import job_folder
from lab.sweep.launch.display import Display, LogFollower
from lab.sweep.plan.sweep import Job

# The same for every point of the sweep. Left alone, one rank would use all cores of a CPU and two ranks
# would share them, and the curve would show the sharing instead of the scaling.
THREADS_PER_RANK = 1
POLL = 0.2  # seconds


def available_devices(*, cpu: bool = False) -> tuple[int, str]:
    """How many ranks this machine can run in parallel, and on what ("GPUs" or "CPU cores").

    Args:
        cpu: count cores also where there are GPUs.
    """
    visible = "" if cpu else os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        count = len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    else:
        count = len(gpus())
    return (count, "GPUs") if count else (usable_cores(), "CPU cores")


def launcher(devices: int) -> list[str]:
    """What starts so many ranks of the program that follows it.

    `python -m torch.distributed.run` is torchrun of this very Python, also where it is not on PATH.

    The ranks meet at 127.0.0.1: by default they would look up this machine's name, and on a laptop whose name
    no server knows they hang for minutes.
    """
    here = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    return [*here, "--nproc-per-node", str(devices)]


def command(job: Job) -> list[str]:
    return [*launcher(job.devices), job.main, *job.main_flags]


def command_line(job: Job) -> str:
    """The command as a person would type it."""
    hidden = "CUDA_VISIBLE_DEVICES= " if job.sweep.cpu else ""
    return f"{hidden}OMP_NUM_THREADS={THREADS_PER_RANK} {shlex.join(command(job))}"


def environment(*, cpu: bool = False) -> dict[str, str]:
    """The environment of a job: ours, with pinned threads, unbuffered output and the lab importable.

    Args:
        cpu: hide the GPUs.
    """
    changed = {"OMP_NUM_THREADS": str(THREADS_PER_RANK), "PYTHONUNBUFFERED": "1"}
    if cpu:
        changed["CUDA_VISIBLE_DEVICES"] = ""
    if Path("lab", "__init__.py").is_file():  # in a clone of the repository, also where it is not installed
        known = os.environ.get("PYTHONPATH")
        changed["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), *([known] if known else [])])
    return os.environ | changed


def run_job(job: Job, display: Display) -> tuple[str, str]:
    """Run one job to its end. Returns its state, and why where it is not done.

    Standard output and error go straight into train.log and train.err: if this process dies, the job still
    has a place to write to.

    Raises:
        KeyboardInterrupt: after everything that belongs to the job was ended.
    """
    display.start(job, replaced=job_folder.prepare(job, "local", command_line(job)))
    errors = job.folder / "train.err"
    started = now()
    with (job.folder / "train.log").open("ab") as out, errors.open("ab") as err:
        process = subprocess.Popen(
            command(job),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment(cpu=job.sweep.cpu),
            start_new_session=True,
        )
    tree = ProcessTree(process)
    limit = job.sweep.time_limit * 60
    too_long = interrupted = False
    try:
        for line in _follow(tree, job.folder / "train.log"):
            display.update(line)
            if limit and display.elapsed > limit:
                too_long = True
                break
    except KeyboardInterrupt:
        interrupted = True
        raise
    finally:
        tree.end()  # also when it ended by itself: a torchrun that was killed leaves its ranks behind
        if interrupted:  # marked when the ranks are gone: they write of their end themselves
            reason = f"interrupted after {display.elapsed:.0f} s"
            mark(job.folder, states.CANCELLED, reason, started=started, ended=now())
    if too_long:
        state, reason = states.TIMED_OUT, f"ended at --time-limit {job.sweep.time_limit} (minutes)"
    else:
        state, reason = _how_it_ended(job.folder, process.returncode)
    if state != states.DONE:
        mark(job.folder, state, reason, started=started, ended=now())
    job_folder.note_seconds(job.folder, display.elapsed)
    return state, reason


def _follow(tree: ProcessTree, log: Path) -> Iterator[str | None]:
    """New lines of the log until the process ends; None where there is nothing new for a moment."""
    follower = LogFollower(log)
    next_look = 0.0
    while True:
        ended = tree.process.poll() is not None  # before the last read, so that nothing is missed
        if time.monotonic() >= next_look:
            tree.look()
            next_look = time.monotonic() + 1.0
        yield from follower.new_lines()
        if ended:
            return
        yield None
        time.sleep(POLL)


def _how_it_ended(folder: Path, exit_code: int) -> tuple[str, str]:
    status = read_json(folder / "status.json")
    state, said = status.get("status"), reasons.one_line(str(status.get("reason") or ""))
    if exit_code == 0:
        if state == states.DONE:
            return states.DONE, ""
        missing = "main.py ended without an error, but did not train to the end: status.json does not say done"
        return states.FAILED, missing
    if state == states.INTERRUPTED and said:
        return states.INTERRUPTED, said
    reason = said if state == states.FAILED and said else ""
    reason = reason or reasons.from_exit(exit_code, reasons.tail(folder / "train.err"))
    return states.of_failure(reason), reason
