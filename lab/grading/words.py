"""Words for what ranks report: any text as one printable line, ranks by their numbers."""

from collections.abc import Sequence


def ranks(numbers: Sequence[int]) -> str:
    """[1] -> "rank 1"; [0, 2, 3] -> "ranks 0, 2 and 3"."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    return f"ranks {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def one_line(text: str, limit: int = 300) -> str:
    """A message of any shape as one printable line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def ordinal(number: int) -> str:
    """1 -> "1st", 12 -> "12th"."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
