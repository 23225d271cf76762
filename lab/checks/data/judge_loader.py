"""Judges the validation loader of get_dataloaders(): how it reads, and what. For it 3.3 need not be done."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import Look
from lab.checks.common.report import fail
from lab.checks.data.draw import DrawnLoaders
from lab.grading.diagnosis import Diagnosis

VALID_LOADER = r"valid\w*\s*=.*DataLoader\("

# The validation loader's drop_last, on its own line or in what both loaders get; not that for training.
DROPPING = (
    r"([Ss]hard|valid).*drop_last\s*=",
    r"^(?!.*([Tt]rain|Sampler)).*\bdrop_last[\"']?\s*[:=]",
    r"valid\w*\s*=.*DataLoader",
)
OTHERWISE = r"\bbatch_size[\"']?\s*[=:](?!=)[^,]*([^*,]\*[^*]|\bmax\(|\+)"  # not the training's batch size
FIRST = 1000  # the number of the first sample of the validation set


def judge_validation_loader(
    look: Look, asked: DrawnLoaders, samples: int, results: Sequence[dict[str, Any]]
) -> None:
    """Args: `samples` in the validation set."""
    line = (r"valid\w*\s*=\s*DataLoader\(", r"DataLoader\((?!.*train_set)", r"DataLoader\(")
    for rank, result in enumerate(results):
        if (size := result["valid_batch"]) not in (-1, asked.batch):
            raise Diagnosis(
                "wrong-validation-batch",
                saw=f"global batch {asked.global_batch}, {asked.world_size} ranks: on rank {rank} the validation "
                f"loader has batches of {size}; expected {asked.batch}.",
                means="A larger batch may not fit in memory, and one of few samples takes many times as long.",
                look=look(r"batch_size\s*=\s*global_batch_size\b(?!\s*/)", OTHERWISE, *line),
            )
        if result["valid_shuffled"]:
            raise Diagnosis(
                "validation-shuffled",
                saw=f"on rank {rank} the validation loader draws its samples in random order.",
                means="It changes no result, but uses up random numbers and reads a disk here and there.",
                look=look(r"([Ss]hard|valid).*shuffle[\"']?\s*[=:]", *line),
            )
        if result["valid_sampled"]:
            raise Diagnosis(
                "validation-sampled-again",
                saw=f"on rank {rank} the validation loader has a {result['valid_sampled']}.",
                means="A ValidationShard is this rank's part already: a sampler takes a part of the part.",
                look=look(r"valid.*[Ss]ampler", r"[Ss]ampler\((?!train_set)", VALID_LOADER),
            )
        if result["valid_drops"]:
            raise Diagnosis(
                "validation-drops-samples",
                saw=f"on rank {rank} the validation loader has drop_last=True.",
                means="The accuracy would be of another validation set for every batch size.",
                look=look(*DROPPING),
            )
        judge_shard(look, asked.world_size, rank, result)
        judge_read(look, asked, samples, rank, result)


def judge_shard(look: Look, world_size: int, rank: int, result: dict[str, Any]) -> None:
    """Of which data set and which rank is the shard that the validation loader reads?"""
    given, right = result["shard"], ["valid_set", str(rank), str(world_size)]
    line = look(r"ValidationShard\(", VALID_LOADER, r"DataLoader\((?!.*train_set)")
    if result["valid_reads"] == "validation":
        raise Diagnosis(
            "validation-not-sharded",
            saw=f"on rank {rank} of {world_size} the validation loader reads the whole validation set.",
            means="Validation takes as long as on a single rank: let each rank read its ValidationShard.",
            look=look(r"DataLoader\(.*valid_set", VALID_LOADER, r"valid_set"),
        )
    if result["valid_reads"] == "training" or given[:1] == ["train_set"]:
        raise Diagnosis(
            "validation-of-training-set",
            saw=f"on rank {rank} the validation loader reads the training set.",
            means="The model would be measured with the images it has learnt from.",
            look=look(r"[Ss]hard\(.*train_set", r"valid.*train_set") if given else line,
        )
    if not given or given[1:] == right[1:]:  # what else there may be, judge_read sees
        return
    saw = f"rank {rank} of {world_size} made a ValidationShard({', '.join(given)})."
    if sorted(given) == sorted(right):
        name, means = "shard-arguments-swapped", "Its arguments are dataset, rank, world_size, in this order."
    elif all(one.isdecimal() for one in given[1:]):
        name, means = "shard-of-another-rank", "Samples would be validated twice, or not at all."
    else:
        name = "shard-arguments-not-numbers"
        means = "Rank and world size are numbers: dist.get_rank() and dist.get_world_size()."
    raise Diagnosis(name, saw=saw, means=means, look=line)


def judge_read(look: Look, asked: DrawnLoaders, samples: int, rank: int, result: dict[str, Any]) -> None:
    """This rank's samples and filler, in order, in batches of the right size."""
    line = (r"ValidationShard\(", VALID_LOADER, r"DataLoader\((?!.*train_set)", r"DataLoader\(")
    case = f"{samples} sample{'s' * (samples > 1)} on {asked.world_size} ranks, batches of {asked.batch}"
    if result["validation_error"]:
        fail(result["validation_error"], f"{case}: reading the validation loader", lambda: look(*line))
    places = range(rank, -(-samples // asked.world_size) * asked.world_size, asked.world_size)
    whole = [FIRST + place if place < samples else -1 for place in places]
    right = [whole[start : start + asked.batch] for start in range(0, len(whole), asked.batch)]
    if (got := result["validated"]) != right:
        raise Diagnosis(
            "validation-not-as-sharded",
            saw=f"{case}: on rank {rank} the validation loader reads {_named(got)}; expected {_named(right)}.",
            means="It reads this rank's ValidationShard, filler too, in order, as it is: pairs of images, labels.",
            look=look(r"valid.*(collate|ampler)", *line),
        )


def _named(batches: Sequence[Sequence[int]]) -> str:
    """ "[0, 2, 4] [6, filler]"."""
    names = [[str(one - FIRST) if one >= FIRST else "filler" if one == -1 else "?" for one in b] for b in batches]
    shown = " ".join(f"[{', '.join(batch[:6])}{', ...' * (len(batch) > 6)}]" for batch in names[:3])
    return (shown or "nothing") + " ..." * (len(names) > 3)
