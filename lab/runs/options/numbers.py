"""What --help calls N, M or RATE: numbers on the command line, refused where they make no sense."""

import argparse
from collections.abc import Callable


def positive(kind: type) -> Callable[[str], float]:
    """For an option that takes an int or a float above zero."""
    return _number(kind, lambda value: value > 0, "is not a positive number")


def not_negative(kind: type) -> Callable[[str], float]:
    """For an option that takes an int or a float that may be zero."""
    return _number(kind, lambda value: value >= 0, "is negative or not finite")


def below_one(kind: type) -> Callable[[str], float]:
    """For an option that takes a float from zero to below one."""
    return _number(kind, lambda value: 0 <= value < 1, "is not from 0 to below 1")


def _number(kind: type, fits: Callable[[float], bool], complaint: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not fits(value) or value == float("inf"):
            raise argparse.ArgumentTypeError(f"{text} {complaint}")
        return value

    return parse
