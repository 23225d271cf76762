"""ResNet-18 for 32x32 images (He et al. 2016, arXiv:1512.03385).

ImageNet's ResNet halves the image twice before its first block. On 32x32 that would throw away most of what
there is to see, so here the stem is one 3x3 convolution of stride 1 and no pooling; all else is as in the paper.
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
    """Images [B, 3, 32, 32] -> logits [B, num_classes].

    Args:
        widths: channels of each stage; every stage but the first halves the image.
        blocks_per_stage: 2 makes it ResNet-18 with four stages (2 convolutions a block, the stem, the head).
    """

    def __init__(self, num_classes: int, widths: tuple[int, ...], blocks_per_stage: int) -> None:
        super().__init__()
        self.stem = conv_norm(3, widths[0], 3, 1)
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
        assert x.shape[1:] == (3, 32, 32), f"expected images [B, 3, 32, 32], got {list(x.shape)}"
        x = F.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=(2, 3)))


def resnet18(num_classes: int = 10) -> ResNet:
    """11,173,962 parameters for ten classes."""
    return ResNet(num_classes, widths=(64, 128, 256, 512), blocks_per_stage=2)
