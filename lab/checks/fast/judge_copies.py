"""Judges what is kept of batches and what is copied for them: in the epoch, of a data set, to a device."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import Look
from lab.checks.common.look_around import kept_at
from lab.checks.common.report import ERROR, error_place, error_text, expect_as_many, fail, numbers
from lab.checks.fast.draw import other_data
from lab.grading.diagnosis import Diagnosis

MOVE = {"type": str, "dimensions": int, "picks": bool, "line": int}
ELSEWHERE = {
    "error": (None, ERROR),
    "first": [MOVE],
    "later": [MOVE],
    "floats": {"first": int, "later": int},  # how many images were floats at once
    "devices": [{"images": str, "labels": str}],
    "order_at": int,
    "kept_on": {"images": str, "labels": str},  # the devices of self.images and self.labels
}


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
    expect_as_many([even["value"]], 3)
    size, sizes = given["batch_size"], even["value"][0]
    if sizes != [size] * 3:
        raise Diagnosis(
            "whole-batch-left-out",
            saw=f"{3 * size} samples came in batches of {numbers(sizes) or 'none'}; batch_size is {size}.",
            means="Only a last batch that is smaller is left out: here the last one is whole, too.",
            look=look(r"range\(", r"split|chunk", r"yield"),
        )


def judge_other_data(init: Look, even: Sequence[Sequence[int]], given: dict[str, Any]) -> None:
    """A second data set has its own images and labels: that of the validation, say."""
    images, labels = other_data(given)
    own = {int(image[0, 0, 0]): int(label) for image, label in zip(images, labels, strict=True)}
    for what, found, right in (
        ("images", even[1], set(own)),
        ("labels", even[2], {own.get(one) for one in even[1]}),
    ):
        if not set(found) <= right or (what == "labels" and [own[one] for one in even[1]] != even[2]):
            raise Diagnosis(
                "data-set-kept",
                saw=f"a second DeviceBatches, of another data set, came with {what} which that does not have.",
                means="Training and validation set are objects of one class: what the class keeps, they share.",
                look=kept_at(init) or init.kept(),
            )


def judge_copies(init: Look, iterate: Look, report: dict[str, Any], size: int) -> None:
    """With another device: what is there, and what was copied for it, in which type."""
    if error := report["error"]:
        left = next((which for which in ("images", "labels") if report["kept_on"][which] == "cpu"), "")
        raise Diagnosis(
            "not-on-its-device",
            saw="with another device than the CPU (here only pretended) "
            f"{f'the {left} stay on the CPU, and ' if left else ''}it raised {error_text(error)}",
            means="Images, labels and the indices that pick them must all be on the device.",
            look=init(rf"self\.{left}\b") if left else error_place(error, iterate),
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
    if any(move["picks"] for move in report["later"]):
        picked = next(move["line"] for move in report["later"] if move["picks"])
        raise Diagnosis(
            "indices-on-cpu",
            saw="with the images on a GPU (here only pretended) the indices that pick a batch were on the CPU.",
            means="Each pick copies them first, and the CPU waits for that: make the order a tensor there.",
            look=iterate.line(report["order_at"] or picked),
        )
