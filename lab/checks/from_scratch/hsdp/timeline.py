"""A step of 9.7 as it ran: which ranks each collective joined, and how many bytes a rank sent in it."""

from typing import Any

import torch

from lab.checks.from_scratch.hsdp.judge_traffic import bytes_sent, over_nodes, table
from lab.checks.from_scratch.hsdp.net import INPUTS, PER_NODE, RANKS, Net
from lab.checks.from_scratch.traffic import Traffic
from lab.grading.check import Group, Order
from lab.grading.trace.timeline import STEPS, Span, Timeline
from lab.ranks.rank import Rank

NAMES = ("gather", "scatter", "reduce")  # of a collective's name the first that is in it


def run(rank: Rank) -> list[dict[str, Any]]:
    """The collectives of a step."""
    hsdp = rank.student("from_scratch.hsdp")
    rank.receive()
    net = Net()
    model = hsdp.MyHSDP(net, *hsdp.make_groups(PER_NODE))
    with Traffic() as traffic:
        model.gather()
        net(torch.ones(2, INPUTS), uses_all=True).square().mean().backward()
        model.reduce()
    return traffic.calls


def record(group: Group) -> list[Timeline]:
    reports = group.observe(Order(run, RANKS))
    spans = []
    for rank, calls in enumerate(reports):
        for step, call in enumerate(calls):
            name = next((part for part in NAMES if part in call["name"]), call["name"].strip("_"))
            others = ", ".join(str(other) for other in call["ranks"] if other != rank)
            label = f"{name} with {others}: {bytes_sent(call):.0f}"
            spans.append(Span(f"rank {rank}", label, int(over_nodes(call["ranks"])), step, step + 1))
    said = (
        "The collectives of a step of your MyHSDP, in their order: with whom, and how many bytes the rank sends. "
        f"Ranks 0 and 1 are a node, 2 and 3 another: {table(reports, 0)}."
    )
    return [Timeline("step", tuple(f"rank {rank}" for rank in range(RANKS)), tuple(spans), said, STEPS)]
