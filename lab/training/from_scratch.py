"""What from_scratch/main.py needs besides the exercises: options, process group, images, and what it compares."""

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset

from lab.base.errors import UsageError, UserError
from lab.base.files import is_first_on_filesystem
from lab.base.machine import peak_resident
from lab.runs.options.numbers import positive
from lab.runs.options.parser import HelpFormatter
from lab.training.data.datasets import DataSets, load_datasets
from lab.training.networks.vit import HEAD_WIDTH

EXERCISES = {"tensor": "9.5", "pipeline": "9.6", "hsdp": "9.7"}
DATASETS = ("shapes", "sample", "cifar10", "imagefolder")
EARLY = 5  # steps in which rounding cannot have driven two trainings apart
APART = 1e-3  # of the loss


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of from_scratch/main.py."""
    parser = argparse.ArgumentParser(
        prog="from_scratch/main.py",
        description="Train a small vision transformer on all ranks with what you have written in 9.5, 9.6 or 9.7.",
        epilog="example: torchrun --standalone --nproc-per-node 2 from_scratch/main.py tensor --compare",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("way", choices=list(EXERCISES), help="tensor: 9.5; pipeline: 9.6; hsdp: 9.7")
    parser.add_argument("--compare", action="store_true", help="train in one process, too, and compare the losses")
    parser.add_argument("--epochs", type=positive(int), default=2, help="passes over the training images")
    parser.add_argument("--global-batch-size", type=positive(int), default=64, help="images of a step")
    parser.add_argument("--learning-rate", type=positive(float), default=1e-3, help="of AdamW")
    parser.add_argument("--width", type=positive(int), default=128, help=f"of a token: {HEAD_WIDTH} for each head")
    parser.add_argument("--depth", type=positive(int), default=4, help="transformer blocks")
    parser.add_argument("--schedule", choices=("gpipe", "1f1b"), help="of the pipeline (default: 1f1b)")
    parser.add_argument("--micro-batches", type=positive(int), help="of the pipeline's batch (default: 4)")
    parser.add_argument("--ranks-per-node", type=positive(int), help="that hsdp shards over (default: 2)")
    parser.add_argument("--dataset", choices=DATASETS, default="shapes", help="shapes are drawn in code")
    parser.add_argument("--data-dir", type=Path, help="the folder of cifar10 or imagefolder")
    parser.add_argument(
        "--images", type=positive(int), default=1024, help="of an epoch and of the validation, at most"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the order of the images")
    return parser.parse_args(argv)


def resolve(args: argparse.Namespace, ranks: int) -> argparse.Namespace:
    """Fill in what was left out, and refuse what does not fit each other or this number of ranks.

    Raises:
        UsageError: in one sentence.
    """
    own = {"schedule": "pipeline", "micro_batches": "pipeline", "ranks_per_node": "hsdp"}
    for name, way in own.items():
        if getattr(args, name) is not None and args.way != way:
            raise UsageError(f"--{name.replace('_', '-')} is of {way}, not of {args.way}: leave it out")
    args = argparse.Namespace(**vars(args))
    args.schedule, args.micro_batches = args.schedule or "1f1b", args.micro_batches or 4
    args.ranks_per_node = args.ranks_per_node or 2
    batch, heads = args.global_batch_size, args.width // HEAD_WIDTH
    if args.images < batch:
        raise UsageError(f"--images {args.images} are fewer than the {batch} of a step: --global-batch-size")
    if ranks < 2:
        raise UsageError(f"{args.way} needs at least 2 ranks, and here is 1: torchrun --nproc-per-node 2")
    if args.width % HEAD_WIDTH:
        raise UsageError(f"--width {args.width}: use a multiple of {HEAD_WIDTH}, one for each attention head")
    if args.way == "tensor" and heads % ranks:
        fitting = ranks * HEAD_WIDTH
        raise UsageError(
            f"tensor: {heads} attention heads cannot be shared out over {ranks} ranks: --width {fitting}"
        )
    if args.way == "pipeline" and args.depth < ranks:
        raise UsageError(f"pipeline: {args.depth} blocks are too few for {ranks} ranks: --depth {ranks}")
    if args.way == "pipeline" and batch % args.micro_batches:
        raise UsageError(f"pipeline: {batch} images cannot be cut into {args.micro_batches} micro-batches")
    if args.way == "hsdp" and ranks % args.ranks_per_node:
        raise UsageError(
            f"hsdp: {ranks} ranks are no whole number of nodes with {args.ranks_per_node}: "
            f"--nproc-per-node {args.ranks_per_node * 2}, or another --ranks-per-node"
        )
    if args.way == "hsdp" and batch % ranks:
        raise UsageError(f"hsdp: {batch} images cannot be shared out over {ranks} ranks")
    return args


def join() -> torch.device:
    """Join the process group that torchrun has told of: NCCL on GPUs, else gloo.

    Raises:
        UsageError: nobody has told this process its rank.
    """
    if "RANK" not in os.environ:
        raise UsageError(f"start it with  torchrun --standalone --nproc-per-node 2 {' '.join(sys.argv)}")
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    local = int(os.environ["LOCAL_RANK"])
    if local >= torch.cuda.device_count():
        raise UsageError(f"local rank {local} has no GPU of its own: this node has {torch.cuda.device_count()}")
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


def read_images(args: argparse.Namespace) -> DataSets:
    """The data set, on the first process of each file system before the others. All ranks call it."""
    cache = args.data_dir or Path("results")
    first = is_first_on_filesystem(cache)
    if not first:
        dist.barrier()
    datasets = load_datasets(args.dataset, args.data_dir, cache_dir=cache, network="vit")
    if first:
        dist.barrier()
    if len(datasets.train) < args.global_batch_size:
        raise UsageError(
            f"--global-batch-size {args.global_batch_size} is more than the {len(datasets.train)} training images"
        )
    return datasets


def loaders(datasets: DataSets, args: argparse.Namespace) -> tuple[DataLoader, DataLoader]:
    """Whole batches in an order that is the same on all ranks, for training; and the validation images."""
    size = args.global_batch_size
    train = Subset(datasets.train, range(min(args.images, len(datasets.train))))
    valid = Subset(datasets.valid, range(min(args.images, len(datasets.valid))))
    order = torch.Generator().manual_seed(args.seed)
    return DataLoader(train, size, shuffle=True, drop_last=True, generator=order), DataLoader(valid, size)


def peak_memory(device: torch.device) -> int:
    """Bytes of the fullest rank so far: allocated on CUDA, resident on the CPU. All ranks call it."""
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_resident()
    fullest = torch.tensor(peak, device=device)
    dist.all_reduce(fullest, op=dist.ReduceOp.MAX)
    return int(fullest)


def compare(way: str, losses: Sequence[Sequence[float]], alone: Sequence[Sequence[float]]) -> str:
    """Of losses[epoch][step] on all ranks and in one process: lines that say how far they are apart.

    Raises:
        UserError: they are not the same training: it differs before rounding can have grown.
    """
    steps = list(zip(chain(*losses), chain(*alone), strict=True))
    for step, (here, there) in enumerate(steps[:EARLY], start=1):
        if not abs(here - there) <= APART * abs(there):
            raise UserError(
                f"{way}: in step {step} the loss is {here:.4f}, and in one process {there:.4f}: it is another "
                f"training. What does lab check {EXERCISES[way]} say?"
            )
    lines = [
        f"[COMPARE] epoch={epoch} train_loss={sum(own) / len(own):.6f} one_process={sum(one) / len(one):.6f}"
        for epoch, (own, one) in enumerate(zip(losses, alone, strict=True), start=1)
    ]
    most = max(abs(here - there) / abs(there) for here, there in steps)
    return "\n".join([*lines, f"largest difference of the {len(steps)} steps' losses: {most:.1e} of the loss"])
