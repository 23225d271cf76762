"""Claim: FSDP in bf16 with `--shard grad` sends three quarters of the bytes of `--shard full` in a step, and is no
slower on GPUs; what it costs is memory for all parameters, gathered from the forward to the backward pass.

Run: python benchmarks/shard_choices.py [--ranks N] [--width W] [--depth D] [--batch B] [--steps S] [--repeats R]

main.py through torchrun, in fresh processes: a vision transformer with AdamW, S timed steps after 20 others, R
repeats of all choices in turn. On GPUs each also with --capture, where the CPU does not hold a step up. `hybrid`
takes part from 4 ranks on, with half of them to a copy. Printed are, of each choice, images/s (median and spread),
the peak of memory, what a rank holds (weights, gradients, optimizer state), and what it sends in a step to the
ranks of its copy and to the other copies. Ranks: one for each GPU, or two on a CPU, where the peak is that of the
whole process. Exit code 1 when a run fails or the claim does not hold.
"""

import argparse
import csv
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from lab.sweep.launch.local import environment

ROOT = Path(__file__).resolve().parent.parent
FEWER_BYTES, TOLERANCE = (
    3 / 4,
    0.02,
)  # 2 bytes to gather for each weight, once instead of twice, and 4 of its gradient
NOT_SLOWER = 0.97  # of full's images/s


def choices(ranks: int, *, on_gpus: bool) -> dict[str, list[str]]:
    """What is compared, as it would be typed."""
    found = {"full": ["--shard", "full"], "grad": ["--shard", "grad"]}
    if ranks >= 4 and ranks % 2 == 0:
        found["hybrid"] = ["--shard", "hybrid", "--shard-ranks", str(ranks // 2)]
    captured = {f"{name}, captured": [*options, "--capture"] for name, options in found.items()}
    return {**found, **captured} if on_gpus else found


def train(options: list[str], args: argparse.Namespace, *, on_gpus: bool) -> dict[str, str]:
    """The last row of a run's run.csv."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        command += ["--nproc-per-node", str(args.ranks), str(ROOT / "solutions" / "main.py"), "--strategy", "fsdp"]
        command += [
            "--model",
            "vit",
            "--width",
            str(args.width),
            "--depth",
            str(args.depth),
            "--precision",
            "bf16",
        ]
        command += ["--optimizer", "adamw", "--per-device-batch-size", str(args.batch), "--input", "device"]
        command += ["--measure-steps", str(args.steps), "--output-dir", folder, "--run-id", "run", *options]
        environ = environment(cpu=not on_gpus)
        done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        with (Path(folder) / "run" / "run.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))[-1]


def line(name: str, rows: list[dict[str, str]]) -> str:
    """A choice's figures."""
    speeds = [float(row["images_per_sec"]) for row in rows]
    row = rows[-1]
    spread = f"({min(speeds):,.0f} to {max(speeds):,.0f})"
    return (
        f"{name:<18}{statistics.median(speeds):>10,.0f} {spread:<22}{float(row['mem_gb']) * 1024:>10,.0f}"
        f"{float(row['held_mb']):>10,.1f}{float(row['shard_group_mb']):>12,.2f}{float(row['copies_group_mb']):>12,.2f}"
    )


def main() -> int:
    """Measure, print the table, return the exit code."""
    gpus = torch.cuda.device_count()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=gpus or 2, help="default: one for each GPU, two on a CPU")
    parser.add_argument("--width", type=int, default=1024 if gpus else 64, help="of the transformer")
    parser.add_argument("--depth", type=int, default=12 if gpus else 2, help="its blocks")
    parser.add_argument("--batch", type=int, default=128 if gpus else 8, help="images on each rank")
    parser.add_argument("--steps", type=int, default=60 if gpus else 5, help="timed ones")
    parser.add_argument("--repeats", type=int, default=3, help="of each choice")
    args = parser.parse_args()
    if gpus and args.ranks > gpus:
        parser.error(f"--ranks {args.ranks}: there are {gpus} GPUs here")
    compared = choices(args.ranks, on_gpus=gpus > 0)
    rows: dict[str, list[dict[str, str]]] = {name: [] for name in compared}
    for _ in range(args.repeats):
        for name, options in compared.items():
            rows[name].append(train(options, args, on_gpus=gpus > 0))

    first = rows["full"][0]
    size = f"vit, width {args.width}, depth {args.depth}, bf16, AdamW, {args.batch} images on each rank"
    print(f"{size}; {args.ranks} x {first['device']}, {first['versions']}; n = {args.repeats}")
    print(f"{'':<18}{'images/s':>10} {'':<22}{'peak MiB':>10}{'held MiB':>10}{'in copy':>12}{'to copies':>12}")
    for name, found in rows.items():
        print(line(name, found))
    sent = {name: float(rows[name][0]["shard_group_mb"]) for name in ("full", "grad")}
    fewer = sent["grad"] / sent["full"]
    holds = abs(fewer - FEWER_BYTES) <= TOLERANCE
    print(f"grad sends {fewer:.3f} of full's bytes (claimed: {FEWER_BYTES:.2f}, within {TOLERANCE})")
    for way in ("", ", captured") if gpus else ():
        one, two = (
            statistics.median(float(row["images_per_sec"]) for row in rows[name + way])
            for name in ("full", "grad")
        )
        holds &= two >= NOT_SLOWER * one
        print(f"grad{way} has {two / one:.2f} of full{way}'s images/s (claimed: at least {NOT_SLOWER})")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
