"""What a person in front of the terminal sees: lines that stay, and below them one that is drawn anew."""

import os
import shutil
import sys


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
