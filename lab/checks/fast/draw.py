"""What the checks of section 8 draw anew for each run, and what one process makes of it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import TensorDataset
from torch.utils.data.distributed import DistributedSampler

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
SIDE = 4  # pixels of an image of 8.3

Span = tuple[str, float, float]  # what, begin, end


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


def draw_profiles() -> list[list[Span]]:
    """Steps in which every mistake gives another number, and one of a single kernel."""
    steps = []
    for _ in range(3):
        now = random.randint(500, 900) + 0.5
        spans: list[Span] = []
        for draw in (*random.sample((_overlapped, _late, _starved, _idle, _alone), 5), _last):
            part, now = draw(now)
            spans += part
        steps.append(random.sample(spans, len(spans)))
    begin = float(random.randint(100, 400))
    return [*steps, [("compute", begin, begin + random.randint(20, 40) + 0.25)]]


def _lengths(count: int) -> list[float]:
    """In quarters of a microsecond: exact in every kind of float."""
    return [random.randint(44, 156) / 4 for _ in range(count)]


def _overlapped(now: float) -> tuple[list[Span], float]:
    """Two kernels on two streams, with a launch under them and a communication that ends after them."""
    a, b, c, d = _lengths(4)
    spans = [("compute", now, now + a + b), ("compute", now + a, now + a + b + c), ("launch", now + 3, now + a)]
    end = now + a + b + c
    return [*spans, ("communication", end - 7, end + d)], end + d


def _late(now: float) -> tuple[list[Span], float]:
    """A communication that has begun when a kernel begins, and ends under it."""
    a, b, c = _lengths(3)
    return [("communication", now, now + a + b), ("compute", now + a, now + a + b + c)], now + a + b + c


def _starved(now: float) -> tuple[list[Span], float]:
    """The CPU waits for the next batch, at first while a kernel still runs; then another thread launches, too."""
    a, b = _lengths(2)
    end = now + a + b
    return [("compute", now, now + a), ("input", now + a - 6, end), ("launch", end - 5, end - 2)], end


def _idle(now: float) -> tuple[list[Span], float]:
    """A launch with nothing to hide it, and a gap in which nothing was noted at all."""
    a, b = _lengths(2)
    return [("launch", now, now + a)], now + a + b


def _alone(now: float) -> tuple[list[Span], float]:
    """A communication with launches beside it, and a wait for input that it hides in part."""
    a, b, c = _lengths(3)
    end = now + a + b
    return [("communication", now, end), ("launch", now + 2, now + a), ("input", end - 5, end + c)], end + c


def _last(now: float) -> tuple[list[Span], float]:
    """A kernel that outlasts the launch that begins last."""
    (a,) = _lengths(1)
    return [("compute", now, now + a), ("launch", now + 3, now + 7.5)], now + a


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


def order_of(given: dict[str, Any], world_size: int, rank: int, epoch: int) -> list[int]:
    """The indices that a rank's sampler has in an epoch."""
    data_set = TensorDataset(given["labels"])
    sampler: DistributedSampler[int] = DistributedSampler(
        data_set, world_size, rank, seed=given["seed"], drop_last=True
    )
    sampler.set_epoch(epoch)
    return list(sampler)
