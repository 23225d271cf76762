"""A backward pass of 9.2 as it ran: when each layer was computed, and when its bucket travelled."""

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lab.checks.from_scratch.clock import Busy, all_reduces
from lab.grading.check import Group, Order
from lab.grading.trace.timeline import Span, Timeline, from_first
from lab.ranks.rank import Rank

RANKS, LAYERS, WIDTH, SECONDS, CAP_MB = 2, 6, 728, 0.015, 4.0  # a layer has 2 MiB


class Net(nn.Module):
    """LAYERS linear layers, each of which takes SECONDS backward; `noted` is [layer, begin, end]."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
        self.noted: list[list[Any]] = []

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):

            def note(kind: str, begin: float, end: float, number: int = number) -> None:
                if kind == "B":
                    self.noted.append([number + 1, begin, end])

            x = Busy.apply(layer(x), SECONDS, note)
        return x


def run(rank: Rank) -> dict[str, Any]:
    """The second of two steps: the first one is slower, for all memory is new."""
    ddp = rank.student("from_scratch.ddp")
    rank.receive()
    net = Net()
    model = ddp.MyDDP(net, bucket_cap_mb=CAP_MB)
    with all_reduces() as reduced:
        for _ in range(2):
            net.noted.clear()
            reduced.clear()
            model.zero_grad()
            loss = model(torch.ones(1, WIDTH)).square().mean()
            dist.barrier()
            loss.backward()
            model.finish()
            end = time.monotonic()
    return {"layers": net.noted, "buckets": [[one["bytes"], one["begin"], one["end"] or end] for one in reduced]}


def record(group: Group) -> list[Timeline]:
    reports = group.observe(Order(run, RANKS))
    spans = []
    for rank, report in enumerate(reports):
        spans += [Span(f"rank {rank}: backward", str(layer), 0, *times) for layer, *times in report["layers"]]
        lane = f"rank {rank}: all-reduce"
        spans += [Span(lane, f"{size / 2**20:.0f} MiB", 1, *times) for size, *times in report["buckets"]]
    first = reports[0]
    over = max(end for _, _, end in first["layers"])
    early = sum(begin < over for _, begin, _ in first["buckets"])
    said = (
        f"{early} of rank 0's {len(first['buckets'])} all-reduces began before its last layer was done. Measured "
        f"on your MyDDP with bucket_cap_mb={CAP_MB:g} and {LAYERS} layers of 2 MiB, numbered in the boxes, which "
        f"sleep {1000 * SECONDS:.0f} ms backward instead of computing."
    )
    return [from_first("backward pass", spans, said)]
