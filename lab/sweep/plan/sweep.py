"""What can be chosen about a sweep, and one of its jobs: its name, its command line, its title."""

import argparse
import contextlib
import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

from lab.base.errors import UsageError
from lab.runs.options.parser import build_parser
from lab.runs.options.precision import DEFAULT_BUCKET_CAP_MB


@dataclass(frozen=True)
class Sweep:
    """Everything that can be chosen about a sweep; the defaults are those of run_benchmarks.py.

    Several values of one kind make a job for each combination. Empty where main.py's own default is meant.
    """

    devices: tuple[int, ...] = (1, 2, 4, 8)
    strategies: tuple[str, ...] = ("none", "ddp", "fsdp")
    scalings: tuple[str, ...] = ("strong",)
    global_batches: tuple[int, ...] = (512,)  # strong scaling: over all devices, the same work for every point
    per_device_batches: tuple[int, ...] = (128,)  # weak scaling: on each device, the more devices the more work
    precisions: tuple[str, ...] = ()
    bucket_caps: tuple[float, ...] = ()  # MiB; ddp only
    workers: tuple[int, ...] = ()  # loader processes a rank
    compare: tuple[str, ...] = ()  # options of main.py; with and without them, for before and after
    repeats: int = 1
    epochs: int = 6
    measure_steps: int = 0  # instead of epochs: this many steps are timed ...
    measure_warmup: int = 20  # ... after these
    cpu: bool = False  # also where there are GPUs
    time_limit: int = 0  # minutes a job; 0: none here, run.sh's own with Slurm
    code: str = "exercises"  # the folder that holds main.py; empty: solutions where it is, else exercises
    launcher: str = ""  # local or slurm; empty: slurm where it answers
    gpus: bool = True  # False where the jobs run on this machine and it has none
    card: str = ""  # of the machine that the jobs run on, where that is this one and has GPUs
    flags: tuple[str, ...] = ()  # passed on to main.py as they are
    output_dir: Path = Path("results")


@dataclass(frozen=True)
class Job:
    """One point of a sweep, one run folder."""

    strategy: str
    devices: int
    sweep: Sweep
    scaling: str = "strong"
    batch: int = 512  # over all devices with strong scaling, on each with weak
    precision: str = ""
    bucket_cap: float = DEFAULT_BUCKET_CAP_MB
    workers: int = 0
    extra: tuple[str, ...] = ()
    repeat: int = 1

    @property
    def run_id(self) -> str:
        """Name of the run folder: ddp-2-3f9a1c, its second repeat ddp-2-3f9a1c-r2.

        The same job has the same name in every sweep. The digest stands for everything else, so that a sweep with
        other settings leaves these results alone.
        """
        same = [self.sweep.code, self._place, *self._settings]
        digest = hashlib.sha256(json.dumps(same).encode()).hexdigest()[:6]
        return f"{self.strategy}-{self.devices}-{digest}" + (f"-r{self.repeat}" if self.repeat > 1 else "")

    @property
    def _place(self) -> str:
        """Where the job runs, as far as that is known: elsewhere the same settings are another job."""
        if self.sweep.launcher == "slurm":
            return "slurm, CPU" if self.sweep.cpu else "slurm"  # its cards are known only to the run
        return self.sweep.card

    @property
    def folder(self) -> Path:
        return self.sweep.output_dir / self.run_id

    @property
    def main(self) -> str:
        """The program to run, relative to the folder the sweep is started in."""
        return str(Path(self.sweep.code) / "main.py")

    @property
    def global_batch(self) -> int:
        return self.batch if self.scaling == "strong" else self.batch * self.devices

    @property
    def _settings(self) -> list[str]:
        sweep = self.sweep
        batch = "--global-batch-size" if self.scaling == "strong" else "--per-device-batch-size"
        options: dict[str, object] = {batch: self.batch}
        if sweep.measure_steps:
            options |= {"--measure-steps": sweep.measure_steps, "--measure-warmup": sweep.measure_warmup}
        else:
            options["--epochs"] = sweep.epochs
        options["--scaling"] = self.scaling
        if self.precision:
            options["--precision"] = self.precision
        if self.strategy == "ddp" and self.bucket_cap != DEFAULT_BUCKET_CAP_MB:
            options["--bucket-cap-mb"] = f"{self.bucket_cap:g}"
        if self.workers:
            options["--num-workers"] = self.workers
        return [str(part) for option in options.items() for part in option] + [*self.extra, *sweep.flags]

    @property
    def main_flags(self) -> list[str]:
        """main.py's options for this job; those of the user come last."""
        own = {
            "--strategy": self.strategy,
            "--output-dir": self.sweep.output_dir,
            "--run-id": self.run_id,
            "--repeat": self.repeat,
        }
        return [str(part) for option in own.items() for part in option] + self._settings

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
            given = "--compare or what follows --" if self.extra else "what follows --"
            raise UsageError(f"main.py does not take {given}: {said}") from None

    @property
    def title(self) -> str:
        """For people, in a column: `ddp   2 devices`, and what else is varied in this sweep."""
        sweep, several = self.sweep, []
        if len(sweep.scalings) > 1:
            several.append(f"{self.scaling:<6}")
        batches = sweep.global_batches if self.scaling == "strong" else sweep.per_device_batches
        if len(batches) > 1:
            several.append(f"batch {self.batch}")
        if len(sweep.precisions) > 1:
            several.append(self.precision)
        if len(sweep.bucket_caps) > 1 and self.strategy == "ddp":
            several.append(f"{self.bucket_cap:g} MiB")
        if len(sweep.workers) > 1:
            several.append(f"{self.workers} workers")
        several += self.extra
        if sweep.repeats > 1:
            several.append(f"#{self.repeat}")
        device = f"{self.strategy:<5} {self.devices} device{'s' if self.devices > 1 else ' '}"
        return "  ".join([device, *several])
