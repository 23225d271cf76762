"""Claim: `--capture`, the whole training step as one CUDA graph, trains the small networks of this lab several
times as fast as the eager step where that is launch-bound, under FSDP too, and `--compile` in it makes it faster
still: ResNet-18 1.15 times with DDP and 1.1 times with FSDP, the ViT 1.5 times, the small CNN 1.3 times.

Run: PYTHONPATH=. torchrun --standalone --nproc-per-node N benchmarks/captured_step.py       (needs N GPUs)

For each network (the exercises' CNN, ResNet-18, the ViT; with `--networks vit-151M` one of width 1024 and depth
12), bf16, 128 images per GPU (`--batch`) that lie on the GPU: every strategy eager, captured, and captured and
compiled in turn, n = 3 times each in the same processes, 200 timed steps after 40 others (`--measure-steps`). With
one GPU no wrapper and FSDP, with more of them DDP and FSDP (or `--strategies`), both at their best compared at the
end. Weak scaling compares 128 images on N GPUs with 128 on one, strong scaling 512 / N with 512.

Prints median images/s of all, their spread, the ratio of each to the one before, peak memory, and how far the mean
losses of the same steps are apart. Compiling is outside of the timed steps; its seconds are printed, those of the
first time (which finds what an earlier run has kept) and of the later ones. Exit code 1 where captured is not
faster than eager, or compiled not faster than captured.
"""

import argparse
import contextlib
import gc
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "solutions"))

from lab.runs import options
from lab.runs.records.epoch_record import EpochRecord
from lab.training.run import Run
from lab.training.stepping import compiling

import main as program
from data import get_dataloaders
from distributed_utils import cleanup, setup
from model import build_model
from train import train_one_epoch

NETWORKS = {
    "cnn": ("--model", "cnn"),
    "resnet18": ("--model", "resnet18"),
    "vit": ("--model", "vit"),
    "vit-151M": ("--model", "vit", "--width", "1024", "--depth", "12"),
}
CAPTURED, COMPILED = ("--capture",), ("--capture", "--compile")


def keep_last(model: nn.Module) -> None:
    """The last block is needed at once in the backward pass: FSDP2 need not give it back before."""
    model.blocks[-1].set_reshard_after_forward(False)  # type: ignore[index, union-attr, operator]


def whole(model: nn.Module, strategy: str) -> tuple[str, list[nn.Module]]:
    return "model", [model]


def blocks(model: nn.Module, strategy: str) -> tuple[str, list[nn.Module]]:
    return "blocks", list(model.blocks)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Form:
    """One way to compute the same steps."""

    options: tuple[str, ...] = ()
    parts: Callable[[nn.Module, str], tuple[str, list[nn.Module]]] | None = None  # to compile, in another way
    adapt: Callable[[nn.Module], None] | None = None  # what to do with the wrapped model

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        with mock.patch.object(compiling, "parts", self.parts or compiling.parts):
            yield


FORMS = {"eager": Form(), "captured": Form(CAPTURED), "compiled": Form(COMPILED)}
VARIANTS = {  # for trying out: strategy -> name -> form
    "ddp": {"whole": Form(COMPILED, parts=whole), "blocks": Form(COMPILED, parts=blocks)},
    "none": {"whole": Form(COMPILED, parts=whole), "blocks": Form(COMPILED, parts=blocks)},
    "fsdp": {
        "blocks": Form(COMPILED, parts=blocks),
        "keep-last": Form(COMPILED, adapt=keep_last),
        "captured-grad": Form((*CAPTURED, "--shard", "grad")),
        "compiled-grad": Form((*COMPILED, "--shard", "grad")),
        "captured-keep-last": Form(CAPTURED, adapt=keep_last),
    },
}


@dataclass(frozen=True)
class Measured:
    record: EpochRecord
    compile_seconds: float

    @property
    def speed(self) -> float:
        return self.record.images_per_second


def measure(network: str, strategy: str, form: Form, device: torch.device, args: argparse.Namespace) -> Measured:
    """Train one network for some steps, as main.py does; without an evaluation, which is not timed."""
    gc.collect()  # what the one before held, in circles of references, is no part of this one's peak
    argv = [*NETWORKS[network], "--strategy", strategy, "--precision", "bf16", *form.options]
    argv += ["--per-device-batch-size", str(args.batch), "--input", "device"]
    argv += ["--measure-steps", str(args.steps), "--measure-warmup", "40"]
    with form.in_use(), Run(options.parse(argv), device, records=False) as run:
        chosen = run.args
        datasets = program.read_datasets(chosen)
        train_loader, _ = get_dataloaders(datasets.train, datasets.valid, chosen.loader_batch_size)
        torch.manual_seed(chosen.seed)
        network_options = options.model_options(chosen)
        model = run.prepare_model(build_model(chosen.model, len(datasets.classes), **network_options))
        model = program.wrap_model(model, device, chosen)
        if form.adapt is not None:
            form.adapt(model)
        optimizer = program.build_optimizer(model, chosen)
        run.begin(model, optimizer, train_loader)
        (epoch,) = run.epochs()
        loss = train_one_epoch(model, optimizer, train_loader, epoch, run)
        record = run.record(epoch, loss, 0.0, 0.0)
        return Measured(record, run.compiler.seconds if run.compiler else 0.0)


def line(name: str, runs: list[Measured], before: list[Measured] | None) -> str:
    speeds, seconds = [run.speed for run in runs], [run.compile_seconds for run in runs]
    step = statistics.median(run.record.step_seconds for run in runs) * 1e3
    memory = max(run.record.peak_memory for run in runs) / 2**20
    text = (
        f"  {name:<18} {statistics.median(speeds):>10,.0f} images/s ({min(speeds):,.0f} to {max(speeds):,.0f}), "
    )
    text += f"{step:.3f} ms a step, {memory:,.0f} MiB"
    if before is not None:
        ratios = ratios_of(runs, before)
        text += f", {statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})"
    if seconds[0]:
        text += f"; compiled in {seconds[0]:.0f} s, then {statistics.median(seconds[1:] or seconds):.0f} s"
    return text


def ratios_of(runs: list[Measured], before: list[Measured]) -> list[float]:
    return [one.speed / other.speed for one, other in zip(runs, before, strict=True)]


def compare(
    network: str, strategy: str, args: argparse.Namespace, device: torch.device
) -> dict[str, list[Measured]]:
    """Every form `args.repeats` times, in turn."""
    variants = {name: form for name, form in VARIANTS[strategy].items() if name in args.variants}
    measured: dict[str, list[Measured]] = {name: [] for name in (*FORMS, *variants)}
    for _ in range(args.repeats):
        for name, form in {**FORMS, **variants}.items():
            measured[name].append(measure(network, strategy, form, device, args))
    return measured


def main() -> int:
    """Measure, print, return the exit code."""
    parser = argparse.ArgumentParser(description="Images/s of the eager, the captured and the compiled step.")
    parser.add_argument("--repeats", type=int, default=3, help="times each (default: 3)")
    parser.add_argument(
        "--networks", nargs="+", choices=NETWORKS, default=["cnn", "resnet18", "vit"], help="default: but vit-151M"
    )
    parser.add_argument("--steps", type=int, default=200, help="timed steps (default: 200)")
    parser.add_argument("--batch", type=int, default=128, metavar="N", help="images per GPU (default: 128)")
    parser.add_argument(
        "--strategies", nargs="+", choices=VARIANTS, help="default: ddp (none on one GPU) and fsdp"
    )
    parser.add_argument("--variants", nargs="+", default=[], metavar="NAME", help=argparse.SUPPRESS)
    args = parser.parse_args()
    device = setup()
    if device.type != "cuda":
        print("this measurement needs GPUs")
        return 2
    is_main, ranks = dist.get_rank() == 0, dist.get_world_size()
    if is_main:
        card = torch.cuda.get_device_name(device)
        print(
            f"{ranks} x {card}, torch {torch.__version__}, bf16, {args.batch} images per GPU, "
            f"{os.cpu_count()} CPU cores"
        )
    faster = True
    strategies = args.strategies or ("ddp" if ranks > 1 else "none", "fsdp")
    for network in args.networks:
        best, captured = {}, {}
        for strategy in strategies:
            measured = compare(network, strategy, args, device)
            eager, graph, compiled = (measured[name] for name in FORMS)
            captured[strategy] = statistics.median(run.speed for run in graph)
            best[strategy] = statistics.median(run.speed for run in compiled)
            losses = [[run.record.train_loss for run in measured[name]] for name in FORMS]
            apart = [
                max(abs(two - one) for one, two in zip(losses[0], other, strict=True)) for other in losses[1:]
            ]
            lines = [
                f"{network}, {strategy}, {eager[0].record.measured_steps} steps, n = {args.repeats}",
                line("eager", eager, None),
                line("captured", graph, eager),
                *(line(name, runs, graph) for name, runs in measured.items() if name not in ("eager", "captured")),
                f"  mean loss          {losses[0][0]:.5f}; captured at most {apart[0]:.1e} away, "
                f"compiled {apart[1]:.1e}",
            ]
            faster = faster and min(*ratios_of(graph, eager), *ratios_of(compiled, graph)) > 1
            if is_main:
                print("\n".join(lines), flush=True)
        other = strategies[0]
        if is_main and "fsdp" in strategies[1:]:
            print(
                f"{network}: fsdp has {captured['fsdp'] / captured[other]:.0%} of the images/s of {other}, both "
                f"captured, and {best['fsdp'] / best[other]:.0%}, both compiled too",
                flush=True,
            )
    cleanup()
    return 0 if faster else 1


if __name__ == "__main__":
    sys.exit(main())
