"""Claim: with 4 images on each device, ResNet-18 has a higher validation accuracy with `--sync-batchnorm` than
with the statistics of each device alone.

Run: python benchmarks/sync_batchnorm.py [--gpus] [--small] [--devices N] [--repeats N] [--epochs N] [--images N]

DDP on N devices (2 CPU ranks, or with `--gpus` all GPUs) with 4 images on each (`--images`), with and without
synchronisation, and one device with all images of a step, in turn, n = 3 times with other seeds, 5 epochs. Options
that this script does not know go to main.py: `--dataset imagefolder --data-dir DIR`, say; else the drawn shapes.
`--small`, for CPUs: a residual network with an eighth of the channels and one block a stage, on a quarter of the
drawn training images and half of the validation images.
Prints the best validation accuracy of each way, mean and spread, and images/s. Exit code 1 when synchronised is no
better.
"""

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from lab.sweep.launch.local import environment
from lab.training import DataSets
from lab.training.data import shapes
from lab.training.data.datasets import channel_statistics
from lab.training.data.images import ImageDataset
from lab.training.networks.resnet import ResNet

ROOT = Path(__file__).resolve().parent.parent
SMALL = ("--model", "sync_batchnorm:small_resnet", "--dataset", "sync_batchnorm:few_shapes")


def small_resnet(num_classes: int) -> ResNet:
    """For --small: ResNet-18's form, an eighth as wide and half as deep."""
    return ResNet(num_classes, (8, 16, 32, 64), blocks_per_stage=1)


def few_shapes(data_dir: Path | None) -> DataSets:
    """For --small: 1,280 training images and 512 for validation, drawn as --dataset shapes draws them."""
    images, labels = shapes.draw(shapes.TRAIN_IMAGES // 4, shapes.TRAIN_SEED)
    valid = shapes.draw(shapes.VALID_IMAGES // 2, shapes.VALID_SEED)
    mean, std = channel_statistics(images)
    train, valid_set = (ImageDataset(*drawn, shapes.CLASSES, mean, std) for drawn in ((images, labels), valid))
    return DataSets(train, valid_set, None, shapes.CLASSES)


@dataclass(frozen=True)
class Way:
    name: str
    devices: int
    argv: tuple[str, ...]


def train(way: Way, seed: int, batch: int, arguments: argparse.Namespace, more: list[str]) -> tuple[float, float]:
    """The best validation accuracy, and images/s of the last epoch."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(way.devices)]
    with tempfile.TemporaryDirectory() as folder:
        run = [*(SMALL if arguments.small else ("--model", "resnet18")), "--no-checkpoints"]
        run += ["--epochs", str(arguments.epochs), "--seed", str(seed)]
        run += ["--global-batch-size", str(batch), "--output-dir", folder, "--run-id", "run", "--no-tensorboard"]
        command = [sys.executable, *launcher, str(ROOT / "solutions" / "main.py"), *run, *way.argv, *more]
        environ = environment(cpu=not arguments.gpus)
        environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(ROOT / "benchmarks"), environ.get("PYTHONPATH")])
        )
        done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        table = (Path(folder) / "run" / "run.csv").read_text(encoding="utf-8").splitlines()
    row = list(csv.DictReader(table))[-1]
    return float(row["best_top1"]), float(row["images_per_sec"])


def main() -> int:
    """Measure, print, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", action="store_true", help="train on GPUs")
    parser.add_argument("--devices", type=int, metavar="N", help="default: all GPUs, or 2 CPU ranks")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="seeds (default: 3)")
    parser.add_argument("--epochs", type=int, default=5, metavar="N", help="default: 5")
    parser.add_argument("--images", type=int, default=4, metavar="N", help="on each device (default: 4)")
    parser.add_argument("--small", action="store_true", help="a smaller network and fewer images, for CPUs")
    arguments, more = parser.parse_known_args()
    devices = arguments.devices or (torch.cuda.device_count() if arguments.gpus else 2)
    batch = devices * arguments.images
    ways = (
        Way("each device alone", devices, ("--strategy", "ddp")),
        Way("synchronised", devices, ("--strategy", "ddp", "--sync-batchnorm")),
        Way("one device with all images", 1, ("--strategy", "none")),
    )
    found: dict[str, list[tuple[float, float]]] = {way.name: [] for way in ways}
    for seed in range(arguments.repeats):
        for way in ways:
            found[way.name].append(train(way, seed, batch, arguments, more))
            accuracy, speed = found[way.name][-1]
            print(f"seed {seed}  {way.name:<27}{accuracy:7.2%} {speed:10,.0f} images/s", flush=True)
    where = torch.cuda.get_device_name() if arguments.gpus else "CPU ranks"
    network = "small resnet" if arguments.small else "resnet18"
    print(
        f"\n{network}, {arguments.images} images on each of {devices} x {where}, {arguments.epochs} epochs, ",
        end="",
    )
    print(f"n = {arguments.repeats}; best validation accuracy, mean (lowest to highest)")
    means = {}
    for name, results in found.items():
        accuracies = [accuracy for accuracy, _ in results]
        means[name] = statistics.mean(accuracies)
        speed = statistics.median(speed for _, speed in results)
        spread = f"({min(accuracies):.2%} to {max(accuracies):.2%})"
        print(f"{name:<27}{means[name]:7.2%} {spread:<20} {speed:10,.0f} images/s")
    return 0 if means["synchronised"] > means["each device alone"] else 1


if __name__ == "__main__":
    sys.exit(main())
