"""Judges what ranks read from a validation loader: every sample once, equal numbers of batches, marked filler."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lab.checks.common.look import Look
from lab.checks.common.look_around import value_outside
from lab.checks.common.report import expect, expect_as_many, numbers, unusable
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared, part

IGNORED = -100
ONE_SAMPLE = "__getitem__ gives one sample: the loader puts the batch dimension in front, for filler too."
FILLER_SHAPE = "Not every data set has images of that size: make filler from one of its own, with a plain number."
FIRST = 1000  # the number of the first sample of the validation set

EACH_ONCE = "every sample once"
AS_MANY, FILLER = "as many batches on every rank", "filler that nothing counts"


def in_shard(look: Look, method: str, *patterns: str) -> str:
    """A line of this method."""
    return look.into(f"ValidationShard.{method}")(*patterns)


def filler_place(look: Look) -> str:
    """The line that makes filler."""
    made = r"\b(zeros|ones|empty|rand|full)"
    outside = value_outside(look.into("ValidationShard.__getitem__"), made)
    return outside or in_shard(look, "__getitem__", made, r"\bTensor\(", r"IGNORED|-\s*100", r"\breturn\b")


def past_the_end(look: Look) -> str:
    """A comparison that lets the length itself through, if there is one: without, "" for where it was raised."""
    place = in_shard(look, "__getitem__", r"<=.*len\(|len\(.*>=|\bif\b.*>\s*len\(")
    return "" if "def " in place else place


READ = {
    "pairs": bool, "sizes": [int], "images": (None, Tensor), "labels": [int], "types": [str],
    "image_types": [str], "overwritten": [int], "shapes": [[[int]]],
}  # fmt: skip


def judge_validation(look: Look, configs: Sequence[dict[str, Any]], reports: Sequence[Any]) -> None:
    """Args: the sets whose shards were read, and for each rank, for each of these, what came out."""
    expect(reports, [READ])
    expect_as_many(reports, len(configs))
    for number, config in enumerate(configs):
        judge_set(look, config, [report[number] for report in reports])


def judge_set(look: Look, config: dict[str, Any], reports: Sequence[dict[str, Any]]) -> None:
    """Raise the diagnosis of the first thing that is wrong.

    Args:
        config: the set, and the size of the batches.
        reports: for each rank, the sizes of the batches, all images and all labels.
    """
    labels, world_size = config["valid"].tolist(), len(reports)
    size, batch = len(labels), config["batch"]
    case = f"{size} sample{'s' * (size > 1)} on {world_size} ranks"
    with part(EACH_ONCE):
        judge_pairs(look, reports)
    with part(FILLER, after=[EACH_ONCE]):
        for rank, report in enumerate(reports):
            judge_shapes(look, case, list(config["shape"]), rank, report)
    counted: list[Counter[int]] = []
    with part(FILLER):
        counted = [count_samples(look, case, labels, rank, report) for rank, report in enumerate(reports)]
    held = sum(len(report["labels"]) for report in reports)
    counts = [sum(label != IGNORED for label in report["labels"]) for report in reports]
    compared(
        f"{case}: samples", counts, [len(range(rank, size, world_size)) for rank in range(world_size)], each=True
    )
    with part(EACH_ONCE):
        judge_counts(look, case, counted, size, held=held)
    compared(f"{case}: batches", [len(report["sizes"]) for report in reports], -(-size // (world_size * batch)))
    with part(AS_MANY, after=[EACH_ONCE]):
        judge_lengths(look, case, size, batch, reports)


def judge_pairs(look: Look, reports: Sequence[dict[str, Any]]) -> None:
    """Batches of images and labels, as many of the one as of the other."""
    for rank, report in enumerate(reports):
        images = report["images"]
        as_many = images is None or images.shape[:1] == (len(report["labels"]),)
        if not report["pairs"] or not as_many or len(report["labels"]) != sum(report["sizes"]):
            raise Diagnosis(
                "not-a-sample",
                saw=f"rank {rank}: the batches of a ValidationShard are no pairs of tensors (images, labels).",
                means="evaluate() takes batches of as many images as labels: each item is (image, label).",
                look=in_shard(look, "__getitem__", r"\breturn\b"),
            )


def judge_lengths(look: Look, case: str, size: int, batch: int, reports: Sequence[dict[str, Any]]) -> None:
    """As many batches on every rank, and no more filler than that takes."""
    world_size = len(reports)
    batches = [len(report["sizes"]) for report in reports]
    if len(set(batches)) > 1:
        each = ", ".join(f"{count} on rank {rank}" for rank, count in enumerate(batches))
        raise Diagnosis(
            "unequal-validation-batches",
            saw=f"{case}, batches of {batch}: the number of batches is {each}.",
            means="Every forward pass of FSDP is a collective: the rank with more batches would wait for ever.",
            look=in_shard(look, "__len__", r"\breturn\b"),
        )
    share, held = -(-size // world_size), max(len(report["labels"]) for report in reports)
    if held > share + batch:
        raise Diagnosis(
            "too-much-filler",
            saw=f"{case}: a rank reads {held} samples and filler; {share} are enough.",
            means="Validation takes as long as on a single rank.",
            look=in_shard(look, "__len__", r"\breturn\b"),
        )


def count_samples(look: Look, case: str, labels: list[int], rank: int, report: dict[str, Any]) -> Counter[int]:
    """How often each real sample is on this rank. Everything else must be filler."""
    counted: Counter[int] = Counter()
    images: Tensor | None = report["images"]
    if images is None:
        return counted
    if images.ndim < 2 or images.shape[1] == 0 or images.is_complex() or not images.isfinite().all():
        unusable(f"rank {rank}", list(images.shape))
    for image, label in zip(images.flatten(1), report["labels"], strict=True):
        number = int(image[0]) - FIRST
        is_sample = 0 <= number < len(labels) and bool((image == image[0]).all())
        if label == IGNORED:
            continue
        if is_sample and label == labels[number]:
            counted[number] += 1
            continue
        raise Diagnosis(
            "filler-has-a-label",
            saw=f"{case}: rank {rank} yields "
            + (f"sample {number} with the label {label}; its own is {labels[number]}." if is_sample else "")
            + ("" if is_sample else f"an image that is no sample, with the label {label}."),
            means=f"Only the label {IGNORED} is left out by the losses; filler with any other is counted.",
            look=in_shard(
                look, "__getitem__", r"IGNORED|-\s*\d+|zeros", r"label\w*\s*=\s*\d", r"return\b.*,", r"\breturn\b"
            ),
        )
    return counted


def judge_shapes(look: Look, case: str, shape: list[int], rank: int, report: dict[str, Any]) -> None:
    """Filler is like the samples, and apart from them: they must not be changed to make it."""
    for parts in report["shapes"]:
        if len(parts) != 2:
            unusable(f"rank {rank}", report["shapes"])
    for image, label in report["shapes"]:
        if image != shape or label:
            got = f"labels of shape {['B', *label]}" if label else f"images {image}"
            right = "[B]" if label else f"{shape}, as the samples are"
            raise Diagnosis(
                "filler-of-another-shape",
                saw=f"{case}: a batch on rank {rank} has {got}; expected {right}.".replace("'", ""),
                means=ONE_SAMPLE if image == [1, *shape] else FILLER_SHAPE,
                look=filler_place(look),
            )
    if others := [kind for kind in report["image_types"] if kind != "float32"]:
        raise filler_of_another_type(look, f"{case}: rank {rank} has a batch of images of {others[0]}")
    if others := [kind for kind in report["types"] if kind != "int64"]:
        raise Diagnosis(
            "label-not-an-integer",
            saw=f"{case}: rank {rank} has a batch whose labels are {others[0]}.",
            means="One such label makes a batch's labels all of this type, and cross_entropy takes numbers of "
            "classes.",
            look=filler_place(look),
        )
    if report["overwritten"]:
        raise Diagnosis(
            "data-set-overwritten",
            saw=f"{case}: on rank {rank} sample {numbers(report['overwritten'])} is another image afterwards.",
            means="Filler was made in place, in a real image: the next epoch is measured without it.",
            look=in_shard(look, "__getitem__", r"\w_\(|\[:\]|\*=|fill|zero", r"\breturn\b"),
        )


def filler_of_another_type(look: Look, saw: str) -> Diagnosis:
    return Diagnosis(
        "filler-of-another-type",
        saw=f"{saw}; the samples are float32.",
        means="A batch of nothing but filler is of filler's type, and a layer of floats takes floats only.",
        look=filler_place(look),
    )


def judge_counts(look: Look, case: str, counted: Sequence[Counter[int]], size: int, *, held: int) -> None:
    """Every sample once.

    Args:
        held: how many samples and fillers all ranks have together.
    """
    total = sum(counted, Counter())
    twice = sorted(number for number, count in total.items() if count > 1)
    if twice:
        as_filler = (
            sum(total.values()) <= max(held, size)
            and len(twice) <= held - size
            and sum(total[number] - 1 for number in twice) <= held - size
        )
        holders = [str(rank) for rank, counts in enumerate(counted) for _ in range(counts[twice[0]])]
        raise Diagnosis(
            "sample-counted-twice",
            saw=f"{case}: sample {numbers(twice)} came with its label {total[twice[0]]} times "
            f"(on ranks {' and '.join(holders)}).",
            means="Loss and accuracy would depend on the number of ranks. Filler must carry the label -100."
            if as_filler
            else "Loss and accuracy would depend on the number of ranks: each sample has one place on one rank.",
            # Filler that is counted, or more than there is of it: then the samples are the wrong ones.
            look=in_shard(look, "__getitem__", r"%", r"return\b.*\[0\]", r"\breturn\b")
            if as_filler
            else in_shard(look, "__getitem__", r"%", r"\w+\s*=(?!=).*(\*|\+)", r"\*|\+", r"\breturn\b"),
        )
    if missing := [number for number in range(size) if not total[number]]:
        raise Diagnosis(
            "samples-dropped",
            saw=f"{case}: sample {numbers(missing)} is on no rank.",
            means="The accuracy would be of another validation set for every number of ranks.",
            look=in_shard(look, "__len__", r"//", r"\breturn\b")
            if held < size
            else in_shard(look, "__getitem__", r"index|\bif\b", r"\breturn\b"),
        )
