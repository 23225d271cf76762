"""The network that the checks of 9.4 train: alike blocks that weigh much more than what flows through them."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

# 3 ranks divide neither a block, 2015 = 3 * 671 + 2, nor what is left, 124 = 3 * 41 + 1: of these remainders the
# first is more than what is missing to the next multiple, the second is less.
WIDTH, BLOCKS, OUTPUTS = 31, 6, 3


class Block(nn.Module):
    """[B, 31] -> [B, 31]. It has a parameter of its own, one in a child, and one that lies deeper."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(WIDTH))
        self.first = nn.Linear(WIDTH, WIDTH)
        self.rest = nn.Sequential(nn.Tanh(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.first(x)) * (1 + self.gain)


class Net(nn.Module):
    """[B, 31] -> [B, 3]. It has a parameter of its own, beside the blocks and in no other module.

    seen  the types of the weights in the last forward pass
    """

    scale: Tensor

    def __init__(self, weights: Mapping[str, Tensor] | None = None) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.last = nn.Linear(WIDTH, OUTPUTS, bias=False)  # whose bias is a parameter that is None
        self.register_buffer("scale", torch.ones(()))
        self.seen: list[str] = []
        if weights is not None:
            self.load_state_dict(dict(weights))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = []
        x = x + self.shift
        for block in self.blocks:
            x = x + block(x)
            self.seen.append(str(block.first.weight.dtype).removeprefix("torch."))  # type: ignore[union-attr]
        return self.last(x * self.scale)


def shard_of_a_block(ranks: int) -> int:
    """How many numbers a rank keeps of it."""
    return -(-block_bytes() // (4 * ranks))


def loss_of(output: Tensor) -> Tensor:
    return (output.float() ** 2).mean()


def draw_weights(generator: torch.Generator) -> dict[str, Tensor]:
    """A state_dict: all of it random, and such that two steps change much and yet magnify no rounding.

    With weights twice as large, or an output scaled to next to nothing, one draw in twenty would tell two right
    ways to add apart, or would not tell old weights from new ones.
    """
    shapes = {name: value.shape for name, value in Net().state_dict().items()}
    drawn = {name: 0.15 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return drawn | {"scale": 0.5 + torch.rand((), generator=generator)}


def block_bytes() -> int:
    """Of one block's parameters in fp32."""
    return sum(p.numel() * 4 for p in Net().blocks[0].parameters())
