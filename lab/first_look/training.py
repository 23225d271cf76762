"""What each rank of the first look runs: a small network under DDP, its samples, its steps, what it learned."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lab.ranks.rank import Rank

GLOBAL_BATCH = 64  # images, shared out among the ranks
SEED, RATE, MOMENTUM = 0, 0.05, 0.9


def network(classes: int) -> nn.Module:
    """Images [B, 3, 32, 32] -> logits [B, classes]."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, classes))


def train(rank: Rank) -> dict[str, Any]:
    """Train as many epochs as asked for; rank 0 writes a line of JSON after each.

    Returns:
        losses    mean training loss of each epoch, over all ranks
        seconds   from the first step to the end of each epoch
        accuracy  on the validation images, a fraction
        guesses, sure   for each of the validation images that are shown: the class, and its probability
    """
    given = rank.receive()
    images, labels = _as_floats(given["images"]), given["labels"]
    torch.manual_seed(SEED)
    ddp = DistributedDataParallel(network(given["classes"]))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=RATE, momentum=MOMENTUM)
    losses: list[float] = []
    seconds: list[float] = []
    dist.barrier()
    start = time.perf_counter()
    for epoch in range(given["epochs"]):
        sums = torch.zeros(2, dtype=torch.float64)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(GLOBAL_BATCH):
            mine = batch[rank.rank :: rank.world_size]
            optimizer.zero_grad()
            loss = F.cross_entropy(ddp(images[mine]), labels[mine])
            loss.backward()
            optimizer.step()
            sums += torch.tensor([loss.item() * len(mine), len(mine)])
        dist.all_reduce(sums)
        losses.append(float(sums[0] / sums[1]))
        seconds.append(time.perf_counter() - start)
        if rank.rank == 0:
            with Path(given["lines"]).open("a", encoding="utf-8") as file:
                file.write(json.dumps([epoch + 1, losses[-1], seconds[-1]]) + "\n")
    with torch.no_grad():
        chances = ddp.module(_as_floats(given["valid_images"])).softmax(dim=1)
    guesses = chances.argmax(dim=1)
    return {
        "losses": losses,
        "seconds": seconds,
        "accuracy": float((guesses == given["valid_labels"]).float().mean()),
        "guesses": guesses[: given["shown"]].tolist(),
        "sure": chances.amax(dim=1)[: given["shown"]].tolist(),
    }


def _as_floats(images: Tensor) -> Tensor:
    """Bytes [N, 3, 32, 32] -> numbers from -1 to 1."""
    return images.float() / 127.5 - 1
