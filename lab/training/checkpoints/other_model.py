"""A checkpoint whose weights are not those of this run's network: by which options the two differ."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.base.errors import UserError

# What a network is made from besides --model: the names or shapes of its weights may differ with each.
BUILDING = ("width", "depth", "image_size", "dataset")
WORDS = "is of another model: "


class OtherModel(UserError):
    """Weights have other names or shapes than the network's. Raised on all ranks alike.

    Args:
        sentence: the checkpoint, WORDS, and which weight it is.
    """


@contextlib.contextmanager
def naming_options(path: Path, config: dict[str, Any], args: argparse.Namespace) -> Iterator[None]:
    """Where weights do not fit, name the options that made another network of the same --model.

    Args:
        config: the options of the run that wrote the checkpoint.

    Raises:
        UserError: in the place of an OtherModel; with such options, where they differ.
    """
    try:
        yield
    except OtherModel as error:
        differing = [name for name in BUILDING if name in config and config[name] != getattr(args, name)]
        if not differing:
            raise UserError(str(error)) from error
        before = " and ".join(_spelled(name, config[name]) for name in differing)
        now = " and ".join(_spelled(name, getattr(args, name)) for name in differing)
        weight = str(error).partition(WORDS)[2]
        raise UserError(
            f"{path} was written {before}, and this run is {now}, which may make another network of --model "
            f"{args.model}: {weight}; give the same options as then"
        ) from error


def _spelled(name: str, value: object) -> str:
    option = f"--{name.replace('_', '-')}"
    return f"without {option}" if value is None else f"with {option} {value}"
