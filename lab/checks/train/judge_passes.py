"""Judges how an evaluation ran the model, how it left it, and what it makes of a rank without samples."""

import math
import re
from collections.abc import Sequence
from typing import Any

from lab.base.source import searchable
from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import leads_to
from lab.checks.common.report import expect
from lab.checks.common.tensors import close, number
from lab.checks.train.judge_rarer import REDUCING, divided_before
from lab.grading.diagnosis import Diagnosis

HALF = r"half|float16|autocast"

BYPASSED = (
    "Past its wrapper a model gathers nothing, and fully_shard leaves no .module: call model(images) itself."
)


def judge_after(look: Look, own: Sequence[dict[str, Any]]) -> None:
    """The model trains again, and gradients are recorded again."""
    for rank, report in enumerate(own):
        if not report["restored"]:
            raise Diagnosis(
                "training-mode-not-restored",
                saw=f"after evaluate() the model is still in evaluation mode on rank {rank}.",
                means="The next epoch would train without dropout and with BatchNorm's old statistics.",
                look=look(r"\.training\s*=(?!=)", r"\.train\(", r"\.eval\("),
            )
        if not report["gradients"]:
            raise Diagnosis(
                "gradients-left-off",
                saw=f"after evaluate() gradients are still switched off on rank {rank}.",
                means="The next epoch's backward() fails. `with torch.no_grad():` ends by itself.",
                look=look(r"set_grad_enabled|grad|inference", r"\.eval\("),
            )


def judge_passes(look: Look, rank: int, report: dict[str, Any], wrapper: str, images: int) -> None:
    """All images once, in evaluation mode, without gradients."""
    passes = report["passes"]
    seen = sum(one["images"] for one in passes)
    if any(one["training"] for one in passes):
        back = look(r"\.train\((?!False)")
        early = 0 < line_of(back) < line_of(look(r"\bfor\b"))
        between = bool(line_of(back)) and not passes[0]["training"]  # put back after the first batch
        raise Diagnosis(
            "evaluated-in-training-mode",
            saw=f"under {wrapper} the forward passes of evaluate() ran in training mode on rank {rank}.",
            means="Dropout would still drop, and BatchNorm would learn from the validation images.",
            look=back if early or between else look(r"\.eval\b|\.train\(False", r"\bfor\b"),
        )
    if any(one["gradients"] for one in passes):
        raise Diagnosis(
            "gradients-on",
            saw=f"under {wrapper} the forward passes of evaluate() recorded a graph on rank {rank}.",
            means="Activations are kept for a backward pass that never comes: memory and time for nothing.",
            look=look(r"no_grad|inference_mode", r"\bfor\b"),
        )
    if report["called"] < len(passes):
        raise Diagnosis(
            "wrapper-bypassed",
            saw=f"under {wrapper} {len(passes) - report['called']} of {len(passes)} forward passes on rank {rank} "
            "went past the wrapped model.",
            means=BYPASSED,
            look=leads_to(look, r"\bmodule\b") or look(r"model\("),
        )
    if seen != images:
        raise Diagnosis(
            "batches-left-out" if seen < images else "batches-repeated",
            saw=f"rank {rank} ran {seen} images through the model; its loader yields {images}.",
            means="Every sample counts once, and all ranks must run the same batches: FSDP gathers in each."
            if seen
            else "It gave back what was computed before, or ended too early: each call runs all batches.",
            look=look(r"break|continue|islice|\bif\b|\bnext\((?!.*parameters)", r"\bfor\b"),
        )


def judge_precision(look: Look, saw: str, values: Sequence[dict[str, float]], exact: dict[str, float]) -> None:
    """Rounding to 16 bits gives numbers near the right ones, which now and then are also those of a mistake.

    What is near by chance, a loss with label smoothing say, has no line that speaks of 16 bits.
    """
    place = look(HALF)
    near = all(
        abs(value["loss"] / exact["loss"] - 1) < 0.02 and abs(value["accuracy"] - exact["accuracy"]) < 0.1
        for value in values
    )
    if near and re.search(HALF, searchable(place)):
        raise Diagnosis(
            "low-precision",
            saw=saw,
            means="That is the rounding of 16 bits: evaluate without autocast, and sum up in float32 or float64.",
            look=place,
        )


def judge_few(look: Look, reports: Sequence[Any], right: float) -> None:
    """An evaluation in which the last rank has nothing but filler, where one of more samples was right."""
    expect(reports, {"few": {"values": dict}})
    values = [report["few"]["values"] for report in reports]
    if not all(values):
        return
    expect(values, {"loss": float, "accuracy": float})
    for rank, value in enumerate(values):
        if not close(value["loss"], right):
            nan = math.isnan(value["loss"])
            few = f"{len(values) - 1} sample{'s' * (len(values) > 2)}"
            saw = (
                f"with {few} on {len(values)} ranks, the last of which has filler only, evaluate() gave the loss "
                f"{number(value['loss'])} on rank {rank}; their mean is {number(right)}."
            )
            judge_precision(look, saw, [value], {"loss": right, "accuracy": value["accuracy"]})
            raise Diagnosis(
                "nan-from-filler" if nan else "rank-without-samples",
                saw=saw,
                means="A rank without samples adds 0 to each sum: divide after the reduction, and change no sum.",
                look=(divided_before(look, REDUCING) if nan else "")
                or look(
                    *[r"cross_entropy"] * nan,
                    r"clamp|\bmax\(|\bor 1\b",
                    r"\bif\b",
                    r"reduce|gather",
                    r"\breturn\b",
                ),
            )
