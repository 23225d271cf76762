"""An all-reduce of 9.1 as it ran: which part each rank sent in which step."""

import torch

from lab.checks.from_scratch.clock import sends
from lab.grading.check import Group, Order
from lab.grading.trace.timeline import STEPS, Span, Timeline
from lab.ranks.rank import Rank

RANKS, PART = 4, 3
LENGTH = RANKS * PART


def run(rank: Rank) -> list[list[int]]:
    """Each message: to whom, how many bytes, and the part that it is; -1 if it lies elsewhere in memory."""
    ring = rank.student("from_scratch.ring")
    rank.receive()
    tensor = torch.ones(LENGTH)
    own = tensor.untyped_storage().data_ptr()
    with sends() as noted:
        ring.ring_all_reduce(tensor)
    return [
        [
            peer,
            sent.numel() * sent.element_size(),
            int(sent.storage_offset()) // PART if sent.untyped_storage().data_ptr() == own else -1,
        ]
        for peer, sent in noted
    ]


def record(group: Group) -> list[Timeline]:
    reports = group.observe(Order(run, RANKS))
    spans = [
        Span(
            f"rank {rank} to {peer}",
            f"part {part}" if part >= 0 else f"{size} bytes",
            int(step >= RANKS - 1),
            step,
            step + 1,
        )
        for rank, report in enumerate(reports)
        for step, (peer, size, part) in enumerate(report)
    ]
    total, whole = sum(size for _, size, _ in reports[0]), LENGTH * 4
    said = (
        f"The messages of your ring, in the order in which they were sent: {RANKS - 1} of each rank to add up, "
        f"then {RANKS - 1} to hand around. Rank 0 sent {total} bytes: {total / whole:.2f} times its tensor of "
        f"{whole}."
    )
    return [Timeline("ring", tuple(dict.fromkeys(span.lane for span in spans)), tuple(spans), said, STEPS)]
