"""What has become of the gradients? Told from their values: the mean, the sum, this rank's own, ..."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lab.base.words import rank_list
from lab.checks.common.tensors import Tensors, all_close, close, example, factor_between, number

WORDS = {
    "mean": "the mean",
    "sum": "the sum",
    "local": "its own gradient",
    "rank 0": "rank 0's gradient",
    "divided twice": "the mean divided once more",
    "only divided": "its own gradient, divided",
    "maximum": "the maximum",
}


@dataclass(frozen=True)
class Verdict:
    """kind: a key of WORDS, or "factor", "world size" (a fixed one), "some parameters", "some ranks", "16 bits",
    or "other".
    """

    kind: str
    saw: str
    number: int = 0  # the world size that is written into the code
    by_rank: tuple[str, ...] = ()  # of "some ranks": a key of WORDS, or "", for each


def verdict(observed: Sequence[Tensors], mean: Tensors, local: Sequence[Tensors]) -> Verdict:
    """Compare the gradients on each rank with what common mistakes lead to.

    Args:
        observed: on each rank, by parameter.
        mean: the gradients of the whole batch.
        local: those of each rank's part of it.
    """
    world_size = len(observed)
    # For each rank and parameter, everything that its gradient agrees with.
    table = [
        {
            name: {
                kind for kind, value in _candidates(name, mean, local, rank).items() if close(grads[name], value)
            }
            for name in mean
        }
        for rank, grads in enumerate(observed)
    ]
    everywhere = set.intersection(*[kinds for row in table for kinds in row.values()])
    for kind in WORDS:
        if kind in everywhere:
            return Verdict(kind, _describe(kind, world_size, observed, mean))
    if odd := _factor(observed, mean):
        return odd

    right = [[name for name in mean if "mean" in row[name]] for row in table]
    if right[0] and all(names == right[0] for names in right):
        left_out = [name for name in mean if name not in right[0]]
        names = ", ".join(left_out[:3]) + (", ..." if len(left_out) > 3 else "")
        off = ", ".join(sorted({_in_words(row[name]) for row in table for name in left_out}))
        return Verdict(
            "some parameters",
            f"only {len(right[0])} of {len(mean)} gradients are the mean over the ranks; "
            f"of {names} a rank has {off}.",
        )
    by_rank = [set.intersection(*row.values()) for row in table]
    if len({frozenset(kinds) for kinds in by_rank}) > 1:
        parts = [f"rank {rank} has {_in_words(kinds)}" for rank, kinds in enumerate(by_rank)]
        found = tuple(next((kind for kind in WORDS if kind in kinds), "") for kinds in by_rank)
        return Verdict("some ranks", "; ".join(parts) + ".", by_rank=found)
    if all(_rounded(grads, mean) for grads in observed):
        return Verdict("16 bits", f"the gradients have only the digits of 16 bits: {_example(observed, mean)}.")
    return Verdict("other", f"the gradients are not the mean over the ranks: {_example(observed, mean)}.")


def _rounded(observed: Tensors, mean: Tensors) -> bool:
    """Whether this is nearly the mean, in numbers of bf16 or fp16."""
    near = all(torch.allclose(observed[name], mean[name], rtol=0.05, atol=1e-3) for name in mean)
    return near and any(
        all(torch.equal(value.to(kind).to(value.dtype), value) for value in observed.values())
        for kind in (torch.bfloat16, torch.float16)
    )


def _candidates(name: str, mean: Tensors, local: Sequence[Tensors], rank: int) -> dict[str, torch.Tensor]:
    world_size = len(local)
    return {
        "mean": mean[name],
        "sum": world_size * mean[name],
        "local": local[rank][name],
        "rank 0": local[0][name],
        "divided twice": mean[name] / world_size,
        "only divided": local[rank][name] / world_size,
        "maximum": torch.stack([grads[name] for grads in local]).amax(dim=0),
    }


def _in_words(kinds: set[str]) -> str:
    return next((words for kind, words in WORDS.items() if kind in kinds), "something else")


def _describe(kind: str, world_size: int, observed: Sequence[Tensors], mean: Tensors) -> str:
    shown = _example(observed, mean)
    return {
        "mean": "every gradient is the mean over the ranks.",
        "sum": f"every gradient is {world_size} times the mean over the {world_size} ranks: {shown}.",
        "local": f"every rank still has the gradient of its own samples alone: {shown}.",
        "rank 0": f"all ranks have rank 0's gradient: {shown}.",
        "divided twice": f"every gradient is 1/{world_size} of the mean over the {world_size} ranks: {shown}.",
        "only divided": f"every rank has 1/{world_size} of its own gradient: {shown}.",
        "maximum": f"every number is the largest of the {world_size} ranks', not their mean: {shown}.",
    }[kind]


def _factor(observed: Sequence[Tensors], mean: Tensors) -> Verdict | None:
    """All gradients on all ranks are the mean times the same number."""
    factors = [factor_between(grads, mean) for grads in observed]
    world_size, factor = len(observed), factors[0]
    if factor is None or not all(c is not None and close(c, factor) for c in factors):
        return None
    saw = f"on {rank_list(range(world_size))} every gradient is {number(factor)} times the mean"
    divisor = world_size / factor  # what the sum was divided by
    if 1 < divisor < 1000 and abs(divisor - round(divisor)) < 1e-2:
        n = round(divisor)
        return Verdict("world size", f"{saw}: the sum over {world_size} ranks divided by {n}.", n)
    return Verdict("factor", f"{saw}: {_example(observed, mean)}.")


def _example(observed: Sequence[Tensors], mean: Tensors) -> str:
    rank = next((r for r, grads in enumerate(observed) if not all_close(grads, mean)), 0)
    return f"on rank {rank} {example(observed[rank], mean)}"
