"""Judges what ranks read from a validation loader: every sample once, equal numbers of batches, marked filler."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lab.checks.common.look import Look
from lab.checks.common.report import expect, expect_as_many, numbers, unusable
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared, part

IGNORED = -100
ONE_SAMPLE = "__getitem__ gives one sample: the loader puts the batch dimension in front, for filler too."
FILLER_SHAPE = "Not every data set has images of that size: make filler from one of its own, with a plain number."
NO_SHARD = (
    "A sampler repeats samples to make the ranks' parts equal: let the validation loader read a ValidationShard."
)
FIRST = 1000  # the number of the first sample of the validation set

EACH_ONCE = "every sample once"
AS_MANY, FILLER = "as many batches on every rank", "filler that nothing counts"


def reads_shard(look: Look) -> bool:
    """Whether get_dataloaders uses the student's ValidationShard at all."""
    return look.mentions("ValidationShard")


def in_shard(look: Look, method: str, *patterns: str) -> str:
    """A line of this method; of the one that makes the loader, where that reads no ValidationShard."""
    if not reads_shard(look):
        return look(r"valid.*ampler", r"valid_set", r"valid")
    return look.into(f"ValidationShard.{method}")(*patterns)


def filler_place(look: Look) -> str:
    """The line that makes filler."""
    return in_shard(look, "__getitem__", r"\b(zeros|ones|empty|rand|full)", r"IGNORED|-\s*100", r"\breturn\b")


def past_the_end(look: Look) -> str:
    """A comparison that lets the length itself through, if there is one: without, "" for where it was raised."""
    place = in_shard(look, "__getitem__", r"<=.*len\(|len\(.*>=|\bif\b.*>\s*len\(")
    return "" if "def " in place or not reads_shard(look) else place


READ = {
    "returned": str, "sizes": [int], "images": (None, Tensor), "labels": [int], "types": [str],
    "image_types": [str], "overwritten": [int], "shard": [int], "drop_last": bool, "shapes": [[[int]]],
}  # fmt: skip


def judge_validation(look: Look, configs: Sequence[dict[str, Any]], reports: Sequence[Any]) -> None:
    """Args: what get_dataloaders was called with, and for each rank, for each of these, what was read."""
    expect(reports, [READ])
    expect_as_many(reports, len(configs))
    for number, config in enumerate(configs):
        judge_set(look, config, [report[number] for report in reports])


def judge_set(look: Look, config: dict[str, Any], reports: Sequence[dict[str, Any]]) -> None:
    """Raise the diagnosis of the first thing that is wrong.

    Args:
        config: what get_dataloaders was called with.
        reports: for each rank, the sizes of the batches, all images and all labels.
    """
    labels, world_size = config["valid"].tolist(), len(reports)
    size, batch = len(labels), config["global_batch_size"] // world_size
    case = f"{size} sample{'s' * (size > 1)} on {world_size} ranks"
    with part(EACH_ONCE):
        judge_loaders(look, world_size, reports)
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
        drops_last = any(report["drop_last"] for report in reports)
        judge_counts(look, case, counted, size, held=held, drop_last=drops_last)
    compared(f"{case}: batches", [len(report["sizes"]) for report in reports], -(-size // (world_size * batch)))
    with part(AS_MANY, after=[EACH_ONCE]):
        judge_lengths(look, case, size, batch, reports)


def judge_loaders(look: Look, world_size: int, reports: Sequence[dict[str, Any]]) -> None:
    """There is a validation loader on each rank, of that rank's shard."""
    for rank, report in enumerate(reports):
        if report["shard"] == [world_size, rank]:
            raise Diagnosis(
                "shard-arguments-swapped",
                saw=f"rank {rank} of {world_size} made a ValidationShard of rank {world_size} and world size "
                f"{rank}.",
                means="Its arguments are dataset, rank, world_size, in this order.",
                look=look(r"ValidationShard\("),
            )
        if report["returned"] != "two":
            raise Diagnosis(
                "no-validation-loader",
                saw=f"get_dataloaders() returned {report['returned']}.",
                means="evaluate() takes batches of (images, labels) from the second loader.",
                look=look(r"\breturn\b"),
            )
        if len(report["labels"]) != sum(report["sizes"]) or (
            report["images"] is not None and report["images"].shape[:1] != (len(report["labels"]),)
        ):
            raise Diagnosis(
                "no-validation-loader",
                saw=f"rank {rank}: the images and labels of the validation batches differ in number.",
                means="evaluate() compares them one by one.",
                look=look(r"\breturn\b"),
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
            look=in_shard(look, "__getitem__", r"IGNORED|-\s*\d+|zeros", r"return\b.*,", r"\breturn\b"),
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


def judge_counts(
    look: Look, case: str, counted: Sequence[Counter[int]], size: int, *, held: int, drop_last: bool
) -> None:
    """Every sample once.

    Args:
        held: how many samples and fillers all ranks have together.
        drop_last: whether a validation loader drops its last batch if that is not full.
    """
    total = sum(counted, Counter())
    twice = sorted(number for number, count in total.items() if count > 1)
    if len(twice) == size and size > 1:
        raise Diagnosis(
            "every-rank-validates-everything",
            saw=f"{case}: all of them are on {total[0]} ranks.",
            means="Validation takes as long as on a single rank: each should read its ValidationShard only.",
            look=look(r"valid_set"),
        )
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
            means=NO_SHARD
            if not reads_shard(look)
            else "Loss and accuracy would depend on the number of ranks. Filler must carry the label -100."
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
            look=look(*DROPPING)
            if drop_last
            else drops(look)
            if held < size
            else in_shard(look, "__getitem__", r"index|\bif\b", r"\breturn\b"),
        )


# The validation loader's drop_last, on its own line or in what both loaders get; not that for training.
DROPPING = (
    r"([Ss]hard|valid).*drop_last\s*=",
    r"^(?!.*([Tt]rain|Sampler)).*\bdrop_last[\"']?\s*[:=]",
    r"valid\w*\s*=.*DataLoader",
)


def drops(look: Look) -> str:
    """The line that leaves samples out: of a sampler that drops, else of the shard's length."""
    place = look(r"([Ss]hard|valid).*drop_last\s*=\s*True")
    dropping = "drop_last" in place or place.endswith("...")  # a long line is cut off
    return place if dropping else in_shard(look, "__len__", r"//", r"\breturn\b")
