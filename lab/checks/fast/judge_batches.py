"""Judges batches from images on the device: which, in which order, of which type, and what was copied for them."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import Look, line_of
from lab.checks.common.report import ERROR, expect, expect_as_many, fail, numbers
from lab.checks.common.tensors import number
from lab.checks.fast.draw import LARGE, SIDE, order_of
from lab.checks.fast.judge_copies import ELSEWHERE, judge_copies, judge_kept, judge_other_data
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

BATCH = {
    **dict.fromkeys(("type", "dtype", "label dtype"), str),
    **{key: [int] for key in ("shape", "label shape", "labels")},
    **dict.fromkeys(("flat", "kept"), bool),
    "pixels": [float],
}
REPORT = {
    "error": (None, ERROR),
    "epochs": [{"error": (None, ERROR), "value": (None, [BATCH])}],
    "length": int,
    "set": [{"epoch": int, "line": int}],
    "kept": str,  # the type of self.labels
    "same": {"images": bool, "labels": bool},  # as they were handed in
    "odd_at": int,
}


EVERY_NTH = r"\[[^\]:]*:[^\]:]*:[^\]]*\]"  # a slice with a step


def judge_batches(look: Look, reports: Sequence[Any], given: dict[str, Any]) -> None:
    expect(reports, REPORT)
    init, iterate = look.into("DeviceBatches.__init__"), look.into("DeviceBatches.__iter__")
    for report in reports:
        if report["error"]:
            fail(report["error"], "DeviceBatches()", init)
        for epoch in report["epochs"]:
            if epoch["error"]:
                fail(epoch["error"], "an epoch of DeviceBatches", iterate)
    expect_as_many([report["epochs"] for report in reports], 2)
    for report in reports:
        for epoch in report["epochs"]:
            as_given = report["kept"] in ("", "int64") and report["same"]["labels"]
            judge_kind(iterate if as_given else init, iterate, epoch["value"])
    expect(reports, {"elsewhere": ELSEWHERE, "even": {"error": (None, ERROR), "value": (None, [[int]])}})
    expect(reports, {"large": {"error": (None, ERROR), "value": (None, [int])}})
    for rank, report in enumerate(reports):
        judge_order(init, iterate, given, len(reports), rank, report)
    for report in reports:
        judge_kept(iterate, report["epochs"], report["even"], given)
        judge_other_data(init, report["even"]["value"], given)
        judge_large(iterate, init, report["large"])
    judge_copies(init, iterate, reports[0]["elsewhere"], given["batch_size"])


def judge_large(look: Look, init: Look, large: dict[str, Any]) -> None:
    """A data set of more images than 16 bits can count."""
    if large["error"]:
        fail(large["error"], f"an epoch of {LARGE} images", look)
    if not large["value"]:
        return
    expect_as_many([large["value"]], 2)
    said, came = large["value"]
    short = r"\bu?int(8|16)\b|\.(short|half|char|byte)\(|b?float16"
    raise Diagnosis(
        "order-in-too-few-bits",
        saw=f"of {LARGE} images an epoch had number {came} where the sampler said {said}.",
        means="int16 counts to 32767, and real data sets have more images: an order is of int64.",
        look=place if line_of(place := look(short)) else init(short, r"sampler"),
    )


def judge_kind(made: Look, look: Look, batches: Sequence[dict[str, Any]]) -> None:
    """Floats from 0 to 1 of four dimensions, and labels. `made`: where these have got their type."""
    if not batches:
        raise Diagnosis(
            "no-batches",
            saw="an epoch of DeviceBatches had no batch.",
            means="__iter__ yields every whole batch of the epoch.",
            look=look(r"yield", r"for "),
        )
    for batch in batches:
        kind, label_kind = batch["dtype"], batch["label dtype"]
        if not kind or not label_kind or batch["shape"][1:] != [3, SIDE, SIDE] or not batch["flat"]:
            raise Diagnosis(
                "no-images",
                saw=f"a batch has a {batch['type']} of shape {batch['shape']} for images.",
                means=f"Images are [B, 3, {SIDE}, {SIDE}] here, as they came, and labels [B].",
                look=look(r"yield"),
            )
        if kind != "float32":
            wide = kind == "float64"
            raise Diagnosis(
                "float64-images" if wide else "not-floats",
                saw=f"the images come out as {kind}.",
                means="Many times the work on a GPU, and no layer with float32 weights takes them."
                if wide
                else "The first layer wants float32: as bytes they are kept, not computed with.",
                look=look(r"double|float64|numpy" if wide else r"half|bfloat16|float16", r"yield"),
            )
        if batch["label shape"] != batch["shape"][:1]:
            raise Diagnosis(
                "labels-of-another-shape",
                saw=f"a batch of {batch['shape'][0]} images has labels of shape {batch['label shape']}.",
                means="Labels are [B]: one class for each image, as they were handed in.",
                look=made(r"labels\b.*(one_hot|squeeze|view|reshape)", r"labels"),
            )
        if label_kind != "int64":
            raise Diagnosis(
                "labels-of-another-type",
                saw=f"the labels come out as {label_kind}.",
                means="cross_entropy takes classes as int64, as they were handed in.",
                look=made(
                    r"labels\b.*(int|byte|short|char|float|half|double|bool|type)", r"self\.labels", r"labels"
                ),
            )


def picked(batches: Sequence[dict[str, Any]], scale: float) -> list[float]:
    """What tells the images of an epoch apart, in their order."""
    return [round(pixel * scale, 3) for batch in batches for pixel in batch["pixels"]]


def judge_order(
    init: Look, iterate: Look, given: dict[str, Any], world_size: int, rank: int, report: dict[str, Any]
) -> None:
    epochs = [epoch["value"] for epoch in report["epochs"]]
    pixels = {float(image[0, 0, 0]): index for index, image in enumerate(given["images"])}
    size = given["batch_size"]
    orders = []
    for batches in epochs:
        raw = picked(batches, 255)
        if not set(raw) <= set(pixels):
            judge_scale(
                iterate if report["same"]["images"] else init, picked(batches, 1), pixels, report["odd_at"]
            )
        orders.append([pixels[pixel] for pixel in raw])
    right = [order_of(given, world_size, rank, epoch) for epoch in given["epochs"]]
    whole = len(right[0]) // size * size
    for epoch, order, expected in zip(given["epochs"], orders, right, strict=True):
        compared(f"images of rank {rank}, epoch {epoch}", [order], expected[:whole])
    for batches, order, expected in zip(epochs, orders, right, strict=True):
        if order == expected[:whole] and all(len(batch["pixels"]) == size for batch in batches):
            judge_labels(iterate, init, given, batches, order, report["same"])
            continue
        sizes = [len(batch["pixels"]) for batch in batches]
        of_epochs = [one[:whole] for one in (*right, order_of(given, world_size, rank, 0))]
        frozen = orders[0] == orders[1] and order in of_epochs
        shown = f"on rank {rank} an epoch had the images {numbers(order)}; the sampler said {numbers(expected)}."
        in_batches = f"{len(expected)} samples came in batches of {numbers(sizes)}; batch_size is {size}."
        own = [one for one in report["set"] if one["epoch"] not in given["epochs"]]
        set_here = [iterate.line(one["line"]) for one in report["set"]]
        in_a_row = any(order == expected[one:][: len(order)] for one in range(0, len(expected), size))
        twice = order == expected[rank::world_size][: len(order)] or (
            in_a_row and line_of(iterate(r"\brank|get_rank"))
        )
        labels = [label for batch in batches for label in batch["labels"]]
        images_only = labels == [int(given["labels"][index]) for index in expected[:whole]]
        if order == expected:
            name, saw, look = "last-batch-yielded", in_batches, iterate(r"split|range\(|chunk", r"yield")
        elif frozen:
            name, look = "order-frozen", set_here[0] if set_here else place_of_sampler(init, iterate)
            saw = f"on rank {rank} two epochs came in the same order: {numbers(order)}."
        elif own:
            name, look = "epoch-set-over", iterate.line(own[0]["line"])
            saw = f"{shown} DeviceBatches has called set_epoch({own[0]['epoch']})."
        elif images_only:
            judge_labels(iterate, init, given, batches, order, report["same"])
        elif order[:whole] == list(range(whole)):
            name, saw, look = "sampler-not-used", shown, iterate(r"for |range|arange", r"yield")
        elif order == sorted(expected[:whole]) or order == sorted(expected)[:whole]:
            name, saw, look = "order-sorted", shown, iterate(r"sort|mask|set\(", r"yield")
        elif order and twice:
            name, saw, look = "divided-twice", shown, iterate(EVERY_NTH, r"\brank|get_rank", r"world", r"sampler")
        elif order and in_a_row and {*sizes} == {size}:
            name, saw = "whole-batch-left-out", in_batches
            look = iterate(r"\b(break|return|continue)\b", r"range\(", r"split|chunk", r"yield")
        elif set(order) <= set(expected):
            name, saw, look = "other-batches", shown, iterate(*CUTS, r"split|range\(|chunk", r"yield")
        else:
            name, saw = "not-the-samplers-order", shown
            look = iterate(r"randperm|shuffle|sample\(|arange", r"sampler", r"range", r"yield")
        raise Diagnosis(name, saw=saw, means=ORDERS[name], look=look)


# How an order is cut, as no batch is.
CUTS = (
    r"::|randperm|reversed|shuffle",
    r"\[:, ?\w|\.m?[TH]\b|\.t\(|transpose|permute|stack",
    r"view|reshape",
    r"\[[^\]]*:",
)
ORDERS = {
    "last-batch-yielded": "A smaller batch cannot be replayed, and it would weigh its samples more: leave it out.",
    "order-frozen": "The sampler has a new order after each set_epoch(): ask it when an epoch begins.",
    "epoch-set-over": "The training loop has called it, with the run's epoch: a count of your own goes over that.",
    "sampler-not-used": "In the data set's order every rank trains on the same images, and in the same order.",
    "order-sorted": "These are this rank's samples, but not shuffled.",
    "divided-twice": "The sampler's indices are this rank's part already: divided again, most are never used.",
    "whole-batch-left-out": "Only a last batch that is smaller is left out: all others are whole.",
    "other-batches": "These are this rank's samples, but in other batches than the sampler's order gives.",
    "not-the-samplers-order": "The sampler deals the samples out to the ranks: another order repeats some, and "
    "skips others.",
}


def judge_scale(look: Look, raw: Sequence[float], pixels: dict[float, int], odd_at: int) -> None:
    """The pixels are none of the images' divided by 255. `odd_at`: the line that made them, where it is known."""
    if set(raw) <= set(pixels):
        raise Diagnosis(
            "not-scaled",
            saw=f"the images' pixels are {numbers_of(raw)}, from 0 to 255.",
            means="Inputs 255 times as large as those that the network was made for: the loss explodes.",
            look=look(r"\.float\(\)", r"yield"),
        )
    raise Diagnosis(
        "other-pixels",
        saw=f"the images' pixels are {numbers_of(raw)}: not those of the images divided by 255.",
        means="The docstring has them from 0 to 1: black is 0, white is 1.",
        look=look.line(odd_at) if odd_at else look(r"255|256|mean|std", r"self\.images", r"yield"),
    )


def judge_labels(
    iterate: Look,
    init: Look,
    given: dict[str, Any],
    batches: Sequence[dict[str, Any]],
    order: Sequence[int],
    same: dict[str, bool],
) -> None:
    """Each image with its own label. `same`: which of the two are kept as they were handed in."""
    found = [label for batch in batches for label in batch["labels"]]
    right = [int(given["labels"][index]) for index in order]
    if found != right:
        changed = next((which for which in ("labels", "images") if not same[which]), "")
        raise Diagnosis(
            "labels-of-other-images",
            saw=f"the images {numbers(order)} came with the labels {numbers(found)}; theirs are {numbers(right)}.",
            means="The network learns nothing but noise: pick images and labels with the same indices.",
            look=init(rf"self\.{changed}\b") if changed else iterate(r"labels"),
        )


def place_of_sampler(init: Look, iterate: Look) -> str:
    """Where the order is asked for."""
    return init(r"list\(.*sampler|iter\(") if init.mentions("list") else iterate(r"sampler|order")


def numbers_of(values: Sequence[float]) -> str:
    return ", ".join(number(value) for value in values[:4]) + ", ..."
