"""Whose fault it was that a GPU was full: the numbers in PyTorch's message say it."""

import re

# Of both forms of the message, that before PyTorch 2.1 and that since.
ASKED = r"CUDA out of memory\. Tried to allocate (?P<size>[\d.]+ \w+).{0,1200}"
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = r"(\d+(?:\.\d+)? (?:bytes|[KMGT]iB))"
_TOTAL = (rf"total capac\w+ of {_SIZE}", rf"{_SIZE} total capacity")
_FREE = (rf"of which {_SIZE} is free", rf"; {_SIZE} free")
_OWN = (rf"this process has {_SIZE} memory in use", rf"{_SIZE} reserved in total", rf"{_SIZE} already allocated")
_IN_PIECES = (rf"{_SIZE} is reserved by PyTorch but unallocated",)
_OVERHEAD = 2 << 30  # of CUDA and NCCL themselves, which the older form does not count as the process's own
_PART = 0.2  # of the card, from which on another's share, or what lies idle in pieces, is worth a word


def held_by_others(found: re.Match[str]) -> bool:
    """Whether another process holds a good part of the card."""
    total, free, own = (_size(found[0], forms) for forms in (_TOTAL, _FREE, _OWN))
    if (
        total is None or free is None or own is None or own > total
    ):  # in some containers the driver says 17179869184 GiB
        return False
    return total - free - own > max(_OVERHEAD, _PART * total)


def in_pieces(found: re.Match[str]) -> bool:
    """Whether PyTorch itself held enough that nothing used, in pieces that are too small."""
    total, idle, asked = (_size(found[0], forms) for forms in (_TOTAL, _IN_PIECES, (rf"allocate {_SIZE}",)))
    if total is None or idle is None or asked is None:
        return False
    return idle >= asked and idle > _PART / 2 * total


def more_than_the_card(found: re.Match[str]) -> bool:
    """Whether one tensor was to be larger than the card."""
    total, asked = _size(found[0], _TOTAL), _size(found[0], (rf"allocate {_SIZE}",))
    return total is not None and asked is not None and asked > total


def _size(message: str, forms: tuple[str, ...]) -> float | None:
    """In bytes; None where the message does not have it."""
    for form in forms:
        if (found := re.search(form, message)) is not None:
            number, unit = found[1].split()
            return float(number) * _UNITS[unit]
    return None
