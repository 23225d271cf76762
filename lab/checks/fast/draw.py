"""What the checks of section 8 draw anew for each run, and what one process makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

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


@dataclass(frozen=True)
class Training:
    """weights, and each step's batch by rank: batches[step][rank]."""

    weights: dict[str, Tensor]
    batches: list[list[Batch]]


def draw_training(generator: torch.Generator, world_size: int) -> Training:
    """Four images a rank in each step, for TinyNet with BatchNorm."""
    weights = TinyNet(batchnorm=True).state_dict() | draw_weights(generator)
    drawn = [draw_batch(generator, 4 * world_size) for _ in range(WARM_UP + LATER)]
    return Training(weights, [parts(batch, world_size) for batch in drawn])


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
