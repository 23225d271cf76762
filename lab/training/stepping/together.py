"""What one rank finds out, for all of them. Every rank calls these."""

import socket
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lab.base.errors import UserError

T = TypeVar("T")


def from_rank_0(find_out: Callable[[], T]) -> T:
    """Call `find_out` on rank 0; every rank returns what it returned, or raises the UserError that it raised."""
    answer: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            answer[0] = find_out()
        except UserError as error:
            answer[1] = error
    dist.broadcast_object_list(answer, src=0)
    if answer[1] is not None:
        raise answer[1]
    return answer[0]


def gather_hosts() -> list[str]:
    """The host name of every rank, in rank order."""
    hosts = [""] * dist.get_world_size()
    dist.all_gather_object(hosts, socket.gethostname())
    return hosts


def ranks_per_node(hosts: list[str]) -> int | None:
    """How many ranks each node has, one node after the other; None where the nodes differ or take turns.

    Args:
        hosts: of every rank.
    """
    size = hosts.count(hosts[0])
    in_order = [host for host in dict.fromkeys(hosts) for _ in range(size)]
    return size if hosts == in_order else None


def leave_together() -> None:
    """Leave the process group, on all ranks at the same moment.

    None leaves before rank 0 has done what it does alone: launchers end the others when the first one goes.
    """
    dist.barrier()
    dist.destroy_process_group()


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """A new tensor, on the same device; the call waits for no GPU."""
    total = tensor.clone()
    if dist.get_world_size() > 1:
        dist.all_reduce(total)
    return total


def sync_buffers(model: nn.Module) -> None:
    """Rank 0's running statistics for every rank, which PyTorch's DDP does by itself and others do not."""
    if not isinstance(model, DistributedDataParallel) and dist.get_world_size() > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
