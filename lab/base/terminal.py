"""Writes to a terminal, file or pipe: wrapped to its width, coloured or not, in ASCII where nothing else goes."""

import os
import shutil
import sys
import textwrap
from typing import TextIO

from lab.base.words import printable

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


def _can_write(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


class Terminal:
    """Standard output. The line that is drawn anew, the status, is there on a real terminal only."""

    def __init__(self) -> None:
        self._status = ""  # what stands in the last line now

    @property
    def is_one(self) -> bool:
        """Whether lines can be drawn anew: not in a file, a pipe or a terminal that cannot move its cursor."""
        return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def width(self) -> int:
        """Columns for the status. The last one stays free: some terminals go to the next line behind it."""
        return max(shutil.get_terminal_size().columns - 1, 1)

    def say(self, line: str) -> None:
        """Print a line, or several; the status moves below it."""
        status = self._status
        self._draw("")
        print(line, flush=True)
        self._draw(status)

    def show(self, status: str) -> None:
        """Draw the status anew; "" removes it."""
        self._draw(status[: self.width] if self.is_one else "")

    def _draw(self, status: str) -> None:
        if status == self._status:
            return
        # Overwritten with blanks rather than erased by an escape sequence: a notebook shows this too.
        rest = " " * (len(self._status) - len(status))
        end = "" if status else "\r"
        sys.stdout.write(f"\r{status}{rest}{end}")
        sys.stdout.flush()
        self._status = status
