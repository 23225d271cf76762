"""Judges what comes out for a batch: one row of logits an image, of the type of the weights."""

import re
from typing import Any, NoReturn

import torch
from torch import Tensor

from lab.base.source import searchable
from lab.checks.common.look import Look
from lab.checks.common.report import error_place, error_text, fail
from lab.grading.diagnosis import Diagnosis

SLICED = r"=\s*\w+\[[^\]]*:"  # images or rows are left out

OTHER_TYPES = "same dtype|expected scalar type|should be the same"  # PyTorch, where two tensors do not fit

CASTS = (
    r"\.(float|double|half|bfloat16|type)\(|dtype\s*=|\btorch\.(float|bfloat|half)",
    r"torch\.(zeros|ones|empty|full|tensor|rand\w*|eye|arange)\(",
)  # where a tensor gets a type of its own


def raised(error: dict[str, Any], what: str, look: Look) -> NoReturn:
    """The diagnosis for an error in the forward pass, which two types that do not fit lead to at the second."""
    if re.search(OTHER_TYPES, searchable(error["message"])):
        raise Diagnosis(
            "dtype-changed",
            saw=f"{what} raised {error_text(error)}",
            means="A type of its own does not fit the weights, whose type the run chooses: bf16 with fsdp.",
            look=place if (place := look(*CASTS)) != look() else error_place(error, look),
        )
    fail(error, what, look)


def judge_logits(look: Look, size: int, value: object, mode: str = "") -> None:
    """Args: `mode` is "" or, for example, " in evaluation mode"."""
    if not isinstance(value, Tensor):
        raise Diagnosis(
            "nothing-returned" if value == "NoneType" else "no-logits",
            saw=f"forward() returned {'None' if value == 'NoneType' else f'a {value}'}{mode}, not a tensor.",
            means="The loss needs the logits: one row an image, one number a class.",
            look=look(r"\breturn\b"),
        )
    if list(value.shape) != [size, 10]:
        squeezed = size == 1 and list(value.shape) == [10]
        raise Diagnosis(
            "wrong-shape",
            saw=f"a batch of {size} images{mode} gave a result of shape {list(value.shape)}; "
            f"expected [{size}, 10].",
            means="A batch of one image is still a batch: keep its dimension."
            if squeezed
            else "The loss needs one row an image, one number a class.",
            look=look(*([SLICED] if list(value.shape[1:]) == [10] else []), r"squeeze|argmax|mean|\breturn\b"),
        )
    if not value.is_floating_point():
        raise Diagnosis(
            "no-logits",
            saw=f"forward() returned numbers of type {value.dtype}{mode}.".replace("torch.", ""),
            means="Logits are floating-point numbers; rounded ones have no gradient.",
            look=look(r"\breturn\b"),
        )


def judge_values(look: Look, logits: Tensor, mode: str = "") -> None:
    if not logits.isfinite().all():
        raise Diagnosis(
            "no-logits",
            saw=f"{(~logits.isfinite()).sum()} of the {logits.numel()} numbers in the results{mode} are nan or "
            "infinite.",
            means="Their loss is nan, and after one step so are all the weights.",
            look=look(r"log|exp|/", r"\breturn\b"),
        )
    if (logits < 0).any():
        return
    sums = logits.sum(dim=1)
    if torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
        raise Diagnosis(
            "softmax-before-loss",
            saw=f"every row of the result{mode} is positive and adds up to 1: these are probabilities, not "
            "logits.",
            means="cross_entropy applies softmax itself. Applied twice, the gradients shrink and training crawls.",
            look=look(r"softmax", r"\breturn\b"),
        )
    raise Diagnosis(
        "no-negative-logits",
        saw=f"none of the {logits.numel()} numbers in the results{mode} is negative.",
        means="A ReLU or a sigmoid at the end keeps the loss from telling the classes apart.",
        look=look(
            r"(relu|sigmoid|abs).*classifier", r"return.*(relu|sigmoid|abs)", r"relu|sigmoid|abs", r"\breturn\b"
        ),
    )
