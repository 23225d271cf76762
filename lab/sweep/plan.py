"""Which jobs a sweep consists of: device counts x strategies, at one global batch (strong scaling)."""

import argparse
import contextlib
import hashlib
import io
import json
from dataclasses import dataclass, replace
from pathlib import Path

from lab.training.errors import UsageError
from lab.training.options import STRATEGIES, build_parser

BASELINE = "none"  # a plain run on one device: what every other point is compared with


@dataclass(frozen=True)
class Sweep:
    """Everything that can be chosen about a sweep; the defaults are those of run_benchmarks.py."""

    devices: tuple[int, ...] = (1, 2, 4, 8)
    strategies: tuple[str, ...] = ("none", "ddp", "fsdp")
    global_batch: int = 512  # over all devices: the same work for every point
    epochs: int = 5
    code: str = "exercises"  # the folder that holds main.py
    launcher: str = ""  # local or slurm; empty: slurm where sbatch is
    flags: tuple[str, ...] = ()  # passed on to main.py as they are
    output_dir: Path = Path("results")


PRESETS = {
    "demo": Sweep(
        devices=(1, 2),
        global_batch=256,
        epochs=3,
        code="solutions",
        launcher="local",
        flags=("--dataset", "shapes", "--model", "cnn"),
        output_dir=Path("results/demo"),  # beside your own results, not among them
    ),
}

# What the sweep itself decides for every job; after `--` these would contradict it.
RESERVED = {
    "--strategy": "--strategies",
    "--epochs": "--epochs",
    "--global-batch-size": "--global-batch-size",
    "--per-device-batch-size": "--global-batch-size",
    "--output-dir": "--output-dir",
    "--run-id": None,
    "--scaling": None,
    "--repeat": None,
    "--dry-run": "--dry-run",
}


@dataclass(frozen=True)
class Job:
    """One point of a sweep: one strategy on one number of devices, one run folder."""

    strategy: str
    devices: int
    sweep: Sweep
    repeat: int = 1
    scaling: str = "strong"

    @property
    def run_id(self) -> str:
        """Name of the run folder: ddp-2-3f9a1c. The same job has the same name in every sweep like this one.

        The digest stands for everything but strategy and devices, so that a sweep with other settings leaves
        these results alone, and the jobs of one sweep are seen to belong together.
        """
        sweep = self.sweep
        same = [sweep.code, sweep.global_batch, sweep.epochs, list(sweep.flags), self.scaling, self.repeat]
        digest = hashlib.sha256(json.dumps(same).encode()).hexdigest()[:6]
        return f"{self.strategy}-{self.devices}-{digest}"

    @property
    def folder(self) -> Path:
        return self.sweep.output_dir / self.run_id

    @property
    def main(self) -> str:
        """The program to run, relative to the folder the sweep is started in."""
        return str(Path(self.sweep.code) / "main.py")

    @property
    def main_flags(self) -> list[str]:
        """main.py's options for this job; those of the user come last."""
        options = {
            "--strategy": self.strategy,
            "--global-batch-size": self.sweep.global_batch,
            "--epochs": self.sweep.epochs,
            "--output-dir": self.sweep.output_dir,
            "--run-id": self.run_id,
            "--scaling": self.scaling,
            "--repeat": self.repeat,
        }
        return [str(part) for option in options.items() for part in option] + list(self.sweep.flags)

    def parsed_flags(self) -> argparse.Namespace:
        """The flags as main.py will understand them, with its defaults.

        Raises:
            UsageError: main.py would refuse them; better now than in every job.
        """
        complaint = io.StringIO()
        try:
            with contextlib.redirect_stderr(complaint):
                return build_parser().parse_args(self.main_flags)
        except SystemExit as end:
            if end.code == 0:  # --help
                raise
            said = complaint.getvalue().strip().splitlines()[-1].removeprefix("main.py: error: ")
            raise UsageError(f"main.py does not take what follows --: {said}") from None

    @property
    def title(self) -> str:
        """For people, in a column: `ddp   2 devices`."""
        return f"{self.strategy:<5} {self.devices} device{'s' if self.devices > 1 else ' '}"


def plan_jobs(sweep: Sweep) -> list[Job]:
    """The jobs of a sweep: the baseline first, then by number of devices.

    The baseline is always there, also when it was not asked for: without it there is no efficiency.

    Raises:
        UsageError: a value makes no sense; the sentence says what to write instead.
    """
    _check(sweep)
    points = [(BASELINE, 1)]
    for devices in sorted(set(sweep.devices)):
        points += [(strategy, devices) for strategy in dict.fromkeys(sweep.strategies) if strategy != BASELINE]
    jobs = [Job(strategy, devices, sweep) for strategy, devices in points]
    jobs[0].parsed_flags()
    return jobs


def only_devices_up_to(sweep: Sweep, available: int) -> Sweep:
    """The sweep without the device counts that a machine with this many devices cannot run in parallel."""
    fitting = tuple(count for count in sweep.devices if count <= available)
    return replace(sweep, devices=fitting or (1,))


def _check(sweep: Sweep) -> None:
    for strategy in sweep.strategies:
        if strategy not in STRATEGIES:
            raise UsageError(f"--strategies {strategy} is unknown: choose from {' '.join(STRATEGIES)}")
    if sweep.epochs < 1:
        raise UsageError(f"--epochs {sweep.epochs}: train for at least one epoch")
    if sweep.global_batch < 1:
        raise UsageError(f"--global-batch-size {sweep.global_batch}: use at least one image a device")
    for count in sweep.devices:
        if count < 1:
            raise UsageError(f"--devices {count}: a job needs at least one device")
        if sweep.global_batch % count:
            fitting = max(count, sweep.global_batch // count * count)
            raise UsageError(
                f"a global batch of {sweep.global_batch} images cannot be divided evenly among {count} devices: "
                f"use --global-batch-size {fitting}, or leave {count} out of --devices"
            )
    for flag in sweep.flags:
        name = flag.split("=", 1)[0]
        if name in RESERVED:
            instead = RESERVED[name]
            raise UsageError(
                f"{name} after -- is set by the sweep itself for each job"
                + (f": use {instead} before the --" if instead else "")
            )
