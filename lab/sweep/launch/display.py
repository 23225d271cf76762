"""What a sweep shows while its jobs run: one line a job, alive, with the latest [METRIC] line in it."""

import re
import time
from pathlib import Path
from typing import TextIO

from lab.base.terminal import Terminal
from lab.sweep.plan.sweep import Job

HEARTBEAT = 8.0  # seconds without a line after which the elapsed time is printed
_PAIR = re.compile(r"(\w+)=(\S+)")


def parse_metric(line: str) -> dict[str, str]:
    """The fields of a `[METRIC] epoch=1 time=3.214 ...` line; {} for any other line."""
    return dict(_PAIR.findall(line)) if line.startswith("[METRIC]") else {}


def describe_metric(fields: dict[str, str], epochs: int) -> str:
    """A [METRIC] line for people. Fields that are missing or no numbers are left out."""
    parts = [f"epoch {fields.get('epoch', '?')}/{epochs}"]
    for name, label, scale, form in (
        ("time", "", 1, "{:.2f} s"),
        ("val_loss", "validation loss ", 1, "{:.3f}"),
        ("acc", "accuracy ", 100, "{:.1f}%"),
        ("images_per_sec", "", 1, "{:,.0f} images/s"),
    ):
        try:
            parts.append(label + form.format(float(fields[name]) * scale))
        except (KeyError, ValueError):
            continue
    return "  ".join(parts)


class LogFollower:
    """The complete new lines of a growing text file, as `tail -f` gives them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def new_lines(self) -> list[str]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except OSError:
            return []  # not there yet
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        return [line.decode("utf-8", errors="replace") for line in lines]


class Display:
    """Prints how the jobs get on: a line that is rewritten on a terminal, a line for each event elsewhere."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._terminal = Terminal(stream)
        self._total = total
        self._number = 0
        self._job: Job | None = None
        self._epochs = 0  # of it
        self._state = self._metric = ""
        self._started = self._last_line = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the job going on was started."""
        return time.monotonic() - self._started

    def start(self, job: Job, *, replaced: bool = False) -> None:
        self._number += 1
        self._job = job
        self._epochs = 1 if job.sweep.measure_steps else job.sweep.epochs  # a measurement is one long epoch
        self._state = "starting" + (" (replaces an earlier try)" if replaced else "")
        self._metric = ""
        self._started = time.monotonic()
        self._show()

    def update(self, line: str | None) -> None:
        """A new line of the job's log, or None when there is none and only time has passed."""
        fields = parse_metric(line) if line is not None else {}
        if fields and self._job is not None:
            self._state = self._metric = describe_metric(fields, self._epochs)
            self._show()
        elif line is not None and line.startswith("epoch "):  # main.py's own line between two epochs
            self._state = line
        elif line is not None and self._state.startswith("starting"):
            self._state = "running"
        if self._terminal.is_one or time.monotonic() - self._last_line >= HEARTBEAT:
            self._show()

    def finish(self, state: str, detail: str = "") -> None:
        """The job's last line: failed with the reason, or done with its last figures."""
        self._state = f"{state}  {detail or self._metric}".rstrip()
        self._show(last=True)

    def say(self, line: str) -> None:
        """A line of its own between those of the jobs."""
        self._terminal.say(line)

    def _show(self, *, last: bool = False) -> None:
        assert self._job is not None
        minutes, seconds = divmod(int(self.elapsed), 60)
        line = f"[{self._number}/{self._total}] {self._job.title}  {minutes}:{seconds:02d}  {self._state}"
        going_on = self._terminal.is_one and not last
        self._terminal.show(line if going_on else "")
        if not going_on:
            self._terminal.say(line)
        self._last_line = time.monotonic()
