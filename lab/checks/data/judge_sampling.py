"""Judges what ranks draw from a training loader: their own samples, whole batches, a new order each epoch."""

import re
from collections.abc import Sequence
from typing import Any, NoReturn

from lab.base.source import searchable
from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import condition_of
from lab.checks.common.report import ERROR, error_place, error_text, expect, expect_as_many, remembered
from lab.checks.data.draw import DrawnLoaders, Epoch
from lab.checks.data.judge_epoch import judge_epoch
from lab.checks.data.judge_order import judge_order, judge_reached, judge_seeds
from lab.grading.diagnosis import Diagnosis, unusable_report
from lab.grading.explain import rank_from_torchrun, unset_by_srun
from lab.grading.parts import compared, part

OWN_SAMPLES, NEW_ORDER = "own samples in whole batches", "a new order each epoch"

# What comes of a rank or a world size that is taken from torchrun's variables, with a default where srun has none.
WITHOUT_LAUNCHER = ("no-distributed-sampler", "global-batch-as-local", "same-part-on-every-rank")

# What comes of a rank that is counted on each machine anew.
LOCAL = r"LOCAL_RANK|local_rank|LOCALID"
OF_ANOTHER_RANK = (
    *("same-part-on-every-rank", "ranks-shuffle-differently", "padding-drawn-twice", "sample-twice"),
    *("samples-lost", "unequal-steps"),
)

DRAWN = {
    "returned": str, "error": (None, ERROR), "set_epoch": bool, "num_workers": [int], "epochs": [[[int]]],
    "options": [dict], "sampler_seed": int, "valid_batch": int, "valid_shuffled": bool,
    "valid_sampled": str, "valid_drops": bool, "valid_reads": str, "shard": [str], "sampler_of": str,
    "validated": [[int]], "validation_error": (None, ERROR),
    "sampler_type": str, "sampler_set_epoch": bool, "remembered": str,
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
        judge_reached(look, asked, results["many"])


def judge_made(
    look: Look,
    asked: DrawnLoaders,
    reports: Sequence[Sequence[dict[str, Any]]],
    results: dict[str, list[dict[str, Any]]],
) -> None:
    """Two loaders came out of each call."""
    for rank, report in enumerate(reports):
        if kept := next((one["remembered"] for one in report if one["remembered"]), ""):
            raise remembered(
                look,
                f"on rank {rank} a call with other arguments gave the very {kept} that an earlier one had made.",
            )
    if any(result["sampler_of"] == "validation" for result in results["plain"]):
        raise Diagnosis(
            "sampler-of-validation-set",
            saw="the training loader's sampler draws from the numbers of the validation set's samples.",
            means="A sampler draws numbers of the set that it was made for: it must be the one that is loaded.",
            look=look(r"Sampler\(.*valid", r"Sampler\("),
        )
    for name, config in zip(asked.names, asked.configs, strict=True):
        for rank, result in enumerate(results[name]):
            if result["error"] and name not in asked.all_options:
                judge_error(look, asked, len(config["train"]), rank, result["error"])
    made = [
        one
        for report in reports
        for one, name in zip(report, asked.names, strict=True)
        if name not in asked.all_options
    ]
    if unusable := next((one["returned"] for one in made if one["returned"] != "two"), ""):
        raise Diagnosis(
            "not-two-loaders",
            saw=f"get_dataloaders() returned {unusable}.",
            means="main.py takes two loaders from it: one for training, one for validation.",
            look=look(r"\breturn\b"),
        )


def judge_drawn(look: Look, asked: DrawnLoaders, size: int, epoch: int, drawn: list[Epoch]) -> None:
    """One epoch, and whether what is wrong with it comes of variables that only torchrun sets."""
    try:
        judge_epoch(look, asked, size, epoch, drawn)
    except Diagnosis as diagnosis:
        local = look(LOCAL)
        if diagnosis.name in OF_ANOTHER_RANK and "def " not in local:
            raise local_rank(diagnosis.saw, local) from None
        asks = any(look.mentions(one) for one in ("environ", "getenv"))
        if diagnosis.name in WITHOUT_LAUNCHER and asks:
            raise rank_from_torchrun(diagnosis.saw, look(r"environ|getenv")) from None
        raise


def local_rank(saw: str, place: str) -> Diagnosis:
    return Diagnosis(
        "local-rank-as-rank",
        saw=saw,
        means="A local rank counts on one machine only: on each it begins at 0. dist.get_rank() counts all.",
        look=place,
    )


def judge_error(look: Look, asked: DrawnLoaders, size: int, rank: int, error: dict[str, Any]) -> NoReturn:
    saw = f"{size} samples, global batch {asked.global_batch}, {asked.world_size} ranks: rank {rank} raised "
    place = error_place(error, look)
    if unset_by_srun(error["type"], error["message"]):
        raise rank_from_torchrun(f"get_dataloaders() raised {error_text(error)}", place)
    by_local = "Invalid rank" in error["message"] and "def " not in look(LOCAL)
    if by_local or "LOCAL_RANK is not in the environment" in error["message"]:
        raise local_rank(f"get_dataloaders() raised {error_text(error)}", place)
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
            look=condition_of(look, error) or look(r"\bif\b.*len\(train_set\)")
            if size == asked.global_batch
            else too_strict
            if line_of(too_strict := look(r"len\(train_set\)\s*%", r"\b(if|for|while)\b.*valid_set"))
            else place,
        )
    raise Diagnosis(
        "raised",
        saw=saw + error_text(error),
        means="These numbers fit, so two loaders should come out.",
        look=place,
    )
