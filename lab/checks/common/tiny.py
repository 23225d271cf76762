"""What the checks of sections 4 and 6 train: a tiny network on a few images, and its twin in one process.

The judge draws weights and images anew for every run and computes what is right by itself, in one process on the
whole batch: the twin. The ranks get their part of the batch and must come to the same numbers.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

from lab.runs import options

if TYPE_CHECKING:
    from lab.training.run import Run

CPU = torch.device("cpu")
OFFSET = "offset"
LIMIT = 20.0  # seconds for a group of ranks whose work takes a fraction of one

RATE, MOMENTUM = 0.1, 0.9

# What is taken for cross-entropy: diagnosis -> mean over a batch of logits [B, 10] and labels [B].
OTHER_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "softmax-before-loss": lambda logits, labels: F.cross_entropy(logits.softmax(dim=1), labels),
    "log-softmax-missing": F.nll_loss,
}

Batch = tuple[Tensor, Tensor]  # images [B, 3, 32, 32], labels [B]


class Chain(nn.Module):
    """What nn.Sequential is, under no name that code could know: blocks may be of any class."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        for number, part in enumerate(parts):
            self.add_module(str(number), part)

    def __iter__(self) -> Iterator[nn.Module]:
        return self.children()

    def forward(self, x: Tensor) -> Tensor:
        for part in self.children():
            x = part(x)
        return x


class TinyNet(nn.Module):
    """Images [B, 3, 32, 32] -> logits [B, 10]. Its layers have odd sizes, so that shards come out uneven.

    With weights that have an `offset`, it has such a parameter of its own, outside of its layers.
    """

    def __init__(self, weights: Mapping[str, Tensor] | None = None, *, batchnorm: bool = False) -> None:
        super().__init__()
        norm = [nn.BatchNorm1d(13)] if batchnorm else []
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 13), *norm, nn.Tanh()),
                nn.Sequential(nn.Linear(13, 11), nn.Tanh()),
            ]
        )
        self.classifier = nn.Linear(11, 10)
        self.offset = nn.Parameter(torch.zeros(10)) if weights is not None and OFFSET in weights else None
        if weights is not None:
            self.load_state_dict(dict(weights))

    def forward(self, images: Tensor) -> Tensor:
        x = images
        for block in self.blocks:
            x = block(x)
        x = self.classifier(x)
        return x if self.offset is None else x + self.offset.to(x.dtype)  # and no other type of logits


def fresh_generator() -> torch.Generator:
    """Other numbers in every run: torch's default generator starts each process with the same seed."""
    return torch.Generator().manual_seed(random.getrandbits(63))


def draw_weights(generator: torch.Generator) -> dict[str, Tensor]:
    """A state_dict of TinyNet."""
    shapes = {name: parameter.shape for name, parameter in TinyNet().named_parameters()}
    return {
        name: torch.randn(shape, generator=generator) / (shape[1] ** 0.5 if len(shape) == 2 else 5)
        for name, shape in shapes.items()
    }


def draw_batch(generator: torch.Generator, count: int) -> Batch:
    """`count` images and labels."""
    # Times 8: the network begins with means over 8 x 8 pixels.
    images = 8 * torch.randn(count, 3, 32, 32, generator=generator)
    return images, torch.randint(0, 10, (count,), generator=generator)


def draw_training(world_size: int) -> tuple[list[dict[str, Tensor]], list[Batch], dict[str, Any]]:
    """Weights for each rank, two batches for all, and what the ranks receive of them."""
    generator = fresh_generator()
    weights = [draw_weights(generator) for _ in range(world_size)]
    batches = [draw_batch(generator, 4 * world_size) for _ in range(2)]
    return weights, batches, {"weights": weights, "batches": [parts(batch, world_size) for batch in batches]}


def parts(batch: Batch, world_size: int) -> list[Batch]:
    """For each rank the samples rank, rank + world_size, ..."""
    images, labels = batch
    return [(images[rank::world_size], labels[rank::world_size]) for rank in range(world_size)]


def make_optimizer(model: nn.Module) -> SGD:
    """SGD with momentum: it shows a wrong scale of the gradients, which Adam would hide."""
    return SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)


class Descent:
    """SGD by its formula, for the grader's own process: the first of torch.optim's optimizers imports a compiler.

    velocity = momentum * velocity + gradient; weight = weight - rate * velocity. What has no gradient stays.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], rate: float, momentum: float = 0.0) -> None:
        self._rate, self._momentum = rate, momentum
        self._velocities = {parameter: torch.zeros_like(parameter) for parameter in parameters}

    def step(self) -> None:
        with torch.no_grad():
            for parameter, velocity in self._velocities.items():
                if parameter.grad is not None:
                    velocity.mul_(self._momentum).add_(parameter.grad)
                    parameter.sub_(self._rate * velocity)

    def zero_grad(self) -> None:
        for parameter in self._velocities:
            parameter.grad = None


def train_steps(model: nn.Module, batches: Sequence[Batch]) -> None:
    """One optimizer step a batch."""
    optimizer = make_optimizer(model)
    for images, labels in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()


def loss_and_gradients(weights: Mapping[str, Tensor], batch: Batch) -> tuple[float, dict[str, Tensor]]:
    """The twin: mean loss of a batch, and its gradients."""
    with one_thread():
        model = TinyNet(weights)
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        return loss.item(), gradients_of(model)


def weights_after_steps(weights: Mapping[str, Tensor], batches: Sequence[Batch]) -> list[dict[str, Tensor]]:
    """The twin: the weights after each step of `make_optimizer`, one a batch."""
    velocity: dict[str, Tensor] = {name: torch.zeros_like(value) for name, value in weights.items()}
    after = [dict(weights)]
    for batch in batches:
        gradients = loss_and_gradients(after[-1], batch)[1]
        velocity = {name: MOMENTUM * velocity[name] + gradients[name] for name in weights}
        after.append({name: after[-1][name] - RATE * velocity[name] for name in weights})
    return after[1:]


@contextmanager
def one_thread() -> Iterator[None]:
    """For tiny tensors in the grader: with several threads it would mostly wait for busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies, by name. Of a sharded parameter, this rank's shard."""
    return {name: local(parameter) for name, parameter in model.named_parameters()}


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    """The same of the gradients; parameters without one are left out."""
    return {name: local(p.grad) for name, p in model.named_parameters() if p.grad is not None}


def local(tensor: Tensor) -> Tensor:
    """A copy; of a sharded one, this rank's shard."""
    to_local = getattr(tensor, "to_local", None)
    return (tensor if to_local is None else to_local()).detach().clone()


def quiet_run(kind: "type[Run] | None" = None, *more: str, precision: str = "fp32") -> "Run":
    """A run as main.py makes it, that prints nothing and writes no files. `more`: further options."""
    from lab.training.run import Run  # the grader's process, which only draws and compares, does without

    arguments = ["--strategy", "ddp", "--precision", precision, "--per-device-batch-size", "4", *more]
    return (kind or Run)(options.parse(arguments), CPU, records=False)
