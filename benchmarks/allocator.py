"""Claim: told to keep the memory that each step frees, glibc's malloc makes a CPU rank with a large batch at least
1.3 times as fast, at least 3 times less of it in the kernel; without that, two ranks seem to scale better than
they do.

Run: python benchmarks/allocator.py [--repeats N]      (needs no GPU; Linux with glibc, two CPU cores)

The exercises' CNN through main.py and torchrun, 512 images a step: on one rank without a wrapper and on two with
DDP, each with glibc's own settings and with the lab's (lab/base/allocator.py), in turn, n = 3 times. 20 timed
steps after 5 others (`--measure-steps`). Prints median and spread of images/s, of the user and system seconds of
all processes, start included, and of two ranks' efficiency over one. Exit code 1 when the claim does not hold.
"""

import argparse
import csv
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.base.allocator import KEEPS
from lab.sweep.launch.local import environment

ROOT = Path(__file__).resolve().parent.parent
BATCH = 512
SETTINGS = {
    "glibc's own": {"GLIBC_TUNABLES": "glibc.malloc.perturb=0"},  # changes nothing, but the lab leaves it alone
    "the lab's": {},
}
FASTER, LESS_SYSTEM = 1.3, 3.0  # claimed, on one rank


@dataclass(frozen=True)
class Measured:
    """One run."""

    speed: float  # images/s
    user: float  # seconds of all processes
    system: float


def measure(ranks: int, setting: str) -> Measured:
    """Train for some steps, in processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        command += ["--nproc-per-node", str(ranks), str(ROOT / "solutions" / "main.py"), "--run-id", "run"]
        command += ["--output-dir", folder, "--strategy", "none" if ranks == 1 else "ddp"]
        command += ["--global-batch-size", str(BATCH), "--measure-steps", "20", "--measure-warmup", "5"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environ = environment(cpu=True) | SETTINGS[setting]
        done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        with (Path(folder) / "run" / "run.csv").open(newline="", encoding="utf-8") as file:
            *_, row = csv.DictReader(file)
    if (row["allocator"] == KEEPS) != (setting == "the lab's"):
        sys.exit(f"this needs glibc without settings of your own, but found: {row['allocator'] or 'no glibc'}")
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return Measured(float(row["images_per_sec"]), user, system)


def show(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def main() -> int:
    """Measure, print, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="of each run")
    repeats = range(parser.parse_args().repeats)
    load = os.getloadavg()[0]
    keys = [(ranks, setting) for ranks in (1, 2) for setting in SETTINGS]
    runs: dict[tuple[int, str], list[Measured]] = {key: [] for key in keys}
    for _ in repeats:
        for key in keys:
            runs[key].append(measure(*key))
    print(f"cnn, {BATCH} images a step in all, n = {len(repeats)}, {os.cpu_count()} CPU cores")
    for (ranks, setting), found in runs.items():
        speed, user, system = ([getattr(run, name) for run in found] for name in ("speed", "user", "system"))
        print(
            f"{ranks} rank(s), {setting:<11}  {show(speed, ',.0f')} images/s,  {show(system, '.1f')} s in the",
            end="",
        )
        print(f" kernel,  {show(user, '.1f')} s outside of it")
    plain, kept = (runs[1, setting] for setting in SETTINGS)
    pairs = list(zip(plain, kept, strict=True))
    faster = statistics.median(two.speed / one.speed for one, two in pairs)
    less = statistics.median(one.system / two.system for one, two in pairs)
    print(f"one rank: {faster:.2f} times the images/s (claimed: {FASTER:g}), ", end="")
    print(f"{less:.1f} times less time in the kernel (claimed: {LESS_SYSTEM:g})")
    for setting in SETTINGS:
        ones, twos = runs[1, setting], runs[2, setting]
        efficiencies = [two.speed / one.speed / 2 for one, two in zip(ones, twos, strict=True)]
        print(f"efficiency of two ranks, {setting:<11}  {show(efficiencies, '.0%')}")
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} at the end")
    return 0 if faster >= FASTER and less >= LESS_SYSTEM else 1


if __name__ == "__main__":
    sys.exit(main())
