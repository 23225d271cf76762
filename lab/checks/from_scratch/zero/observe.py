"""What ranks observe of ZeroOptimizer: which states a rank has, what it sends, and the weights of each step."""

from typing import Any

from lab.checks.from_scratch.traffic import Traffic
from lab.checks.from_scratch.unfinished import used_early
from lab.checks.from_scratch.zero.draw import CASES, STEPS, Case, give, states_bytes
from lab.ranks.rank import Rank


def train(rank: Rank) -> list[dict[str, Any]]:
    """Two steps with each optimizer; a scheduler changes its rates in between."""
    zero = rank.student("from_scratch.zero")
    given = rank.receive()
    return [
        train_one(zero, case, weights, gradients, given["factor"], contiguous=given["contiguous"])
        for case, weights, gradients in zip(CASES, given["weights"], given["gradients"], strict=True)
    ]


def train_one(
    zero: Any, case: Case, weights: Any, gradients: Any, factor: float, *, contiguous: bool
) -> dict[str, Any]:
    parameters, optimizer = case.build(weights, contiguous=contiguous)
    rates = [group["lr"] for group in optimizer.param_groups]
    early = [one for one in parameters if optimizer.state.get(one)]
    wrapped = zero.ZeroOptimizer(optimizer)
    own = {id(one) for group in wrapped.optimizer.param_groups for one in group["params"]}
    lost = sum(id(one) in own and not wrapped.optimizer.state.get(one) for one in early)
    give(parameters, gradients[0], 0)
    with Traffic() as traffic, used_early(zero.__file__) as early_use:
        wrapped.step()
    held = states_bytes(wrapped.optimizer)
    after = [[parameter.detach().clone() for parameter in parameters]]
    for step in range(1, STEPS):
        # By their number, as PyTorch's schedulers do.
        for group, rate in zip(optimizer.param_groups, rates, strict=False):
            group["lr"] = rate * factor**step
        give(parameters, gradients[step], step)
        wrapped.step()
        after.append([parameter.detach().clone() for parameter in parameters])
    wrapped.zero_grad()
    return {
        "owners": owners(wrapped.shares, parameters),
        "shares": in_order(wrapped.shares, parameters),
        "after": after,
        "calls": traffic.calls,
        "held": held,
        "lost": lost,
        "copied early": early_use.copied,
        "groups": len(optimizer.param_groups),
        "in groups": in_two_groups(wrapped.optimizer),
        "gradients left": sum(parameter.grad is not None for parameter in parameters),
        "known": known_of(wrapped, parameters),
    }


def known_of(wrapped: Any, parameters: Any) -> int:
    """How many of all parameters self.parameters has, which zero_grad() goes through."""
    has = getattr(wrapped, "parameters", ())
    ids = {id(one) for one in has} if isinstance(has, list | tuple) else set()
    return sum(id(one) in ids for one in parameters)


def in_two_groups(optimizer: Any) -> int:
    """How many parameters more than one group has."""
    every = [id(one) for group in optimizer.param_groups for one in group["params"]]
    return len({one for one in every if every.count(one) > 1})


def in_order(shares: Any, parameters: Any) -> list[list[int]]:
    """For each share the numbers of its parameters, as they stand in it."""
    known = {id(one): number for number, one in enumerate(parameters)}
    return [[known.get(id(one), -1) for one in share] for share in shares]


def owners(shares: Any, parameters: Any) -> list[list[int]]:
    """For each parameter the numbers of the shares that it is in."""
    known = [{id(one) for one in share} for share in shares]
    return [[rank for rank, share in enumerate(known) if id(one) in share] for one in parameters]
