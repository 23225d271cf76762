"""torchvision's VGG with a few channels."""

import torch
from torch import nn
from torchvision.models.vgg import VGG as TorchvisionVGG
from torchvision.models.vgg import make_layers


def tiny_torchvision_vgg() -> nn.Module:
    """Its layers have the same names as those of torchvision's VGG-19, up to the first linear layer."""
    features = make_layers([2, "M", 2, "M", 2, "M", 2, "M", 2, "M"])
    with torch.device("meta"):  # its usual classifier has 120 million weights
        original = TorchvisionVGG(features, init_weights=False)
    original.classifier = nn.Sequential(
        *(nn.Linear(2 * 7 * 7, 6), nn.ReLU(), nn.Dropout()),
        *(nn.Linear(6, 6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 1000)),
    )
    return original
