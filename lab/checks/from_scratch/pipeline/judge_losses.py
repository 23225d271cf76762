"""Judges the losses that the last stage of a pipeline returns."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import Look
from lab.checks.common.tensors import all_close, close, factor_between, number
from lab.checks.from_scratch.pipeline.net import MICRO_BATCHES
from lab.grading.diagnosis import Diagnosis


def judge_losses(
    look: Look, name: str, last: dict[str, Any], right: Sequence[float], gradients: dict[str, Tensor]
) -> None:
    """
    Args:
        last: what the last rank reported.
        gradients: the right ones there; if it has these, what it differentiates was divided as it should be.
    """
    found = last["losses"]
    ordered = sorted(found)
    if len(found) == len(right) and all(map(close, ordered, sorted(right))):
        return
    saw = f"{name}: the last rank's first losses are {_listed(found)}; of one process {_listed(right)}"
    factor = factor_between({"": torch.tensor(ordered)}, {"": torch.tensor(sorted(right))})
    if factor is not None:
        noted = (r"losses",) if same(last["gradients"], gradients) else ()
        undivided = close(factor, MICRO_BATCHES)
        raise Diagnosis(
            "not-divided" if undivided else "divided-by-another-number",
            saw=f"{saw}." if undivided else f"{saw}: {factor:.3g} times as much.",
            means=f"The mean over the batch: each micro-batch's loss is divided by their number, {MICRO_BATCHES}.",
            look=look(*noted, r"loss_of.*(/|div|mean|\*)", r"/|\*|\.(div|mul)|mean\(", r"loss_of"),
        )
    raise Diagnosis(
        "wrong-losses",
        saw=f"{saw}.",
        means="Every micro-batch goes through all stages once, and meets its own targets.",
        look=look(r"loss_of", r"module\("),
    )


def same(found: dict[str, Any], right: dict[str, Tensor]) -> bool:
    tensors = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    return tensors.keys() == right.keys() and all_close(tensors, right)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(number(value) for value in values[:3])
