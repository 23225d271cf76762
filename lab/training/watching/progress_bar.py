"""What is said about the epoch going on: a bar on a terminal, lines in the log."""

import argparse
import time
from collections.abc import Callable

import torch.distributed as dist

from lab.base.terminal import Terminal
from lab.runs.records.epoch_record import EpochRecord
from lab.training.stepping.together import sum_over_ranks
from lab.training.watching.watcher import StepReport, Watcher

REDRAWN_EVERY = 0.1  # seconds
BAR = (5, 30)  # columns: fewest, most


class ProgressBar(Watcher):
    """Every `every` steps a line with the mean loss over all ranks; on a terminal a bar in its place.

    Only then is the loss read, which waits for the device and for the other ranks.

    Args:
        args: resolved.
        terminal: where the bar is drawn, if it is one.
        log: takes a line for the log.
        say: takes a line for the log and for people.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        terminal: Terminal,
        log: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        self._every = args.print_every
        self._epochs = args.epochs
        self._global_batch = args.global_batch_size
        self._terminal = terminal
        self._is_main = dist.get_rank() == 0
        self._draws = self._is_main and terminal.is_one
        self._line = log if self._draws else say
        self._loss: float | None = None  # as it was last read
        self._drawn = 0.0  # when

    def step(self, report: StepReport) -> None:
        """Say the line, draw the bar, when it is time for them. Collective."""
        if report.loss is not None and (report.step % self._every == 0 or report.step == 1):
            total = sum_over_ranks(report.loss)
            self._loss = total.item() / dist.get_world_size() if self._is_main else None
        if report.step % self._every == 0 and report.step < report.steps_per_epoch:
            self._line(step_line(report, self._loss, self._epochs))
        if self._draws and (self._is_time() or report.step == report.steps_per_epoch):
            width = self._terminal.width
            self._terminal.show(bar(report, self._loss, self._epochs, self._global_batch, width))

    def epoch(self, record: EpochRecord) -> None:
        self._terminal.show("")

    def close(self) -> None:
        self._terminal.show("")

    def _is_time(self) -> bool:
        now = time.monotonic()
        if now - self._drawn < REDRAWN_EVERY:
            return False
        self._drawn = now
        return True


def step_line(report: StepReport, loss: float | None, epochs: int) -> str:
    """A line of the log: epoch 1/5, step 20/80, loss 1.2345, 1560 images/s."""
    said = "" if loss is None else f", loss {loss:.4f}"
    where = f"epoch {report.epoch}/{epochs}, step {report.step}/{report.steps_per_epoch}"
    return f"{where}{said}, {report.images_per_second:.0f} images/s"


def bar(report: StepReport, loss: float | None, epochs: int, global_batch: int, width: int) -> str:
    """A line of at most `width` columns: epoch 1/5 [#####.....]  50%  loss 1.2345  1560 images/s  0:12 left.

    Where that is too long, the images/s are left out first, then the loss, then the time.
    """
    done = report.step / report.steps_per_epoch
    head = f"epoch {report.epoch}/{epochs} "
    left = (report.steps_per_epoch - report.step) * global_batch / report.images_per_second
    parts = {
        "done": f" {done:4.0%}",
        "loss": "" if loss is None else f"  loss {loss:.4f}",
        "speed": f"  {report.images_per_second:.0f} images/s",
        "left": f"  {_clock(left)} left" if left else "  evaluating",
    }
    fewest, most = BAR
    for name in ("speed", "loss", "left"):
        if len(head) + len("[]") + fewest + sum(map(len, parts.values())) > width:
            del parts[name]
    text = "".join(parts.values())
    columns = max(fewest, min(most, width - len(head) - len("[]") - len(text)))
    filled = int(done * columns)
    return f"{head}[{'#' * filled}{'.' * (columns - filled)}]{text}"[:width]


def _clock(seconds: float) -> str:
    """3:05, or 1:03:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
