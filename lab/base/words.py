"""Words for people: ranks and numbers as one says them; any text made fit for a terminal, a page, a name."""

import hashlib
import html
import math
import re
from collections.abc import Sequence

LONGEST_NAME = 80  # characters of a folder


def rank_list(numbers: Sequence[int]) -> str:
    """[1] -> "rank 1"; [0, 2, 3] -> "ranks 0, 2 and 3"."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    return f"ranks {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def one_line(text: str, limit: int = 300) -> str:
    """A message of any shape as one printable line."""
    begin = text[: 20 * limit]  # it may be of any length
    line = " ".join("".join(c if c.isprintable() else " " for c in begin).split())
    return line if len(line) <= limit and begin == text else line[: limit - 3] + "..."


def ordinal(number: int) -> str:
    """1 -> "1st", 12 -> "12th"."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def digits(value: float, count: int) -> str:
    """A number to `count` significant digits, never with an exponent: (1260.3, 3) -> "1260"."""
    text = f"{value:.{count}g}"
    if "e" not in text:
        return text
    return f"{value:.{max(0, count - 1 - math.floor(math.log10(abs(value))))}f}"


def slug(text: str) -> str:
    """Text fit for a folder name; a long one ends with a few digits that stand for all of it."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 7]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def printable(text: str) -> str:
    """Text a student's code has made, harmless for a terminal: no escape sequences, no control characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "�" if c not in "\t\n\r" else " " for c in text)


def encodable(text: object) -> str:
    """Text of a student's, such as a file's name, for files in UTF-8: lone surrogates become escapes."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def visible(name: object) -> str:
    """A name of anybody's choice as one line that a terminal, a table and a page show: all else as escapes."""
    text = encodable(name)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """The same, and lines stay lines."""
    return "\n".join(map(printable, text.splitlines()))


def as_html(text: str) -> str:
    """Return `text` as HTML that shows it: markup, quotes and control characters do nothing; lines stay lines."""
    return html.escape(printable_lines(text))
