"""What a run says of itself before it trains: the start report for people, config.json for programs."""

import argparse
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from lab.runs import options
from lab.runs.options.precision import CAPTURE_WARM_UP
from lab.training.stepping import precision
from lab.training.stepping.compiling import Compiler


@dataclass(frozen=True)
class Setup:
    """What is known once model and data are there."""

    args: argparse.Namespace  # resolved
    device: torch.device
    hosts: list[str]  # of every rank
    parameters: int  # of the whole model
    steps_per_epoch: int  # optimizer steps
    dropped_samples: int  # an epoch
    channels_last: bool
    compiler: Compiler | None  # with --compile
    resumed: str | None  # the checkpoint, and where it goes on
    data: list[str] = field(default_factory=list)  # what was read: images, classes, what was skipped
    sharding: str = ""  # of FSDP2, in words
    shard_columns: dict[str, str] = field(default_factory=dict)  # the same for run.csv

    @property
    def device_name(self) -> str:
        """The card's name, or "cpu"."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"


def count_parameters(model: nn.Module) -> int:
    """Of the whole model, also where each rank has a part of it only. Collective."""
    count = sum(parameter.numel() for parameter in model.parameters())  # FSDP2's say how many the whole one has
    if not isinstance(model, FullyShardedDataParallel):
        return count
    counts = [0] * dist.get_world_size()
    dist.all_gather_object(counts, count)
    return sum(counts)


def config(setup: Setup) -> dict[str, object]:
    """Everything that config.json records."""
    return {
        **options.as_record(setup.args),
        "world_size": len(setup.hosts),
        "nodes": len(set(setup.hosts)),
        "hosts": setup.hosts,
        "backend": dist.get_backend(),
        "device": setup.device_name,
        "dropped_samples": setup.dropped_samples,
        "steps_per_epoch": setup.steps_per_epoch,
        "parameters": setup.parameters,
        "channels_last": setup.channels_last,
        "torch": torch.__version__,
    }


def how(setup: Setup) -> dict[str, str]:
    """The columns of run.csv that say how the steps are computed (records/folder.py)."""
    return {
        "captured": "yes" if setup.args.capture else "no",
        "compiled": setup.compiler.part if setup.compiler is not None else "no",
        "memory_format": "channels_last" if setup.channels_last else "contiguous",
        **setup.shard_columns,
    }


def describe(setup: Setup) -> list[str]:
    """The start report, line by line."""
    args, hosts = setup.args, sorted(set(setup.hosts))
    ranks, nodes = len(setup.hosts), f"{len(hosts)} node{'s' * (len(hosts) > 1)} ({', '.join(hosts)})"
    lines = [
        f"{args.strategy}: {args.model} ({setup.parameters:,} parameters) on {args.dataset}, {args.precision}",
        f"  ranks      {ranks} on {nodes}, backend {dist.get_backend()}, device {setup.device_name}",
        f"  batch      {_batch(args, ranks)}{_epoch(setup)}",
        *(f"  {'data' * (number == 0):10} {line}" for number, line in enumerate(setup.data)),
        f"  length     {_length(args)}",
        *([] if args.evaluate_only else [f"  optimizer  {_optimizer(args)}"]),
        f"  precision  {precision.describe(setup.device, args.precision, setup.channels_last)}",
        f"  seed       {args.seed}{', deterministic algorithms' * args.deterministic}",
    ]
    if setup.sharding:
        lines.append(f"  sharding   {setup.sharding}")
    if args.sync_batchnorm and ranks > 1:
        lines.append("  batchnorm  by the images of all ranks")
    if args.input == "device":
        changed = ", and are changed there" if args.augment else ""
        lines.append(f"  input      all training images are on the device already{changed}")
    if args.capture:
        lines.append(f"  capture    the whole step as one CUDA graph, after {CAPTURE_WARM_UP} steps without")
    if setup.compiler is not None:
        lines.append(f"  compile    {setup.compiler.described}")
    if setup.resumed:
        label = "checkpoint " if args.evaluate_only else "resumed    from "
        lines.append(f"  {label}{setup.resumed}")
    if args.dry_run:
        lines.append("  dry run: everything is set up; stopping before training")
    return lines


def _length(args: argparse.Namespace) -> str:
    if args.evaluate_only:
        return "none: a checkpoint is evaluated, nothing is trained"
    if args.measure_steps:
        return f"{args.measure_steps} measured steps, after {args.measure_warmup} that are discarded"
    return f"{args.epochs} epoch{'s' * (args.epochs != 1)}"


def _epoch(setup: Setup) -> str:
    if setup.args.evaluate_only:
        return ""
    return f"; {setup.steps_per_epoch} steps an epoch, {setup.dropped_samples} samples dropped"


def _batch(args: argparse.Namespace, ranks: int) -> str:
    text = f"{args.global_batch_size} in all, {args.per_device_batch_size} on each rank"
    if args.accumulate > 1:
        text += f" x {ranks} ranks x {args.accumulate} accumulated"
    return text


def _optimizer(args: argparse.Namespace) -> str:
    return f"{args.optimizer}, {_rate(args)}, weight decay {args.weight_decay:g}"


def _rate(args: argparse.Namespace) -> str:
    text = f"learning rate {args.learning_rate:g}"
    if args.scale_lr or args.optimizer == "sgd":
        text += f" = {args.base_lr:g} x {args.global_batch_size} / {options.REFERENCE_BATCH}"
    if args.schedule != "constant":
        text += f", {args.schedule} schedule"
    if args.warmup_epochs:
        text += f", warm-up over {args.warmup_epochs:g} epoch{'s' * (args.warmup_epochs != 1)}"
    if args.optimizer == "sgd":
        text += f", momentum {args.momentum:g}"
    if args.clip_norm is not None:
        text += f", gradients clipped to norm {args.clip_norm:g}"
    return text
