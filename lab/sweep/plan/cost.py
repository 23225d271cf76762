"""What a sweep will cost, before it is run: seconds of each job, device-hours of all.

Measured where a repeat of the same job has been here before; else a guess from the rough speed of one device, good
to a factor of two or three.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lab.runs.records.job import JOB_FILE, read_json
from lab.slurm import states
from lab.sweep.compare.columns import ENOUGH_STEPS
from lab.sweep.plan.sweep import Job

# Images a second of one device in training: a CPU core, a data-centre GPU in bf16 without graph capture.
ROUGH_SPEED = {
    "cnn": (1_500, 25_000),
    "mnist_cnn": (2_500, 25_000),
    "resnet18": (25, 8_000),
    "vgg19": (1, 1_000),
    "vit": (60, 8_000),
}
UNKNOWN_NETWORK = (200, 8_000)  # one's own, FILE:NAME
SMALLEST_VIT = (60, 210_000)  # images a second, if nothing but its arithmetic took time
FSDP_ON_GPU = 0.45  # of it, for networks so small that gathering parameters takes longer than computing
START = {"cpu": 8.0, "gpu": 15.0}  # seconds until the first step: Python, torch, the process group, the data
IMAGES = {"shapes": 5_120, "sample": 47, "cifar10": 45_000, "mnist": 54_000}  # to train, an epoch
UNKNOWN_SET = 50_000


@dataclass(frozen=True)
class Estimate:
    """Seconds a job takes."""

    seconds: float
    measured: bool


def estimate(job: Job, on_gpus: bool, available: int) -> Estimate:
    """How long a job will take.

    Args:
        available: devices to run it on; ranks beyond these share them.
    """
    measured = measured_seconds(job)
    if measured:
        return Estimate(measured, measured=True)
    flags = job.parsed_flags()
    speed = 1 / (
        1 / ROUGH_SPEED.get(flags.model, UNKNOWN_NETWORK)[on_gpus] + (_size(flags) - 1) / SMALLEST_VIT[on_gpus]
    )
    if on_gpus and job.strategy.startswith("fsdp"):
        speed *= FSDP_ON_GPU
    if job.sweep.measure_steps:
        images = (job.sweep.measure_warmup + job.sweep.measure_steps) * job.global_batch
    else:
        images = job.sweep.epochs * IMAGES.get(flags.dataset, UNKNOWN_SET)
    training = images / (speed * min(job.devices, available))
    return Estimate(START["gpu" if on_gpus else "cpu"] + training, measured=False)


def _size(flags: argparse.Namespace) -> float:
    """How much larger the network is than the one that the speed is of."""
    if flags.model != "vit":
        return 1.0
    return (flags.width or 192) ** 2 * (flags.depth or 6) / (192**2 * 6)


def few_steps(jobs: Sequence[Job]) -> str:
    """A note where so few steps are timed that collecting will doubt the figures; else empty."""
    steps = min((job.sweep.measure_steps for job in jobs if job.sweep.measure_steps), default=ENOUGH_STEPS)
    if steps >= ENOUGH_STEPS:
        return ""
    return f"note: --measure-steps {steps} is few: below {ENOUGH_STEPS} the spread of single steps shows"


def total(jobs: Sequence[Job], estimates: Sequence[Estimate], unit: str) -> str:
    """For people: `about 6 min one after the other, 0.2 GPU-hours`.

    Args:
        unit: of a device: "GPU" or "CPU core".
    """
    seconds = sum(one.seconds for one in estimates)
    hours = sum(one.seconds * job.devices for job, one in zip(jobs, estimates, strict=True)) / 3600
    guessed = sum(not one.measured for one in estimates)
    basis = "" if not guessed else " (a rough guess)" if guessed == len(jobs) else f" ({guessed} roughly guessed)"
    return f"about {duration(seconds)} one after the other, {hours:.2g} {unit}-hours{basis}"


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def measured_seconds(job: Job) -> float:
    """How long a finished repeat of this job took; 0 when there is none."""
    for repeat in range(1, job.sweep.repeats + 1):
        folder = replace(job, repeat=repeat).folder
        seconds = read_json(folder / JOB_FILE).get("seconds")
        if isinstance(seconds, int | float) and read_json(folder / "status.json").get("status") == states.DONE:
            return float(seconds)
    return 0.0
