"""The network of PyTorch's MNIST example (github.com/pytorch/examples, mnist/main.py)."""

from torch import Tensor, nn


class MNISTCNN(nn.Module):
    """Images [B, 1, 28, 28] -> logits [B, num_classes]: two convolutions, dropout, two linear layers.

    1,199,882 parameters for ten classes, 98% of them in the first linear layer.
    """

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU()),  # [B, 32, 26, 26]
                nn.Sequential(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
                nn.Sequential(nn.Flatten(), nn.Linear(64 * 12 * 12, 128), nn.ReLU(), nn.Dropout(0.5)),
            ]
        )
        self.head = nn.Linear(128, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1:] == (1, 28, 28), f"expected images [B, 1, 28, 28], got {list(x.shape)}"
        for block in self.blocks:
            x = block(x)
        return self.head(x)
