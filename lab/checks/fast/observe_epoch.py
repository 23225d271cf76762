"""What ranks observe of an epoch: its mean loss, and where the CPU waited, or did not."""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lab.checks.common.attempt import attempt
from lab.checks.common.meta_device import META, line_in, runs_elsewhere
from lab.checks.common.pending import Handle
from lab.checks.common.tiny import CPU
from lab.ranks.rank import Rank
from lab.training.stepping.cpu_graph import word_for_read

_COLLECTIVES = ("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "gather", "barrier")
_FEW = 8  # numbers of a tensor that is noted


class Reads(TorchDispatchMode):
    """Whether an operation has needed a tensor's numbers: torch.equal(), an index, a number for alpha=."""

    def __init__(self) -> None:
        super().__init__()
        self.any = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.any = self.any or torch.Tag.data_dependent_output in func.tags
        return func(*args, **(kwargs or {}))


class Started(Handle):
    """A collective with async_op=True that the line of a file has started. `read`: one that read it too early."""

    def __init__(self, work: Any, tensor: Tensor, name: str, line: int) -> None:
        super().__init__(work, tensor)
        self.name, self.line, self.read = name, line, 0
        self._bytes = _bytes_of(tensor)
        self._storage = tensor.untyped_storage().data_ptr()

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor has memory that the collective writes to."""
        own = _bytes_of(tensor)
        return own.start < self._bytes.stop and self._bytes.start < own.stop

    def beside(self, tensor: Tensor) -> bool:
        """Whether a tensor has memory of the same storage: a view of it, or of what is next to it."""
        return tensor.untyped_storage().data_ptr() == self._storage

    def told(self) -> dict[str, Any]:
        return {"name": self.name, "line": self.line, "waited": self.used, "read": self.read}


def _bytes_of(tensor: Tensor) -> range:
    return range(tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size())


class Waits(TorchFunctionMode):
    """Notes each read of a tensor's numbers, in which line, and how many steps had been taken then.

    started: the collectives of which nobody may read yet.
    """

    def __init__(self, file: str, steps: list[int]) -> None:
        super().__init__()
        self.noted: list[dict[str, Any]] = []
        self.started: list[Started] = []
        self._file, self._steps = file, steps

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with Reads() as reads:
            result = func(*args, **(kwargs or {}))
        if word := word_for_read(func, args, kwargs or {}) or (f"{func.__name__}()" if reads.any else ""):
            self.note(word)
        pending = [one for one in self.started if not one.used and not one.read]
        if pending and (word or isinstance(result, Tensor)):
            with torch._C.DisableTorchFunction():
                given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
                for one in pending:
                    made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
                    if any(map(one.holds, given)) and not any(map(one.beside, made)):  # and no view
                        one.read = line_in(self._file)
        return result

    def note(self, word: str) -> None:
        self.noted.append({"read": word, "steps": len(self._steps), "line": line_in(self._file)})


class Batches(Iterator[tuple[Tensor, Tensor]]):
    """Batches whose images are their own number.

    used_up: the line that has asked for one more than there are. again: one that has done so after that.
    """

    def __init__(self, sizes: list[int], file: str = "") -> None:
        self._sizes, self._file = sizes, file
        self._given = 0
        self._ended = False
        self.used_up = self.again = 0

    def __next__(self) -> tuple[Tensor, Tensor]:
        if self._given == len(self._sizes):
            line = line_in(self._file)
            self.again = self.again or (line if self._ended else 0)
            self.used_up = self.used_up or line
            self._ended = True
            raise StopIteration
        number, size = self._given, self._sizes[self._given]
        self._given += 1
        return torch.full((size, 1), float(number)), torch.zeros(size, dtype=torch.long)


def run_epoch(rank: Rank) -> dict[str, Any]:
    """epoch_loss() with steps whose losses were drawn, and a second time with other losses: by rank and step."""
    fast = rank.student("fast")
    given = rank.receive()
    own = {name: by_rank[rank.rank] for name, by_rank in given.items()}
    sizes = own["sizes"]
    steps: list[int] = []
    reduced: list[dict[str, Any]] = []
    file = str(fast.__file__)
    waits, batches = Waits(file, steps), Batches(sizes, file)
    without: list[bool] = []
    train_step = step_of(own["losses"], steps, without)
    with collectives_noted(file, steps, reduced, waits.started), waiting_noted(fast, waits), waits:
        answer = attempt(rank, fast.epoch_loss, train_step, batches, CPU)
    value = answer["value"]
    brought, taken = [], list[int]()
    elsewhere = runs_elsewhere(
        fast.epoch_loss,
        elsewhere_step(taken),
        elsewhere_batches(),
        META,
        brought=lambda line: brought.append({"steps": len(taken), "line": line}),
    )
    again = attempt(rank, fast.epoch_loss, step_of(own["losses again"], [], []), Batches(sizes), CPU)
    return {
        "error": answer["error"],
        "type": type(value).__name__,
        "value": float(value) if isinstance(value, int | float) else None,
        "steps": steps,
        "without gradients": sum(without),
        "waits": waits.noted,
        "reduced": reduced,
        "started": [one.told() for one in waits.started],
        "again": batches.again,
        "used up": batches.used_up,
        "error again": again["error"],
        "value again": float(again["value"]) if isinstance(again["value"], int | float) else None,
        "elsewhere": elsewhere,
        "brought": brought,
    }


def step_of(losses: list[float], steps: list[int], without: list[bool]) -> Callable[[Tensor, Tensor], Tensor]:
    """A train_step() that notes which batch it was called for, and returns the loss that was drawn for it.

    without: gets whether it could have computed no gradients.
    """

    def train_step(images: Tensor, labels: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():  # reading is what is noted
            steps.append(int(images[0, 0]))
        without.append(not torch.is_grad_enabled())
        return torch.tensor(losses[steps[-1]])

    return train_step


def elsewhere_step(taken: list[int]) -> Callable[[Tensor, Tensor], Tensor]:
    """A train_step() on the pretended GPU. taken: gets the size of each batch."""

    def train_step(images: Tensor, labels: Tensor) -> Tensor:
        taken.append(len(labels))
        return torch.zeros((), device=META)

    return train_step


def elsewhere_batches() -> Iterator[tuple[Tensor, Tensor]]:
    for size in (3, 2):
        yield torch.zeros(size, 1, device=META), torch.zeros(size, dtype=torch.long, device=META)


@contextmanager
def collectives_noted(
    file: str, steps: list[int], noted: list[dict[str, Any]], started: list[Started]
) -> Iterator[None]:
    """Note each collective: in which line and after how many steps it is called, and which numbers it is given.

    started: gets those that are not waited for where they are called.
    """

    def noting(name: str) -> Callable[..., Any]:
        real = getattr(dist, name)

        def collective(*args: Any, **kwargs: Any) -> Any:
            leaves = tree_leaves((args, kwargs))
            with torch._C.DisableTorchFunction():  # reading is what is noted
                few = [one for one in leaves if isinstance(one, Tensor) and one.numel() <= _FEW]
                values = [value for one in few for value in one.double().flatten().tolist()]
            noted.append({"name": name, "steps": len(steps), "line": line_in(file), "values": values})
            work = real(*args, **kwargs)
            if work is None or not few:
                return work
            started.append(Started(work, few[0], name, line_in(file)))
            return started[-1]

        return collective

    with ExitStack() as stack:
        for name in _COLLECTIVES:
            stack.enter_context(mock.patch.object(dist, name, noting(name)))
        yield


@contextmanager
def waiting_noted(fast: Any, waits: Waits) -> Iterator[None]:
    """Note each call that only waits for the device: PyTorch's, and the lab's by the name that the module has."""
    with ExitStack() as stack:
        for module in (torch.cuda, torch.accelerator, fast):
            if real := getattr(module, "synchronize", None):
                known = functools.wraps(real)(lambda *_, **__: waits.note("synchronize()"))
                stack.enter_context(mock.patch.object(module, "synchronize", known))
        yield
