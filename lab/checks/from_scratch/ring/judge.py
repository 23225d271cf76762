"""Judges a ring all-reduce: the sum, and who has sent how much to whom."""

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import Look
from lab.checks.common.report import expect, expect_as_many
from lab.checks.common.tensors import number
from lab.checks.from_scratch.ring.judge_messages import (
    EXCHANGE,
    GATHER,
    SCATTER,
    added_once_more,
    chosen_to_send,
    divided_at,
    judge_messages,
    made_for_incoming,
)
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

REPORT = [
    {
        "sum": Tensor,
        "returned": str,
        "sent": [{"to": int, "bytes": int}],
        "unwaited": [int],
        "collectives": [str],
        "between": (None, Tensor),
        "first": (None, Tensor),
        "short": [[int]],
        "as it came": int,
    }
]

PLACED = r"^\w+\[.*\]\s*=[^=]"  # where something takes a place in a list


def draw(ranks: int) -> list[list[Tensor]]:
    """For each rank three tensors of whole numbers, whose sums are exact in any order.

    Their lengths: one that N does not divide, one that it does, one smaller than N.
    """
    lengths = [ranks * random.randint(4, 7) + random.randint(1, max(ranks - 1, 1)), ranks * random.randint(2, 5)]
    lengths.append(max(ranks - 1, 1))
    types = [torch.float32, torch.float64, torch.float32]
    return [
        [
            torch.tensor([random.randint(-99, 99) or 1 for _ in range(length)], dtype=dtype)
            for length, dtype in zip(lengths, types, strict=True)
        ]
        for _ in range(ranks)
    ]


def judge(look: Look, reports: Sequence[Any], drawn: list[list[Tensor]]) -> None:
    expect(reports, REPORT)
    expect_as_many(reports, len(drawn[0]))
    for tensor in range(len(drawn[0])):
        found = [report[tensor] for report in reports]
        given = [own[tensor] for own in drawn]
        for rank, one in enumerate(found):
            judge_means(look, rank, one)
        judge_sums(look, found, given)
        judge_messages(look, [one["sent"] for one in found], given[0])


def judge_alone(look: Look, reports: Sequence[Any], drawn: list[list[Tensor]]) -> None:
    """One rank: nothing to add, nobody to talk to."""
    expect(reports, REPORT)
    expect_as_many(reports, len(drawn[0]))
    for one, given in zip(reports[0], drawn[0], strict=True):
        if one["sent"] or not same(one["sum"], given):
            raise Diagnosis(
                "wrong-on-one-rank",
                saw=f"one rank alone sent {len(one['sent'])} messages, and its tensor "
                f"{'stayed' if same(one['sum'], given) else 'changed'}.",
                means="With N = 1 the sum is there already: N-1 steps are none.",
                look=look.into(SCATTER)(r"\brange\(|\bwhile\b"),
            )


def judge_means(look: Look, rank: int, one: dict[str, Any]) -> None:
    if one["collectives"]:
        raise Diagnosis(
            "collective-called",
            saw=f"ring_all_reduce() called {one['collectives'][0].strip('_')} on rank {rank}.",
            means="That is the answer of PyTorch's: here the ranks only send and receive.",
            look=next(
                (
                    at
                    for f in ("ring_all_reduce", SCATTER, GATHER, EXCHANGE)
                    if "def " not in (at := look.into(f)(COLLECTIVE))
                ),
                look(),
            ),
        )
    if one["unwaited"]:
        raise Diagnosis(
            "not-waited",
            saw=f"rank {rank} did not wait() for {len(one['unwaited'])} of its messages.",
            means="Before its wait() nobody knows whether a message is there: what is read may be old.",
            look=look.into(EXCHANGE).line(one["unwaited"][0]),
        )


COLLECTIVE = r"dist\.(all_|reduce|broadcast|gather|scatter|barrier)"


def same(found: Tensor, expected: Tensor) -> bool:
    return found.shape == expected.shape and found.dtype == expected.dtype and bool((found == expected).all())


def between(given: Sequence[Tensor]) -> list[Tensor]:
    """What each rank has after the reduce-scatter: of part p, the sum over ranks p, p + 1, ... to itself."""
    ranks = len(given)
    parts = [tensor.tensor_split(ranks) for tensor in given]
    return [
        torch.cat(
            [
                torch.stack([parts[(p + k) % ranks][p] for k in range((rank - p) % ranks + 1)]).sum(dim=0)
                for p in range(ranks)
            ]
        )
        for rank in range(ranks)
    ]


def judge_sums(look: Look, reports: Sequence[dict[str, Any]], given: Sequence[Tensor]) -> None:
    found = [one["sum"] for one in reports]
    sends = [len(one["sent"]) for one in reports]  # how many messages each rank has sent
    total = torch.stack(list(given)).sum(dim=0)
    compared(f"sum of {len(total)} numbers", found, total)
    if all(same(one, total) for one in found):
        return
    ranks, length = len(found), len(total)
    wrong_rank = next(rank for rank, one in enumerate(found) if not same(one, total))
    if found[wrong_rank].shape != total.shape or found[wrong_rank].dtype != total.dtype:
        raise Diagnosis(
            "other-tensor",
            saw=f"rank {wrong_rank} has {list(found[wrong_rank].shape)} of {found[wrong_rank].dtype} afterwards.",
            means="The sum takes the place of the tensor that was given: same length, same type.",
            look=look(),
        )
    differs = [i for i in range(length) if not bool(found[wrong_rank][i] == total[i])]
    first = differs[0]
    saw = (
        f"{ranks} ranks, {length} numbers: on rank {wrong_rank} {len(differs)} are no sum; number {first} is "
        f"{number(found[wrong_rank][first])} instead of {number(total[first])}."
    )

    def wrong(name: str, means: str, function: str, *patterns: str) -> Diagnosis:
        """Without a pattern it is where what is sent is chosen."""
        there = look.into(function)
        return Diagnosis(name, saw=saw, means=means, look=there(*patterns) if patterns else chosen_to_send(there))

    scattered = reduced(reports, total)
    mine = [(rank + 1) % ranks for rank in range(ranks)]  # the part that each rank completes
    own_parts = [one.tensor_split(ranks)[part] for one, part in zip(found, mine, strict=True)]
    right_parts = [total.tensor_split(ranks)[part] for part in mine]
    kept = [
        torch.equal(own, one.tensor_split(ranks)[part])
        for own, one, part in zip(own_parts, given, mine, strict=True)
    ]
    if all(kept) and all(
        bool(((one == own) | (one == total)).all()) for one, own in zip(found, given, strict=True)
    ):
        raise wrong(
            "not-in-place",
            "The tensor that was given must hold the sum afterwards: add with += and receive into its parts.",
            SCATTER,
            r"\w+ = \w+ \+|\+",
        )
    if all(same(one, middle) for one, middle in zip(found, between(given), strict=True)):
        raise wrong(
            "not-gathered",
            "Each rank has one complete part: the others have not come to it.",
            GATHER,
            PLACED,
            r"exchange\(|recv",
        )
    if all(torch.equal(one, total / ranks) for one in found):
        raise Diagnosis(
            "averaged",
            saw=saw,
            means="This is the mean. An all-reduce gives the sum; who wants a mean divides it.",
            look=divided_at(look),
        )
    doubled = torch.cat([given[p].tensor_split(ranks)[p] * 2 ** (ranks - 1) for p in range(ranks)])
    if ranks > 1 and all(torch.equal(one, doubled) for one in found):
        raise Diagnosis(
            "own-part-overwritten",
            saw=saw,
            means="What came in has overwritten the own part, and was added to itself: it needs other memory.",
            look=made_for_incoming(look, SCATTER) or look.into(SCATTER)(r"exchange\("),
        )
    lacks = next((one for report in reports for one in report["short"] if len(one) == 2), None)
    if lacks:
        raise Diagnosis(
            "not-all-sent",
            saw=f"{ranks} ranks, {length} numbers, no sum: of {lacks[0]} numbers exchange() sent {lacks[1]}.",
            means="All of `outgoing` has to travel, whatever its length is: // leaves a rest.",
            look=look.into(EXCHANGE)(r"//|narrow|chunk|split", r"\[[^\]]*:", r"send"),
        )
    steps = 2 * (ranks - 1)
    if any(count != steps for count in sends):
        raise Diagnosis(
            "too-few-steps" if min(sends) < steps else "too-many-steps",
            saw=f"{ranks} ranks, {length} numbers, no sum: rank 0 sent {sends[0]} messages.",
            means=f"Both halves take N-1 steps: 2(N-1) = {steps} messages from each rank.",
            look=look.into(SCATTER if max(sends) >= steps else GATHER)(r"\brange\(|\bwhile\b"),
        )
    if scattered and not any(begins_right(one["first"], total, ranks) for one in reports):
        raise wrong(
            "begins-with-other-part",
            "Of this rank part (rank + 1) % N is complete: all_gather() begins with that one.",
            GATHER,
        )
    if added_once_more(reports, total):
        raise wrong(
            "complete-parts-added",
            "What the all-gather brings is complete: it takes the place of what is there, and is not added.",
            GATHER,
            r"\+=|add_?\(",
            r"\+(?! ?\d)",
            r"exchange\(",
        )
    if all(map(torch.equal, own_parts, right_parts)):
        raise wrong(
            "not-all-gathered",
            "The part that each rank had completed is right, but not all of the others have come to it.",
            GATHER,
            r"exchange\(",
        )
    if all(bool(torch.stack([one == own for own in given]).any(dim=0).all()) for one in found):
        raise wrong(
            "not-added",
            "Every number is that of one rank: nothing had been added to the parts that were handed around.",
            GATHER if scattered else SCATTER,
            r"exchange\(" if scattered else r"copy_|\+=|add_?\(|exchange\(",
        )
    late = ranks * (length // ranks)
    if length % ranks and all(torch.equal(one[:late], total[:late]) for one in found):
        raise wrong(
            "rest-left-out",
            f"{length} numbers are no multiple of {ranks}: the last ones belong to a part as well.",
            "split",
            r"//",
        )
    if all(one["as it came"] for one in reports):
        raise Diagnosis(
            "passed-on-as-it-came",
            saw=saw,
            means="What goes on is the own part, with what came in added to it: alone, that is the others' sum.",
            look=chosen_to_send(look.into(SCATTER), last=True),
        )
    if complete(found, total):
        raise wrong(
            "copied-into-wrong-part",
            "There are complete parts, but in wrong places: send what the next rank expects.",
            GATHER,
            r"exchange\(",
        )
    raise wrong(
        "wrong-sum",
        "Follow one part: it starts on the rank of its number, and each rank on its way adds its own once.",
        GATHER if scattered else SCATTER,
        r"exchange\(",
    )


def reduced(reports: Sequence[dict[str, Any]], total: Tensor) -> bool:
    """Whether each part was complete on some rank, another one on each, when the all-gather began."""
    right = total.tensor_split(len(reports))
    own = [report["between"] for report in reports]
    if any(one is None or one.shape != total.shape or one.dtype != total.dtype for one in own):
        return False
    parts = [
        {p for p, part in enumerate(one.tensor_split(len(own))) if torch.equal(part, right[p])} for one in own
    ]
    return all(parts) and len(set().union(*parts)) == len(reports)


def begins_right(first: Tensor | None, total: Tensor, ranks: int) -> bool:
    """Whether what the all-gather sends first is a complete part, or is not known."""
    return first is None or any(torch.equal(first, part) for part in total.tensor_split(ranks))


def complete(found: Sequence[Tensor], total: Tensor) -> bool:
    """Whether every rank has some part of the sum where it belongs."""
    ranks = len(found)
    right = total.tensor_split(ranks)
    return all(
        any(len(part) and torch.equal(own, part) for own, part in zip(one.tensor_split(ranks), right, strict=True))
        for one in found
    )
