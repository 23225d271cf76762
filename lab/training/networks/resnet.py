"""ResNet-18 for 32x32 images, and for larger ones (He et al. 2016, arXiv:1512.03385).

ImageNet's ResNet halves the image twice before its first block. On 32x32 that would throw away most of what
there is to see, so there the stem is one 3x3 convolution of stride 1 and no pooling. From 64x64 on all is as in
the paper.
"""

import torch.nn.functional as F
from torch import Tensor, nn


def conv_norm(in_channels: int, out_channels: int, kernel_size: int, stride: int) -> nn.Sequential:
    """Convolution and BatchNorm, whose offset makes the convolution's bias superfluous."""
    padding = kernel_size // 2
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, bias=False),
        nn.BatchNorm2d(out_channels),
    )


class BasicBlock(nn.Module):
    """x -> relu(f(x) + x) with two 3x3 convolutions: [B, in, H, W] -> [B, out, H/stride, W/stride]."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.first = conv_norm(in_channels, out_channels, 3, stride)
        self.second = conv_norm(out_channels, out_channels, 3, 1)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = conv_norm(in_channels, out_channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.second(F.relu(self.first(x)))
        return F.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    """Images [B, 3, image_size, image_size] -> logits [B, num_classes].

    Args:
        widths: channels of each stage; every stage but the first halves the image.
        blocks_per_stage: 2 makes it ResNet-18 with four stages (2 convolutions a block, the stem, the head).
        image_size: pixels; from 64 on the stem is ImageNet's.
    """

    def __init__(
        self, num_classes: int, widths: tuple[int, ...], blocks_per_stage: int, image_size: int = 32
    ) -> None:
        super().__init__()
        self.image_size = image_size
        self.shrinks = image_size >= 64
        stem = conv_norm(3, widths[0], 7, 2) if self.shrinks else conv_norm(3, widths[0], 3, 1)
        self.stem = nn.Sequential(*stem, nn.ReLU())
        self.blocks = nn.ModuleList()
        channels = widths[0]
        for stage, width in enumerate(widths):
            for number in range(blocks_per_stage):
                stride = 2 if stage > 0 and number == 0 else 1
                self.blocks.append(BasicBlock(channels, width, stride))
                channels = width
        self.head = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        side = self.image_size
        assert x.shape[1:] == (3, side, side), f"expected images [B, 3, {side}, {side}], got {list(x.shape)}"
        x = self.stem(x)
        if self.shrinks:
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=(2, 3)))


def resnet18(num_classes: int = 10, *, image_size: int = 32) -> ResNet:
    """11,173,962 parameters for ten classes; 11,181,642 with ImageNet's stem."""
    return ResNet(num_classes, (64, 128, 256, 512), blocks_per_stage=2, image_size=image_size)
