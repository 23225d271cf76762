"""The network that the checks of 9.2 train: a layer used twice, parameters not always used, and buffers."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

# All in float64: gradients that are summed in another order stay the same to many digits.
INPUTS, WIDTH, OUTPUTS = 12, 9, 4


class Net(nn.Module):
    """[B, 12] -> [B, 4]."""

    scale: Tensor
    centre: Tensor

    def __init__(self, weights: Mapping[str, Tensor] | None = None) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(WIDTH, dtype=torch.float64))
        self.first = nn.Linear(INPUTS, WIDTH, dtype=torch.float64)
        self.slope = nn.PReLU(dtype=torch.float64)
        self.seldom = nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.float64)
        self.twice = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        self.frozen = nn.Parameter(torch.ones(WIDTH, dtype=torch.float64), requires_grad=False)
        self.last = nn.Linear(WIDTH, OUTPUTS, dtype=torch.float64)
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))
        self.register_buffer("centre", torch.zeros((), dtype=torch.float64), persistent=False)
        for name, value in (weights or {}).items():
            tensors(self)[name].copy_(value)

    def forward(self, x: Tensor, *, seldom: bool, head: bool = True) -> Tensor:
        x = self.first(x) + self.shift if seldom else self.first(x)
        x = self.slope(x).tanh() * self.scale + self.centre
        if seldom:
            x = x + self.seldom(x)
        if not head:
            return x
        return self.last(self.twice(self.twice(x).tanh()).tanh() * self.frozen)


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Its parameters and buffers by name: also the buffers that a state_dict leaves out."""
    return {name: one.detach() for name, one in [*model.named_parameters(), *model.named_buffers()]}


def loss_of(output: Tensor) -> Tensor:
    return (output**2).mean()


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """Copies, by name; parameters without one are left out."""
    return {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}


def draw_weights(generator: torch.Generator) -> dict[str, Tensor]:
    """For each parameter and buffer: all of it random."""
    shapes = {name: value.shape for name, value in tensors(Net()).items()}
    return {
        name: 0.4 * torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()
    }
