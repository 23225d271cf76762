"""Judges make_groups(): which ranks are in a rank's two groups."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import RETURN, Look
from lab.checks.common.look_values import returned_at
from lab.checks.common.report import expect, numbers
from lab.checks.from_scratch.hsdp.net import PER_NODE, RANKS
from lab.checks.from_scratch.hsdp.places import listed_at
from lab.grading.diagnosis import Diagnosis, unusable_report


def judge_agreement(look: Look, reports: Sequence[Any]) -> None:
    report = reports[0]
    if not isinstance(report, dict) or "asked" not in report:
        return
    expect([report["asked"]], [[int]])
    expect(reports, {"all": [[int]]})
    wants = [f"rank {rank} {numbers_of(own)}" for rank, own in enumerate(report["asked"])]
    made = [[sorted(group) for group in one["all"]] for one in reports]
    if all(sorted(one) == sorted(made[0]) for one in made) and any(one != made[0] for one in made):
        raise Diagnosis(
            "groups-in-other-order",
            saw=f"the ranks make the same groups in different orders: first {', '.join(wants)}.",
            means="new_group() is a collective: the first call of every rank is for the same group, and so on.",
            look=look(r"sort|reverse|roll|\[::-1\]", r"\brank\b(?!.*get_rank)", r"new_group"),
        )
    raise Diagnosis(
        "new-group-not-on-all",
        saw=f"the ranks do not make the same groups: {', '.join(wants)}.",
        means="new_group() is a collective: all ranks call it for every group, those not in it, too.",
        look=look(r"new_group"),
    )


def numbers_of(ranks: Sequence[int]) -> str:
    return f"makes [{numbers(ranks)}]" if ranks else "makes none"


def judge_member(look: Look, rank: int, groups: Sequence[Sequence[int]], asked: int) -> None:
    """A rank has groups that it is in."""
    for number, (group, kind) in enumerate(zip(groups, ("shard", "replicate"), strict=True)):
        if rank not in group:
            raise Diagnosis(
                "group-of-others",
                saw=f"make_groups({asked}) gave rank {rank} a {kind} group that it is not in"
                + (f", that of ranks {numbers(group)}." if group else "."),
                means="All ranks make all groups; then each returns the two that it is in itself.",
                look=returned_at(look, number),
            )


def judge_groups(look: Look, reports: Sequence[Any]) -> None:
    """Of 2x2 both orders of numbering look alike, up to a swap, and nodes are as many as positions.

    All ranks on one node, and each on a node of its own, tell them apart.
    """
    for rank, report in enumerate(reports):
        if any(len(report[key]) != 2 for key in ("groups", "one node", "nodes of one")):
            raise unusable_report("make_groups() has returned other than two groups")
        for key, asked in (("groups", PER_NODE), ("one node", RANKS), ("nodes of one", 1)):
            judge_member(look, rank, report[key], asked)
        shard, replicate = map(sorted, report["groups"])
        node = rank - rank % PER_NODE
        row = list(range(node, node + PER_NODE))
        column = list(range(rank % PER_NODE, RANKS, PER_NODE))
        one_row, one_column = map(sorted, report["one node"])
        everyone = list(range(RANKS))
        saw = (
            f"make_groups({PER_NODE}) gave rank {rank} the shard group {shard} and the replicate group "
            f"{replicate}."
        )
        place = look(RETURN)
        if (shard, replicate) == (column, row):
            if one_row == everyone:
                raise Diagnosis(
                    "numbered-by-column",
                    saw=saw,
                    means=f"Launchers number node by node: ranks {numbers(range(PER_NODE))} are the first node's.",
                    look=look(r"view|reshape|range|arange"),
                )
            raise Diagnosis(
                "groups-swapped",
                saw=saw,
                means="Shards are inside of a node, where links are fast; replicas are at one position of each.",
                look=place,
            )
        if (shard, replicate) != (row, column):
            raise Diagnosis(
                "wrong-groups",
                saw=saw,
                means=f"Rank {rank}'s node is {row}, and its position in each node {column}.",
                look=(replicate != everyone and listed_at(look, last=shard == row))
                or look(RETURN if replicate == everyone else r"new_group|mesh", RETURN),
            )
        if (one_row, one_column) != (everyone, [rank]):
            raise Diagnosis(
                "fixed-mesh",
                saw=f"make_groups({RANKS}) gave rank {rank} the groups {one_row} and {one_column}.",
                means="With all ranks on one node the shard group is all, the replicate group the rank itself.",
                look=listed_at(look, last=one_row == everyone) or look(r"mesh|view", r"range"),
            )
        one_row, one_column = map(sorted, report["nodes of one"])
        if (one_row, one_column) != ([rank], everyone):
            raise Diagnosis(
                "fixed-mesh",
                saw=f"make_groups(1) gave rank {rank} the groups {one_row} and {one_column}.",
                means="With one rank on each node the shard group is the rank itself, the replicate group all.",
                look=listed_at(look, last=one_row == [rank]) or look(r"mesh|view", r"range"),
            )
