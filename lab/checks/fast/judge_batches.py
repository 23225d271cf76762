"""Judges batches from images on the device: which, in which order, of which type, and what was copied for them."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import Look
from lab.checks.common.report import ERROR, error_place, error_text, expect, expect_as_many, fail, numbers
from lab.checks.common.tensors import number
from lab.checks.fast.draw import SIDE, order_of
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

BATCH = {
    "type": str,
    "dtype": str,
    "label dtype": str,
    "shape": [int],
    "pixels": [float],
    "flat": bool,
    "labels": [int],
    "kept": bool,
}
REPORT = {
    "error": (None, ERROR),
    "epochs": [{"error": (None, ERROR), "value": (None, [BATCH])}],
    "length": int,
    "set": [{"epoch": int, "line": int}],
    "kept": str,  # the type of self.labels
}
MOVE = {"type": str, "dimensions": int, "line": int}
ELSEWHERE = {
    "error": (None, ERROR),
    "first": [MOVE],
    "later": [MOVE],
    "floats": {"first": int, "later": int},  # how many images were floats at once
    "devices": [{"images": str, "labels": str}],
}


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
            judge_kind(init if report["kept"] not in ("", "int64") else iterate, iterate, epoch["value"])
    expect(reports, {"elsewhere": ELSEWHERE, "even": {"error": (None, ERROR), "value": (None, [int])}})
    for rank, report in enumerate(reports):
        judge_order(init, iterate, given, len(reports), rank, report)
    for report in reports:
        judge_kept(iterate, report["epochs"], report["even"], given)
    judge_copies(init, iterate, reports[0]["elsewhere"], given["batch_size"])


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
        if kind == "float64":
            raise Diagnosis(
                "float64-images",
                saw="the images come out as float64.",
                means="Many times the work on a GPU, and no layer with float32 weights takes them.",
                look=look(r"double|float64|numpy", r"yield"),
            )
        if kind != "float32":
            raise Diagnosis(
                "not-floats",
                saw=f"the images come out as {kind}.",
                means="The first layer wants float32: as bytes they are kept, not computed with.",
                look=look(r"half|bfloat16|float16", r"yield"),
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
            judge_scale(iterate, picked(batches, 1), pixels)
        orders.append([pixels[pixel] for pixel in raw])
    right = [order_of(given, world_size, rank, epoch) for epoch in given["epochs"]]
    whole = len(right[0]) // size * size
    for epoch, order, expected in zip(given["epochs"], orders, right, strict=True):
        compared(f"images of rank {rank}, epoch {epoch}", [order], expected[:whole])
    for batches, order, expected in zip(epochs, orders, right, strict=True):
        if order == expected[:whole] and all(len(batch["pixels"]) == size for batch in batches):
            judge_labels(iterate, given, batches, order)
            continue
        sizes = [len(batch["pixels"]) for batch in batches]
        shown = f"on rank {rank} an epoch had the images {numbers(order)}; the sampler said {numbers(expected)}."
        if order == expected:
            raise Diagnosis(
                "last-batch-yielded",
                saw=f"{len(expected)} samples came in batches of {numbers(sizes)}; batch_size is {size}.",
                means="A smaller batch cannot be replayed, and it would weigh its samples more: leave it out.",
                look=iterate(r"split|range\(|chunk", r"yield"),
            )
        frozen = order_of(given, world_size, rank, 0)[:whole]
        if orders[0] == orders[1] and (order == frozen or order in [one[:whole] for one in right]):
            raise Diagnosis(
                "order-frozen",
                saw=f"on rank {rank} two epochs came in the same order: {numbers(order)}.",
                means="The sampler has a new order after each set_epoch(): ask it when an epoch begins.",
                look=iterate.line(report["set"][0]["line"]) if report["set"] else place_of_sampler(init, iterate),
            )
        if other := [one for one in report["set"] if one["epoch"] not in given["epochs"]]:
            raise Diagnosis(
                "epoch-set-over",
                saw=f"{shown} DeviceBatches has called set_epoch({other[0]['epoch']}).",
                means="The training loop has called it with the run's epoch: what you count yourself goes over that.",
                look=iterate.line(other[0]["line"]),
            )
        if order[:whole] == list(range(whole)):
            raise Diagnosis(
                "sampler-not-used",
                saw=shown,
                means="In the order of the data set every rank trains on the same images, and in the same order.",
                look=iterate(r"for |range|arange", r"yield"),
            )
        if order == sorted(expected[:whole]) or order == sorted(expected)[:whole]:
            raise Diagnosis(
                "order-sorted",
                saw=shown,
                means="These are this rank's samples, but not shuffled.",
                look=iterate(r"sort|mask|set\(", r"yield"),
            )
        if order and order == expected[rank::world_size][: len(order)]:
            raise Diagnosis(
                "divided-twice",
                saw=shown,
                means="The sampler's indices are this rank's part already: divided again, most are never trained on.",
                look=iterate(r"rank|world", r"sampler"),
            )
        if order == expected[: len(order)] and {*sizes} == {size}:
            raise Diagnosis(
                "whole-batch-left-out",
                saw=f"{len(expected)} samples came in batches of {numbers(sizes)}; batch_size is {size}.",
                means="Only a last batch that is smaller is left out: all others are whole.",
                look=iterate(r"rank|world", r"\bbreak\b|\breturn\b", r"range\(", r"split|chunk", r"yield"),
            )
        if set(order) <= set(expected):
            cut_across = (r"\[:, ?\w|\.m?[TH]\b|\.t\(|transpose|permute|stack", r"view|reshape")
            raise Diagnosis(
                "other-batches",
                saw=shown,
                means="These are this rank's samples, but in other batches than the sampler's order gives.",
                look=iterate(r"::|randperm|reversed|shuffle", *cut_across, r"split|range\(|chunk", r"yield"),
            )
        raise Diagnosis(
            "not-the-samplers-order",
            saw=shown,
            means="The sampler deals the samples out to the ranks: another order repeats some, and skips others.",
            look=iterate(r"randperm|shuffle|range", r"sampler", r"yield"),
        )


def judge_scale(look: Look, raw: Sequence[float], pixels: dict[float, int]) -> None:
    """The pixels are none of the images' divided by 255."""
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
        look=look(r"255|256|mean|std", r"yield"),
    )


def judge_labels(
    look: Look, given: dict[str, Any], batches: Sequence[dict[str, Any]], order: Sequence[int]
) -> None:
    found = [label for batch in batches for label in batch["labels"]]
    right = [int(given["labels"][index]) for index in order]
    if found != right:
        raise Diagnosis(
            "labels-of-other-images",
            saw=f"the images {numbers(order)} came with the labels {numbers(found)}; theirs are {numbers(right)}.",
            means="The network learns nothing but noise: pick images and labels with the same indices.",
            look=look(r"labels"),
        )


def judge_kept(look: Look, epochs: Sequence[dict[str, Any]], even: dict[str, Any], given: dict[str, Any]) -> None:
    """Batches outlive the next one, and there are all of them where all are whole."""
    if not all(batch["kept"] for epoch in epochs for batch in epoch["value"]):
        raise Diagnosis(
            "batch-overwritten",
            saw="batches that were kept had other numbers when the epoch was over.",
            means="Who collects batches, as for capture_step(), has the last one many times: make each anew.",
            look=look(r"copy_\(|out ?=", r"\w_\(|\] = ", r"yield"),
        )
    if even["error"]:
        fail(even["error"], "an epoch of DeviceBatches, all batches whole,", look)
    size, sizes = given["batch_size"], even["value"]
    if sizes != [size] * 3:
        raise Diagnosis(
            "whole-batch-left-out",
            saw=f"{3 * size} samples came in batches of {numbers(sizes) or 'none'}; batch_size is {size}.",
            means="Only a last batch that is smaller is left out: here the last one is whole, too.",
            look=look(r"range\(", r"split|chunk", r"yield"),
        )


def judge_copies(init: Look, iterate: Look, report: dict[str, Any], size: int) -> None:
    """With another device: what is there, and what was copied for it, in which type."""
    if error := report["error"]:
        raise Diagnosis(
            "not-on-its-device",
            saw=f"with another device than the CPU (here only pretended) it raised {error_text(error)}",
            means="Images, labels and the indices that pick them must all be on the device.",
            look=error_place(error, iterate),
        )
    for which in ("images", "labels"):
        if not any(devices[which] == "cpu" for devices in report["devices"]):
            continue
        raise Diagnosis(
            "not-on-its-device",
            saw=f"with another device than the CPU (here only pretended) a batch's {which} are on the CPU.",
            means="The step would have to copy them first, and to wait for it.",
            look=init(rf"self\.{which}"),
        )
    if later := [move for move in report["later"] if move["dimensions"] == 4]:
        once = any(move["dimensions"] == 4 for move in report["first"])
        raise Diagnosis(
            "images-copied-in-each-batch",
            saw="images were copied to the device while the epoch ran.",
            means="The copy of each batch is what this class does away with: move all images once, before.",
            look=iterate.line(later[0]["line"]) if once else init(r"self\.images"),
        )
    if any(move["type"].startswith("float") and move["dimensions"] == 4 for move in report["first"]):
        raise Diagnosis(
            "kept-as-floats",
            saw="the images were made floats before they were copied to the device.",
            means="Four times the memory of the GPU, and four times as much to read for each batch.",
            look=init(r"float|/ ?255|\.to\("),
        )
    in_init, in_epoch = report["floats"]["first"], report["floats"]["later"]
    if max(in_init, in_epoch) > size:
        raise Diagnosis(
            "kept-as-floats",
            saw=f"{max(in_init, in_epoch)} images were made floats at once; a batch has {size}.",
            means="Four times the memory of the GPU, and four times as much to read for each batch.",
            look=(init if in_init > size else iterate)(r"float|/ ?255|div", r"self\.images"),
        )


def place_of_sampler(init: Look, iterate: Look) -> str:
    """Where the order is asked for."""
    return init(r"list\(.*sampler|iter\(") if init.mentions("list") else iterate(r"sampler|order")


def numbers_of(values: Sequence[float]) -> str:
    return ", ".join(number(value) for value in values[:4]) + ", ..."
