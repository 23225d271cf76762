"""In a rank: dist.new_group(), watched. All ranks must call it alike, or they wait for minutes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

NO_MORE = 0  # in place of a group: this rank has made all of its groups


class Unlike(Exception):
    """The ranks are making different groups: asked[rank] are the ranks of the group that it wants, [] for none."""

    def __init__(self, asked: list[list[int]]) -> None:
        super().__init__(f"different groups: {asked}")
        self.asked = asked


def agree(ranks: Sequence[int]) -> None:
    """Tell the other ranks which group is to be made, and raise Unlike if they do not make the same one."""
    own = torch.tensor([sum(1 << rank for rank in ranks) or NO_MORE])
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    masks = [int(one) for one in every]
    if len(set(masks)) > 1:
        raise Unlike([[rank for rank in range(len(masks)) if mask >> rank & 1] for mask in masks])


def on_all(right: bool) -> bool:
    """Whether something is right on every rank: all go on, or none, so that nobody waits for one that has left."""
    found = torch.tensor([int(right)])
    dist.all_reduce(found, dist.ReduceOp.MIN)
    return bool(found)


def wanted(make_groups: Callable[[int], Any], ranks_per_node: int) -> list[list[int]]:
    """The groups that the ranks would make one after the other if nobody were there to disagree, or the first.

    What they get is the group of all: whatever comes of that says nothing.
    """
    asked: list[list[int]] = []

    def new_group(ranks: Sequence[int] | None = None, *_: Any, **__: Any) -> Any:
        asked.append(list(range(dist.get_world_size()) if ranks is None else ranks))
        return dist.group.WORLD

    with mock.patch.object(dist, "new_group", new_group), suppress(Exception):
        make_groups(ranks_per_node)
    return asked


@contextmanager
def watched() -> Iterator[None]:
    """In its context each new_group() is agreed on first. One that its members alone may make is not."""
    original = dist.new_group

    def new_group(ranks: Sequence[int] | None = None, *args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("use_local_synchronization"):
            agree(range(dist.get_world_size()) if ranks is None else ranks)
        return original(ranks, *args, **kwargs)

    with mock.patch.object(dist, "new_group", new_group):
        yield
        agree([])
