"""Run a sweep: choose the launcher, start the jobs, say how each one ended and what to type next."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from lab.sweep import local, slurm
from lab.sweep.plan import Job, Sweep, only_devices_up_to, plan_jobs
from lab.sweep.progress import Progress
from lab.training.errors import UserError

INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended


def run_sweep(sweep: Sweep, *, dry_run: bool = False, any_devices: bool = True) -> int:
    """Run, submit or (dry run) print all jobs of a sweep.

    Args:
        any_devices: False leaves out the device counts that are more than this machine has, when the jobs run
            here; for counts that nobody asked for.

    Returns:
        The exit code: 0, 1 when a job failed, 130 after Ctrl-C.

    Raises:
        UserError: nothing could be started; the sentence names the repair.
    """
    sweep = replace(sweep, launcher=sweep.launcher or choose_launcher())
    if sweep.launcher == "local":
        available, kind = local.available_devices()
        if not any_devices:
            sweep = only_devices_up_to(sweep, available)
    jobs = plan_jobs(sweep)
    _require_code(sweep)
    if dry_run:
        command_line = local.command_line if sweep.launcher == "local" else slurm.command_line
        for job in jobs:
            print(command_line(job))
        return 0
    if sweep.launcher == "local":
        most = max(job.devices for job in jobs)
        if most > available:
            print(
                f"note: {most} ranks share {available} {kind} here. The training is right, but its time says "
                "nothing about scaling."
            )
        with _interrupted_by_any_signal():
            return _run_here(jobs)
    return _submit(jobs)


def choose_launcher() -> str:
    """slurm where jobs can be submitted, else local."""
    return "slurm" if shutil.which("sbatch") else "local"


def _require_code(sweep: Sweep) -> None:
    """The commands are relative to this folder, as run.sh's are."""
    needed = [Path(sweep.code) / "main.py"] + ([Path(slurm.SCRIPT)] if sweep.launcher == "slurm" else [])
    for path in needed:
        if not path.is_file():
            raise UserError(
                f"no {path} in {Path.cwd()}: go to the folder that holds it, or name your code with --code DIR"
            )


def _run_here(jobs: list[Job]) -> int:
    progress = Progress(len(jobs))
    progress.say(f"{len(jobs)} jobs, one after the other, in {jobs[0].sweep.output_dir}/")
    failed = 0
    for done, job in enumerate(jobs):
        try:
            reason = local.run_job(job, progress)
        except KeyboardInterrupt:
            progress.finish("stopped", "by Ctrl-C; its processes are ended")
            left = [job.run_id for job in jobs[done:]]
            progress.say(f"{done} of {len(jobs)} jobs ended before; left to do: {', '.join(left)}")
            return INTERRUPTED
        if reason:
            failed += 1
            progress.finish("failed", f"{reason}  (see {job.folder / 'train.err'})")
        else:
            progress.finish("done")
    following = f"next: ./plot_results.sh {_results(jobs)}".rstrip()
    if failed == len(jobs):
        following = "repair what they say, and run the same command again"
    progress.say(f"{len(jobs) - failed} done, {failed} failed; {following}")
    return 1 if failed else 0


def _submit(jobs: list[Job]) -> int:
    for job in jobs:
        slurm.layout(job.devices)  # before the first job is in the queue
    failed = refused = 0
    for number, job in enumerate(jobs):
        start = f"[{number + 1}/{len(jobs)}] {job.title}  "
        try:
            print(f"{start}job {slurm.submit(job)}  {job.folder}/train.log", flush=True)
        except UserError as error:
            failed += 1
            refused += not isinstance(error, slurm.StillQueuedError)
            print(f"{start}not submitted  {error}", flush=True)
        except KeyboardInterrupt:
            left = [job.run_id for job in jobs[number:]]
            print(f"\nstopped by Ctrl-C; not submitted: {', '.join(left)}")
            return INTERRUPTED
    if refused == len(jobs):
        print("Nothing was submitted. To run the jobs on this machine: --launcher local")
    else:
        print(f"Follow them with: squeue --me\nWhen they have ended: ./plot_results.sh {_results(jobs)}".rstrip())
    return 1 if failed else 0


def _results(jobs: list[Job]) -> str:
    """What to add to a command that expects results/ unless told otherwise."""
    folder = jobs[0].sweep.output_dir
    return "" if folder == Path("results") else str(folder)


@contextmanager
def _interrupted_by_any_signal() -> Iterator[None]:
    """A closed terminal (SIGHUP) or a kill (SIGTERM) ends the running job as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for later in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(later, signal.SIG_IGN)  # once is enough: the clean-up is short, let it finish
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
