"""The hook for everything that follows a run without changing it: TensorBoard, a progress bar, a profiler."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer

from lab.base.errors import NotFinite
from lab.runs.records.epoch_record import EpochRecord
from lab.runs.records.progress import Progress
from lab.training.metrics.step_figures import StepMeasures
from lab.training.stepping.signals import Preempted


@dataclass(frozen=True)
class StepReport:
    """One optimizer step that has just ended, on this rank."""

    epoch: int  # counted from 1
    step: int  # counted from 1 in the epoch
    steps_per_epoch: int
    total_step: int  # counted from 1 in the whole run
    loss: Tensor | None  # the mean over this rank's images, on the device: .item() waits for it
    learning_rate: float  # of the first group of parameters
    images_per_second: float  # over all ranks, as this rank sees it
    mfu: float = math.nan  # at that speed; nan where it is not known
    measures: StepMeasures | None = None  # on the device, too


class Watcher:
    """Add one with `run.watchers.append(...)` before `run.begin`. Every rank calls all of these methods."""

    def begin(self, progress: Progress, model: nn.Module, optimizer: Optimizer) -> None:
        """Everything is set up; a checkpoint, if there is one, is loaded. `progress` goes on with the run."""

    def step(self, report: StepReport) -> None:
        """An optimizer step has ended."""

    def epoch(self, record: EpochRecord) -> None:
        """An epoch has been trained, evaluated and recorded."""

    def evaluated(self, phase: str, images_per_second: float) -> None:
        """An evaluation is over: how fast it was, over all ranks. Before `epoch` and `test`.

        Args:
            phase: validation or test.
        """

    def test(self, loss: float, accuracy: float) -> None:
        """The trained model was evaluated on the test images; means over all ranks."""

    def stop(self) -> None:
        """The run is about to end before it is done, on all ranks alike: told to stop, or gone astray."""

    def close(self) -> None:
        """The run ends, for whatever reason; the other ranks may be gone."""


@contextlib.contextmanager
def telling_of_the_end(watchers: Sequence[Watcher], report: Callable[[], None] | None = None) -> Iterator[None]:
    """Around what can end a run early, on all ranks alike: a signal, or a loss that is no number.

    After an error of one rank alone, such as a full disk's on rank 0, what the watchers do together would hang.

    Args:
        report: tells the watchers of the step that is going on first.
    """
    try:
        yield
    except (NotFinite, Preempted):
        if report is not None:
            report()
        for watcher in watchers:
            watcher.stop()
        raise
