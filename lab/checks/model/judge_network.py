"""Judges what the network gives: logits of any batch, errors for wrong images, the same for each row alone."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import Look
from lab.checks.common.report import ERROR, error_place, error_text, expect, expect_as_many, fail, numbers
from lab.checks.model.observe import IMAGE, ROWS, WRONG_IMAGES
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared, part

ATTEMPT = {"value": object, "error": (None, ERROR)}
REPORT = {
    "changed": bool, "elsewhere": str, "wrong": [ATTEMPT], "odd": [ATTEMPT], "blocks": str, "modules": [str],
    "classes": ATTEMPT, "without_gradient": [str], "whole": ATTEMPT, "again": ATTEMPT, "rows": [ATTEMPT],
}  # fmt: skip

ANY_BATCH, LOGITS = "a batch of any size", "logits, of each image by itself"


def judge_network(look: Look, reports: Sequence[Any], sizes: list[int], num_classes: int) -> None:
    """Raise the diagnosis of the first thing that is wrong.

    Args:
        sizes: of the batches.
        num_classes: of the second network.
    """
    expect(reports, {"batches": [ATTEMPT], "usual": [int], "lets_through": [[int]]})
    report = reports[0]
    expect_as_many([report["batches"]], len(sizes))

    for size, batch in zip(sizes, report["batches"], strict=True):
        shape = list(getattr(batch["value"], "shape", []))
        compared(f"shape of the logits of {size}", [shape], [size, 10])
    with part(ANY_BATCH):
        judge_errors(look, sizes, report)
        for size, batch in zip(sizes, report["batches"], strict=True):
            judge_logits(look, size, batch["value"])
    with part(LOGITS, after=[ANY_BATCH]):
        judge_values(look, torch.cat([batch["value"] for batch in report["batches"]]))
    expect(reports, REPORT)
    expect_as_many([report["wrong"]], len(WRONG_IMAGES))
    expect_as_many([report["rows"]], ROWS)
    with part("an assertion for other images", after=[ANY_BATCH]):
        judge_wrong_images(look, report["wrong"], report["odd"])
    with part("blocks, classes, gradients, device", after=[ANY_BATCH]):
        judge_manners(look, report)
        judge_parameters(look, report, num_classes)
    with part(LOGITS):
        judge_rows(look, report)


def judge_errors(look: Look, sizes: list[int], report: dict[str, Any]) -> None:
    """An error for images of the right size: for which batch sizes does it come?"""
    failed = [
        (size, batch["error"]) for size, batch in zip(sizes, report["batches"], strict=True) if batch["error"]
    ]
    if not failed:
        return
    size, error = failed[0]
    passed = [s for s, batch in zip(sizes, report["batches"], strict=True) if not batch["error"]]
    right = sorted({*passed, *report["usual"]})
    saw = f"a batch of {size} images, {[size, *IMAGE]}, raised {error_text(error)}"
    place = error_place(error, look)
    if "AssertionError" in error["bases"] and not right and (others := report["lets_through"]):
        saw += f"; images of {others[0]} get through the assertion."
        order = "The images come as [3, 32, 32]: the channels, the height, the width, in this order."
        raise Diagnosis("assertion-of-other-images", saw=saw, means=order, look=place)
    if "AssertionError" in error["bases"]:
        only = f"; a batch of {numbers(right)} goes through." if right else "."
        raise Diagnosis(
            "fixed-batch-size",
            saw=saw + only,
            means="Every rank gets only its part of the batch, and the last one can be smaller: B must stay free.",
            look=place,
        )
    if "more than 1 value per channel" in error["message"]:
        raise Diagnosis(
            "rows-depend-on-batch",
            saw=saw,
            means="BatchNorm looks at the whole batch, so W ranks would not compute what one device computes.",
            look=place,
        )
    if right == [1]:
        raise Diagnosis(
            "batch-flattened",
            saw=saw + "; a batch of 1 goes through.",
            means="Flattening has merged all the images of the batch into one row.",
            look=look(r"flatten|view|reshape"),
        )
    if right:
        raise Diagnosis(
            "fixed-batch-size",
            saw=f"{saw}; a batch of {numbers(right)} goes through.",
            means="A batch size is written into the code, but every rank gets only its part of the batch.",
            look=look(r"view|reshape|unflatten"),
        )
    if " channels, but got " in error["message"]:
        raise Diagnosis(
            "blocks-not-in-turn",
            saw=saw,
            means="Every block takes what the block before it gives, and the first one the images.",
            look=place,
        )
    fail(error, f"a batch of {size} images, {[size, *IMAGE]},", look)


def judge_logits(look: Look, size: int, value: object) -> None:
    if not isinstance(value, Tensor):
        raise Diagnosis(
            "nothing-returned" if value == "NoneType" else "no-logits",
            saw=f"forward() returned {'None' if value == 'NoneType' else f'a {value}'}, not a tensor.",
            means="The loss needs the logits: one row an image, one number a class.",
            look=look(r"\breturn\b"),
        )
    if list(value.shape) != [size, 10]:
        squeezed = size == 1 and list(value.shape) == [10]
        raise Diagnosis(
            "wrong-shape",
            saw=f"a batch of {size} images gave a result of shape {list(value.shape)}; expected [{size}, 10].",
            means="A batch of one image is still a batch: keep its dimension."
            if squeezed
            else "The loss needs one row an image, one number a class.",
            look=look(r"squeeze|argmax|mean|\breturn\b"),
        )
    if not value.is_floating_point():
        raise Diagnosis(
            "no-logits",
            saw=f"forward() returned numbers of type {value.dtype}.".replace("torch.", ""),
            means="Logits are floating-point numbers; rounded ones have no gradient.",
            look=look(r"\breturn\b"),
        )


def judge_values(look: Look, logits: Tensor) -> None:
    if not logits.isfinite().all():
        raise Diagnosis(
            "no-logits",
            saw=f"{(~logits.isfinite()).sum()} of the {logits.numel()} numbers in the results are nan or "
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
            saw="every row of the result is positive and adds up to 1: these are probabilities, not logits.",
            means="cross_entropy applies softmax itself. Applied twice, the gradients shrink and training crawls.",
            look=look(r"softmax", r"\breturn\b"),
        )
    raise Diagnosis(
        "no-negative-logits",
        saw=f"none of the {logits.numel()} numbers in the results is negative.",
        means="A ReLU or a sigmoid at the end keeps the loss from telling the classes apart.",
        look=look(r"relu|sigmoid|abs", r"\breturn\b"),
    )


def judge_wrong_images(look: Look, wrong: list[dict[str, Any]], odd: list[dict[str, Any]]) -> None:
    """Args: `odd` are the results of what is not even a batch of images."""
    never_fails = not any(one["error"] and "AssertionError" in one["error"]["bases"] for one in odd)
    missed = [
        (shape, result["error"])
        for shape, result in zip(WRONG_IMAGES, wrong, strict=True)
        if result["error"] is None or "AssertionError" not in result["error"]["bases"]
    ]
    if not missed:
        return
    shape, error = missed[0]
    batch = ["B", *shape]
    saw = f"images [{', '.join(map(str, batch))}] " + (
        f"raised {error_text(error)}" if error else "went through without an error."
    )
    if error and error["type"] not in ("RuntimeError", "IndexError"):
        raise Diagnosis(
            "not-an-assertion",
            saw=saw,
            means="A wrong image here is a mistake in the program, not in a user's input: that is what assert "
            "is for.",
            look=error_place(error, look),
        )
    if len(missed) < len(WRONG_IMAGES):
        raise Diagnosis(
            "assertion-too-weak",
            saw=f"{saw.rstrip('.')}; other wrong sizes are refused.",
            means="The assertion must compare all three of channels, height and width.",
            look=look(r"\bassert\b"),
        )
    if (place := look.asserts()) and never_fails:
        raise Diagnosis(
            "assertion-cannot-fail",
            saw=f"{saw.rstrip('.')}, and so does everything else: the assertion has never failed.",
            means="It is always true, as a tuple in brackets is, or never reached: assert CONDITION, MESSAGE.",
            look=place,
        )
    if place:
        raise Diagnosis(
            "assertion-too-weak",
            saw=f"{saw.rstrip('.')}; the assertion refuses other things.",
            means="The assertion must compare all three of channels, height and width.",
            look=place,
        )
    raise Diagnosis(
        "no-assertion",
        saw=saw,
        means="Without an assertion a wrong image is noticed layers later in a message about matrices, or never.",
        look=look(),
    )


def judge_manners(look: Look, report: dict[str, Any]) -> None:
    """The images are left as they were, and the results are where they are."""
    if report["changed"]:
        raise Diagnosis(
            "images-changed",
            saw="after the forward pass the images that were handed in are others than before.",
            means="It changes the caller's batch, and with it a data set that is kept in memory: every epoch "
            "once more.",
            look=look(r"\w_\(|[-+*/]=|\[.*\]\s*=(?!=)"),
        )
    if report["elsewhere"]:
        raise Diagnosis(
            "device-written-down",
            saw=f"with network and images on a GPU (here only pretended): {report['elsewhere']}.",
            means="The network must compute where its weights are: its device is for the caller to choose.",
            look=look(r"cpu|cuda|\.to\(|torch\.(zeros|ones|tensor|rand)", r"\breturn\b"),
        )


def judge_parameters(look: Look, report: dict[str, Any], num_classes: int) -> None:
    if report["blocks"]:
        raise Diagnosis(
            "no-blocks",
            saw=report["blocks"],
            means="FSDP shards a network block by block, and finds the blocks there.",
            look=look.into("CNN.__init__")(r"blocks"),
        )
    if missing := report["without_gradient"]:
        raise Diagnosis(
            "no-gradients",
            saw=f"after backward() {len(missing)} parameters have no gradient: {', '.join(missing[:3])}"
            + (", ..." if len(missing) > 3 else "."),
            means="They would never learn, and DDP would wait for their gradients.",
            look=look(r"no_grad|detach|\.data\b|\.item|numpy", r"blocks"),
        )
    value, error = report["classes"]["value"], report["classes"]["error"]
    if error:
        fail(error, f"CNN(num_classes={num_classes})", look)
    if not isinstance(value, Tensor) or value.shape[-1:] != (num_classes,):
        shape = list(value.shape) if isinstance(value, Tensor) else value
        raise Diagnosis(
            "num-classes-ignored",
            saw=f"CNN(num_classes={num_classes}) gave a result of shape {shape}.",
            means="Another data set has another number of classes.",
            look=look(r"\b10\b", r"\breturn\b"),
        )


def judge_rows(look: Look, report: dict[str, Any]) -> None:
    """In float64, an image's logits are the same whatever else is in the batch, and every time."""
    results = [report["whole"], report["again"], *report["rows"]]
    if error := next((result["error"] for result in results if result["error"]), None):
        fail(error, "the network in float64", look)
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
            look=suspects or look(r"norm|mean|std|max\(", r"\breturn\b"),
        )
