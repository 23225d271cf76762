"""What ranks observe of an epoch: its mean loss, and where the CPU waited for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lab.checks.common.attempt import attempt
from lab.checks.common.meta_device import META, runs_elsewhere
from lab.checks.common.tiny import CPU
from lab.ranks.rank import Rank
from lab.training.stepping.cpu_graph import word_for_read


class Waits(TorchFunctionMode):
    """Notes each read of a tensor's numbers, and how many steps had been taken then."""

    def __init__(self, steps: list[int]) -> None:
        super().__init__()
        self.noted: list[tuple[str, int]] = []
        self._steps = steps

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if word := word_for_read(func, args, kwargs or {}):
            self.noted.append((word, len(self._steps)))
        return func(*args, **(kwargs or {}))


def run_epoch(rank: Rank) -> dict[str, Any]:
    """epoch_loss() with steps whose losses were drawn: given["losses"] and ["sizes"], by rank and step."""
    fast = rank.student("fast")
    given = rank.receive()
    losses, sizes = given["losses"][rank.rank], given["sizes"][rank.rank]
    steps: list[int] = []
    batches = [
        (torch.full((size, 1), float(i)), torch.zeros(size, dtype=torch.long)) for i, size in enumerate(sizes)
    ]

    def train_step(images: Tensor, labels: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():  # reading is what is noted
            steps.append(int(images[0, 0]))
        return torch.tensor(losses[steps[-1]])

    reduced: list[int] = []
    waits = Waits(steps)
    with reductions_noted(steps, reduced), waits:
        answer = attempt(rank, fast.epoch_loss, train_step, iter(batches), CPU)
    value = answer["value"]
    return {
        "error": answer["error"],
        "type": type(value).__name__,
        "value": float(value) if isinstance(value, int | float) else None,
        "steps": steps,
        "waits": [{"read": read, "steps": taken} for read, taken in waits.noted],
        "reduced": reduced,
        "elsewhere": runs_elsewhere(fast.epoch_loss, elsewhere_step, elsewhere_batches(), META),
    }


def elsewhere_step(images: Tensor, labels: Tensor) -> Tensor:
    return torch.zeros((), device=META)


def elsewhere_batches() -> Iterator[tuple[Tensor, Tensor]]:
    for size in (3, 2):
        yield torch.zeros(size, 1, device=META), torch.zeros(size, dtype=torch.long, device=META)


@contextmanager
def reductions_noted(steps: list[int], reduced: list[int]) -> Iterator[None]:
    """Note after how many steps each all_reduce is called."""
    real = dist.all_reduce

    def all_reduce(*args: Any, **kwargs: Any) -> Any:
        reduced.append(len(steps))
        return real(*args, **kwargs)

    with mock.patch.object(dist, "all_reduce", all_reduce):
        yield
