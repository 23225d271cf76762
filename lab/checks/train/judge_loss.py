"""Judges the loss that a training step returned, and the precision that it was computed in."""

import ast
from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import Look
from lab.checks.common.report import expect_returned
from lab.checks.common.syntax import calls_of
from lab.checks.common.tensors import Tensors, close, number
from lab.checks.common.tiny import Batch, loss_and_gradients, parts
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

LOSS = {"type": str, "tensor": bool, "graph": bool, "shape": [int], "value": (float, None)}


def judge_loss(look: Look, losses: Sequence[dict[str, Any]], weights: Tensors, batch: Batch) -> None:
    """This rank's mean loss, as a tensor without a graph."""
    place = look(r"\breturn\b", r"loss\s*=")
    for loss in losses:
        expect_returned(look, loss["type"], "The epoch needs the loss of each step for its mean.", place)
        if not loss["tensor"]:
            raise Diagnosis(
                "loss-as-number",
                saw=f"train_step() returned a {loss['type']}, not a tensor.",
                means=".item() in every step makes the CPU wait until the GPU has finished that step.",
                look=look(r"\.item\(|float\(|tolist", r"\breturn\b"),
            )
        if loss["graph"]:
            raise Diagnosis(
                "loss-not-detached",
                saw="the loss that train_step() returned still carries its graph (requires_grad is True).",
                means="Whoever adds up such losses keeps the activations of every step in memory.",
                look=place,
            )
        if loss["shape"]:
            raise Diagnosis(
                "loss-not-a-number",
                saw=f"train_step() returned a tensor of shape {loss['shape']}, not a single number.",
                means="It must be the mean loss of this rank's samples.",
                look=place,
            )
    own = [loss_and_gradients(weights, part)[0] for part in parts(batch, len(losses))]
    everywhere = sum(own) / len(own)
    observed = [float("nan") if loss["value"] is None else loss["value"] for loss in losses]
    compared("loss of step 1", observed, own, each=True)
    if all(map(close, observed, own)):
        return
    size = len(batch[1]) // len(losses)
    values = ", ".join(f"rank {rank} {number(value)}" for rank, value in enumerate(observed))
    right = ", ".join(map(number, own))
    if all(close(value, everywhere) for value in observed):
        raise Diagnosis(
            "loss-reduced-in-step",
            saw=f"train_step() returned {number(everywhere)} on every rank: the mean of {right}.",
            means="An all-reduce in every step only to print a number: the epoch does it once, at its end.",
            look=look(r"reduce|gather", r"\breturn\b"),
        )
    if all(map(close, observed, [size * value for value in own])):
        raise Diagnosis(
            "loss-summed",
            saw=f"train_step() returned {values}; the means over {size} samples are {right}.",
            means="A sum over the samples depends on the batch size; a mean can be compared.",
            look=place,
        )
    raise Diagnosis(
        "wrong-loss",
        saw=f"train_step() returned {values}; the mean losses before the step are {right}.",
        means="It must be the loss that the backward pass started from.",
        look=place,
    )


def judge_kind(look: Look, report: dict[str, Any]) -> None:
    """Still on the device, and as exact under autocast."""
    if not report["computed"]:
        raise Diagnosis(
            "loss-as-number",
            saw="train_step() returned a tensor that was made from a Python number.",
            means=".item() in every step makes the CPU wait until the GPU has finished that step.",
            look=look(r"\.item\(|float\(|tolist|numpy", r"\breturn\b"),
        )
    if report["bf16 loss"] not in ("float32", "float64"):
        raise Diagnosis(
            "loss-outside-autocast",
            saw=f"in a run with --precision bf16 the loss was computed in {report['bf16 loss']}.",
            means="Three digits are not enough for a loss; inside of autocast, cross_entropy computes in fp32.",
            look=look(r"cross_entropy|loss\s*=", r"autocast"),
        )


def judge_precision(look: Look, report: dict[str, Any]) -> None:
    """The run decides on the precision of the forward pass."""
    place = look(r"autocast", r"model\(")
    if report["fp32"] not in ("float32", "nothing"):
        raise Diagnosis(
            "always-low-precision",
            saw=f"in a run with fp32 the forward pass computed in {report['fp32']}.",
            means="The run's --precision decides: run.autocast() knows it.",
            look=place,
        )
    if report["bf16"] not in ("bfloat16", "nothing"):
        raise Diagnosis(
            "no-autocast",
            saw=f"in a run with --precision bf16 the forward pass computed in {report['bf16']}.",
            means="Without `with run.autocast():` around it, the forward pass stays in fp32.",
            look=outside_of(look, "autocast", "model") or place,
        )


def outside_of(look: Look, context: str, function: str) -> str:
    """The place of a call that stands outside of the `with` of a context; "" where one is inside, or none is."""
    _, _, node = look.source()
    withs = [part for part in ast.walk(node) if isinstance(part, ast.With)] if node else []
    around = [part for part in withs if any(context in ast.unparse(one.context_expr) for one in part.items)]
    lines = [call.lineno for call in (calls_of(node, function) if node else ())]
    inside = [line for line in lines for part in around if part.lineno <= line <= (part.end_lineno or 0)]
    return look.line(min(lines)) if around and lines and not inside else ""
