"""What a run has from its start on, and what stands in its loop until it begins."""

import argparse
import contextlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from lab.runs.records.progress import Progress
from lab.training.checkpoints import resume
from lab.training.metrics.work import WorkCounter
from lab.training.stepping.capture import Capture
from lab.training.stepping.compiling import Compiler
from lab.training.stepping.signals import SignalWatch
from lab.training.watching.reporter import Reporter
from lab.training.watching.watcher import Watcher


class NoStepper:
    """In the place of a Stepper before a run begins: the optimizer steps by itself."""

    def __init__(self) -> None:
        self.model = nn.Module()
        self.rates: list[float] = []

    def micro_batch(self, index: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def release(self) -> None:
        pass


@dataclass(frozen=True)
class RunContext:
    """What a run has from its start on, before model and data are there."""

    args: argparse.Namespace  # resolved
    device: torch.device  # this rank's
    progress: Progress  # how far the run is: the loop counts on
    reporter: Reporter
    watchers: list[Watcher]
    capture: Capture | None  # with --capture
    compiler: Compiler | None  # with --compile
    signals: SignalWatch  # whether the run was told to stop
    resumed: resume.Resumed | None  # the checkpoint to go on from
    work: WorkCounter  # what an image costs in training
    path: Path | None  # of the run's folder; None where it keeps no records, and so no checkpoints
