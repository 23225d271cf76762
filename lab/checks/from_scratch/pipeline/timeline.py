"""A pipeline of 9.6 as it ran: when each rank was in which forward and backward pass, with both schedules."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lab.checks.from_scratch.clock import Busy
from lab.checks.from_scratch.pipeline.observe import SCHEDULES
from lab.grading.check import Group, Order
from lab.grading.trace.timeline import Span, Timeline, from_first
from lab.ranks.rank import Rank

RANKS, MICRO_BATCHES, SECONDS = 3, 4, 0.02
SHAPE = (2, 3)
NAMES = {"gpipe": "GPipe", "one_forward_one_backward": "1F1B"}


class Slow(nn.Module):
    """A layer that takes SECONDS forward and as long backward; `noted` is [kind, micro-batch, begin, end]."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(SHAPE[1], SHAPE[1])
        self.micro = 0
        self.noted: list[list[Any]] = []

    def forward(self, x: Tensor) -> Tensor:
        return Busy.apply(
            self.layer(x), SECONDS, lambda kind, *times: self.noted.append([kind, self.micro, *times])
        )


def run(rank: Rank) -> dict[str, list[list[Any]]]:
    """A step with each schedule."""
    pipeline = rank.student("from_scratch.pipeline")
    rank.receive()
    inputs = [torch.ones(SHAPE) for _ in range(MICRO_BATCHES)]
    report = {}
    for name in SCHEDULES:
        module = Slow()
        stage = pipeline.Stage(module, SHAPE)

        def told(method: Any, module: Slow = module) -> Any:
            def call(micro: int) -> None:
                module.micro = micro
                method(micro)

            return call

        stage.forward, stage.backward = told(stage.forward), told(stage.backward)
        dist.barrier()
        stage.run(
            getattr(pipeline, name)(rank.rank, rank.world_size, MICRO_BATCHES),
            inputs,
            lambda x, _: x.square().mean(),
        )
        dist.barrier()
        report[name] = module.noted
    return report


def record(group: Group) -> list[Timeline]:
    reports = group.observe(Order(run, RANKS))
    return [_drawn(name, [report[name] for report in reports]) for name in SCHEDULES]


def _drawn(name: str, ranks: list[list[list[Any]]]) -> Timeline:
    spans = [
        Span(f"rank {rank}", f"{kind}{micro}", int(kind == "B"), begin, end)
        for rank, noted in enumerate(ranks)
        for kind, micro, begin, end in noted
    ]
    whole = max(span.end for span in spans) - min(span.begin for span in spans)
    idle = 1 - sum(span.end - span.begin for span in spans) / (RANKS * whole)
    said = f"{idle:.0%} of the ranks' time was bubble."
    if name == SCHEDULES[-1]:
        least = (RANKS - 1) / (MICRO_BATCHES + RANKS - 1)
        said += (
            f" (p-1)/(m+p-1) is {least:.0%}; sending takes time, too. Measured on your pipeline, with stages that "
            f"sleep {1000 * SECONDS:.0f} ms each way instead of computing."
        )
    return from_first(NAMES[name], spans, said)
