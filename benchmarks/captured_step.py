"""Claim: `--capture`, the whole training step as one CUDA graph, trains the small networks of this lab several
times as fast as the eager step where that is launch-bound, with the same losses to rounding; under FSDP too.

Run: PYTHONPATH=. torchrun --standalone --nproc-per-node N benchmarks/captured_step.py       (needs N GPUs)

For each network (the exercises' CNN, ResNet-18, the ViT), bf16, 128 images per GPU that lie on the GPU: every
strategy eager and captured in turn, n = 3 times each in the same processes, 200 timed steps after 40 others
(`--measure-steps`). With one GPU no wrapper and FSDP, with more of them DDP and FSDP. Prints median images/s of
all, their spread and ratios, and how far the mean losses of the same steps are apart. Exit code 1 where
captured is not the faster one.
"""

import argparse
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
from train import train

NETWORKS = ("cnn", "resnet18", "vit")


def measure(network: str, strategy: str, device: torch.device, steps: int, *, captured: bool) -> EpochRecord:
    """Train one network for some steps, as main.py does."""
    argv = ["--model", network, "--strategy", strategy, "--precision", "bf16"]
    argv += ["--per-device-batch-size", "128", "--input", "device"]
    argv += ["--measure-steps", str(steps), "--measure-warmup", "40", *["--capture"] * captured]
    with Run(options.parse(argv), device, records=False) as run:
        args = run.args
        datasets = program.read_datasets(args)
        train_loader, valid_loader = get_dataloaders(datasets.train, datasets.valid, args.loader_batch_size)
        torch.manual_seed(args.seed)
        network_options = options.model_options(args)
        model = run.prepare_model(build_model(args.model, len(datasets.classes), **network_options))
        model = program.wrap_model(model, device, args)
        optimizer = program.build_optimizer(model, args)
        run.begin(model, optimizer, train_loader)
        (record,) = train(model, optimizer, train_loader, valid_loader, run)
    return record


def line(name: str, records: list[EpochRecord]) -> str:
    speeds = [record.images_per_second for record in records]
    return (
        f"  {name:<9} {statistics.median(speeds):>10,.0f} images/s ({min(speeds):,.0f} to {max(speeds):,.0f}), "
        f"{statistics.median(record.step_seconds for record in records) * 1e3:.3f} ms a step"
    )


def main() -> int:
    """Measure, print, return the exit code."""
    parser = argparse.ArgumentParser(description="Images/s of the eager and of the captured training step.")
    parser.add_argument("--repeats", type=int, default=3, help="times each (default: 3)")
    parser.add_argument("--networks", nargs="+", default=NETWORKS, metavar="NAME", help="default: all")
    parser.add_argument("--steps", type=int, default=200, help="timed steps (default: 200)")
    args = parser.parse_args()
    device = setup()
    if device.type != "cuda":
        print("this measurement needs GPUs")
        return 2
    faster, lines = True, []
    strategies = ("ddp" if dist.get_world_size() > 1 else "none", "fsdp")
    for network in args.networks:
        best = {}
        for strategy in strategies:
            eager, captured = [], []
            for _ in range(args.repeats):
                eager.append(measure(network, strategy, device, args.steps, captured=False))
                captured.append(measure(network, strategy, device, args.steps, captured=True))
            pairs = list(zip(eager, captured, strict=True))
            ratios = [two.images_per_second / one.images_per_second for one, two in pairs]
            apart = max(abs(two.train_loss - one.train_loss) for one, two in pairs)
            best[strategy] = statistics.median(record.images_per_second for record in captured)
            lines += [
                f"{network}, {strategy}, {eager[0].measured_steps} steps, n = {args.repeats}",
                line("eager", eager),
                line("captured", captured),
                f"  ratio     {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                f"  mean loss {eager[0].train_loss:.5f}, {captured[0].train_loss:.5f}; at most {apart:.1e} apart",
                f"  memory    {eager[0].peak_memory / 2**20:.0f} and {captured[0].peak_memory / 2**20:.0f} MiB",
            ]
            faster = faster and min(ratios) > 1
        other = strategies[0]
        lines += [
            f"{network}: fsdp captured has {best['fsdp'] / best[other]:.0%} of the images/s of {other} captured"
        ]
    if dist.get_rank() == 0:
        card, ranks = torch.cuda.get_device_name(device), dist.get_world_size()
        print(f"{ranks} x {card}, torch {torch.__version__}, bf16, 128 images per GPU, {os.cpu_count()} CPU cores")
        print("\n".join(lines), flush=True)
    cleanup()
    return 0 if faster else 1


if __name__ == "__main__":
    sys.exit(main())
