"""Curves for TensorBoard in the run's folder: `tensorboard --logdir results` shows all runs beside each other."""

import argparse
import contextlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from lab.base.errors import UsageError
from lab.runs.records.epoch_record import GIB, EpochRecord
from lab.runs.records.progress import Progress
from lab.training.stepping.together import from_rank_0, sum_over_ranks
from lab.training.watching.tabs import texts
from lab.training.watching.watcher import StepReport, Watcher

if TYPE_CHECKING:
    from lab.training.watching.event_file import EventFile

FOLDER = "tensorboard"  # in the run's folder
GATHER_EVERY = 5.0  # seconds, about: then the losses of the steps since then are read and written
MOST_STEPS = 2000  # between two gatherings, however fast they are
MOST_POINTS = 100  # of one gathering; where steps are faster, neighbours share a point: their mean
_MAYBE = ("epoch/gradient norm", "epoch/loss scale", "epoch/TFLOPs per second and device", "epoch/MFU")


def resolve(args: argparse.Namespace) -> list[str]:
    """Decide for all ranks whether there will be curves: args.tensorboard is True or False from here on.

    Returns:
        A warning, where TensorBoard is not installed.

    Raises:
        UsageError: it is not, but --tensorboard asks for it.
    """

    def is_installed() -> bool:
        try:
            import lab.training.watching.event_file  # noqa: F401
        except ImportError as error:
            if args.tensorboard:
                raise UsageError(f"--tensorboard needs TensorBoard ({error}): pip install tensorboard") from error
            return False
        return True

    if args.tensorboard is False:
        return []
    args.tensorboard = from_rank_0(is_installed)
    return [] if args.tensorboard else ["no curves for TensorBoard, which is not here: pip install tensorboard"]


class TensorBoard(Watcher):
    """Writes, on rank 0, figures over all ranks; the x axis counts the optimizer steps of the whole run.

    A step's loss stays on the device. Every few seconds the ranks add up those of the steps since the last time:
    nothing waits for a GPU in every step. After how many steps that is follows from the mean of their times, which
    is the same number on all of them.

    Args:
        run_folder: holds config.json.
        progress: the run's.
        say: prints a line on rank 0.
    """

    def __init__(
        self, run_folder: Path, device: torch.device, progress: Progress, say: Callable[[str], None]
    ) -> None:
        self._run_folder = run_folder
        self._device = device
        self._progress = progress
        self._say = say
        self._is_writing = dist.get_rank() == 0
        self._file: EventFile | None = None  # on rank 0, from the first step on
        self._reports: list[tuple[float, StepReport]] = []  # with the time, of the steps not yet written
        self._nan = torch.full((), math.nan, dtype=torch.float64, device=device)
        self._enough = 1  # of them to gather their losses
        self._gathered: float | None = None  # the time of the last step so far, in this epoch
        self._first_step: int | None = None  # that this process has done

    def step(self, report: StepReport) -> None:
        """Collective, now and then."""
        if self._first_step is None:
            self._first_step = report.total_step
        self._reports.append((time.time(), report))
        if len(self._reports) >= self._enough:
            self._gather()

    def epoch(self, record: EpochRecord) -> None:
        """Collective."""
        self._gather()
        self._gathered = None
        figures = {
            "loss/train": record.train_loss,
            "loss/validation": record.valid_loss,
            "accuracy/train": record.train_accuracy,
            "accuracy/validation": record.valid_accuracy,
            "epoch/training seconds": record.seconds,
            "images per second/train": record.images_per_second,
            "epoch/peak memory in GiB": record.peak_memory / GIB,
            "epoch/step seconds": record.step_seconds,
            "epoch/gradient norm": record.gradient_norm,
            "epoch/loss scale": record.loss_scale,
            "epoch/TFLOPs per second and device": record.flops_per_second / 1e12,
            "epoch/MFU": record.mfu,
        }
        known = {name: value for name, value in figures.items() if name not in _MAYBE or not math.isnan(value)}
        self._write([(time.time(), self._progress.total_steps, known)])

    def evaluated(self, phase: str, images_per_second: float) -> None:
        figures = {f"images per second/{phase}": images_per_second}
        self._write([(time.time(), self._progress.total_steps, figures)])

    def test(self, loss: float, accuracy: float) -> None:
        figures = {"loss/test": loss, "accuracy/test": accuracy}
        self._write([(time.time(), self._progress.total_steps, figures)])

    def stop(self) -> None:
        """Collective."""
        self._gather()

    def close(self) -> None:
        """What was not gathered when a run fails is written with rank 0's own losses: the others may be gone."""
        if self._is_writing:
            with contextlib.suppress(RuntimeError):  # a device that has failed tells no losses any more
                self._write_steps([math.nan if r.loss is None else r.loss.item() for _, r in self._reports], {})
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def _gather(self) -> None:
        """Write the steps since the last time, with their mean losses over all ranks. Collective."""
        count = len(self._reports)
        if count == 0:
            return
        times = [when for when, _ in self._reports]
        if self._gathered is not None:
            times.insert(0, self._gathered)
        self._gathered = times[-1]
        measures = [report.measures for _, report in self._reports]
        kept = [
            [report.loss for _, report in self._reports],
            [None if one is None else one.gradient_square for one in measures],
            [None if one is None else one.loss_scale for one in measures],
        ]
        mine = torch.stack([torch.stack([self._nan if x is None else x.double() for x in one]) for one in kept])
        seconds = torch.full((1,), times[-1] - times[0], dtype=torch.float64, device=self._device)
        total = sum_over_ranks(torch.cat([mine.flatten(), seconds]))
        *sums, all_seconds = total.tolist()
        losses, squares, scales = (sums[i * count : (i + 1) * count] for i in range(3))
        ranks = dist.get_world_size()
        mean_seconds = all_seconds / ranks
        if len(times) > 1:
            wanted = GATHER_EVERY * (len(times) - 1) / max(mean_seconds, 1e-6)
            self._enough = min(max(round(wanted), 1), MOST_STEPS)
        if self._is_writing:
            others = {
                "gradient norm": [math.sqrt(square) for square in squares],
                "loss scale": [scale / ranks for scale in scales],
                "seconds": [math.nan if one is None else one.seconds() for one in measures],
            }
            self._write_steps([loss / ranks for loss in losses], others)
        self._reports.clear()

    def _write_steps(self, losses: Sequence[float], others: Mapping[str, Sequence[float]]) -> None:
        """One point a step, or for neighbours their mean.

        Args:
            losses: of each report.
            others: name -> value of each report; nan where it is not known, and then it is not drawn.
        """
        size = max(math.ceil(len(losses) / MOST_POINTS), 1)
        points = []
        for end in range(len(losses), 0, -size):
            when, report = self._reports[end - 1]
            part = slice(max(end - size, 0), end)
            figures = {"learning rate": report.learning_rate, "images per second": report.images_per_second}
            if report.loss is not None:
                figures["loss"] = _mean(losses[part])
            means = {name: _mean(values[part]) for name, values in others.items()} | {"MFU": report.mfu}
            figures |= {name: value for name, value in means.items() if not math.isnan(value)}
            points.append((when, report.total_step, {f"step/{name}": value for name, value in figures.items()}))
        self._write(points[::-1])

    def _write(self, points: Sequence[tuple[float, int, Mapping[str, float]]]) -> None:
        """A disk that does not take it is a warning: the run goes on without curves."""
        if not self._is_writing or not points:
            return
        try:
            if self._file is None:
                self._file = self._open()
            for when, step, figures in points:
                self._file.add_scalars(step, figures, when)
            self._file.flush()
        except OSError as error:
            self._is_writing = False
            reason = error.strerror or error
            self._say(
                f"warning: no more curves for TensorBoard: {self._run_folder / FOLDER} takes none ({reason})"
            )

    def _open(self) -> "EventFile":
        from lab.training.watching.event_file import EventFile

        file = EventFile(self._run_folder / FOLDER, self._first_step)
        config = json.loads((self._run_folder / "config.json").read_text(encoding="utf-8"))
        for tag, markdown in texts(config, self._device).items():
            file.add_text(self._progress.total_steps, tag, markdown)
        return file


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
