"""Writes to a terminal, file or pipe: wrapped to its width, coloured or not, in ASCII where nothing else goes."""

import os
import shutil
import textwrap
from typing import TextIO

MIN_WIDTH, MAX_WIDTH = 40, 100


class Page:
    """One stream, to which each line is written at once.

    Args:
        stream: where to.
        width: columns; None for the terminal's own.
        colour: None for colour on a terminal, unless NO_COLOR is set.
    """

    def __init__(self, stream: TextIO, *, width: int | None = None, colour: bool | None = None) -> None:
        self.stream = stream
        self.live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.colour = self.live and not os.environ.get("NO_COLOR") if colour is None else colour
        self.width = max(MIN_WIDTH, min(MAX_WIDTH, width or shutil.get_terminal_size().columns))
        self.unicode = _can_write(stream, "✓✗·○…")

    def clear(self) -> None:
        """An empty screen, on a terminal; elsewhere an empty line."""
        self._write("\x1b[2J\x1b[H" if self.live else "\n")

    def show(self, text: str) -> None:
        """Text that erase() takes back, on a terminal; elsewhere nothing."""
        if self.live:
            self._write(text)

    def erase(self) -> None:
        """Take back what was written to this line, on a terminal."""
        if self.live:
            self._write("\r\x1b[K")

    def say(self, text: str, *, lead: str = "", code: str = "", bold: bool = False) -> None:
        """Wrapped text, the further lines indented to where the first one's text begins.

        Args:
            lead: what the first line begins with.
            code: the ANSI colour of the lead.
        """
        lines = textwrap.wrap(printable(text), self.width - len(lead), break_on_hyphens=False)
        for number, line in enumerate(lines):
            start = self.paint(lead, code) if number == 0 else " " * len(lead)
            self.line(start + (self.bold(line) if bold else line))

    def line(self, text: str = "") -> None:
        """A line as it is."""
        self._write(text + "\n")

    def blank(self) -> None:
        self.line()

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code else text

    def bold(self, text: str) -> str:
        return self.paint(text, "1")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def printable(text: str) -> str:
    """Text a student's code has made, harmless for a terminal: no escape sequences, no control characters."""
    return "".join(c if c.isprintable() else "�" if c not in "\t\n\r" else " " for c in text)


def _can_write(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
