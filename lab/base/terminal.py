"""Writes to a terminal, file or pipe: a line drawn anew; text wrapped to the width, in colours, in ASCII."""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from lab.base.errors import lacking
from lab.base.words import printable

MIN_WIDTH, MAX_WIDTH = 40, 100


class Terminal:
    """A stream that takes whole lines. The line that is drawn anew, the status, is there on a real terminal only.

    Args:
        stream: None for what is standard output when something is written.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._status = ""  # what stands in the last line now

    @property
    def stream(self) -> TextIO:
        return self._stream or sys.stdout

    @property
    def is_one(self) -> bool:
        """Whether lines can be drawn anew: not in a file, a pipe or a terminal that cannot move its cursor."""
        return self.stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    @property
    def width(self) -> int:
        """Columns for the status. The last one stays free: some terminals go to the next line behind it."""
        return max(shutil.get_terminal_size().columns - 1, 1)

    def say(self, line: str) -> None:
        """Print a line, or several, at once; the status moves below it."""
        status = self._status
        self._draw("")
        self.stream.write(line + "\n")
        self.stream.flush()
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
        self.stream.write(f"\r{status}{rest}{end}")
        self.stream.flush()
        self._status = status


class Page:
    """Text for people on one stream, wrapped to its width, each line written at once.

    Args:
        stream: where to.
        width: columns; None for the terminal's own.
        colour: None for colour on a terminal, unless NO_COLOR is set.
    """

    def __init__(self, stream: TextIO, *, width: int | None = None, colour: bool | None = None) -> None:
        self.terminal = Terminal(stream)
        self.colour = self.terminal.is_one and not os.environ.get("NO_COLOR") if colour is None else colour
        self.width = max(MIN_WIDTH, min(MAX_WIDTH, width or shutil.get_terminal_size().columns))
        self.unicode = can_write(stream, "✓✗·○…")

    def clear(self) -> None:
        """An empty screen, on a terminal; elsewhere an empty line."""
        print(end="\x1b[2J\x1b[H" if self.terminal.is_one else "\n", file=self.terminal.stream, flush=True)

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
        self.terminal.say(text)

    def blank(self) -> None:
        self.line()

    def paint(self, text: str, code: str) -> str:
        return paint(text, code) if self.colour else text

    def bold(self, text: str) -> str:
        return self.paint(text, "1")


def paint(text: str, code: str) -> str:
    """The text in an ANSI colour ("31" is red); as it is for ""."""
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def can_write(stream: TextIO, text: str) -> bool:
    """Whether the stream's encoding has these characters."""
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def exit_code(program: Callable[[list[str]], int], argv: list[str]) -> int:
    """What a program ends with; 1 where the reader of its output (head, less) has gone before its end.

    1 and a sentence where this Python lacks a library that the program imports.
    """
    try:
        code = program(argv)
        sys.stdout.flush()  # here, where it can still be answered, and not at exit
    except ModuleNotFoundError as error:
        print(f"{Path(sys.argv[0]).name}: {lacking(error)}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        mute()
        return 1
    return code


def mute() -> None:
    """Nothing more is written, not even when Python flushes at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nothing, stream.fileno())
    os.close(nothing)
