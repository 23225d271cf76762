"""What the ranks of the attack tests do. Imported in the ranks, so without pytest."""

from __future__ import annotations

import os
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
