"""Judges the network in float64: each image by itself, every time, in training and in evaluation."""

from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import Look
from lab.checks.model.judge_logits import judge_logits, judge_values, raised
from lab.grading.diagnosis import Diagnosis

# What lets numbers of one image come to another's row, where nothing is computed of several of them.
MIXING = (
    r"softmax|cumsum|roll\(|flip\(|sort\(|dim\s*=\s*0\b|\.m?T\b|permute|transpose|swap|movedim",
    r"(reshape|view|unflatten)\((?!.*(len\(|size\(|shape|batch|\bB\b|\bn\b))",
)


def judge_rows(look: Look, report: dict[str, Any]) -> None:
    """In float64, an image's logits are the same whatever else is in the batch, and every time."""
    results = [report["whole"], report["again"], *report["rows"]]
    if error := next((result["error"] for result in results if result["error"]), None):
        raised(error, "the network in float64", look)
    values = [result["value"] for result in results]
    if not all(isinstance(value, Tensor) and value.shape[1:] == (10,) for value in values):
        judge_logits(look, len(report["rows"]), values[0])
    whole, again, rows = values[0].double(), values[1].double(), torch.cat(values[2:]).double()
    if values[0].dtype != torch.float64:
        raise Diagnosis(
            "dtype-changed",
            saw=f"float64 weights and images gave {values[0].dtype} logits.".replace("torch.", ""),
            means="The network must compute in the precision it is given, or comparing ranks is blurred.",
            look=look(r"float|half|bfloat16|\.to\(", r"\breturn\b"),
        )
    found = [name for name in report["modules"] if "BatchNorm" in name or "Dropout" in name]
    suspects = f"the {' and '.join(found)} in model.py" if found else ""
    if (difference := (whole - again).abs().max().item()) > 1e-9:
        raise Diagnosis(
            "random-forward",
            saw=f"the same batch twice gave logits that differ by {difference:.2g}.",
            means="Dropout draws other units on every rank, so W ranks cannot compute what one device computes.",
            look=suspects or look(r"dropout|rand", r"\breturn\b"),
        )
    if (difference := (whole[: len(rows)] - rows).abs().max().item()) > 1e-9:
        raise Diagnosis(
            "rows-depend-on-batch",
            saw=f"an image's logits change by {difference:.2g} with the other images in its batch.",
            means="Each rank sees only its part of the batch, so W ranks would not compute what one device "
            "computes.",
            look=suspects or look(r"norm|mean|std|max\(", *MIXING, r"\breturn\b"),
        )
    judge_evaluation(look, report["evaluated"], whole)


def judge_evaluation(look: Look, evaluated: dict[str, Any], trained: Tensor) -> None:
    """Without BatchNorm and dropout, evaluation gives what training gives.

    Args:
        trained: the logits of the same images in training.
    """
    mode = " in evaluation mode"
    if evaluated["error"]:
        raised(evaluated["error"], f"the network{mode}", look)
    judge_logits(look, len(trained), evaluated["value"], mode)
    judge_values(look, evaluated["value"], mode)
    if (difference := (evaluated["value"].double() - trained).abs().max().item()) > 1e-9:
        raise Diagnosis(
            "other-in-evaluation",
            saw=f"the same batch gave other logits{mode} than in training, by {difference:.2g}.",
            means="The validation loss is then that of another network than the one that learns.",
            look=look(r"training|grad_enabled|inference", r"\breturn\b"),
        )
