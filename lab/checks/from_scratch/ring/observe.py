"""What ranks observe of an all-reduce: the tensor afterwards, and each message on the way."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor

from lab.checks.from_scratch.traffic import Traffic
from lab.collectives.point_to_point import Note
from lab.ranks.rank import Rank


def reduce_all(rank: Rank) -> list[dict[str, Any]]:
    """ring_all_reduce() of this rank's tensors: given[rank], one after the other."""
    ring = rank.student("from_scratch.ring")
    return [reduce_one(rank, ring, tensor) for tensor in rank.receive()[rank.rank]]


def reduce_one(rank: Rank, ring: Any, tensor: Tensor) -> dict[str, Any]:
    own = tensor.clone()
    first = len(rank.messages.notes)
    with Traffic() as traffic, halves_noted(rank, ring, own) as halves:
        returned = ring.ring_all_reduce(own)
    notes = rank.messages.notes[first:]
    dist.barrier()  # so that no message of this one meets one of the next
    return {
        "sum": own,
        "returned": type(returned).__name__,
        "sent": [{"to": note.peer, "bytes": note.bytes} for note in notes if note.kind == "send"],
        "unwaited": [line_of(rank, note) for note in notes if not note.done],
        "collectives": [call["name"] for call in traffic.calls],
        **halves,
    }


@contextmanager
def halves_noted(rank: Rank, ring: Any, own: Tensor) -> Iterator[dict[str, Any]]:
    """What shows where it went wrong: the tensor as the all-gather finds it, and what exchange() is given.

    between  None where all_gather() is not called
    first    what the all-gather sends first; None where it sends nothing
    short    [numbers to send, numbers sent], where some are not sent
    as it came  how often the reduce-scatter sends what it has received just before, with nothing added
    """
    noted: dict[str, Any] = {"between": None, "first": None, "short": [], "as it came": 0}
    came: Tensor | None = None
    exchange, all_gather = (getattr(ring, name, None) for name in ("exchange", "all_gather"))

    def exchanging(*args: Any, **kwargs: Any) -> Any:
        nonlocal came
        first = len(rank.messages.notes)
        outgoing = args[0] if args else kwargs.get("outgoing")
        incoming = args[1] if len(args) > 1 else kwargs.get("incoming")
        if isinstance(outgoing, Tensor) and noted["between"] is not None and noted["first"] is None:
            noted["first"] = outgoing.detach().clone()
        elif isinstance(outgoing, Tensor) and came is not None and len(came) and noted["between"] is None:
            noted["as it came"] += torch.equal(outgoing, came)
        result = exchange(*args, **kwargs)  # type: ignore[misc]
        came = incoming.detach().clone() if isinstance(incoming, Tensor) else None
        sent = sum(note.elements for note in rank.messages.notes[first:] if note.kind == "send")
        if isinstance(outgoing, Tensor) and sent < outgoing.numel():
            noted["short"].append([outgoing.numel(), sent])
        return result

    def gathering(*args: Any, **kwargs: Any) -> Any:
        noted["between"] = own.clone()
        return all_gather(*args, **kwargs)  # type: ignore[misc]

    with ExitStack() as stack:
        for name, original, instead in (
            ("exchange", exchange, exchanging),
            ("all_gather", all_gather, gathering),
        ):
            if callable(original):
                stack.enter_context(mock.patch.object(ring, name, instead))
        yield noted


def line_of(rank: Rank, note: Note) -> int:
    """The student's innermost line of a message; 0 where there is none."""
    own = [line for file, line, _ in note.frames if rank.code and Path(file).is_relative_to(rank.code)]
    return own[-1] if own else 0
