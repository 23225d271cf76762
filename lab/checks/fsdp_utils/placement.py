"""Words for how a model is sharded, for the ranks and for the judge."""

from collections.abc import Sequence

WHOLE = "whole"  # the placement of a parameter that is not sharded


def outer_first(order: Sequence[str]) -> tuple[str, str] | None:
    """A module that was sharded before one inside of it, and that one; None if there is none. "" is the root."""
    for later, inner in enumerate(order):
        for outer in order[:later]:
            if inner != outer and (not outer or inner.startswith(f"{outer}.")):
                return outer, inner
    return None
