"""The networks that main.py can train besides the students' own CNN.

Every network has `.blocks`: the modules that FSDP shards one by one, each gathered just before it is used.
"""

from collections.abc import Callable

from torch import nn

NETWORKS: dict[str, Callable[[int], nn.Module]] = {}


def build_network(name: str, num_classes: int = 10) -> nn.Module:
    """A network by name, with freshly initialised weights.

    Raises:
        ValueError: there is no network of this name.
    """
    if name not in NETWORKS:
        raise ValueError(f"unknown model {name!r}: choose one of {', '.join(['cnn', *NETWORKS])}")
    return NETWORKS[name](num_classes)
