"""Judges what the network gives: logits of any batch, errors for wrong images, the same for each row alone."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import in_helpers, on_itself
from lab.checks.common.report import ERROR, error_place, error_text, expect, expect_as_many, fail, numbers
from lab.checks.model.judge_device import judge_large, judge_manners, judge_on_gpu, judge_precision, judge_reads
from lab.checks.model.judge_images import EVERYWHERE, judge_everywhere, judge_wrong_images
from lab.checks.model.judge_logits import judge_logits, judge_values, raised
from lab.checks.model.judge_rows import judge_rows
from lab.checks.model.observe import ROWS, WRONG_IMAGES
from lab.checks.model.observe_device import IMAGE
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared, part

ATTEMPT = {"value": object, "error": (None, ERROR)}
REPORT = {
    "changed": bool, "elsewhere": str, "wrong": [ATTEMPT | {"entered": [int]}], "odd": [ATTEMPT], "blocks": str,
    "modules": [str], "classes": ATTEMPT, "without_gradient": [str], "whole": ATTEMPT, "again": ATTEMPT,
    "rows": [ATTEMPT], "evaluated": ATTEMPT, "large": {"shape": [int], "error": (None, ERROR)},
    "computed_in": [str], "called": [int], "wrong_evaluated": [ATTEMPT], "on_gpu": ATTEMPT,
    "wrong_on_gpu": [ATTEMPT], "autocast_on_gpu": [str],
}  # fmt: skip

DROPS_ONE = r"(?<!un)squeeze"
ONE_APART = rf"{DROPS_ONE}|==\s*1\b|<\s*2\b"  # what is another thing for a batch of one

ANY_BATCH, LOGITS = "a batch of any size", "logits, of each image by itself"


def judge_network(look: Look, reports: Sequence[Any], sizes: list[int], given: dict[str, Any]) -> None:
    """Raise the diagnosis of the first thing that is wrong.

    Args:
        sizes: of the batches.
        given: what the rank received.
    """
    expect(reports, {"batches": [ATTEMPT], "usual": [int], "lets_through": [[int]], "autocast": [str]})
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
        judge_precision(look, [batch["value"].dtype for batch in report["batches"]], report)
        judge_values(look, torch.cat([batch["value"] for batch in report["batches"]]))
    expect(reports, REPORT)
    expect_as_many([report["wrong"], *(report[key] for key in EVERYWHERE.values())], len(WRONG_IMAGES))
    expect_as_many([report["rows"]], ROWS)
    with part("an assertion for other images", after=[ANY_BATCH]):
        judge_wrong_images(look, report["wrong"], report["odd"])
        judge_everywhere(look, {mode: report[key] for mode, key in EVERYWHERE.items()})
    with part("blocks, classes, gradients, device", after=[ANY_BATCH]):
        judge_manners(look, report)
        judge_reads(look, report)
        judge_parameters(look, report, given["num_classes"])
    with part(ANY_BATCH):
        judge_large(look, given["large"], sizes, report)
    with part(LOGITS):
        judge_rows(look, report)
        judge_on_gpu(look, report["batches"][0]["value"], report)


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
    asserted = "AssertionError" in error["bases"]
    if asserted and not right and (others := report["lets_through"]):
        saw += f"; images of {others[0]} get through the assertion."
        order = "The images come as [3, 32, 32]: the channels, the height, the width, in this order."
        raise Diagnosis("assertion-of-other-images", saw=saw, means=order, look=place)
    lost = in_helpers(look, DROPS_ONE if asserted else ONE_APART) if [one for one, _ in failed] == [1] else ""
    if right and lost:
        raise Diagnosis(
            "wrong-shape",
            saw=f"{saw}; a batch of {numbers(right)} goes through.",
            means="A batch of one image is still a batch: this drops its dimension, because it is 1.",
            look=lost,
        )
    if asserted:
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
        kept = on_itself(look) or (place if line_of(place := look.kept()) else "")
        raise Diagnosis(
            "fixed-batch-size",
            saw=f"{saw}; a batch of {numbers(right)} goes through.",
            means="The size of one batch is kept for the next ones, and the last one of an epoch can be smaller."
            if kept
            else "A batch size is written into the code, but every rank gets only its part of the batch.",
            look=kept or look(r"view|reshape|unflatten"),
        )
    if " channels, but got " in error["message"]:
        raise Diagnosis(
            "blocks-not-in-turn",
            saw=saw,
            means="Every block takes what the block before it gives, and the first one the images.",
            look=place,
        )
    raised(error, f"a batch of {size} images, {[size, *IMAGE]},", look)


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
            look=in_helpers(look, r"^(?!assert).*(no_grad|detach|\.data\b|\.item|numpy)") or look(r"blocks"),
        )
    if idle := [number for number, count in enumerate(report["called"]) if not count]:
        raise Diagnosis(
            "blocks-not-called",
            saw=f"in a forward pass the hooks of {len(idle)} of {len(report['called'])} blocks did not run: "
            "what is in them was computed, but they were not called.",
            means="FSDP gathers a block's parameters in its hooks, which only block(x) runs.",
            look=place if (place := look(r"\w*\.forward\(")) != look() else look(r"\bfor\b", r"blocks", last=True),
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
            look=next(
                (
                    place
                    for place in (look(r"\b10\b"), look.into("CNN.__init__")(r"Linear.*\b10\)"))
                    if line_of(place)
                ),
                look(r"\breturn\b"),
            ),
        )
