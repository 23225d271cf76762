"""Judges what average_gradients() does with more models, and in machines with a GPU."""

import math
import re
from collections.abc import Sequence

import torch

from lab.base.source import searchable
from lab.checks.common.look import Look
from lab.checks.common.look_around import in_helpers
from lab.checks.common.look_values import keyed_at
from lab.checks.common.report import expect_as_many
from lab.checks.common.tensors import Tensors, close, expect_tensors, number
from lab.checks.ddp_utils.draw import OTHER_TYPES
from lab.grading.diagnosis import Diagnosis

OWN = "own"  # a parameter of the model itself
# What turns a tensor into another type, or asks for its type.
TYPED = r"\.(float|double|half|bfloat16|to|type)\(|dtype|float(16|32|64)\b"


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


def judge_again(look: Look, observed: Sequence[Sequence[Tensors]], like: Tensors) -> None:
    """A model with parameters of the same shape, whose n-th has n (r + 1) times the call's number, on rank r.

    Args:
        observed: on each rank, after each of the three calls.
        like: tensors of the shapes of its parameters; the twins are those that it has beside these.
    """
    world_size, names = len(observed), ("blocks.1.0", "classifier")
    twins = {
        f"twins.{n}.{kind}": like[f"{name}.{kind}"] for n, name in enumerate(names) for kind in ("weight", "bias")
    }
    like = {**like, **twins}
    expect_as_many(observed, 3)
    for call in (1, 2, 3):
        after = [calls[call - 1] for calls in observed]
        expect_tensors(after, like)
        means = {name: call * place * (world_size + 1) / 2 for place, name in enumerate(like, 1)}
        for rank, gradients in enumerate(after):
            off = [name for name in like if not close(gradients[name], torch.full_like(like[name], means[name]))]
            if not off:
                continue
            value = gradients[off[0]].flatten()[0].item()
            example = f"of {off[0]} rank {rank} has {number(value)}; the mean is {number(means[off[0]])}."
            if call == 1:
                raise Diagnosis(
                    "some-parameters-left-out",
                    saw=f"of a model some of whose parameters have the same shape, only {len(like) - len(off)} of "
                    f"{len(like)} gradients are the mean over the ranks: {example}",
                    means="Each parameter has its own gradient: with one for each shape the others are lost.",
                    look=keyed_at(look) or look(r"\bshape\b|\.size\(|numel\(|\bndim\b", r"\bfor\b"),
                )
            told = "the same tensors with other numbers" if call == 2 else "other tensors"
            raise Diagnosis(
                "first-call-only",
                saw=f"the first call for a model is right. In call {call} its gradients are {told}: {example}",
                means="Every step has new gradients: what an earlier call has kept says nothing of them.",
                look=look.kept()
                if look.kept() != look()
                else look(r"hasattr|getattr|global|nonlocal", r"\bif\b(?!.*None)", r"\bfor\b"),
            )


def judge_other_types(look: Look, observed: Sequence[Sequence[Sequence[float]]]) -> None:
    """Models that are not in fp32: rank r had r + 1 everywhere."""
    expect_as_many(observed, len(OTHER_TYPES))
    world_size = len(observed)
    mean = (world_size + 1) / 2
    for at, kind in enumerate(OTHER_TYPES):
        for rank, kinds in enumerate(observed):
            off = [value for value in kinds[at] if not abs(value - mean) <= 0.02 * mean]  # bf16 has three digits
            if not off:
                continue
            sent = look.source_of("all_reduce", "tensor", 0, like=TYPED)
            found = re.search(TYPED, searchable(sent))
            place = sent if found else in_helpers(look, TYPED) or look(r"all_reduce")
            raise Diagnosis(
                "only-fp32-averaged",
                saw=f"of a model in {str(kind).removeprefix('torch.')} rank {rank} has the gradient "
                f"{number(off[0])}; the mean over the {world_size} ranks is {number(mean)}.",
                means="A gradient has the type of its parameter: all are averaged, whatever type that is."
                if re.search(r"\bif\b", searchable(place))
                else ".float() copies what is not fp32: the mean is in the copy then, and not in the gradient.",
                look=place,
            )
