"""What the ranks of the attack tests do. Imported in the ranks, so without pytest."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import torch.distributed as dist

from lab.ranks.rank import Rank

OPEN_TO_ALL = ("/tmp", "/dev/shm", "/submission")


def answer(rank: Rank) -> dict[str, Any]:
    """What the student's answer() makes of this rank's numbers; the sum over the ranks is right."""
    data = rank.student("data")
    given = rank.receive()
    return {"sum": data.answer(given["numbers"][rank.rank])}


def surroundings(rank: Rank) -> dict[str, Any]:
    """What is left of the group before: files and processes. In the sandbox only."""
    ones = torch.ones(1)
    dist.all_reduce(ones)
    files = [os.path.join(top, name) for top in OPEN_TO_ALL for name in os.listdir(top)]
    return {"files": files, "processes": len([name for name in os.listdir("/proc") if name.isdigit()])}


def fails_early(rank: Rank) -> None:
    """A mistake of the lab before the student's code is there."""
    raise OSError("no more processes")


def fails_late(rank: Rank) -> None:
    """The same after it."""
    rank.student("data")
    raise OSError("no more processes")


def ends_early_on_one(rank: Rank) -> None:
    """Rank 1 ends while another one's code runs, before it has come to its own."""
    store = dist.distributed_c10d._get_default_store()
    if rank.rank == 1:
        store.wait(["begun"])
        os._exit(1)
    rank.student("data")
    store.set("begun", "1")
    time.sleep(60)
