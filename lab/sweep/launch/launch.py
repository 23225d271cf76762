"""Run a sweep: choose the launcher, leave out what is done, start the rest, say how each job ended."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from lab.base.errors import UsageError, UserError
from lab.base.machine import gpus
from lab.runs.records.job import earlier_slurm_job
from lab.slurm import query, states
from lab.sweep.collect.run_folder import read_run
from lab.sweep.launch import job_folder, local, slurm
from lab.sweep.launch.display import Display
from lab.sweep.plan import cost
from lab.sweep.plan.plan import plan_jobs
from lab.sweep.plan.sweep import Job, Sweep

INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended
LOOK_EVERY = 2.0  # seconds between two looks at Slurm's queue


@dataclass(frozen=True)
class Choices:
    """How a sweep is run; what it consists of is a Sweep."""

    dry_run: bool = False
    any_devices: bool = True  # False: only the device counts that this machine has, for counts nobody asked for
    rerun: bool = False  # also what is done
    max_jobs: int = 0  # in Slurm's queue at a time; 0: all
    stop_after: float = 0  # minutes after which no job is begun that would take longer; 0: never


def run_sweep(*sweeps: Sweep, choices: Choices = Choices()) -> int:
    """Run, submit or (dry run) print all jobs of a sweep or of several.

    A job whose folder holds a complete run of the same code is not run again.

    Returns:
        The exit code: 0, 1 when a job failed, 130 after Ctrl-C.

    Raises:
        UserError: nothing could be started; the sentence names the repair.
    """
    launcher = sweeps[0].launcher or choose_launcher()
    if launcher == "local" and choices.max_jobs:
        raise UsageError(
            "--max-jobs is for Slurm's queue, but the jobs run here, one after the other: leave it out"
        )
    if launcher == "slurm" and choices.stop_after:
        raise UsageError(
            "--stop-after is for jobs that run here; Slurm begins its own: use --time-limit or --max-jobs"
        )
    if launcher == "slurm":
        _require_slurm()
    sweeps = tuple(_complete(sweep, launcher, any_devices=choices.any_devices) for sweep in sweeps)
    planned = [replace(sweep, gpus=True) for sweep in sweeps] if choices.dry_run else sweeps
    jobs = plan_jobs(*planned)
    _require_code(sweeps[0])
    done = set() if choices.rerun else {job.run_id for job in jobs if is_done(job)}
    if choices.dry_run:
        _print_plan(jobs, done)
        if few := cost.few_steps(jobs):
            print(f"# {few}")
        if not all(sweep.gpus for sweep in sweeps):  # a plan can be looked at where it cannot run
            try:
                plan_jobs(*sweeps)
            except UsageError as problem:
                print(f"# not on this machine: {problem}")
        return 0
    left = [job for job in jobs if job.run_id not in done]
    for job in jobs:
        if job.run_id in done:
            job_folder.note_comparison(job)
    if done:
        print(f"{len(done)} of {len(jobs)} jobs are done already (--rerun does them again)", flush=True)
    if not left:
        print(f"nothing left to do; next: {_plot_command(jobs)}")
        return 0
    if few := cost.few_steps(left):
        print(few, flush=True)
    if launcher == "slurm":
        return _submit(left, choices)
    most, (available, kind) = max(job.devices for job in left), _devices(left[0])
    if most > available:
        print(
            f"note: {most} ranks share {available} {kind} here. The training is right, but its time says "
            "nothing about scaling."
        )
    with _interrupted_by_any_signal():
        return _run_here(left, choices)


def choose_launcher() -> str:
    """slurm where it answers, else local; says so where sbatch is there and Slurm is not."""
    if not shutil.which("sbatch"):
        return "local"
    problem = query.unavailable()
    if problem:
        print(f"note: sbatch is here, but Slurm does not answer ({problem}): the jobs run on this machine")
        return "local"
    return "slurm"


def is_done(job: Job) -> bool:
    """Whether the job's folder holds its complete run, made by the code that is there now."""
    if not (job.folder / "status.json").is_file():
        return False
    return read_run(job.folder)["status"] == states.DONE and not job_folder.code_has_changed(job)


def _require_slurm() -> None:
    problem = query.unavailable()
    if problem:
        raise UserError(f"Slurm does not answer ({problem}): nothing was submitted; --launcher local runs it here")


def _complete(sweep: Sweep, launcher: str, *, any_devices: bool) -> Sweep:
    """The sweep with what depends on where it is started."""
    code = (
        sweep.code
        or os.environ.get("CODE")
        or ("solutions" if Path("solutions", "main.py").is_file() else "exercises")
    )
    sweep = replace(sweep, launcher=launcher, code=code)
    if launcher == "local":
        available, kind = local.available_devices()
        if not any_devices:
            fitting = tuple(count for count in sweep.devices if count <= available) or (1,)
            _say_what_is_left_out(sweep.devices, fitting, f"{available} {kind}")
            sweep = replace(sweep, devices=fitting)
        if kind != "GPUs":
            sweep = replace(sweep, gpus=False)
        elif not sweep.cpu:
            sweep = replace(sweep, card=next(iter(gpus()), ""))
    return sweep


def _say_what_is_left_out(usual: tuple[int, ...], fitting: tuple[int, ...], here: str) -> None:
    if more := [str(count) for count in usual if count not in fitting]:
        every = " ".join(map(str, usual))
        print(
            f"note: no runs on {', '.join(more)} devices: {here} here (--devices {every} runs them all the same)"
        )


def _devices(job: Job) -> tuple[int, str]:
    """How many devices there are for the jobs here, and of what kind."""
    return local.available_devices(cpu=job.sweep.cpu)


def _require_code(sweep: Sweep) -> None:
    """The commands are relative to this folder, as run.sh's are."""
    needed = [Path(sweep.code) / "main.py"] + ([Path(slurm.SCRIPT)] if sweep.launcher == "slurm" else [])
    for path in needed:
        if not path.is_file():
            raise UserError(
                f"no {path} in {Path.cwd()}: go to the folder that holds it, or name your code with --code DIR"
            )


def _print_plan(jobs: list[Job], done: set[str]) -> None:
    """The commands, with what they are and cost in shell comments."""
    here = jobs[0].sweep.launcher == "local"
    available, kind = _devices(jobs[0]) if here else (max(job.devices for job in jobs), "GPUs")
    on_gpus = kind == "GPUs" and not jobs[0].sweep.cpu
    estimates = [cost.estimate(job, on_gpus, available) for job in jobs]
    for number, (job, one) in enumerate(zip(jobs, estimates, strict=True), start=1):
        time_left = "done already" if job.run_id in done else f"about {cost.duration(one.seconds)}"
        print(f"# [{number}/{len(jobs)}] {job.title}: {time_left}")
        print(local.command_line(job) if here else slurm.command_line(job))
    left = [(job, one) for job, one in zip(jobs, estimates, strict=True) if job.run_id not in done]
    unit = "GPU" if on_gpus else "core"
    text = cost.total([job for job, _ in left], [one for _, one in left], unit) if left else "nothing left to do"
    print(f"# {len(jobs)} jobs{f', {len(done)} done already' if done else ''}: {text}")


def _run_here(jobs: list[Job], choices: Choices) -> int:
    display = Display(len(jobs))
    display.say(f"{len(jobs)} jobs, one after the other, in {jobs[0].sweep.output_dir}/")
    started, failed = time.monotonic(), 0
    available, kind = _devices(jobs[0])
    for number, job in enumerate(jobs):
        left = _names(jobs[number:])
        expected = cost.estimate(job, kind == "GPUs", available).seconds
        if choices.stop_after and time.monotonic() - started + expected > choices.stop_after * 60:
            display.say(f"--stop-after {choices.stop_after:g}: no time for another job; left to do: {left}")
            display.say("the same command goes on from here")
            return 1 if failed else 0
        try:
            state, reason = local.run_job(job, display)
        except KeyboardInterrupt:
            display.finish("stopped", "by Ctrl-C; its processes are ended")
            display.say(f"{number} of {len(jobs)} jobs ended before; left to do: {left}")
            display.say("the same command goes on from here")
            return INTERRUPTED
        if state == states.DONE:
            display.finish("done")
        else:
            failed += 1
            display.finish(state, f"{reason}  (see {job.folder / 'train.err'})")
    following = f"next: {_plot_command(jobs)}"
    if failed == len(jobs):
        following = "repair what they say, and run the same command again"
    display.say(f"{len(jobs) - failed} done, {failed} failed; {following}")
    return 1 if failed else 0


def _submit(jobs: list[Job], choices: Choices) -> int:
    for job in jobs:
        slurm.layout(job.devices)  # before the first job is in the queue
    failed = 0
    # Those of an earlier call count, as long as they wait or run.
    submitted = [jobid for job in jobs if (jobid := earlier_slurm_job(job.folder))]
    for number, job in enumerate(jobs):
        start = f"[{number + 1}/{len(jobs)}] {job.title}  "
        try:
            job_folder.refuse_while_queued(job.folder)  # such a job needs no room
            if choices.max_jobs:
                _wait_for_room(submitted, choices.max_jobs)
            if not choices.rerun and is_done(job):
                job_folder.note_comparison(job)
                print(f"{start}done since this sweep was started", flush=True)
                continue
            submitted.append(slurm.submit(job))
            print(f"{start}job {submitted[-1]}  {job.folder}/train.log", flush=True)
        except job_folder.StillQueuedError as error:
            job_folder.note_comparison(job)
            print(f"{start}not submitted  {error}", flush=True)
        except UserError as error:
            failed += 1
            print(f"{start}not submitted  {error}", flush=True)
        except KeyboardInterrupt:
            print(f"\nstopped by Ctrl-C; not submitted: {_names(jobs[number:])}")
            print("Jobs that are submitted go on (scancel ends them); the same command submits the others.")
            return INTERRUPTED
    if failed == len(jobs):
        print("Nothing was submitted. To run the jobs on this machine: --launcher local")
    else:
        print(f"Follow them with: squeue --me\nWhen they have ended: {_plot_command(jobs)}")
    return 1 if failed else 0


def _wait_for_room(submitted: list[str], most: int) -> None:
    """Until fewer than `most` of our jobs wait or run, by Slurm's word."""
    said = ""
    while len(submitted) >= most:
        try:
            queued = slurm.in_queue(submitted)
            if queued < most:
                return
            waits = f"{queued} jobs in the queue (--max-jobs {most}): waiting for one to end"
        except query.NoAnswerError as error:
            waits = f"{error}: asking again"
        if waits != said:
            print(waits, flush=True)
            said = waits
        time.sleep(LOOK_EVERY)


def _names(jobs: list[Job]) -> str:
    names = [job.run_id for job in jobs[:4]]
    return ", ".join(names) + (f" and {len(jobs) - 4} more" if len(jobs) > 4 else "")


def _plot_command(jobs: list[Job]) -> str:
    """What draws their results; it expects them in results/ unless told otherwise."""
    folder = jobs[0].sweep.output_dir
    return "./plot_results.sh" + ("" if folder == Path("results") else f" {folder}")


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
