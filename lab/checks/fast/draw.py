"""What the checks of section 8 draw anew for each run, and what one process makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import TensorDataset
from torch.utils.data.distributed import DistributedSampler

from lab.checks.common.tensors import TOLERANCE
from lab.checks.common.tiny import (
    MOMENTUM,
    RATE,
    Batch,
    Descent,
    TinyNet,
    draw_batch,
    draw_weights,
    one_thread,
    parts,
)

WARM_UP, LATER = 3, 4  # steps before the recording, and after it
STEADY = 0.02  # of what a comparison tolerates
SIDE = 4  # pixels of an image of 8.3
LARGE = 40_000  # images: as many as real data sets have


@dataclass(frozen=True)
class Training:
    """weights, and each step's batch by rank: batches[step][rank]."""

    weights: dict[str, Tensor]
    batches: list[list[Batch]]


def draw_training(generator: torch.Generator, world_size: int) -> Training:
    """Four images a rank in each step, for TinyNet with BatchNorm.

    Drawn again where rounding would grow: a ReLU or a norm that is near its edge can make much of it in few steps.
    """
    while True:
        weights = TinyNet(batchnorm=True).state_dict() | draw_weights(generator)
        drawn = [draw_batch(generator, 4 * world_size) for _ in range(WARM_UP + LATER)]
        training = Training(weights, [parts(batch, world_size) for batch in drawn])
        if is_steady(training):
            return training


def is_steady(training: Training) -> bool:
    """Whether the same images, added up in another order, lead to nearly the same weights."""
    turned = [[(images.flip(0), labels.flip(0)) for images, labels in own] for own in training.batches]
    one, other = (train(training.weights, batches).state for batches in (training.batches, turned))
    return all((one[name] - other[name]).abs().max() <= STEADY * TOLERANCE * one[name].abs().max() for name in one)


@dataclass(frozen=True)
class Trained:
    """What training has come to: losses[step][rank], and rank 0's state_dict after the last step."""

    losses: list[list[float]]
    state: dict[str, Tensor]


def train(
    weights: dict[str, Tensor],
    batches: Sequence[Sequence[Batch]],
    *,
    pile_up_from: int | None = None,
    alone_from: int | None = None,
) -> Trained:
    """Train as DDP does, with one replica a rank in this process.

    Args:
        pile_up_from: the step from which on gradients are added to those of the step before; None for never.
        alone_from: the step from which on no gradients are averaged.
    """
    losses: list[list[float]] = []
    with one_thread():
        replicas = [TinyNet(weights, batchnorm=True) for _ in batches[0]]
        optimizers = [Descent(replica.parameters(), RATE, MOMENTUM) for replica in replicas]
        for step, own in enumerate(batches):
            means = []
            for replica, optimizer, (images, labels) in zip(replicas, optimizers, own, strict=True):
                for buffer, of_rank_0 in zip(replica.buffers(), replicas[0].buffers(), strict=True):
                    buffer.copy_(of_rank_0)
                if pile_up_from is None or step < pile_up_from:
                    optimizer.zero_grad()
                loss = F.cross_entropy(replica(images), labels)
                loss.backward()
                means.append(loss.item())
            losses.append(means)
            if alone_from is None or step < alone_from:
                _average([[p.grad for p in replica.parameters()] for replica in replicas])
            for optimizer in optimizers:
                optimizer.step()
    return Trained(losses, {name: value.clone() for name, value in replicas[0].state_dict().items()})


def _average(gradients: Sequence[Sequence[Tensor | None]]) -> None:
    for same in zip(*gradients, strict=True):
        given = [gradient for gradient in same if gradient is not None]
        mean = torch.stack(given).mean(dim=0)
        for gradient in given:
            gradient.copy_(mean)


def draw_batches(generator: torch.Generator, world_size: int) -> dict[str, Any]:
    """Images whose every pixel is the image's own number, and labels that tell little."""
    count = int(torch.randint(39, 47, (1,), generator=generator))
    pixels = torch.randperm(256, generator=generator)[:count].to(torch.uint8)
    first, size = int(torch.randint(1, 9, (1,), generator=generator)), 14 // world_size - 1
    return {
        "images": pixels[:, None, None, None].repeat(1, 3, SIDE, SIDE),
        "labels": torch.randint(0, 10, (count,), generator=generator),
        "batch_size": size,  # of 19 to 23 samples a rank: the last batch is never whole
        "even": 3 * size * world_size,  # so many samples are three whole batches a rank
        "seed": int(torch.randint(1 << 30, (1,), generator=generator)),
        "epochs": [first, first + 1],
    }


def other_data(given: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Images and labels of another data set, of given["even"] samples."""
    count = given["even"]
    return 255 - given["images"][:count], (given["labels"][:count] + 1) % 10


def order_of(given: dict[str, Any], world_size: int, rank: int, epoch: int) -> list[int]:
    """The indices that a rank's sampler has in an epoch."""
    data_set = TensorDataset(given["labels"])
    sampler: DistributedSampler[int] = DistributedSampler(
        data_set, world_size, rank, seed=given["seed"], drop_last=True
    )
    sampler.set_epoch(epoch)
    return list(sampler)
