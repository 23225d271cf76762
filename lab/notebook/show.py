"""Puts a card into the output of the cell that runs, and says what was misused in one sentence."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from lab.base.errors import UserError, lacking

P = ParamSpec("P")
R = TypeVar("R")


class Said(Exception):
    """An error of which a notebook shows the sentence, and no traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Interrupted(KeyboardInterrupt):
    """The kernel was interrupted, which the output says already; the cells behind it do not run."""

    def _render_traceback_(self) -> list[str]:
        return ["interrupted"]


@dataclass(frozen=True)
class Card:
    """One thing in two forms: HTML for a notebook, text for everything else."""

    html: str
    text: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": self.text}

    def __repr__(self) -> str:
        return self.text


class Shown:
    """A card in the output, that can be replaced by another. Without a notebook: printed."""

    def __init__(self, card: Card) -> None:
        self._handle: Any = None
        if _in_notebook():
            from IPython.display import display

            self._handle = display(card, display_id=True)
        else:
            print(card.text)

    def replace(self, card: Card) -> None:
        if self._handle is not None:
            self._handle.update(card)
        else:
            print(card.text)


def one_sentence(function: Callable[P, R]) -> Callable[P, R]:
    """Errors in what a cell asks for come out as their sentence."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            raise Said(str(error)) from None
        except ModuleNotFoundError as error:  # of a library that a Python may lack
            raise Said(str(lacking(error))) from None
        except KeyboardInterrupt:
            raise Interrupted from None

    return wrapped


def _in_notebook() -> bool:
    """Whether this is a kernel: something else would write "<Card>" for a card."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and getattr(shell, "kernel", None) is not None
