"""What the steps, the epochs and the run of training are asked for, drawn anew for each run."""

from typing import Any

import torch
from torch import Tensor

from lab.checks.common.tiny import Batch, draw_batch, draw_weights, loss_and_gradients, parts
from lab.checks.train.means import BatchTotal, candidates, telling


def draw_steps(generator: torch.Generator, world_size: int) -> tuple[dict[str, Tensor], list[Batch]]:
    """Weights and two batches of five images a rank. The ranks' first losses are clearly different."""
    weights = draw_weights(generator)
    while True:
        batches = [draw_batch(generator, 5 * world_size) for _ in range(2)]
        losses = [loss_and_gradients(weights, own)[0] for own in parts(batches[0], world_size)]
        if max(losses) - min(losses) > 0.01:
            return weights, batches


def draw_epochs(generator: torch.Generator) -> dict[str, Any]:
    """What the ranks receive: the numbers of three epochs, and the losses that the training steps return.

    Draws again until the usual mistakes give other means than the right answer.
    """
    first = int(torch.randint(2, 9, (), generator=generator))
    while True:
        losses = 0.5 + 2.5 * torch.rand(2, 3, 3, generator=generator, dtype=torch.float64)
        given = {
            "epochs": [first, first + 1, first],
            "batch_size": 3,
            "samples": [9, 7],  # of each rank: three batches, the last one of unequal size
            "losses": losses.tolist(),  # [rank][epoch][step]
        }
        if all(telling(possible_means(given, epoch)) for epoch in range(3)):
            return given


def possible_means(given: dict[str, Any], epoch: int) -> dict[str, list[list[float]]]:
    """The right mean loss of one of the epochs, and what mistakes make of it."""
    batches = []
    for losses, samples in zip(given["losses"], given["samples"], strict=True):
        size = given["batch_size"]
        sizes = [min(size, samples - start) for start in range(0, samples, size)]
        batches.append([BatchTotal(loss * n, n, n) for loss, n in zip(losses[epoch], sizes, strict=True)])
    known = candidates(batches)
    del known["filler"]  # there is none in training
    return known


def draw_run(generator: torch.Generator) -> dict[str, Any]:
    """What the ranks receive: the numbers of three epochs, as in a run that was continued, and their figures."""
    first = int(torch.randint(2, 5, (), generator=generator))
    return {
        "epochs": [first, first + 1, first + 2],
        "train_loss": draw_numbers(generator, 3, 2, 3),
        "loss": draw_numbers(generator, 3, 1, 2),
        "accuracy": draw_numbers(generator, 3, 0.1, 0.9),
    }


def draw_numbers(generator: torch.Generator, count: int, low: float, high: float) -> list[float]:
    return (low + (high - low) * torch.rand(count, generator=generator)).tolist()
