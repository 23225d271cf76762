"""What a sweep must not be: each mistake is one sentence before the first job, not a failure in each of them."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from lab.base.errors import UsageError
from lab.runs.options.model import STRATEGIES
from lab.runs.options.parser import resolve
from lab.runs.options.precision import DEFAULT_BUCKET_CAP_MB, PRECISIONS
from lab.runs.records.provenance import ADMINISTRATIVE
from lab.sweep.plan.sweep import Job, Sweep

SCALINGS = ("strong", "weak")

# What the sweep itself decides for every job; after `--` these would contradict it. -> its own option for it.
_OF_THE_SAME_NAME = (
    *("--epochs", "--measure-steps", "--measure-warmup", "--global-batch-size", "--per-device-batch-size"),
    *("--output-dir", "--dry-run"),
)
RESERVED = {
    "--strategy": "--strategies",
    **{name: name for name in _OF_THE_SAME_NAME},
    **dict.fromkeys(("--run-id", "--scaling", "--repeat")),
}


def refuse_ignored(given: Collection[str], sweeps: Sequence[Sweep]) -> None:
    """Raises UsageError for an option that changes no job of these sweeps.

    Args:
        given: names of Sweep's fields that were asked for, and are not a default's or a preset's.
    """
    scalings = {scaling for sweep in sweeps for scaling in sweep.scalings}
    strategies = {strategy for sweep in sweeps for strategy in sweep.strategies}
    several = any(sweep.devices != (1,) for sweep in sweeps)
    for name, option, has_effect, needed in (
        ("global_batches", "--global-batch-size", "strong" in scalings, "--scaling strong"),
        ("per_device_batches", "--per-device-batch-size", "weak" in scalings, "--scaling weak"),
        ("bucket_caps", "--bucket-cap-mb", "ddp" in strategies, "--strategies ddp"),
        ("devices", "--devices", strategies != {"none"} or not several, "--strategies ddp or fsdp"),
        ("measure_warmup", "--measure-warmup", any(sweep.measure_steps for sweep in sweeps), "--measure-steps"),
    ):
        if name in given and not has_effect:
            raise UsageError(f"{option} has no effect without {needed}: add that, or leave out {option}")
    if "epochs" in given and any(sweep.measure_steps for sweep in sweeps):
        raise UsageError("--epochs has no effect beside --measure-steps: leave out one of them")
    if "compare" in given and not all(sweep.compare for sweep in sweeps):
        raise UsageError("--compare is empty: give options of main.py, as in --compare=--deterministic")


def check_sweep(sweep: Sweep) -> None:
    """Raises UsageError where a value makes no sense; the sentence says what to write instead."""
    for name, known, given in (
        ("strategies", STRATEGIES, sweep.strategies),
        ("scaling", SCALINGS, sweep.scalings),
        ("precision", PRECISIONS, sweep.precisions),
    ):
        for value in given:
            if value not in known:
                raise UsageError(f"--{name} {value} is unknown: choose from {' '.join(known)}")
    if sweep.epochs < 1:
        raise UsageError(f"--epochs {sweep.epochs}: train for at least one epoch")
    if sweep.repeats < 1:
        raise UsageError(f"--repeat {sweep.repeats}: every point is run at least once")
    if sweep.measure_steps < 0 or sweep.measure_warmup < 1:
        raise UsageError("--measure-steps and --measure-warmup need at least one step")
    for name, batches in (
        ("global-batch-size", sweep.global_batches),
        ("per-device-batch-size", sweep.per_device_batches),
    ):
        for batch in batches:
            if batch < 1:
                raise UsageError(f"--{name} {batch}: use at least one image a device")
    for count in sweep.devices:
        if count < 1:
            raise UsageError(f"--devices {count}: a job needs at least one device")
        for batch in sweep.global_batches if "strong" in sweep.scalings else ():
            if batch % count:
                fitting = max(count, batch // count * count)
                raise UsageError(
                    f"a global batch of {batch} images cannot be divided evenly among {count} devices: "
                    f"use --global-batch-size {fitting}, or leave {count} out of --devices"
                )
    axes = {"--precision": sweep.precisions, "--bucket-cap-mb": sweep.bucket_caps, "--num-workers": sweep.workers}
    for where, given, place in (
        ("after --", sweep.flags, "before the --"),
        ("in --compare", sweep.compare, "instead"),
    ):
        for flag in given:
            name = flag.split("=", 1)[0]
            if name in RESERVED or axes.get(name):
                instead = RESERVED.get(name, name)
                raise UsageError(
                    f"{name} {where} is set by the sweep itself for each job"
                    + (f": use {instead} {place}" if instead else "")
                )
    if sweep.measure_steps and "--profile" in sweep.flags:
        raise UsageError(
            "--profile slows the steps that --measure-steps times: profile runs in epochs, "
            "with --epochs 3 -- --profile"
        )


def check_job(job: Job) -> None:
    """Raises UsageError where main.py would refuse the job."""
    on_cpu = job.sweep.cpu or not job.sweep.gpus
    try:
        resolve(job.parsed_flags(), job.devices, device="cpu" if on_cpu else "cuda")
    except UsageError as error:
        raise UsageError(f"{' '.join(job.title.split())}: {error}") from None


def without_those_that_compare_nothing(jobs: Sequence[Job]) -> list[Job]:
    """The jobs, but for those of which --compare makes no other ones, as buckets do of --strategy fsdp.

    Raises:
        UsageError: it makes another one of none.
    """
    compared = [job for job in jobs if job.extra]
    same = {job.run_id for job in compared if _work(job) == _work(replace(job, extra=()))}
    if compared and len(same) == len(compared):
        raise UsageError(
            f"--compare={' '.join(compared[0].extra)} makes the same runs again: name an option that changes the "
            "work, and that neither -- nor the preset sets for all jobs"
        )
    return [job for job in jobs if job.run_id not in same]


def _work(job: Job) -> dict[str, object]:
    """The options of a job that make runs another work, not repeats of one."""
    options = vars(job.parsed_flags())
    cap = (options["bucket_cap_mb"] or DEFAULT_BUCKET_CAP_MB) if job.strategy == "ddp" else None
    return {
        name: value
        for name, value in (options | {"bucket_cap_mb": cap}).items()
        if name not in (*ADMINISTRATIVE, "seed")
    }
