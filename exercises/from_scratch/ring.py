"""Exercise 9.1: an all-reduce of one's own, from messages between neighbours in a ring.

N ranks, each with a tensor of L numbers; afterwards all have the sum. If every rank sent its tensor to each other
one, it would send (N-1) times L numbers. In a ring each sends a part of L/N numbers in each of 2(N-1) steps:
2(N-1)/N times L, less than twice its tensor however many ranks there are. NCCL does the same inside of a node.

    reduce-scatter   N-1 steps: pass on the part that has just been added to, and add what comes in
    all-gather       N-1 steps: pass on the part that is complete, and keep what comes in

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def split(tensor: Tensor) -> list[Tensor]:
    """The tensor in one part a rank, as views of it. The first ones have a number more where N does not divide L.

    Where there are fewer numbers than ranks, the last parts are empty, which a message may be.
    """
    return list(tensor.tensor_split(dist.get_world_size()))


def exchange(outgoing: Tensor, incoming: Tensor) -> None:
    """Send `outgoing` to the next rank of the ring, and fill `incoming` with what the one before sends."""
    # TODO 9.1a: begin both with dist.isend and dist.irecv, then wait() for both. dist.send waits until somebody
    # receives: if all ranks did that first, none would ever receive.
    raise NotImplementedError("Exercise 9.1a is not done yet: exchange() in from_scratch/ring.py")


def reduce_scatter(parts: list[Tensor]) -> None:
    """Sum the parts up: afterwards part (rank + 1) % N of this rank is complete, and the others are in between.

    Args:
        parts: as split() gives them; they are changed in place.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    # TODO 9.1b: N-1 steps. In the first, rank r sends part r; in each step it adds what comes in to its own part
    # of that number, and sends this one next. What comes in needs a tensor of its own.
    raise NotImplementedError("Exercise 9.1b is not done yet: reduce_scatter() in from_scratch/ring.py")


def all_gather(parts: list[Tensor]) -> None:
    """Hand the complete parts around, part (rank + 1) % N first, until every rank has all of them."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    # TODO 9.1c: N-1 steps. In each, send the part that came in last, and let the one before it come in, right into
    # its place.
    raise NotImplementedError("Exercise 9.1c is not done yet: all_gather() in from_scratch/ring.py")


def ring_all_reduce(tensor: Tensor) -> None:
    """Replace a tensor [L] by its sum over all ranks, in place."""
    parts = split(tensor)
    reduce_scatter(parts)
    all_gather(parts)
