"""What the check of 9.7 trains, on two nodes of two ranks: a layer in it is used by rank 0 only."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

RANKS, PER_NODE = 4, 2
APART = {"one node": RANKS, "nodes of one rank": 1}  # ranks a node, where one dimension of the mesh is 1
STEPS, RATE, BATCH = 2, 0.1, 3
INPUTS, WIDTH, OUTPUTS = 5, 32, 3


class Net(nn.Module):
    """[B, INPUTS] -> [B, OUTPUTS]. An odd number of parameters, so that padding counts."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, WIDTH)
        self.sometimes = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, OUTPUTS)

    def forward(self, x: Tensor, *, uses_all: bool) -> Tensor:
        x = self.first(x).tanh()
        if uses_all:
            x = self.sometimes(x).tanh()
        return self.last(x)


def build(weights: Sequence[Tensor]) -> Net:
    """With these parameters, in their order."""
    net = Net()
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), weights, strict=True):
            parameter.copy_(value)
    return net


def draw_weights(generator: torch.Generator) -> list[Tensor]:
    with torch.device("meta"):
        shapes = [parameter.shape for parameter in Net().parameters()]
    return [0.3 * torch.randn(shape, generator=generator) for shape in shapes]


def loss_of(net: Net, x: Tensor, rank: int) -> Tensor:
    return (net(x, uses_all=rank == 0) ** 2).mean()
