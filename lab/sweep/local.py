"""Run a sweep's jobs on this machine, one at a time, through torchrun."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from lab.sweep import job_folder, reasons
from lab.sweep.plan import Job
from lab.sweep.processes import ProcessTree
from lab.sweep.progress import LogFollower, Progress

# The same for every point of the sweep. Left alone, one rank would use all cores of a CPU and two ranks
# would share them, and the curve would show the sharing instead of the scaling.
THREADS_PER_RANK = 1
POLL = 0.2  # seconds


def available_devices() -> tuple[int, str]:
    """How many ranks this machine can run in parallel, and on what ("GPUs" or "CPU cores").

    Asked of the driver's own tool, because importing torch for it would take seconds.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        gpus = len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    else:
        try:
            listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=20)
            gpus = sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
        except (OSError, subprocess.TimeoutExpired):
            gpus = 0
    if gpus:
        return gpus, "GPUs"
    # Not os.cpu_count(): a container or a batch job may own only some of the machine's cores.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores or 1, "CPU cores"


def command(job: Job) -> list[str]:
    """`python -m torch.distributed.run` is torchrun of this very Python, also where it is not on PATH.

    The ranks meet at 127.0.0.1: by default they would look up this machine's name, and on a laptop whose name
    no server knows they hang for minutes.
    """
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    return [*launcher, "--nproc-per-node", str(job.devices), job.main, *job.main_flags]


def command_line(job: Job) -> str:
    """The command as a person would type it."""
    return f"OMP_NUM_THREADS={THREADS_PER_RANK} {shlex.join(command(job))}"


def environment() -> dict[str, str]:
    """The environment of a job: ours, with pinned threads, unbuffered output and the lab importable."""
    changed = {"OMP_NUM_THREADS": str(THREADS_PER_RANK), "PYTHONUNBUFFERED": "1"}
    if Path("lab", "__init__.py").is_file():  # in a clone of the repository, also where it is not installed
        known = os.environ.get("PYTHONPATH")
        changed["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), *([known] if known else [])])
    return os.environ | changed


def run_job(job: Job, progress: Progress) -> str:
    """Run one job to its end. Returns why it failed, or an empty string.

    Standard output and error go straight into train.log and train.err: if this process dies, the job still
    has a place to write to.

    Raises:
        KeyboardInterrupt: after everything that belongs to the job was ended.
    """
    progress.start(job, replaced=job_folder.prepare(job, "local", command_line(job)))
    errors = job.folder / "train.err"
    with (job.folder / "train.log").open("ab") as out, errors.open("ab") as err:
        process = subprocess.Popen(
            command(job),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment(),
            start_new_session=True,
        )
    tree = ProcessTree(process)
    try:
        for line in _follow(tree, job.folder / "train.log"):
            progress.update(line)
    except KeyboardInterrupt:
        job_folder.mark_failed(job.folder, f"interrupted after {progress.elapsed:.0f} s")
        raise
    finally:
        tree.end()  # also when it ended by itself: a torchrun that was killed leaves its ranks behind
    reason = _why_failed(job.folder, process.returncode)
    if reason:
        job_folder.mark_failed(job.folder, reason)
    return reason


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


def _why_failed(folder: Path, exit_code: int) -> str:
    status = job_folder.read_json(folder / "status.json")
    if exit_code == 0:
        if status.get("status") == "done":
            return ""
        return "main.py ended without an error, but did not train to the end: status.json does not say done"
    if status.get("status") == "failed" and status.get("reason"):
        return reasons.one_line(str(status["reason"]))
    return reasons.from_exit(exit_code, reasons.tail(folder / "train.err"))
