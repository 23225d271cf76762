"""Judges ZeroOptimizer: what each rank keeps and sends, and the weights that come of it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import Look
from lab.checks.common.look_around import first_of
from lab.checks.common.report import expect, expect_as_many, numbers
from lab.checks.common.syntax import rebound, repeated
from lab.checks.common.tensors import close, example
from lab.checks.from_scratch.zero.draw import CASES, STEPS, Drawn, twin
from lab.checks.from_scratch.zero.judge_kept import judge_calls, judge_copied, judge_early, judge_states
from lab.checks.from_scratch.zero.places import SHARE, copied_into, kept_parameters, merged, moved_on, too_late
from lab.grading.diagnosis import Diagnosis, unusable_report
from lab.grading.parts import compared

REPORT = [
    {
        "owners": [[int]],
        "shares": [[int]],
        "after": [[Tensor]],
        "calls": [{"name": str, "bytes": int}],
        "held": int,
        "lost": int,
        "copied early": [int],
        "gradients left": int,
        "known": int,
        "groups": int,
        "in groups": int,
    }
]

INIT, STEP, HAND_OUT = "ZeroOptimizer.__init__", "ZeroOptimizer.step", "ZeroOptimizer.hand_out"
SAME_NUMBERS = 1e-5  # what two ways of computing them leave between numbers of about 1

Weights = Sequence[Tensor]


def judge(look: Look, reports: Sequence[Any], drawn: Drawn) -> None:
    expect(reports, REPORT)
    expect_as_many(reports, len(CASES))
    for number in range(len(CASES)):
        found = [report[number] for report in reports]
        for one in found:
            if len(one["after"]) != STEPS or any(not _fits(own, drawn.weights[number]) for own in one["after"]):
                raise unusable_report("a rank reported other tensors than the weights")
        judge_owners(look, [one["owners"] for one in found], drawn.weights[number])
        judge_order(look, [one["shares"] for one in found])
        judge_copied(look, [one["copied early"] for one in found])
        judge_weights(look, found, drawn, number)
        judge_early(look, [one["lost"] for one in found], CASES[number].name)
        judge_states(look, found, drawn, number)
        if number == 0:  # where padding and the like hardly count
            judge_calls(look, found[0]["calls"], drawn.weights[number])
        if left := max(one["gradients left"] for one in found):
            raise Diagnosis(
                "gradients-left",
                saw=f"after zero_grad(), {left} parameters still had a gradient.",
                means="The backward pass adds to those of other ranks' shares, too: all are cleared.",
                look=kept_parameters(
                    look.into(INIT), min(one["known"] for one in found) < len(drawn.weights[number])
                ),
            )


def _fits(own: Weights, like: Weights) -> bool:
    return [one.shape for one in own] == [one.shape for one in like]


def same(one: Weights, other: Weights) -> bool:
    return all(map(close, one, other))


def judge_owners(look: Look, found: Sequence[Sequence[Sequence[int]]], weights: Weights) -> None:
    divide = look.into("divide")
    place = divide(r"append|\+=", r"^for ", r"return")
    for owners in found:
        expect_as_many([owners], len(weights))
        for number, own in enumerate(owners):
            if len(own) != 1:
                shares = f"in shares {numbers(own)}" if own else "in no share"
                raise Diagnosis(
                    "owned-twice" if own else "owned-by-nobody",
                    saw=f"parameter {number}, {list(weights[number].shape)}, is {shares} of {len(found)}.",
                    means="It is stepped on several ranks: its states are kept more than once."
                    if own
                    else "Nobody steps it: every parameter is in one share.",
                    look=(first_of(divide, repeated) if own else "") or place,
                )


def judge_order(look: Look, found: Sequence[Sequence[Sequence[int]]]) -> None:
    """On all ranks a share holds the same parameters, in the same order."""
    if any(list(map(list, shares)) != list(map(list, found[0])) for shares in found):
        raise Diagnosis(
            "shares-differ",
            saw="the ranks do not have the same parameters in the same shares, in the same order.",
            means="All ranks must come to the same shares: a set, say, has an order of its own on each.",
            look=look.into("divide")(
                r"\bset\(|frozenset", r"rand|shuffle|hash\(|\bid\(|rank\b", r"[{}]", r"sort", r"^for "
            ),
        )


def judge_weights(look: Look, found: Sequence[dict[str, Any]], drawn: Drawn, case: int) -> None:
    right = twin(drawn, case)
    for step in range(STEPS):
        ranks = [one["after"][step] for one in found]
        names = [dict(zip(map(str, range(len(one))), one, strict=True)) for one in [*ranks, right[step]]]
        compared(f"{CASES[case].name}, step {step + 1}", names[:-1], names[-1])
        if all(same(one, right[step]) for one in ranks):
            continue
        rank = next(rank for rank, one in enumerate(ranks) if not same(one, right[step]))
        wrong = [i for i, one in enumerate(ranks[rank]) if not close(one, right[step][i])]
        saw = (
            f"{CASES[case].name}, step {step + 1}: on rank {rank} {len(wrong)} of {len(right[step])} parameters "
            "are not those of one process; "
            + example({f"number {wrong[0]}": ranks[rank][wrong[0]]}, {f"number {wrong[0]}": right[step][wrong[0]]})
        )

        def says(name: str, means: str, place: str, *, saw: str = saw) -> Diagnosis:
            return Diagnosis(name, saw=f"{saw}.", means=means, look=place)

        before = drawn.weights[case] if not step else right[step - 1]
        stepped = any(not same(one["after"][-1], drawn.weights[case]) for one in found)
        if (
            stepped
            and found[rank]["calls"]
            and all(
                close(one["after"][-1][i], drawn.weights[case][i])
                for number, one in enumerate(found)
                for i, own in enumerate(one["owners"])
                if own != [number]
            )
        ):
            raise says(
                "not-copied-back",
                "What others have stepped has travelled, and is in no parameter: copy it into each with copy_().",
                first_of(look.into(HAND_OUT), rebound)
                or look.into(HAND_OUT)(r"for .*zip", r"for .*split", r"broadcast", last=True),
            )
        explain(look, says, ranks, right[step], before)
        if step and min(one["groups"] for one in found) < len(CASES[case].options):
            raise says(
                "group-dropped",
                "A scheduler sets the rates of the groups by their number: keep one that has no parameters, too.",
                look.into(INIT)(r"\bif .*\[.params.\]\]?$", r"\.remove\(|\bdel .*group", SHARE),
            )
        if step and same(ranks[rank], twin(drawn, case, same_rate=True)[step]):
            raise says(
                "old-rate",
                "A scheduler has changed group['lr']: keep the groups, and change their 'params' only.",
                look.into(INIT)(r"copy|dict\(", r"^for .*group"),
            )
        if same(ranks[rank], twin(drawn, case, one_group=True)[step]):
            raise says(
                "groups-merged",
                "Each group has options of its own, here another rate: divide every group, and join none.",
                merged(look.into(INIT)),
            )
        if twice := max(one["in groups"] for one in found):
            raise says(
                "stepped-twice",
                f"{twice} parameters are in two groups, and stepped once in each: a group keeps those it had.",
                look.into(INIT)(SHARE, r"^for .*group"),
            )
        if at_other_offsets(ranks, right[step], found[0]["shares"]):
            raise says(
                "wrong-offset",
                "A part begins behind all numbers of the one before it, which are its numel(): len() counts rows.",
                moved_on(look.into(HAND_OUT)),
            )
        raise says(
            "wrong-weights",
            "Each parameter is stepped once, by its owner, and then all ranks have what came of it.",
            look.into(HAND_OUT)(r"broadcast|gather", r"copy_"),
        )


def at_other_offsets(ranks: Sequence[Weights], right: Weights, shares: Sequence[Sequence[int]]) -> bool:
    """Whether what is wrong are numbers of the parameter's own share, as many as it has, from another place on."""
    several = False  # a single number could be anywhere by chance
    for share in shares:
        flat = torch.cat([right[i].flatten() for i in share]) if share else torch.empty(0)
        for i in share:
            runs = flat.unfold(0, right[i].numel(), 1)
            for one in ranks:
                if close(one[i], right[i]):
                    continue
                if float((runs - one[i].flatten()).abs().amax(dim=1).min()) > SAME_NUMBERS:
                    return False
                several = several or right[i].numel() > 1
    return several


def explain(look: Look, says: Any, ranks: Sequence[Weights], right: Weights, before: Weights) -> None:
    """Raises what is known of weights that are wrong."""
    count = len(right)
    done = [[close(one[i], right[i]) for i in range(count)] for one in ranks]
    stayed = [[close(one[i], before[i]) for i in range(count)] for one in ranks]
    nobody = [i for i in range(count) if not any(own[i] for own in done)]
    alike = all(same(one, ranks[0]) for one in ranks)
    clean = all(done[rank][i] or stayed[rank][i] for rank in range(len(ranks)) for i in range(count))
    if all(all(own) for own in stayed):
        raise says(
            "not-stepped",
            "No rank has stepped: self.optimizer.step() changes the parameters of the own share.",
            look.into(STEP)(r"step\("),
        )
    if clean and not nobody:
        if all(own[i] or right[i].dim() == 4 for own in done for i in range(count)):  # the others came
            raise says(
                "copied-into-a-copy",
                "flatten() of a parameter that lies in another order (channels_last) is a copy; so is reshape().",
                copied_into(look.into(HAND_OUT)),
            )
        if any(all(own) for own in done) or sum(map(sum, done)) > count:
            raise says(
                "some-not-handed-out",
                "Some shares have not come to all ranks: every rank needs the share of every other.",
                look.into(HAND_OUT)(r"for ", r"broadcast"),
            )
        raise says(
            "not-handed-out",
            "Each rank has stepped its own share, and the others' are as they were: hand them out after the step.",
            too_late(look.into(STEP)),
        )
    if clean and alike:
        raise says(
            "owners-overwritten",
            "All ranks took what one rank has of all shares: each share comes from its owner, who stepped it.",
            look.into(HAND_OUT)(r"broadcast|src"),
        )
    mean = [
        torch.stack([b * (len(ranks) - 1), r]).sum(dim=0) / len(ranks) for b, r in zip(before, right, strict=True)
    ]
    if all(same(one, mean) for one in ranks):
        raise says(
            "averaged",
            "This is the mean of one rank's new weights and the others' old ones: take the owner's, as they are.",
            look.into(HAND_OUT)(r"reduce", r"/"),
        )
