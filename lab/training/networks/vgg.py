"""VGG-19 (Simonyan and Zisserman 2015, arXiv:1409.1556) from torchvision, with its head replaced.

The largest of the networks here, 139,611,210 parameters for ten classes, of which the first linear layer alone
has 102,764,544: what one all-reduce of everything costs can be seen on it.
"""

import errno
import pickle
from pathlib import Path

import torch
from torch import Tensor, nn

from lab.base.errors import UserError


class VGG(nn.Module):
    """Images [B, 3, 224, 224] -> logits [B, num_classes].

    Args:
        original: a VGG of torchvision, whose layers are taken over.
        num_classes: of the new last layer.
    """

    def __init__(self, original: nn.Module, num_classes: int) -> None:
        super().__init__()
        pooling: nn.Module = original.avgpool  # type: ignore[assignment]
        linear1, relu1, dropout1, linear2, relu2, dropout2, old_head = original.classifier  # type: ignore[misc]
        self.blocks = nn.ModuleList(
            [
                *_stages(original.features),  # type: ignore[arg-type]
                nn.Sequential(pooling, nn.Flatten(), linear1, relu1, dropout1),
                nn.Sequential(linear2, relu2, dropout2),
            ]
        )
        self.head = nn.Linear(old_head.in_features, num_classes)
        nn.init.normal_(self.head.weight, std=0.01)  # as torchvision begins its own
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1:] == (3, 224, 224), f"expected images [B, 3, 224, 224], got {list(x.shape)}"
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _stages(features: nn.Sequential) -> list[nn.Sequential]:
    """The convolutions, parted after each pooling layer."""
    stages: list[nn.Sequential] = []
    layers: list[nn.Module] = []
    for layer in features:
        layers.append(layer)
        if isinstance(layer, nn.MaxPool2d):
            stages.append(nn.Sequential(*layers))
            layers = []
    return stages


def vgg19(num_classes: int = 10, *, weights: Path | None = None) -> VGG:
    """VGG-19 with random weights, or with those of a file and a new head.

    Args:
        weights: ImageNet weights as torchvision distributes them (vgg19-dcbb9e9d.pth).

    Raises:
        UserError: the file cannot be read, or does not hold the weights of this network.
    """
    # Imported here, because torchvision takes a second and the other networks do without it.
    from torchvision.models import vgg19 as torchvision_vgg19

    if weights is None:
        return VGG(torchvision_vgg19(), num_classes)
    with torch.device("meta"):  # no random numbers for weights that are replaced at once
        original = torchvision_vgg19()
    load_weights(original, weights)
    return VGG(original, num_classes)


def load_weights(network: nn.Module, path: Path) -> None:
    """Put a state dict, as torchvision distributes them, in the place of a VGG's weights.

    Raises UserError when the file cannot be read, holds anything but tensors or not exactly this network's.
    """
    damaged = f"The weights {path} are damaged, or are no weights: delete the file."
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        if error.errno == errno.EINVAL:  # torch looked for the end of a file that is cut off
            raise UserError(damaged) from error
        raise UserError(f"Cannot read the weights {path}: {error.strerror}.") from error
    except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError) as error:
        raise UserError(damaged) from error
    try:
        network.load_state_dict(state, assign=True)
    except (RuntimeError, TypeError) as error:
        raise UserError(f"The weights {path} are not those of VGG-19.") from error
