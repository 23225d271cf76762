"""Section 1: the network you know from a single device, ready for any batch size."""

from typing import Any

from torch import Tensor, nn

from lab.training import build_network


def conv_block(in_channels: int, out_channels: int) -> nn.Sequential:
    """[B, in, H, W] -> [B, out, H/2, W/2]."""
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


class CNN(nn.Module):
    """Images [B, 3, 32, 32] -> logits [B, num_classes], for any batch size B.

    No BatchNorm and no dropout: every rank then computes exactly what one device would compute on the whole
    batch, so that we can compare the two to the last digits.
    """

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([conv_block(3, 32), conv_block(32, 64), conv_block(64, 128)])
        self.classifier = nn.Linear(128 * 4 * 4, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        # TODO 1.1: assert that every image is [3, 32, 32] without fixing how many there are, since each rank
        # gets only its part of the batch. Then run x through the blocks and the classifier: return logits.
        ### BEGIN SOLUTION 1.1
        assert x.shape[1:] == (3, 32, 32), f"expected images [B, 3, 32, 32], got {list(x.shape)}"
        for block in self.blocks:
            x = block(x)
        return self.classifier(x.flatten(start_dim=1))
        ### END SOLUTION


def build_model(name: str, num_classes: int = 10, **options: Any) -> nn.Module:
    """The network called `name`: your CNN, or one of the lab's own, some of which take options."""
    if name == "cnn":
        return CNN(num_classes, **options)
    return build_network(name, num_classes, **options)
