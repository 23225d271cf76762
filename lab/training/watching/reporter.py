"""What a run says of itself, on rank 0: its lines for people, its folder for programs."""

import argparse
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from lab.base.terminal import Terminal
from lab.runs.records.epoch_record import EpochRecord, Totals, run_row
from lab.runs.records.folder import RunFolder
from lab.runs.records.reasons import reason_of
from lab.training.metrics.classes import ClassCounts, describe, write_tables
from lab.training.stepping.signals import Preempted
from lab.training.watching import announce

EVALUATION = "evaluation"  # in the run's folder


class Reporter:
    """Every rank has one; only that of rank 0 prints and writes.

    Args:
        args: resolved.
        hosts: of every rank.
        origin: the columns that say on what it runs; needed where it talks.
        talks: False keeps it silent.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        hosts: list[str],
        device: torch.device,
        origin: Mapping[str, str],
        *,
        talks: bool,
    ) -> None:
        self.folder: RunFolder | None = None  # once it is opened
        self.terminal = Terminal()
        self._args = args
        self._hosts = hosts
        self._on_gpus = device.type == "cuda"
        self._talks = talks
        self._origin = origin
        self._last: EpochRecord | None = None
        self._evaluated: dict[str, float] = {}  # columns of the summary, with --evaluate-only
        self._profile: tuple[int, dict[str, float]] | None = None  # the epoch, and columns of its row

    def open_folder(self, resumed: bool) -> Path:
        """Make the run's folder, or take up the one of an earlier part of the run. Raises as RunFolder.

        Args:
            resumed: there is a checkpoint to go on from; --resume auto may have found none.
        """
        args, ranks = self._args, len(self._hosts)
        model = args.model.replace(":", ".")
        what = f"evaluate-{args.strategy}" if args.evaluate_only else args.strategy
        default = f"{time.strftime('%Y%m%d-%H%M%S')}-{what}-{model}-w{ranks}"
        run_id, go_on = args.run_id or default, args.resume is not None and not args.evaluate_only
        resumed = resumed and go_on
        self.folder = RunFolder(args.output_dir, run_id, go_on=go_on, resumed=resumed, say=self.print)
        return self.folder.path

    def print(self, line: str) -> None:
        """Print, and into train.log."""
        if self._talks:
            self.terminal.say(line)
        self.log(line)

    def log(self, line: str) -> None:
        """Into train.log only."""
        if self.folder is not None:
            self.folder.log(line)

    def begin(self, setup: announce.Setup, warnings: Sequence[str], epochs_done: int) -> None:
        """The start report, and config.json."""
        self._origin = {**self._origin, **announce.how(setup)}
        if self.folder is not None:
            self.folder.begin(epochs_done, {**announce.config(setup), **self._origin})
        for line in [*(f"warning: {warning}" for warning in warnings), *announce.describe(setup)]:
            self.print(line)

    def end_step(self) -> None:
        """An optimizer step is done."""
        if self.folder is not None:
            self.folder.take_over()

    def note_profile(self, epoch: int, columns: dict[str, float]) -> None:
        """Columns of run.csv that were measured in this epoch: for its row, and for the summary."""
        self._profile = epoch, columns

    def add_epoch(self, record: EpochRecord, totals: Totals) -> None:
        """An epoch's line and rows."""
        self._last = record
        self.print(record.metric_line)
        if self.folder is None:
            return
        epoch, speed = record.epoch, totals.evaluated / totals.evaluation_seconds
        self.folder.add_epoch(self._row() | self._profiled(epoch))
        self.folder.add_metrics(epoch, "train", record.train_loss, record.train_accuracy, record.images_per_second)
        self.folder.add_metrics(epoch, "val", record.valid_loss, record.valid_accuracy, speed)

    def add_test(self, epoch: int, loss: float, accuracy: float, totals: Totals, phase: str = "test") -> None:
        """The line and the row of the test images; or of others, when a checkpoint is only evaluated."""
        self.print(f"[METRIC] {phase}_loss={loss:.4f} {phase}_acc={accuracy:.4f}")
        if self.folder is not None:
            speed = totals.evaluated / totals.evaluation_seconds
            self.folder.add_metrics(epoch, phase, loss, accuracy, speed)

    def add_classes(
        self, phase: str, epoch: int, counts: ClassCounts, names: Sequence[str], totals: Totals
    ) -> None:
        """The same, with the accuracy of each class and the confusion matrix, as tables and as a figure.

        Raises:
            UserError: the disk does not take them.
        """
        self.add_test(epoch, counts.loss, counts.accuracy, totals, phase)
        for line in describe(counts, names):
            self.print(line)
        if self.folder is None:
            return
        if phase == "val":
            self._evaluated = {"val_top1": counts.accuracy}
        folder = self.folder.path / EVALUATION
        title = f"{phase}: {counts.accuracy:.1%} of {sum(counts.images):,} images"
        with self.folder.writing():
            write_tables(counts, names, folder, phase)
            from lab.training.metrics.confusion import draw  # here: matplotlib takes a second to import

            draw(counts, names, title, folder / f"{phase}_confusion.png")
        self.print(f"  {folder / f'{phase}_classes.csv'}, {phase}_confusion.csv and {phase}_confusion.png")

    def close(self, error: BaseException | None) -> None:
        """Close the records as done, as interrupted, or as failed with the reason."""
        if isinstance(error, Preempted):
            self.print(error.reason)
        if self.folder is None:
            return
        row = self._row() | self._profiled() | self._evaluated
        if error is None:
            self.folder.close("done", "", row)
        elif isinstance(error, Preempted):
            self.folder.close("interrupted", error.reason, row)
        elif isinstance(error, KeyboardInterrupt):
            self.folder.close("interrupted", reason_of(error), row)
        else:
            self.folder.close("failed", reason_of(error), row, "".join(traceback.format_exception(error)))

    def _profiled(self, epoch: int | None = None) -> dict[str, float]:
        if self._profile is None or epoch not in (None, self._profile[0]):
            return {}
        return self._profile[1]

    def _row(self) -> dict[str, object]:
        return run_row(self._args, self._hosts, self._on_gpus, self._origin, self._last)
