"""A vision transformer for 32x32 images (Dosovitskiy et al. 2021, arXiv:2010.11929), as large as you like.

Parameters grow with depth * width^2 * 12 and the images stay small, so this is the model on which sharding pays:
weights, gradients and optimizer state soon outweigh the activations.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lab.base.errors import UsageError
from lab.runs.options.data import DEFAULT_IMAGE_SIZE, patch_size
from lab.runs.options.model import DEFAULT_DEPTH, DEFAULT_WIDTH

HEAD_WIDTH = 64  # of each attention head, as in the paper


class Attention(nn.Module):
    """Every token looks at every token: [B, T, width] -> [B, T, width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.query_key_value(x).unflatten(-1, (3, -1, HEAD_WIDTH))  # [B, T, 3, heads, HEAD_WIDTH]
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # of which each [B, heads, T, HEAD_WIDTH]
        seen = F.scaled_dot_product_attention(query, key, value)
        return self.out(seen.transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    """Attention, then two linear layers for each token, both added to their input: [B, T, width] -> the same.

    Pre-norm: the norm stands before each part, so that the sum runs through all blocks untouched, and deep
    networks train without a warm-up of their own.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """Images [B, 3, image_size, image_size] -> logits [B, num_classes].

    64 patches of 4x4 pixels become tokens (8x8 from 64x64 on, 16x16 from 128x128 on); the head reads their mean
    after the last block (no class token).

    Args:
        width: numbers in a token, a multiple of 64.
        depth: transformer blocks.
        image_size: pixels, a multiple of the patch.

    Raises:
        UsageError: the width cannot be split into heads.
    """

    def __init__(
        self,
        num_classes: int = 10,
        *,
        width: int = DEFAULT_WIDTH,
        depth: int = DEFAULT_DEPTH,
        image_size: int = DEFAULT_IMAGE_SIZE,
    ) -> None:
        super().__init__()
        if width % HEAD_WIDTH:
            fitting = max(1, round(width / HEAD_WIDTH)) * HEAD_WIDTH
            raise UsageError(
                f"--width {width} cannot be split into attention heads of {HEAD_WIDTH}: use a multiple of "
                f"{HEAD_WIDTH}, such as {fitting}"
            )
        patch = patch_size(image_size)
        self.image_size = image_size
        self.patches = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        self.position = nn.Parameter(torch.empty(1, (image_size // patch) ** 2, width))
        self.blocks = nn.ModuleList([TransformerBlock(width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)
        nn.init.trunc_normal_(self.position, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        side = self.image_size
        assert x.shape[1:] == (3, side, side), f"expected images [B, 3, {side}, {side}], got {list(x.shape)}"
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.position  # [B, T, width]
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(self.norm(tokens).mean(dim=1))
