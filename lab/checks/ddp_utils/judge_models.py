"""Judges what average_gradients() does with more models, and in machines with a GPU."""

import math
from collections.abc import Sequence

import torch

from lab.checks.common.look import Look
from lab.checks.common.tensors import Tensors, close, expect_tensors, number
from lab.grading.diagnosis import Diagnosis

OWN = "own"  # a parameter of the model itself


def judge_second_model(look: Look, observed: Sequence[Tensors], like: Tensors, idle: int) -> None:
    """A second model: rank r has r + 1 everywhere, but the rank `idle` has one inf.

    Args:
        like: tensors of the shapes of its parameters; OWN is one that no child of it has.
    """
    expect_tensors(observed, like)
    world_size = len(observed)
    mean = (world_size + 1) / 2
    for rank, gradients in enumerate(observed):
        value = gradients["blocks.0.2.weight"].flatten()[0].item()
        if not close(value, mean):
            raise Diagnosis(
                "first-model-only",
                saw=f"the first model is right; of a second one rank {rank} has the gradient {number(value)}, "
                f"and the mean over the ranks is {number(mean)}.",
                means="Something is kept from the first call: average the parameters of the model handed in.",
                look=look(r"hasattr|getattr|global|nonlocal|\bif\b(?!.*None)", r"\bfor\b"),
            )
        if not close(gradients[OWN], torch.full_like(gradients[OWN], mean)):
            raise Diagnosis(
                "some-parameters-left-out",
                saw=f"of a model with a parameter of its own, in none of its children, rank {rank} has "
                f"{number(gradients[OWN][0])} as gradient of that one; the mean over the ranks is {number(mean)}.",
                means="model.parameters() gives them all: those of the children, and those of the model itself.",
                look=look(r"children\(|_modules|\.modules\(", r"blocks|classifier", r"\bfor\b"),
            )
        value = gradients["classifier.bias"][0].item()
        if math.isfinite(value):
            raise Diagnosis(
                "overflow-hidden",
                saw=f"where rank {idle} has a gradient of inf, {number(value)} is left of it on rank {rank}.",
                means="Training in fp16 tells by an inf that a step must be left out; hidden, it is taken.",
                look=look(r"nan_to_num|isfinite|isnan|isinf|clamp|clip", r"grad"),
            )


def judge_third_model(look: Look, observed: Sequence[Tensors], like: Tensors, idle: int) -> None:
    """A third model: rank r has r + 1 everywhere, but all gradients of the rank `idle` are 0."""
    expect_tensors(observed, like)
    world_size = len(observed)
    mean = sum(rank + 1 for rank in range(world_size) if rank != idle) / world_size
    for rank, gradients in enumerate(observed):
        value = gradients["blocks.0.2.weight"].flatten()[0].item()
        if not close(value, mean):
            raise Diagnosis(
                "zeros-not-counted",
                saw=f"where all gradients of rank {idle} are 0, rank {rank} has {number(value)}; the mean over "
                f"the {world_size} ranks is {number(mean)}.",
                means="A gradient of 0 is a number like every other: its samples count in the mean.",
                look=look(r"count_nonzero|nonzero|\bany\(|\ball\(|norm\(|abs\(|[!=]=\s*0|>\s*0", r"[/*]=|\bdiv"),
            )


def judge_on_a_node(look: Look, observed: Sequence[float | None]) -> None:
    """Rank r had r + 1, on a node of its own."""
    world_size = len(observed)
    mean = (world_size + 1) / 2
    for rank, value in enumerate(observed):
        if value is None or close(value, mean):
            continue
        raise Diagnosis(
            "wrong-gradients",
            saw=f"in a machine with a GPU rank {rank} has the gradient {number(value)}; the mean over the "
            f"{world_size} ranks is {number(mean)}.",
            means="The mean is that of all ranks, wherever they are: ask the process group.",
            look=look(r"cuda", r"[/*]=|\bdiv"),
        )
