"""What ranks observe of a pipeline: its schedules, what each rank did, and what was alive meanwhile."""

from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from lab.checks.from_scratch.live import LiveBytes
from lab.checks.from_scratch.origin import with_lines
from lab.checks.from_scratch.pipeline.net import SHAPE, loss_of, make_stage
from lab.checks.from_scratch.traffic import Traffic
from lab.ranks.rank import Rank

SCHEDULES = ("gpipe", "one_forward_one_backward")


def list_schedules(rank: Rank) -> dict[str, list[list[Any]]]:
    """For each of both, and for each case (ranks, micro-batches), every rank's [actions, the line of each]."""
    pipeline = rank.student("from_scratch.pipeline")
    cases = rank.receive()["cases"]
    return {
        name: [[listed(pipeline, name, one, ranks, micros) for one in range(ranks)] for ranks, micros in cases]
        for name in SCHEDULES
    }


def listed(pipeline: Any, name: str, *case: int) -> list[list[Any]]:
    actions, lines = with_lines(pipeline, getattr(pipeline, name), *case)
    return [[list(action) for action in actions], lines]


def train(rank: Rank) -> dict[str, dict[str, Any]]:
    """A step with each schedule."""
    pipeline = rank.student("from_scratch.pipeline")
    given = rank.receive()
    return {name: step(rank, pipeline, name, given) for name in SCHEDULES}


def step(rank: Rank, pipeline: Any, name: str, given: dict[str, Any]) -> dict[str, Any]:
    module = make_stage(given["weights"][rank.rank])
    for parameter in module.parameters():
        parameter.grad = parameter.detach() * 0  # there before, so that it does not count as alive
    places: list[tuple[int, int]] = []  # of each input the address, and that of its storage
    module.register_forward_pre_hook(
        lambda _, args: places.append((args[0].data_ptr(), args[0].untyped_storage()._cdata))
    )
    with LiveBytes(pipeline.__file__, within=("empty",)) as before:
        stage = pipeline.Stage(module, SHAPE)
    waited: dict[str, list[int]] = {}

    def watched(name: str) -> Any:
        """The method, with the micro-batches noted in which it waited until what it sends was received."""
        method, noted = getattr(stage, name), waited.setdefault(name, [])

        def call(micro: int) -> None:
            first = len(rank.messages.notes)
            method(micro)
            noted.extend(micro for note in rank.messages.notes[first:] if note.kind == "send" and note.done)

        return call

    stage.forward, stage.backward = watched("forward"), watched("backward")
    schedule = getattr(pipeline, name)(rank.rank, rank.world_size, len(given["inputs"]))
    first = len(rank.messages.notes)
    dist.barrier()
    with LiveBytes(pipeline.__file__, within=("empty",)) as live, Traffic() as traffic:
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
        "waited in forward": len(waited["forward"]),
        "waited in backward": len(waited["backward"]),
        "gradients": gradients(module),
        "peak": live.peak,
        "held": len(stage.held),
        "forwards": len(places),
        "buffers": len(set(places)),
        "buffer made": next(((before.lines | live.lines).get(storage, 0) for _, storage in places[-1:]), 0),
        "messages": [[note.kind, note.peer, note.bytes, note.done] for note in notes],
        "collectives": [call["name"] for call in traffic.calls],
    }


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
