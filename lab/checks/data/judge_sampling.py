"""Judges what ranks draw from a training loader: their own samples, whole batches, a new order each epoch."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NoReturn

from lab.base.source import searchable
from lab.checks.common.look import Look
from lab.checks.common.report import ERROR, error_place, error_text, expect, expect_as_many, numbers
from lab.checks.data.draw import DrawnLoaders, Epoch
from lab.checks.data.judge_order import judge_order, judge_seeds
from lab.grading.diagnosis import Diagnosis, unusable_report
from lab.grading.explain import rank_from_torchrun, unset_by_srun
from lab.grading.parts import compared, part

OWN_SAMPLES, NEW_ORDER = "own samples in whole batches", "a new order each epoch"

TRAIN_LOADER = r"DataLoader\(\s*train_set"

# What comes of a rank or a world size that is taken from torchrun's variables, with a default where srun has none.
WITHOUT_LAUNCHER = ("no-distributed-sampler", "global-batch-as-local", "same-part-on-every-rank")

DRAWN = {
    "returned": str, "error": (None, ERROR), "set_epoch": bool, "num_workers": [int], "epochs": [[[int]]],
    "options": [dict], "sampler_seed": int, "valid_batch": int, "valid_shuffled": bool,
    "valid_sampled": str, "valid_drops": bool, "valid_reads": str, "shard": [int], "sampler_of": str,
}  # fmt: skip


def counted_from_0(
    asked: DrawnLoaders, reports: Sequence[Any], *, configs: int | None = None, refused: int | None = None
) -> list[list[dict[str, Any]]]:
    """For each rank, for each of asked.configs, what sample_config returned: samples by their places in their set.

    Those of the validation set, which are not to be drawn, stay as they are. Raises Diagnosis for other reports.

    Args:
        configs, refused: how many of these were asked for; all.
    """
    expect(reports, {"drawn": [DRAWN], "refused": [{"error": (None, ERROR)}]})
    expect_as_many([report["drawn"] for report in reports], len(asked.configs) if configs is None else configs)
    expect_as_many([report["refused"] for report in reports], len(asked.refused) if refused is None else refused)
    for report in reports:
        for result in report["drawn"]:
            expect([list(options.values()) for options in result["options"]], [str])

    def places(epoch: Epoch) -> Epoch:
        return [[n - asked.first if n >= asked.first else n for n in batch] for batch in epoch]

    return [
        [result | {"epochs": list(map(places, result["epochs"]))} for result in report["drawn"]]
        for report in reports
    ]


def judge_drawing(look: Look, asked: DrawnLoaders, reports: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Raise the diagnosis of the first thing that is wrong.

    Args:
        reports: for each rank, for each of asked.configs, what sample_config returned.
    """
    results = {name: [report[i] for report in reports] for i, name in enumerate(asked.names)}
    with part(OWN_SAMPLES):
        judge_made(look, asked, reports, results)
    for name, config in zip(asked.names, asked.configs, strict=True):
        if any(len(result["epochs"]) != len(config["epochs"]) for result in results[name]):
            raise unusable_report("the ranks did not report the epochs that were asked for")
        for number, epoch in enumerate(config["epochs"]):
            drawn = [result["epochs"][number] for result in results[name]]
            if name == "plain":
                whole = [asked.batch] * (len(config["train"]) // asked.global_batch)
                compared(f"epoch {epoch}: batches of", [[len(batch) for batch in own] for own in drawn], whole)
            with part(OWN_SAMPLES):
                judge_drawn(look, asked, len(config["train"]), epoch, drawn)
        if name == "plain":
            with part(NEW_ORDER):
                judge_order(look, asked, results[name])
    with part(NEW_ORDER):
        judge_seeds(look, asked, results)


def judge_made(
    look: Look,
    asked: DrawnLoaders,
    reports: Sequence[Sequence[dict[str, Any]]],
    results: dict[str, list[dict[str, Any]]],
) -> None:
    """Two loaders came out of each call."""
    for name, config in zip(asked.names, asked.configs, strict=True):
        for rank, result in enumerate(results[name]):
            if result["error"] and name != "options":
                judge_error(look, asked, len(config["train"]), rank, result["error"])
    made = [one for report in reports for one, name in zip(report, asked.names, strict=True) if name != "options"]
    if unusable := next((one["returned"] for one in made if one["returned"] != "two"), ""):
        raise Diagnosis(
            "not-two-loaders",
            saw=f"get_dataloaders() returned {unusable}.",
            means="main.py takes two loaders from it: one for training, one for validation.",
            look=look(r"\breturn\b"),
        )
    if any(result["sampler_of"] == "validation" for result in results["plain"]):
        raise Diagnosis(
            "sampler-of-validation-set",
            saw="the training loader's sampler draws from the numbers of the validation set's samples.",
            means="A sampler draws numbers of the set that it was made for: it must be the one that is loaded.",
            look=look(r"Sampler\(.*valid", r"Sampler\("),
        )


def judge_drawn(look: Look, asked: DrawnLoaders, size: int, epoch: int, drawn: list[Epoch]) -> None:
    """One epoch, and whether what is wrong with it comes of variables that only torchrun sets."""
    try:
        judge_epoch(look, asked, size, epoch, drawn)
    except Diagnosis as diagnosis:
        asks = any(look.mentions(one) for one in ("environ", "getenv"))
        if diagnosis.name in WITHOUT_LAUNCHER and asks:
            raise rank_from_torchrun(diagnosis.saw, look(r"environ|getenv")) from None
        raise


def judge_error(look: Look, asked: DrawnLoaders, size: int, rank: int, error: dict[str, Any]) -> NoReturn:
    saw = f"{size} samples, global batch {asked.global_batch}, {asked.world_size} ranks: rank {rank} raised "
    place = error_place(error, look)
    if unset_by_srun(error["type"], error["message"]):
        raise rank_from_torchrun(f"get_dataloaders() raised {error_text(error)}", place)
    if "mutually exclusive with shuffle" in error["message"]:
        raise Diagnosis(
            "sampler-and-shuffle",
            saw=saw + error_text(error),
            means="The sampler makes the order, so the loader must not shuffle; DistributedSampler does it "
            "itself.",
            look=place,
        )
    if twice := re.search(r"multiple values for keyword argument '(\w+)'", searchable(error["message"])):
        raise Diagnosis(
            "option-given-twice",
            saw=saw + error_text(error),
            means="The caller may hand in any option in **loader_options: set none of them besides.",
            look=look(rf"\b{twice[1]}\s*=", r"DataLoader\("),
        )
    if missing := re.search(r"there is no sample (-?\d+) among (\d+)", searchable(error["message"])):
        raise Diagnosis(
            "sampler-out-of-range",
            saw=f"{saw.removesuffix(' raised ')} asked for sample {missing[1]} of {missing[2]}.",
            means="A data set of N samples has the numbers 0 to N - 1; a sampler gives numbers of samples.",
            look=look(r"\biter\(|\byield\b|range\(|randperm", r"[Ss]ampler"),
        )
    if "ValueError" in error["bases"] and error["text"].startswith("raise"):
        raise Diagnosis(
            "valid-batch-refused",
            saw=saw + error_text(error),
            means="These numbers fit: refuse only what does not divide, or is larger than the training set.",
            look=look(r"\bif\b.*len\(train_set\)") if size == asked.global_batch else place,
        )
    raise Diagnosis(
        "raised",
        saw=saw + error_text(error),
        means="These numbers fit, so two loaders should come out.",
        look=place,
    )


def judge_epoch(look: Look, asked: DrawnLoaders, size: int, epoch: int, drawn: list[Epoch]) -> None:
    """One epoch on all ranks: whole batches of the right size, as many on every rank, no sample twice."""
    flat = [[sample for batch in batches for sample in batch] for batches in drawn]
    if any(sample < 0 for samples in flat for sample in samples):
        raise Diagnosis(
            "unusable-batch",
            saw="the training loader does not yield pairs of tensors (images, labels).",
            means="The training loop unpacks every batch into images and labels.",
            look=look(r"collate", r"DataLoader\("),
        )
    if all(sample >= 1000 for samples in flat for sample in samples) and any(flat):
        raise Diagnosis(
            "loaders-swapped",
            saw="the first loader draws from the validation set.",
            means="The order is (train, valid): the model would train on the images it is measured with.",
            look=look(r"\breturn\b"),
        )
    saw = f"{size} samples, global batch {asked.global_batch}, {asked.world_size} ranks: "
    share = -(-size // asked.world_size)
    if all(len(samples) > share for samples in flat) and asked.world_size * share < sum(map(len, flat)):
        a, b = next(
            (pair for pair in combinations(range(len(flat)), 2) if set(flat[pair[0]]) & set(flat[pair[1]])), (0, 1)
        )
        both = sorted(set(flat[a]) & set(flat[b]))
        raise Diagnosis(
            "no-distributed-sampler",
            saw=f"{saw}rank {a} drew {len(flat[a])} samples in epoch {epoch}, more than its share of {share}, "
            f"and rank {b} drew {numbers(both, 4)} too.",
            means="Every rank trains on the whole set: more ranks, but not less work for each.",
            look=look(
                r"num_replicas\s*=\s*1\b",
                r"(Random|Sequential)Sampler\(",
                TRAIN_LOADER,
                r"train_loader\s*=",
                r"DataLoader\(",
            ),
        )
    judge_batches(look, asked, size, saw, drawn)
    judge_overlap(look, asked, saw, epoch, flat)
    steps, expected = {len(batches) for batches in drawn}, size // asked.global_batch
    if len(steps) > 1:
        each = ", ".join(f"{len(batches)} on rank {rank}" for rank, batches in enumerate(drawn))
        raise Diagnosis(
            "unequal-steps",
            saw=f"{saw}the number of batches is {each}.",
            means="A rank with a batch more waits for ever in its backward pass.",
            look=look(r"drop_last", r"sampler"),
        )
    if steps != {expected}:
        raise Diagnosis(
            "samples-lost" if max(steps) < expected else "too-many-steps",
            saw=f"{saw}{max(steps)} batches on every rank; expected {expected}.",
            means="One step takes one global batch; only what does not fill the last one is dropped.",
            look=look(r"batch_size", r"DataLoader\("),
        )


def judge_batches(look: Look, asked: DrawnLoaders, size: int, saw: str, drawn: list[Epoch]) -> None:
    for rank, batches in enumerate(drawn):
        sizes = [len(batch) for batch in batches]
        if not sizes or set(sizes) == {asked.batch}:
            continue
        if sizes[:-1] and set(sizes[:-1]) == {asked.batch} and sizes[-1] < asked.batch:
            raise Diagnosis(
                "partial-batch",
                saw=f"{saw}the last of {len(sizes)} batches on rank {rank} has {sizes[-1]} instead of "
                f"{asked.batch}.",
                means="Its few samples would weigh as much as a whole batch: drop what does not fill one on "
                "every rank.",
                look=look(TRAIN_LOADER, r"train_loader\s*=", r"DataLoader\("),
            )
        if sizes[0] == asked.global_batch:
            raise Diagnosis(
                "global-batch-as-local",
                saw=f"{saw}a batch on rank {rank} has {sizes[0]} samples; expected {asked.batch}.",
                means=f"Together the ranks would take {asked.world_size * sizes[0]} samples a step, and not the "
                f"{asked.global_batch} that were asked for.",
                look=look(r"batch_size\s*=\s*global_batch_size\b(?!\s*/)", r"batch_size"),
            )
        constant = asked.world_size != 2 and sizes[0] == asked.global_batch // 2
        raise Diagnosis(
            "world-size-hard-coded" if constant else "wrong-batch-size",
            saw=f"{saw}a batch on rank {rank} has {sizes[0]} samples; expected {asked.batch}.",
            means="The number of ranks is written into the code."
            if constant
            else "The global batch is shared evenly among the ranks, so each takes its part of it.",
            look=look(r"//", r"batch_size"),
        )


def judge_overlap(look: Look, asked: DrawnLoaders, saw: str, epoch: int, flat: list[list[int]]) -> None:
    for rank, samples in enumerate(flat):
        if twice := [sample for sample, count in Counter(samples).items() if count > 1]:
            raise Diagnosis(
                "sample-twice",
                saw=f"{saw}in epoch {epoch} rank {rank} drew sample {numbers(sorted(twice))} more than once.",
                means="An epoch sees every sample at most once.",
                look=look(r"sampler"),
            )
    shared = {(a, b): sorted(set(flat[a]) & set(flat[b])) for a, b in combinations(range(len(flat)), 2)}
    (a, b), both = max(shared.items(), key=lambda item: len(item[1]))
    if not both:
        return
    both_drew = (
        f"{saw}in epoch {epoch} rank {a} and rank {b} both drew sample{'s' * (len(both) > 1)} {numbers(both)}"
    )
    if len(both) == len(flat[a]) and len(flat[a]) > 1:
        raise Diagnosis(
            "same-part-on-every-rank",
            saw=f"{both_drew}: exactly the same.",
            means="The ranks all do the same work, and the rest of the data is never used.",
            look=look(r"rank\s*=", r"sampler"),
        )
    if sum(map(len, shared.values())) < asked.world_size:
        raise Diagnosis(
            "padding-drawn-twice",
            saw=both_drew + "." * (not both_drew.endswith("...")),
            means="Where the samples do not divide, DistributedSampler repeats some, unless it drops the last "
            "ones.",
            look=look(r"DistributedSampler\(", r"sampler"),
        )
    raise Diagnosis(
        "ranks-shuffle-differently",
        saw=both_drew + "." * (not both_drew.endswith("...")),
        means="Every rank deals from its own order. With one seed for all, their parts are disjoint.",
        look=look(r"\brandom\.(shuffle|sample|permutation)", r"seed", r"sampler"),
    )
