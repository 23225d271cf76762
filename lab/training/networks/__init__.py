"""The networks that --model names besides the CNN.

May import: base, runs/options.
"""

import inspect
from collections.abc import Callable

from torch import nn

from lab.base.errors import UserError
from lab.runs.options.own import is_own, load_own
from lab.training.networks.mnist_cnn import MNISTCNN
from lab.training.networks.resnet import resnet18
from lab.training.networks.vgg import vgg19
from lab.training.networks.vit import VisionTransformer

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "resnet18": resnet18,
    "vgg19": vgg19,
    "mnist_cnn": MNISTCNN,
    "vit": VisionTransformer,
}


def build_network(name: str, num_classes: int = 10, **options: object) -> nn.Module:
    """A network by name, with freshly initialised weights.

    Args:
        name: one of NETWORKS, or FILE:NAME for one's own, which is called with the number of classes.
        options: vit takes width and depth; vgg19 takes weights, the file of the ImageNet weights to start from;
            resnet18 and vit take image_size, and so does one's own where it has an argument of this name.

    Raises:
        ValueError: there is no network of this name.
        UserError: a network cannot be built from these options, or one's own is not there or has no `.blocks`.
    """
    if is_own(name):
        make = load_own("--model", name)
        own = make(num_classes, **{key: value for key, value in options.items() if _takes(make, key)})
        own.built_with = options
        if not hasattr(own, "blocks"):
            raise UserError(
                f"--model {name} has no .blocks: make it the list of the modules that FSDP shall shard one by one"
            )
        return own
    if name not in NETWORKS:
        raise ValueError(f"unknown model {name!r}: choose one of {', '.join(['cnn', *NETWORKS])}")
    network = NETWORKS[name](num_classes, **options)
    network.built_with = options  # type: ignore[assignment]  # a run compares it with its command line
    return network


def _takes(make: Callable[..., nn.Module], name: str) -> bool:
    return name in inspect.signature(make).parameters


def adam_state_bytes(parameters: int, shards: int = 1) -> float:
    """Bytes on each rank that training with Adam in fp32 needs, whatever the batch: 16 a parameter.

        bytes = (4 + 4 + 8) * parameters / shards

    4 for the weight, 4 for its gradient, 4 for each of Adam's two running means (AdamW has the same two). DDP
    keeps all of it on every rank, shards = 1; FSDP keeps one part in W of it, shards = W. (Rajbhandari et al.
    2020, ZeRO, arXiv:1910.02054, section 3.1, for fp32.)

    Not counted: the activations, which grow with the batch; DDP's gradient buckets, another 4 bytes a parameter;
    FSDP's gathered blocks, 4 bytes for each parameter of the one or two blocks in use, and 4 for their gradients.
    """
    return (4 + 4 + 8) * parameters / shards
