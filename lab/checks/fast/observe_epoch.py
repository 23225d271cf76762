"""What ranks observe of an epoch: its mean loss, and where the CPU waited for it."""

from collections.abc import Callable, Iterator
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
    """epoch_loss() with steps whose losses were drawn, and a second time with other losses: by rank and step."""
    fast = rank.student("fast")
    given = rank.receive()
    own = {name: by_rank[rank.rank] for name, by_rank in given.items()}
    sizes = own["sizes"]
    steps: list[int] = []
    reduced: list[int] = []
    waits = Waits(steps)
    with reductions_noted(steps, reduced), waits:
        answer = attempt(rank, fast.epoch_loss, step_of(own["losses"], steps), batches_of(sizes), CPU)
    value = answer["value"]
    again = attempt(rank, fast.epoch_loss, step_of(own["losses again"], []), batches_of(sizes), CPU)
    return {
        "error": answer["error"],
        "type": type(value).__name__,
        "value": float(value) if isinstance(value, int | float) else None,
        "steps": steps,
        "waits": [{"read": read, "steps": taken} for read, taken in waits.noted],
        "reduced": reduced,
        "error again": again["error"],
        "value again": float(again["value"]) if isinstance(again["value"], int | float) else None,
        "elsewhere": runs_elsewhere(fast.epoch_loss, elsewhere_step, elsewhere_batches(), META),
    }


def batches_of(sizes: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches whose images are their own number."""
    for i, size in enumerate(sizes):
        yield torch.full((size, 1), float(i)), torch.zeros(size, dtype=torch.long)


def step_of(losses: list[float], steps: list[int]) -> Callable[[Tensor, Tensor], Tensor]:
    """A train_step() that notes which batch it was called for, and returns the loss that was drawn for it."""

    def train_step(images: Tensor, labels: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():  # reading is what is noted
            steps.append(int(images[0, 0]))
        return torch.tensor(losses[steps[-1]])

    return train_step


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
