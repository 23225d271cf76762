"""Judges the order in which a training loader draws: another one each epoch, by seed and epoch alone."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NoReturn

from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import without_argument
from lab.checks.common.report import numbers
from lab.checks.data.draw import DrawnLoaders, Epoch
from lab.grading.diagnosis import Diagnosis


def judge_order(look: Look, asked: DrawnLoaders, results: Sequence[dict[str, Any]]) -> None:
    sampler = look(
        r"set_epoch\s*=|set_epoch\(epoch\s*[/%&]",
        r"DistributedSampler\(",
        r"shuffle\s*=\s*True",
        r"sampler",
        r"DataLoader\(",
    )
    own = look.into_method("set_epoch")
    told = own(r"epoch") if own else sampler
    for rank, result in enumerate(results):
        first, second, *others, repeated = (list(flatten(epoch)) for epoch in result["epochs"])
        if first == sorted(first) and second == sorted(second):
            raise Diagnosis(
                "not-shuffled",
                saw=f"rank {rank} drew samples {numbers(first)} in this order, in epoch 1 and in epoch 2.",
                means="A data set is often sorted by class: batches must be mixed for SGD to work.",
                look=look(r"shuffle\s*=\s*False") if line_of(look(r"shuffle\s*=\s*False")) else sampler,
            )
        if not result["set_epoch"] and first != second and keep_their_parts(results):
            raise Diagnosis(
                "no-set-epoch",
                saw=f"the training loader's sampler is a {result['sampler_type']}, which has no set_epoch(), and "
                "each rank draws from the same samples in all epochs.",
                means="A part that is drawn once stays what it is: hand on the DistributedSampler itself.",
                look=look(r"Subset\(|\b(list|iter|tuple)\(\w*sampler", r"sampler", r"DataLoader\("),
            )
        if result["set_epoch"] and not result["sampler_set_epoch"]:
            raise Diagnosis(
                "set-epoch-out-of-reach",
                saw=f"train_loader.sampler is a {result['sampler_type']}, which has no set_epoch(); what has one "
                "is hidden in the loader.",
                means="The training loop calls loader.sampler.set_epoch(epoch): give the loader a sampler=.",
                look=look(r"batch_sampler\s*=", r"DataLoader\("),
            )
        if not result["set_epoch"]:
            raise Diagnosis(
                "no-set-epoch",
                saw="the training loader's sampler has no set_epoch().",
                means="The training loop tells it the epoch, so that order follows from seed and epoch alone.",
                look=sampler,
            )
        judge_epochs_apart(told, rank, asked.configs[0]["epochs"], [first, second, *others])
        if first != repeated:
            again = look.into_method("__iter__")
            itself = again(r"\bepoch\s*\+?=|rand|shuffle|\+=") if again else ""
            not_reproducible(
                look,
                f"rank {rank} drew another order after set_epoch(1) when asked again.",
                told if own and "def " in told else itself,
            )


def judge_epochs_apart(place: str, rank: int, epochs: Sequence[int], drawn: Sequence[list[int]]) -> None:
    """No two epochs in the same order."""
    every = all(one == drawn[0] for one in drawn)
    for (one, here), (other, there) in combinations(zip(epochs, drawn, strict=False), 2):
        if here == there:
            raise Diagnosis(
                "same-order-every-epoch",
                saw=f"after set_epoch({one}) and after set_epoch({other}), rank {rank} drew samples "
                f"{numbers(here)} first.",
                means="Every epoch would show the same batches in the same order."
                if every
                else "These two epochs would be one and the same: each number needs an order of its own.",
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
        for name, other in (("other seed", asked.other_seed), ("far seed", asked.far_seed)):
            if first_epoch(name, rank) == plain:
                raise Diagnosis(
                    "seed-ignored",
                    saw=f"with seed {asked.seed} and with seed {other}, rank {rank} drew {numbers(plain, 5)}",
                    means="Repeating a run with other seeds would say nothing about its spread.",
                    look=without_argument(look, "DistributedSampler", "seed", 4)
                    or look(
                        r"seed\s*[&%]|hash\(",
                        r"DistributedSampler\((?!.*seed).*\)$",
                        r"seed",
                        r"DistributedSampler\(",
                        r"sampler",
                    ),
                )


def keep_their_parts(results: Sequence[dict[str, Any]]) -> bool:
    """Whether no rank has drawn, in any epoch, what another rank has drawn in any."""
    parts = [{sample for epoch in result["epochs"] for sample in flatten(epoch)} for result in results]
    return len(parts) > 1 and not any(one & other for one, other in combinations(parts, 2))


def judge_reached(look: Look, asked: DrawnLoaders, results: Sequence[dict[str, Any]]) -> None:
    """Every sample is drawn in one epoch or another."""
    config = asked.configs[asked.names.index("many")]
    epochs, size = config["epochs"], len(config["train"])
    drawn = {sample for result in results for epoch in result["epochs"] for sample in flatten(epoch)}
    if never := [sample for sample in range(size) if sample not in drawn]:
        raise Diagnosis(
            "samples-never-drawn",
            saw=f"{size} samples, global batch {asked.global_batch}, {asked.world_size} ranks: sample "
            f"{numbers(never)} was drawn by no rank in any of {len(epochs)} epochs.",
            means="What an epoch leaves out must come in another: shuffle first, and cut off what is over then.",
            look=look(r"Subset\(|random_split|\[:|randperm\(|range\(", r"sampler"),
        )


def judge_order_alone(look: Look, epochs: Sequence[Epoch]) -> None:
    """A single rank shuffles too, each epoch anew."""
    first, second = (list(flatten(epoch)) for epoch in epochs)
    place = look(OF_ONE_RANK, r"shuffle", r"DistributedSampler\(", r"sampler", r"DataLoader\(")
    for wrong, name, saw in (
        (first == sorted(first) and second == sorted(second), "not-shuffled", "in this order, in each epoch"),
        (first == second, "same-order-every-epoch", "first, in epoch 1 and in epoch 2"),
    ):
        if wrong:
            raise Diagnosis(
                name,
                saw=f"in a world of one rank, samples {numbers(first)} were drawn {saw}.",
                means="With one rank a training must be the same as with more: shuffled, and anew in each epoch.",
                look=place,
            )


# A condition on there being one rank.
OF_ONE_RANK = r"^(?!.*%).*(world_size|get_world_size\(\))\s*(>=?|==|!=|<)\s*[012]\b"


def not_reproducible(look: Look, saw: str, place: str = "") -> NoReturn:
    raise Diagnosis(
        "order-not-reproducible",
        saw=saw,
        means="The order must follow from seed and epoch alone, or no run can be repeated.",
        look=place or look(r"sampler", r"rand|shuffle"),
    )


def flatten(epoch: Epoch) -> Iterator[int]:
    for batch in epoch:
        yield from batch
