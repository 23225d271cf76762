"""Claim: the reference answers of section 9 train ResNet-18 and the ViT at 80% of the images/s of PyTorch's DDP
(`--strategy my-ddp`) and at 60% of those of its FSDP (`my-fsdp`) or more, eager, on two GPUs.

Run: PYTHONPATH=. torchrun --standalone --nproc-per-node 2 benchmarks/own_strategies.py       (needs 2 GPUs)

bf16, 512 images per GPU (`--batch`) that lie on the GPU, eager: own and PyTorch's in turn, n = 3 times each in the
same processes, 50 timed steps after 20 others (`--steps`). Prints median images/s of each, their spread, peak
memory, mean loss, and the ratio of own to PyTorch's. Exit code 1 where a ratio is below what is claimed.
"""

import argparse
import gc
import os
import statistics
import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "solutions"))

from lab.runs import options
from lab.runs.records.epoch_record import EpochRecord
from lab.training.run import Run

import main as program
from data import get_dataloaders
from distributed_utils import cleanup, setup
from model import build_model
from train import train_one_epoch

CLAIMED = {"my-ddp": ("ddp", 0.8), "my-fsdp": ("fsdp", 0.6)}  # own -> PyTorch's, and the share of its images/s


def measure(network: str, strategy: str, device: torch.device, args: argparse.Namespace) -> EpochRecord:
    """Train one network for some steps, as main.py does; without an evaluation, which is not timed."""
    argv = ["--model", network, "--strategy", strategy, "--precision", "bf16", "--input", "device"]
    argv += ["--per-device-batch-size", str(args.batch)]
    argv += ["--measure-steps", str(args.steps), "--measure-warmup", "20"]
    with Run(options.parse(argv), device, records=False) as run:
        chosen = run.args
        datasets = program.read_datasets(chosen)
        train_loader, _ = get_dataloaders(datasets.train, datasets.valid, chosen.loader_batch_size)
        torch.manual_seed(chosen.seed)
        model = build_model(chosen.model, len(datasets.classes), **options.model_options(chosen))
        model = program.wrap_model(run.prepare_model(model), device, chosen)
        optimizer = program.build_optimizer(model, chosen)
        run.begin(model, optimizer, train_loader)
        (epoch,) = run.epochs()
        record = run.record(epoch, train_one_epoch(model, optimizer, train_loader, epoch, run), 0.0, 0.0)
    del model, optimizer
    gc.collect()  # their memory is no part of the next one's peak
    return record


def line(name: str, records: list[EpochRecord]) -> str:
    speeds = [record.images_per_second for record in records]
    memory = max(record.peak_memory for record in records) / 2**20
    return (
        f"  {name:<8} {statistics.median(speeds):>9,.0f} images/s ({min(speeds):,.0f} to {max(speeds):,.0f}), "
        f"{memory:,.0f} MiB, mean loss {records[0].train_loss:.5f}"
    )


def main() -> int:
    """Measure, print, return the exit code."""
    parser = argparse.ArgumentParser(description="Images/s of the strategies of section 9, and of PyTorch's.")
    parser.add_argument("--repeats", type=int, default=3, help="times each (default: 3)")
    parser.add_argument("--networks", nargs="+", default=["resnet18", "vit"], help="default: resnet18 vit")
    parser.add_argument("--steps", type=int, default=50, help="timed steps (default: 50)")
    parser.add_argument("--batch", type=int, default=512, metavar="N", help="images per GPU (default: 512)")
    parser.add_argument("--strategies", nargs="+", choices=CLAIMED, default=list(CLAIMED), help="default: both")
    args = parser.parse_args()
    device = setup()
    if device.type != "cuda" or dist.get_world_size() < 2:
        print("this measurement needs two GPUs")
        return 2
    is_main = dist.get_rank() == 0
    if is_main:
        print(
            f"{dist.get_world_size()} x {torch.cuda.get_device_name(device)}, torch {torch.__version__}, bf16, "
            f"{args.batch} images per GPU, {os.cpu_count()} CPU cores"
        )
    holds = True
    for network in args.networks:
        for own in args.strategies:
            theirs, share = CLAIMED[own]
            measured: dict[str, list[EpochRecord]] = {theirs: [], own: []}
            for _ in range(args.repeats):
                for strategy, records in measured.items():
                    records.append(measure(network, strategy, device, args))
            ratios = [
                one.images_per_second / other.images_per_second
                for one, other in zip(measured[own], measured[theirs], strict=True)
            ]
            holds = holds and statistics.median(ratios) >= share
            if is_main:
                print(f"{network}, {measured[own][0].measured_steps} steps, n = {args.repeats}")
                print("\n".join(line(name, records) for name, records in measured.items()))
                print(
                    f"  {own} has {statistics.median(ratios):.0%} ({min(ratios):.0%} to {max(ratios):.0%}) of the "
                    f"images/s of {theirs}; claimed are {share:.0%}",
                    flush=True,
                )
    cleanup()
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
