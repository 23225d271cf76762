"""What the ranks of test_hangs.py and test_trace.py do. Imported in the ranks, so without pytest."""

from __future__ import annotations

import time
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from lab.ranks import wire
from lab.ranks.rank import Rank
from lab.ranks.speaker import RECORDS


def nothing(rank: Rank) -> None:
    pass


def call_evaluate(rank: Rank) -> object:
    """Call the student's `evaluate(rank)`."""
    return rank.student("train").evaluate(rank.rank)


def call_evaluate_and_go_on(rank: Rank) -> None:
    """Afterwards all ranks meet in a collective of the check's own."""
    rank.student("train").evaluate(rank.rank)
    dist.all_gather([torch.zeros(2) for _ in range(rank.world_size)], torch.zeros(2))


def step_under_ddp(rank: Rank) -> None:
    """Call the student's `train_step(model, rank)`."""
    rank.student("train").train_step(DistributedDataParallel(nn.Linear(4, 2)), rank.rank)


def step_under_fsdp(rank: Rank) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    for block in (*model, model):
        fully_shard(block)
    rank.student("train").train_step(model, rank.rank)


def forge_records(rank: Rank) -> NoReturn:
    """Send what the judge says, or that many bytes, as records."""
    given: Any = rank.receive()
    payload = bytes(given) if isinstance(given, int) else given if isinstance(given, bytes) else wire.encode(given)
    rank._speaker.send(wire.frame(RECORDS, payload))
    time.sleep(600)
    raise AssertionError


def forge_frames(rank: Rank) -> None:
    """Say that rank 0 waits in a collective at line 1 of a file that the judge names."""
    rank.student("train")
    file = rank.receive()
    if rank.rank == 0:
        record = [10**6, "0", 1, "all_reduce", [[3]], ["Float"], False, [[0, 1, "evaluate"]]]
        message = {"files": [file], "new": [record], "done": [], "final": False}
        rank._speaker.send(wire.frame(RECORDS, wire.encode(message)))
        time.sleep(600)
