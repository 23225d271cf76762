"""Models, data sets and optimizers of one's own, named FILE:NAME on main.py's command line. Imports no torch."""

import argparse
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from lab.base.errors import UserError


def is_own(name: str) -> bool:
    """Whether it is FILE:NAME."""
    return ":" in name


def one_of_or_own(choices: Sequence[str]) -> Callable[[str], str]:
    """For an option that takes one of these words, or FILE:NAME."""

    def parse(text: str) -> str:
        file, colon, name = text.partition(":")
        if text in choices or (colon and all(part.isidentifier() for part in (*file.split("."), name))):
            return text
        raise argparse.ArgumentTypeError(
            f"{text!r} is unknown: choose from {', '.join(choices)}, or name one of your own, "
            "such as mine:Name for Name in mine.py beside main.py"
        )

    return parse


def metavar(choices: Sequence[str]) -> str:
    """How --help shows such an option."""
    return "{" + ",".join(choices) + ",FILE:NAME}"


def load_own(option: str, text: str) -> Callable[..., Any]:
    """What FILE:NAME means, from FILE.py beside main.py or an installed package. Only for ranks: it runs code.

    Raises:
        UserError: there is no such file, or no such name in it.
    """
    file, _, name = text.partition(":")
    try:
        module = importlib.import_module(file)
    except ModuleNotFoundError as error:
        if error.name != file.partition(".")[0] and error.name != file:
            raise  # the file is there, and imports something that is not
        raise UserError(f"{option} {text}: there is no {file}.py beside main.py") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise UserError(f"{option} {text}: {file}.py has no class or function {name}")
    return found
