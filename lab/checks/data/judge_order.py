"""Judges the order in which a training loader draws: another one each epoch, by seed and epoch alone."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NoReturn

from lab.checks.common.look import Look
from lab.checks.common.report import numbers
from lab.checks.data.draw import DrawnLoaders, Epoch
from lab.grading.diagnosis import Diagnosis


def judge_order(look: Look, asked: DrawnLoaders, results: Sequence[dict[str, Any]]) -> None:
    sampler = look(r"set_epoch\s*=", r"DistributedSampler\(", r"shuffle\s*=\s*True", r"sampler", r"DataLoader\(")
    for rank, result in enumerate(results):
        first, second, *others, repeated = (list(flatten(epoch)) for epoch in result["epochs"])
        if first == sorted(first) and second == sorted(second):
            raise Diagnosis(
                "not-shuffled",
                saw=f"rank {rank} drew samples {numbers(first)} in this order, in epoch 1 and in epoch 2.",
                means="A data set is often sorted by class: batches must be mixed for SGD to work.",
                look=sampler,
            )
        if not result["set_epoch"]:
            raise Diagnosis(
                "no-set-epoch",
                saw="the training loader's sampler has no set_epoch().",
                means="The training loop tells it the epoch, so that order follows from seed and epoch alone.",
                look=sampler,
            )
        judge_epochs_apart(sampler, rank, asked.configs[0]["epochs"], [first, second, *others])
        if first != repeated:
            not_reproducible(look, f"rank {rank} drew another order after set_epoch(1) when asked again.")


def judge_epochs_apart(place: str, rank: int, epochs: Sequence[int], drawn: Sequence[list[int]]) -> None:
    """No two epochs in the same order."""
    for (one, here), (other, there) in combinations(zip(epochs, drawn, strict=False), 2):
        if here == there:
            raise Diagnosis(
                "same-order-every-epoch",
                saw=f"after set_epoch({one}) and after set_epoch({other}), rank {rank} drew samples "
                f"{numbers(here)} first.",
                means="Every epoch would show the same batches in the same order.",
                look=place,
            )


def judge_seeds(look: Look, asked: DrawnLoaders, results: dict[str, list[dict[str, Any]]]) -> None:
    def first_epoch(name: str, rank: int) -> list[int]:
        return list(flatten(results[name][rank]["epochs"][0]))

    for rank in range(asked.world_size):
        plain = first_epoch("plain", rank)
        zero = results["seed 0"][rank]["epochs"]
        judge_epochs_apart(
            look(r"seed\s*\*|\*\s*seed|seed", r"sampler"), rank, (1, 2), [list(flatten(e)) for e in zero]
        )
        if first_epoch("again", rank) != plain:
            not_reproducible(look, f"rank {rank} drew another order with the same seed, {asked.seed}.")
        if first_epoch("other seed", rank) == plain:
            raise Diagnosis(
                "seed-ignored",
                saw=f"with seed {asked.seed} and with seed {asked.other_seed}, rank {rank} drew "
                f"{numbers(plain, 5)}",
                means="Repeating a run with other seeds would say nothing about its spread.",
                look=look(r"seed", r"DistributedSampler\(", r"sampler"),
            )


def not_reproducible(look: Look, saw: str) -> NoReturn:
    raise Diagnosis(
        "order-not-reproducible",
        saw=saw,
        means="The order must follow from seed and epoch alone, or no run can be repeated.",
        look=look(r"sampler", r"rand|shuffle"),
    )


def flatten(epoch: Epoch) -> Iterator[int]:
    for batch in epoch:
        yield from batch
