"""What a sweep must not be: each mistake is one sentence before the first job, not a failure in each of them."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lab.training.errors import UsageError
from lab.training.options import PRECISIONS, STRATEGIES
from lab.training.provenance import ADMINISTRATIVE
from lab.training.resolve import resolve

if TYPE_CHECKING:
    from lab.sweep.plan import Job, Sweep

SCALINGS = ("strong", "weak")

# What the sweep itself decides for every job; after `--` these would contradict it.
RESERVED = {
    "--strategy": "--strategies",
    "--epochs": "--epochs",
    "--measure-steps": "--measure-steps",
    "--measure-warmup": "--measure-warmup",
    "--global-batch-size": "--global-batch-size",
    "--per-device-batch-size": "--per-device-batch-size",
    "--output-dir": "--output-dir",
    "--run-id": None,
    "--scaling": None,
    "--repeat": None,
    "--dry-run": "--dry-run",
}


def refuse_ignored(given: Collection[str], sweeps: "Sequence[Sweep]") -> None:
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


def check_sweep(sweep: "Sweep") -> None:
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


def check_job(job: "Job") -> None:
    """Raises UsageError where main.py would refuse the job, or --compare makes no other one of it."""
    flags = job.parsed_flags()
    try:
        resolve(flags, job.devices, device="cpu" if job.sweep.cpu else "cuda")
    except UsageError as error:
        raise UsageError(f"{' '.join(job.title.split())}: {error}") from None
    before = vars(replace(job, extra=()).parsed_flags())
    unseen = (*ADMINISTRATIVE, "seed")  # with these the runs would count as repeats of those without
    if job.extra and all(value == before[name] for name, value in vars(flags).items() if name not in unseen):
        raise UsageError(
            f"--compare={' '.join(job.extra)} makes the same runs again: name an option that changes the work, "
            "and that neither -- nor the preset sets for all jobs"
        )
