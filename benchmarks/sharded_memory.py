"""Claim: to train with Adam in fp32, a rank holds 16 bytes for each parameter with DDP (4 for the weight, 4 for
the gradient, 8 for Adam's two moments), and with FSDP on W ranks 16 / W: predicted within 1 %.

Run: python benchmarks/sharded_memory.py [--ranks W] [--width N] [--depth N] [--batch B]      (needs no GPU)

The same vision transformer, the same batch, three steps of AdamW; DDP and FSDP in turn, each in fresh processes,
one for each GPU (two on a CPU, with gloo). "held" are the bytes of the rank's weights, gradients and optimizer
state, counted tensor by tensor after the last step. "peak" is the most that PyTorch had allocated on the GPU in
that step: besides what is held, activations, DDP's buckets and AdamW's scratch (about 4 bytes a parameter each),
and FSDP's gathered blocks. On a CPU there is no such figure: the resident size of a process, with PyTorch itself
in it, says nothing about small models. Figures are those of the fullest rank. Exit code 1 when the claim fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torch.distributed.tensor import DTensor

from lab.training.networks import adam_state_bytes
from lab.training.networks.vit import VisionTransformer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "solutions"))
from ddp_utils import get_ddp_model
from fsdp_utils import get_fsdp_model

STEPS = 3
TOLERANCE = 0.01
WRAP = {"ddp": get_ddp_model, "fsdp": get_fsdp_model}
GIB, MIB = 2**30, 2**20


def own_bytes(tensor: Tensor) -> int:
    """Bytes of the part of a tensor that this rank holds."""
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local.numel() * local.element_size()


def train(strategy: str, width: int, depth: int, batch: int, device: torch.device) -> tuple[int, int, int]:
    """Three steps on every rank. Returns parameters, bytes held, peak bytes (0 on a CPU), of the fullest rank."""
    on_gpu = device.type == "cuda"
    torch.manual_seed(0)
    model = WRAP[strategy](VisionTransformer(width=width, depth=depth), device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters())
    images = torch.randn(batch, 3, 32, 32, device=device)
    labels = torch.randint(10, (batch,), device=device)
    for _ in range(STEPS):
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    held = sum(own_bytes(tensor) for p in model.parameters() for tensor in (p, p.grad))
    held += sum(
        own_bytes(t) for state in optimizer.state.values() for t in state.values() if isinstance(t, Tensor)
    )
    most = torch.tensor([held, torch.cuda.max_memory_allocated() if on_gpu else 0], device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return parameters, int(most[0]), int(most[1])


def one_rank(rank: int, store: str, args: argparse.Namespace, strategy: str, results: Any) -> None:
    """A process of the group; that of rank 0 puts what was measured and the device into `results`."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=args.ranks,
        device_id=device if on_gpu else None,
    )
    measured = train(strategy, args.width, args.depth, args.batch, device)
    if rank == 0:
        results.put((*measured, torch.cuda.get_device_name() if on_gpu else "CPU"))
    dist.barrier()
    dist.destroy_process_group()


def measure(args: argparse.Namespace, strategy: str) -> tuple[int, int, int, str]:
    """Run a strategy in processes of its own."""
    results = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(one_rank, (str(Path(folder) / "store"), args, strategy, results), nprocs=args.ranks)
    return results.get()


def size(count: float) -> str:
    """Bytes for people."""
    return f"{count / GIB:.2f} GiB" if count >= GIB else f"{count / MIB:.1f} MiB"


def main() -> int:
    """Measure, print the table, return the exit code."""
    gpus = torch.cuda.device_count()
    parser = argparse.ArgumentParser(description="Bytes a parameter: DDP beside FSDP, predicted and measured.")
    parser.add_argument("--ranks", type=int, default=gpus or 2, help="default: one for each GPU, two on a CPU")
    parser.add_argument("--width", type=int, default=1536 if gpus else 256, help="of the transformer")
    parser.add_argument("--depth", type=int, default=24 if gpus else 4, help="its blocks")
    parser.add_argument("--batch", type=int, default=8, help="images on each rank")
    args = parser.parse_args()
    if gpus and args.ranks > gpus:
        parser.error(f"--ranks {args.ranks}: there are {gpus} GPUs here")
    rows, holds = [], True
    for strategy, shards in (("ddp", 1), ("fsdp", args.ranks)):
        parameters, held, peak, device = measure(args, strategy)
        predicted = adam_state_bytes(parameters, shards)
        holds &= abs(held / predicted - 1) <= TOLERANCE
        per_parameter = [f"{count / parameters:.2f}" for count in (predicted, held, peak) if count]
        sizes = [size(predicted), size(held), size(peak) if peak else "-"]
        rows.append((strategy, sizes, [*per_parameter, "-"][:3]))
    print(
        f"vit, width {args.width}, depth {args.depth}: {parameters:,} parameters; fp32, AdamW, batch {args.batch}"
    )
    print(f"{args.ranks} ranks, {device}, torch {torch.__version__}")
    print(f"{'':<6}{'bytes of a rank':>36}   {'for each parameter':>27}")
    print(f"{'':<6}" + "".join(f"{name:>12}" for name in ("predicted", "held", "peak")) + "   ", end="")
    print("".join(f"{name:>9}" for name in ("predicted", "held", "peak")))
    for strategy, sizes, each in rows:
        print(f"{strategy:<6}" + "".join(f"{text:>12}" for text in sizes) + "   ", end="")
        print("".join(f"{text:>9}" for text in each))
    print(f"held as predicted, within {TOLERANCE:.0%}: {'yes' if holds else 'NO'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
