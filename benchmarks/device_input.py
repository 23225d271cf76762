"""Claim: with `--augment`, a batch from images that lie on the device (`--input device`) costs a CPU at least 4
times less than one from a loader with a process of its own, for the same images, bit for bit.

Run: python benchmarks/device_input.py [--repeats N] [--ranks N] [--gpus]      (needs two CPU cores)

CPU milliseconds for 128 images of 32x32, in this process and the loader's, over five passes through 5,120 images.
Then what that is worth: main.py through torchrun with the exercises' CNN, DDP on N = 2 ranks, 256 images a step,
the loader with `--num-workers 1 --persistent-workers` and the device in turn, n = 3 times, 60 timed steps after 20
others. Prints median and spread of images/s, and the ratio that the milliseconds alone let expect where ranks and
loaders share the cores. Exit code 1 when batches or losses differ, or the claim does not hold.
"""

import argparse
import csv
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
from torch.utils.data import BatchSampler, DataLoader

from lab.base.allocator import keep_freed_memory
from lab.sweep.launch.local import environment
from lab.training.data.batches import Batch, put_on_device
from lab.training.data.datasets import load_datasets

ROOT = Path(__file__).resolve().parent.parent
WAYS = {
    "loader": ("--input", "loader", "--num-workers", "1", "--persistent-workers"),
    "device": ("--input", "device"),
}
BATCH, PASSES = 128, 5
RATIO = 4  # claimed


def cpu_seconds() -> float:
    """Of this process, and of those that it has started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def milliseconds(passes: Iterable[Iterable[Batch]]) -> float:
    """CPU time for a batch."""
    before, count = cpu_seconds(), sum(1 for one in passes for _ in one)
    return (cpu_seconds() - before) / count * 1e3


def costs() -> dict[str, float]:
    """CPU milliseconds for a batch, each way."""
    torch.set_num_threads(1)
    keep_freed_memory()
    dataset = load_datasets("shapes", None, cache_dir=Path(), augment=True).train
    order = list(BatchSampler(range(len(dataset)), BATCH, drop_last=True))
    loader = DataLoader(dataset, batch_sampler=order, num_workers=1)
    inputs = put_on_device(dataset, torch.device("cpu"))
    dataset.set_epoch(1)
    for (images, labels), (others, theirs) in zip(loader, inputs.batches(order, 1), strict=True):
        if not (torch.equal(images, others) and torch.equal(labels, theirs)):
            sys.exit("the two ways give different batches")
    return {
        "loader": milliseconds(loader for _ in range(PASSES)),
        "device": milliseconds(inputs.batches(order, epoch) for epoch in range(PASSES)),
    }


def train(way: str, ranks: int, *, gpus: bool) -> tuple[float, str]:
    """Images/s, and the mean training loss as it is recorded."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        command += ["--nproc-per-node", str(ranks), str(ROOT / "solutions" / "main.py"), "--strategy", "ddp"]
        command += ["--augment", "--measure-steps", "60", "--output-dir", folder, "--run-id", "run", *WAYS[way]]
        environ = environment(cpu=not gpus)
        done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        run, metrics = (
            list(csv.DictReader((Path(folder) / "run" / name).read_text(encoding="utf-8").splitlines()))
            for name in ("run.csv", "metrics.csv")
        )
    return float(run[-1]["images_per_sec"]), metrics[0]["loss"]


def main() -> int:
    """Measure, print, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="of each training run (default: 3)")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="default: 2")
    parser.add_argument("--gpus", action="store_true", help="train on GPUs")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    cost = costs()
    less = cost["loader"] / cost["device"]
    print(f"CPU time for {BATCH} images: loader {cost['loader']:.2f} ms, device {cost['device']:.2f} ms; ", end="")
    print(f"{less:.1f} times less (claimed: at least {RATIO})")

    speeds: dict[str, list[float]] = {way: [] for way in WAYS}
    losses = set()
    for _ in range(arguments.repeats):
        for way in WAYS:
            speed, loss = train(way, arguments.ranks, gpus=arguments.gpus)
            speeds[way].append(speed)
            losses.add(loss)
    where = "GPUs" if arguments.gpus else "CPU ranks"
    print(f"cnn with --augment, ddp on {arguments.ranks} {where}, n = {arguments.repeats}")
    for way, found in speeds.items():
        print(f"{way}  {statistics.median(found):>10,.0f} images/s ({min(found):,.0f} to {max(found):,.0f})")
    ratios = [two / one for one, two in zip(speeds["loader"], speeds["device"], strict=True)]
    print(f"ratio   {statistics.median(ratios):10.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    if not arguments.gpus:
        step = BATCH / statistics.median(speeds["device"]) * arguments.ranks * 1e3
        expected = (step + cost["loader"] - cost["device"]) / step
        print(f"of which the CPU time saved explains {expected:.2f}: {BATCH} images are trained in {step:.0f} ms")
    print(f"mean training loss of the steps: {', '.join(sorted(losses))}")
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} at the end")
    return 0 if len(losses) == 1 and less >= RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
