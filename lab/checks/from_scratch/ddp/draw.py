"""What the checks of 9.2 draw for each run, and what one process makes of it."""

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.tiny import one_thread
from lab.checks.from_scratch.ddp.net import INPUTS, Net, draw_weights, gradients, loss_of

Gradients = dict[str, Tensor]
QUIET, TURNED = 1, 3  # the step in no_sync(), and that in which rank 1 leaves layers out


@dataclass(frozen=True)
class Drawn:
    """weights[rank]; inputs[rank][step] [B, 12]; the size in MiB at which a bucket is full."""

    weights: list[dict[str, Tensor]]
    inputs: list[list[Tensor]]
    cap_mb: float


def draw(generator: torch.Generator, world_size: int) -> Drawn:
    weights = [draw_weights(generator) for _ in range(world_size)]
    inputs = [
        [torch.randn(3, INPUTS, generator=generator, dtype=torch.float64) for _ in range(3)] for _ in weights
    ]
    for own in inputs:
        own.append(torch.randn(3, INPUTS, generator=generator, dtype=torch.float64))
    # `seldom` and `slope`, 656 bytes, do not fill a bucket; if a MiB were 10**6 bytes, `seldom` alone would.
    return Drawn(weights, inputs, random.randint(657, 678) / 2**20)


def uses(rank: int, step: int) -> bool:
    """Whether a rank uses `seldom` and `shift` in a step: rank 0 in the one that communicates nothing, and last.

    So before rank 0 fills two thirds of a bucket, more than is lacking next time, and nothing of the last one.
    """
    return step == QUIET or rank == (0 if step == TURNED else 1)


def uses_head(rank: int, step: int) -> bool:
    """Whether a rank uses `twice` and `last`, which the first bucket holds: rank 1 leaves them out once."""
    return not (rank == 1 and step == TURNED)


def sent(drawn: Drawn) -> dict[str, Any]:
    return {"weights": drawn.weights, "inputs": drawn.inputs, "cap_mb": drawn.cap_mb}


def sizes() -> dict[str, int]:
    """The bytes of each parameter that is trained, in their order."""
    return {name: p.numel() * p.element_size() for name, p in Net().named_parameters() if p.requires_grad}


def bucket_sizes(cap: float, *, before: bool = False) -> list[int]:
    """The bytes of each bucket, from the last parameter on.

    Args:
        cap: in bytes.
        before: each is closed before it gets larger than that, not when it has reached it.
    """
    found, room = [], 0
    for size in reversed(sizes().values()):
        if before and room and room + size > cap:
            found.append(room)
            room = 0
        room += size
        if not before and room >= cap:
            found.append(room)
            room = 0
    return [*found, room] if room else found


def own_gradients(drawn: Drawn, rank: int, *steps: int) -> Gradients:
    """The sums over these steps of a rank's own gradients, with rank 0's weights; zero where it has none."""
    with one_thread():
        net = Net(drawn.weights[0])
        for step in steps:
            loss_of(net(drawn.inputs[rank][step], seldom=uses(rank, step), head=uses_head(rank, step))).backward()
        found = gradients(net)
        return {
            name: found.get(name, torch.zeros_like(p)) for name, p in net.named_parameters() if p.requires_grad
        }


def mean(every: list[Gradients]) -> Gradients:
    return {name: torch.stack([one[name] for one in every]).mean(dim=0) for name in every[0]}
