"""What a rank observes of the CNN where it seems to be one of several: the batch is its part already."""

import os
from collections.abc import Mapping
from typing import Any
from unittest import mock

import torch.distributed as dist
from torch import Tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from lab.checks.common.attempt import attempt
from lab.ranks.rank import Rank


def forward_in_world(rank: Rank) -> list[dict[str, Any]]:
    """Of each batch the logits alone, and in a process group: {"alone", "in_world", "error" in the group}."""
    model = rank.student("model")
    given = rank.receive()
    cnn = model.CNN()
    alone = [attempt(rank, cnn, images)["value"] for images in given["batches"]]
    numbers = {"rank": given["rank"], "world_size": given["world_size"]}
    with mock.patch.dict(os.environ, _launcher(**numbers)):
        dist.init_process_group("fake", store=FakeStore(), **numbers)
        shown = [attempt(rank, cnn, images) for images in given["batches"]]
        dist.destroy_process_group()
    return [
        {"alone": _logits(value), "in_world": _logits(one["value"]), "error": one["error"]}
        for value, one in zip(alone, shown, strict=True)
    ]


def _logits(value: object) -> Tensor | None:
    return value.detach() if isinstance(value, Tensor) else None


def _launcher(rank: int, world_size: int) -> Mapping[str, str]:
    """What torchrun and srun say of a rank, all on one node."""
    numbers = dict.fromkeys(("RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID"), rank)
    numbers |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS"), world_size)
    return {name: str(number) for name, number in numbers.items()}
