"""What steps, epochs, evaluations and runs are asked for, drawn anew each time, and what mistakes make of it."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.checks.common.tensors import Tensors
from lab.checks.common.tiny import (
    OFFSET,
    OTHER_LOSSES,
    Batch,
    TinyNet,
    draw_batch,
    draw_weights,
    loss_and_gradients,
    one_thread,
    parts,
)
from lab.checks.train.means import BatchTotal, candidates, rarer, telling

IGNORED = -100
DROPPED = 4  # samples that an epoch leaves out
LISTED = 8  # samples that a rank's sampler counts: more than come, as where a run ends or goes on within an epoch

Parts = list[tuple[Tensor, Tensor]]
Contribution = tuple[BatchTotal, BatchTotal]  # a batch's losses and right answers


def draw_steps(generator: torch.Generator, world_size: int) -> tuple[dict[str, Tensor], list[Batch]]:
    """Weights and two batches of five images a rank. The ranks' first losses are clearly different.

    The network has a parameter that is in none of its layers, as a class token is.
    """
    weights = draw_weights(generator) | {OFFSET: torch.randn(10, generator=generator) / 5}
    while True:
        batches = [draw_batch(generator, 5 * world_size) for _ in range(2)]
        losses = [loss_and_gradients(weights, own)[0] for own in parts(batches[0], world_size)]
        if max(losses) - min(losses) > 0.01:
            return weights, batches


def draw_epochs(generator: torch.Generator) -> dict[str, Any]:
    """What the ranks receive: the numbers of some epochs, and the losses that the training steps return.

    The first epochs and two late ones: what is cut off, rounded or taken modulo something is the same for two of
    them. The last is the first one again, as in a run that is continued there. Draws again until the usual
    mistakes give other means than the right answer.
    """
    late = 2520 * int(torch.randint(1, 5, (), generator=generator))  # 2520 is a multiple of 1, 2, ... and 10
    epochs = [1, 2, 3, late + 1, late + 2, 1]
    while True:
        losses = 0.5 + 2.5 * torch.rand(2, len(epochs), 3, generator=generator, dtype=torch.float64)
        given = {
            "epochs": epochs,
            "batch_size": 3,
            "samples": [8, 7],  # of each rank: three batches, the last one of unequal size
            "losses": losses.tolist(),  # [rank][epoch][step]
        }
        if all(telling(possible_means(given, epoch)) for epoch in range(len(epochs))):
            return given


def possible_means(given: dict[str, Any], epoch: int) -> dict[str, list[list[float]]]:
    """The right mean loss of one of the epochs, and what mistakes make of it."""
    known = candidates(_batches(given, epoch))
    del known["filler"]  # there is none in training
    return known


def rarer_means(given: dict[str, Any], epoch: int) -> dict[str, list[list[float]]]:
    """What rarer mistakes make of it."""
    every = [_batches(given, one) for one in range(epoch + 1)]
    return rarer(every[-1], every[:-1], sum(given["samples"]) + DROPPED, LISTED)


def _batches(given: dict[str, Any], epoch: int) -> list[list[BatchTotal]]:
    batches = []
    for losses, samples in zip(given["losses"], given["samples"], strict=True):
        size = given["batch_size"]
        sizes = [min(size, samples - start) for start in range(0, samples, size)]
        batches.append([BatchTotal(loss * n, n, n) for loss, n in zip(losses[epoch], sizes, strict=True)])
    return batches


def draw_run(generator: torch.Generator) -> dict[str, Any]:
    """What the ranks receive: the numbers of three epochs, as in a run that was continued, and their figures.

    The second epoch is worse than the first, and the third the best: no reason to stop, or to keep only some.
    """
    first = int(torch.randint(2, 5, (), generator=generator))
    return {
        "epochs": [first, first + 1, first + 2],
        "train_loss": with_a_setback(draw_numbers(generator, 3, 2, 3)),
        "loss": with_a_setback(draw_numbers(generator, 3, 1, 2)),
        "accuracy": [-value for value in with_a_setback(draw_numbers(generator, 3, -0.9, -0.1))],
    }


# (training loss, validation loss, accuracy) of a run that nothing but its number of epochs may end: it begins with
# nothing left to learn; then all gets worse, up to what looks like a divergence, stays the same, and is nan.
TIRING = [
    (0.0, 0.0, 1.0),
    *((0.5 * 3.0**step, 3.0**step, 0.8**step) for step in range(1, 13)),
    *[(3.0**12, 3.0**12, 0.05)] * 12,
    *[(math.nan, math.nan, 0.05)] * 2,
]  # fmt: skip


def tiring_phase(epochs: int) -> str:
    """What its losses had done when it ended after so many epochs."""
    phases = {1: "were 0", 13: "had risen from epoch to epoch", 25: "had stayed the same", len(TIRING): "were nan"}
    return next(words for end, words in phases.items() if epochs <= end)


def with_a_setback(losses: list[float]) -> list[float]:
    """Three losses in this order: middle, highest, lowest."""
    low, middle, high = sorted(losses)
    return [middle, high, low]


def draw_numbers(generator: torch.Generator, count: int, low: float, high: float) -> list[float]:
    return (low + (high - low) * torch.rand(count, generator=generator)).tolist()


@dataclass(frozen=True)
class DrawnEvaluation:
    """What an evaluation is made of: each batch's losses and right answers, and how many are nearly right."""

    batches: list[list[Contribution]]  # [rank][batch]
    few: float  # the mean loss of one sample less than there are ranks
    among_first: list[float]  # how often the label is among the first 2, 3, 4, 5 classes
    other_losses: dict[str, float]  # the mean over all samples of what is taken for cross-entropy
    rare: dict[str, list[tuple[float, float]]]  # loss and accuracy that rarer mistakes lead to

    def rarer(self, which: int) -> dict[str, list[list[float]]]:
        """What rarer mistakes make of it."""
        found = rarer([[batch[which] for batch in own] for own in self.batches])
        own = {name: [[both[which]] * len(self.batches) for both in pairs] for name, pairs in self.rare.items()}
        return own | found

    def possible(self, which: int) -> dict[str, list[list[float]]]:
        """The right loss (0) or accuracy (1), and what mistakes make of it."""
        known = candidates([[batch[which] for batch in own] for own in self.batches])
        if which == 0:
            known |= {name: [[mean] * len(self.batches)] for name, mean in self.other_losses.items()}
        else:
            last = [own[-1][1] for own in self.batches]
            filler = sum(batch.length - batch.samples for batch in last)
            count = sum(batch.samples for own in self.batches for _, batch in own)
            share = known["exact"][0][0] + filler / count
            known["filler"] += [[one] * len(self.batches) for one in (share, share * count / (count + filler))]
            known["top k"] = [[share] * len(self.batches) for share in self.among_first]
            known["percent"] = [[100 * value for value in known["exact"][0]]]
        return known


def draw_evaluation(
    generator: torch.Generator, world_size: int, samples: int, batch_size: int
) -> tuple[Tensors, Parts, DrawnEvaluation]:
    """Weights, each rank's part with filler at its end, and what every batch of it contributes.

    Draws the labels again until the usual mistakes give other numbers than the right answer.
    """
    weights = draw_weights(generator)
    images, labels = draw_batch(generator, samples)
    with one_thread(), torch.no_grad():
        first = TinyNet(weights)(images[:1]).argmax().item()
        # The first image is the filler: it is taken for class 0, and so for right where -100 has become 0.
        order = [first, *(number for number in range(10) if number != first)]
        weights |= {name: weights[name][order] for name in ("classifier.weight", "classifier.bias")}
        logits = TinyNet(weights)(images)
    guesses = logits.argmax(dim=1)
    filler = -samples % world_size
    images = torch.cat([images, images[:1].expand(filler, -1, -1, -1)])
    while True:
        labels = torch.randint(0, 10, (samples,), generator=generator)
        labels = torch.where(torch.rand(samples, generator=generator) < 0.6, guesses, labels)
        losses = F.cross_entropy(logits, labels, reduction="none")
        right = guesses == labels
        padded = torch.cat([labels, torch.full((filler,), IGNORED)])
        place = (logits > logits.gather(1, labels[:, None])).sum(dim=1)  # of the right class; 0 is the first
        drawn = DrawnEvaluation(
            [
                contributions(
                    losses[rank::world_size], right[rank::world_size], len(padded) // world_size, batch_size
                )
                for rank in range(world_size)
            ],
            losses[: world_size - 1].mean().item(),
            [(place < k).double().mean().item() for k in range(2, 6)],
            {name: loss(logits, labels).item() for name, loss in OTHER_LOSSES.items()},
            rare_mistakes(losses, right, labels, filler, -logits.log_softmax(dim=1)[0, 0].item()),
        )
        # A few right answers out of a few samples cannot be different for every mistake.
        apart = ("own", "averages", "filler", "world size", "top k")
        if telling(drawn.possible(0)) and telling(drawn.possible(1), apart=apart):
            return weights, [(images[r::world_size], padded[r::world_size]) for r in range(world_size)], drawn


def rare_mistakes(
    losses: Tensor, right: Tensor, labels: Tensor, filler: int, of_filler: float
) -> dict[str, list[tuple[float, float]]]:
    """Args: `of_filler` is the loss of one filler image, if it is taken for class 0."""
    others, count = labels > 0, len(labels)
    total, correct = losses.sum().item(), right.sum().item()
    found = {
        "filler as class 0": [((total + filler * of_filler) / n, correct / n) for n in (count, count + filler)]
    }
    if others.any():
        without = losses[others].sum().item(), right[others].sum().item()
        found["class 0"] = [(without[0] / n, without[1] / n) for n in (int(others.sum()), count)] + [
            (total / int(others.sum()), correct / int(others.sum()))
        ]
    return found


def contributions(losses: Tensor, right: Tensor, length: int, batch_size: int) -> list[Contribution]:
    """One rank's batches; its samples are followed by filler up to `length`."""
    batches = []
    for start in range(0, length, batch_size):
        size = min(batch_size, length - start)
        own = [values[start : start + size] for values in (losses, right)]
        loss, correct = (BatchTotal(values.sum().item(), len(values), size) for values in own)
        batches.append((loss, correct))
    return batches
