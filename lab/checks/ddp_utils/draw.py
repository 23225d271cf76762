"""What average_gradients() is asked to average, drawn anew for each run."""

import random
from typing import Any

import torch

from lab.checks.common.tiny import draw_batch, draw_weights, fresh_generator, loss_and_gradients, parts

OTHER_TYPES = (torch.float64, torch.bfloat16)  # in which a model may be too


class Gradients:
    """The gradients of a batch on this many ranks.

    Attributes:
        moved: the weights on each rank. After the backward pass they are moved apart: averaging those would show.
        idle: the rank whose last parameter has a gradient of 0, as where none of its samples takes part in it.
        local: the gradients on each rank.
        mean: what they must become.
        inputs: what the ranks receive.
    """

    def __init__(self, world_size: int) -> None:
        generator = fresh_generator()
        weights, batch = draw_weights(generator), draw_batch(generator, 4 * world_size)
        own = parts(batch, world_size)
        self.moved = [
            {name: value + torch.randn(value.shape, generator=generator) for name, value in weights.items()}
            for _ in range(world_size)
        ]
        self.idle = random.randrange(world_size)
        self.mean = loss_and_gradients(weights, batch)[1]
        self.local = [loss_and_gradients(weights, part)[1] for part in own]
        self.local[self.idle]["classifier.bias"].zero_()
        self.mean["classifier.bias"] = torch.stack([one["classifier.bias"] for one in self.local]).mean(dim=0)
        self.inputs: dict[str, Any] = {"weights": weights, "parts": own, "moved": self.moved, "idle": self.idle}
