"""What the checks of 9.5 train: two blocks of the lab's vision transformer, of which each rank keeps a half."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lab.training.networks.vit import TransformerBlock

RANKS, BLOCKS, WIDTH, TOKENS, BATCH = 2, 2, 128, 3, 2  # two heads of 64
STEPS, RATE = 2, 0.02
PIECES = 3  # of a tensor's second dimension
MORE_RANKS = (3, 4)  # that own_part() alone is asked about, too

# What each rank has a part of; of the rest it has all.
CUT = (
    *("attention.query_key_value.weight", "attention.query_key_value.bias", "attention.out.weight"),
    *("mlp.0.weight", "mlp.0.bias", "mlp.2.weight"),
)

WHOLE_BIASES = ("attention.out.bias", "mlp.2.bias")  # of the layers whose weight alone is cut

COLUMN, ROW = "ColumnParallelLinear", "RowParallelLinear"  # the classes that a block is cut with


def build(weights: Sequence[Mapping[str, Tensor]]) -> list[TransformerBlock]:
    """The whole blocks, with these state dicts."""
    with torch.device("meta"):  # nothing is drawn only to be replaced
        blocks = [TransformerBlock(WIDTH) for _ in weights]
    for block, own in zip(blocks, weights, strict=True):
        block.load_state_dict({name: value.clone() for name, value in own.items()}, assign=True)
    return blocks


def draw_weights(generator: torch.Generator) -> list[dict[str, Tensor]]:
    """The state dict of each block: all of it random, biases too."""
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in TransformerBlock(WIDTH).state_dict().items()}
    return [
        {name: 0.1 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        for _ in range(BLOCKS)
    ]


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target) ** 2).mean()
