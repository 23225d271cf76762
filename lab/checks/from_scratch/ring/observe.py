"""What ranks observe of an all-reduce: the tensor afterwards, and each message on the way."""

from typing import Any

import torch.distributed as dist
from torch import Tensor

from lab.checks.from_scratch.traffic import Traffic
from lab.ranks.rank import Rank


def reduce_all(rank: Rank) -> list[dict[str, Any]]:
    """ring_all_reduce() of this rank's tensors: given[rank], one after the other."""
    ring = rank.student("from_scratch.ring")
    return [reduce_one(rank, ring, tensor) for tensor in rank.receive()[rank.rank]]


def reduce_one(rank: Rank, ring: Any, tensor: Tensor) -> dict[str, Any]:
    own = tensor.clone()
    first = len(rank.messages.notes)
    with Traffic() as traffic:
        returned = ring.ring_all_reduce(own)
    notes = rank.messages.notes[first:]
    dist.barrier()  # so that no message of this one meets one of the next
    return {
        "sum": own,
        "returned": type(returned).__name__,
        "sent": [{"to": note.peer, "bytes": note.bytes} for note in notes if note.kind == "send"],
        "unwaited": sum(not note.done for note in notes),
        "collectives": [call["name"] for call in traffic.calls],
    }
