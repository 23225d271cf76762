"""What ranks observe of a pipeline: its schedules, what each rank did, and what was alive meanwhile."""

from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from lab.checks.from_scratch.live import LiveBytes
from lab.checks.from_scratch.pipeline.net import SHAPE, loss_of, make_stage
from lab.checks.from_scratch.traffic import Traffic
from lab.ranks.rank import Rank

SCHEDULES = ("gpipe", "one_forward_one_backward")


def list_schedules(rank: Rank) -> dict[str, list[list[Any]]]:
    """For each of both, and for each case (ranks, micro-batches), every rank's actions."""
    pipeline = rank.student("from_scratch.pipeline")
    cases = rank.receive()["cases"]
    return {
        name: [
            [[list(action) for action in getattr(pipeline, name)(one, ranks, micros)] for one in range(ranks)]
            for ranks, micros in cases
        ]
        for name in SCHEDULES
    }


def train(rank: Rank) -> dict[str, dict[str, Any]]:
    """A step with each schedule."""
    pipeline = rank.student("from_scratch.pipeline")
    given = rank.receive()
    return {name: step(rank, pipeline, name, given) for name in SCHEDULES}


def step(rank: Rank, pipeline: Any, name: str, given: dict[str, Any]) -> dict[str, Any]:
    module = make_stage(given["weights"][rank.rank])
    for parameter in module.parameters():
        parameter.grad = parameter.detach() * 0  # there before, so that it does not count as alive
    places: list[int] = []
    module.register_forward_pre_hook(lambda _, args: places.append(args[0].untyped_storage().data_ptr()))
    stage = pipeline.Stage(module, SHAPE)
    waited: list[int] = []  # in which micro-batches' forward() a send was waited for
    forward = stage.forward

    def watched(micro: int) -> None:
        first = len(rank.messages.notes)
        forward(micro)
        waited.extend(micro for note in rank.messages.notes[first:] if note.kind == "send" and note.done)

    stage.forward = watched
    schedule = getattr(pipeline, name)(rank.rank, rank.world_size, len(given["inputs"]))
    first = len(rank.messages.notes)
    dist.barrier()
    with LiveBytes() as live, Traffic() as traffic:
        losses = stage.run(
            schedule, given["inputs"], lambda output, micro: loss_of(output, given["targets"][micro])
        )
    notes = rank.messages.notes[first:]
    dist.barrier()  # so that no message of this one meets one of the next
    last = losses if rank.rank == rank.world_size - 1 else []
    return {
        "returned": len(losses or ()),
        "losses": [float(loss) for loss in last],
        "with graph": sum(loss.requires_grad for loss in last),
        "waited in forward": len(waited),
        "gradients": gradients(module),
        "peak": live.peak,
        "held": len(stage.held),
        "forwards": len(places),
        "buffers": len(set(places)),
        "messages": [[note.kind, note.peer, note.bytes, note.done] for note in notes],
        "collectives": [call["name"] for call in traffic.calls],
    }


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
