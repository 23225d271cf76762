"""--profile: traces a few steps after the warm-up, and says where their time went."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer
from torch.profiler import ProfilerActivity, profile, schedule

from lab.base.files import write_whole
from lab.base.words import digits
from lab.runs.records.progress import Progress
from lab.training.profiling import summary
from lab.training.profiling.phases import Phases
from lab.training.profiling.trace import Trace, read_trace
from lab.training.stepping.meter import EpochMeter
from lab.training.watching.reporter import Reporter
from lab.training.watching.watcher import StepReport, Watcher

FOLDER = "profile"
WARM_UP, TIMED, TRACED = 15, 10, 5  # steps; --capture begins to replay within the warm-up

# Without a GPU driver the profiler's own library would report errors of no consequence.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


@dataclass(frozen=True)
class Window:
    """The steps of an epoch to look at: after `skipped` ones come `timed` ones without the profiler, `settling`
    ones in which it starts, and `traced` ones.
    """

    skipped: int
    timed: int
    settling: int
    traced: int


def choose_window(steps: int) -> Window:
    """The window in an epoch that has this many steps left: smaller in a short epoch, and in its last part."""
    traced = min(TRACED, max(1, steps // 4))
    settling = min(1, steps - traced)
    timed = min(TIMED, (steps - traced - settling) // 2)
    return Window(min(WARM_UP, steps - traced - settling - timed), timed, settling, traced)


class Profiler(Watcher):
    """One rank's.

    Args:
        folder: of the run. The traces of all ranks and the summary go into profile/, which is made.
        phases: tell the trace which part of a step is going on.
        meter: its clock stands still while the trace is written and read.
        reporter: prints the summary, and has columns for it.
        epochs: of the whole run.
    """

    def __init__(
        self,
        folder: Path,
        device: torch.device,
        phases: Phases,
        meter: EpochMeter,
        reporter: Reporter,
        epochs: int,
    ) -> None:
        self._folder = folder / FOLDER
        self._device = device
        self._on_gpu = device.type == "cuda"
        self._phases = phases
        self._meter = meter
        self._reporter = reporter
        self._epochs = epochs
        self._profile: profile | None = None  # while it is at work
        self._marks: list[Any] = []  # the moments at which the timed steps begin and end
        self._count = 0  # steps of the epoch that the window is in
        self._done = False

    def begin(self, progress: Progress, model: nn.Module, optimizer: Optimizer) -> None:
        """Choose the window: in the epoch that comes next, or in the one after that if little is left of it."""
        left = progress.steps_per_epoch - progress.step
        epochs_left = self._epochs - progress.epochs_done
        later = left < WARM_UP + TIMED + 1 + TRACED and epochs_left > 1
        self._epoch = progress.epochs_done + 1 + later
        self._window = choose_window(progress.steps_per_epoch if later else left)
        self._done = epochs_left <= 0
        if not self._done and not later:
            self._advance()

    def step(self, report: StepReport) -> None:
        if self._done or report.epoch != self._epoch:
            return
        self._count += 1
        if self._profile is not None:
            self._profile.step()
        self._advance()
        if self._count == self._last:
            with self._meter.paused():
                self._finish(report)

    def epoch(self, record: object) -> None:
        if getattr(record, "epoch", 0) == self._epoch - 1:
            self._advance()  # a window may begin with the first step of its epoch

    def close(self) -> None:
        if self._profile is not None:
            self._phases.record(False)
            self._profile.stop()
            self._profile = None
        if not self._done:
            self._reporter.print("warning: no profile: the run ended before the steps that --profile looks at")

    @property
    def _last(self) -> int:
        window = self._window
        return window.skipped + window.timed + window.settling + window.traced

    def _advance(self) -> None:
        """Between two steps: begin what begins here."""
        window, count = self._window, self._count
        if window.timed and count == window.skipped:
            self._phases.time_data(True)
            self._mark()
        if count == window.skipped + window.timed:
            if window.timed:
                self._mark()
                self._phases.time_data(False)
            activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * self._on_gpu
            steps = schedule(wait=0, warmup=window.settling, active=window.traced, repeat=1)
            self._profile = profile(activities=activities, schedule=steps, acc_events=True)
            self._profile.start()
        if count == window.skipped + window.timed + window.settling:
            if self._on_gpu:
                torch.cuda.synchronize()  # once, so that all that the trace shows was asked for in it
            self._phases.record(True)

    def _mark(self) -> None:
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def _timed(self) -> tuple[float, float] | tuple[None, None]:
        """Milliseconds of a step without the profiler, and of these the ones for data."""
        if not self._window.timed:
            return None, None
        begin, end = self._marks
        whole = begin.elapsed_time(end) if self._on_gpu else (end - begin) * 1000
        return whole / self._window.timed, self._phases.data_seconds * 1000 / self._window.timed

    def _finish(self, report: StepReport) -> None:
        """Write the trace, read it, bring the ranks' figures together."""
        assert self._profile is not None
        self._phases.record(False)
        self._profile.stop()
        found: Any
        try:
            trace = self._look(self._profile)
            found = trace.durations, *self._timed()
        except (OSError, ValueError) as error:
            found = f"rank {dist.get_rank()}: {error}"
        self._profile, self._done = None, True
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, found)
        problems = [one for one in everyone if isinstance(one, str)]
        if problems:
            self._reporter.print(f"warning: no profile: {problems[0]}")
            return
        times = summary.communicating([durations for durations, _, _ in everyone])
        data = None if everyone[0][2] is None else max(data for _, _, data in everyone)
        ranks: list[Any] = [None] * len(everyone)
        dist.all_gather_object(ranks, summary.account(trace, found[1], data, times))
        whole = summary.mean(ranks)
        self._reporter.note_profile(
            report.epoch, summary.columns(whole, report.steps_per_epoch, on_gpu=self._on_gpu)
        )
        if dist.get_rank() == 0:
            self._write(ranks, report, trace.has_backward)

    def _look(self, traced: profile) -> Trace:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"rank{dist.get_rank()}.pt.trace.json.gz"
        traced.export_chrome_trace(str(path))
        return read_trace(path)

    def _write(self, ranks: list[summary.Figures], report: StepReport, separate: bool) -> None:
        window, whole = self._window, summary.mean(ranks)
        first = report.step - window.traced + 1
        how = f"traced steps {first} to {report.step}: {digits(whole.traced_step, 3)} ms each"
        timed = None
        if window.timed:
            timed = [first - window.settling - window.timed, first - window.settling - 1]
            how += f"; steps {timed[0]} to {timed[1]} without the profiler: {digits(whole.step, 3)} ms"
        lines = [
            f"profile of epoch {report.epoch}, mean of {len(ranks)} rank{'s' * (len(ranks) > 1)}",
            f"  {how}",
            *summary.describe(whole, on_gpu=self._on_gpu, separate_backward=separate),
            f"  verdict  {summary.verdict(whole, on_gpu=self._on_gpu)[1]}",
            f"  traces   {self._folder}",
        ]
        for line in lines:
            self._reporter.print(line)
        record = {
            "epoch": report.epoch,
            "timed_steps": timed,
            "traced_steps": [first, report.step],
            **summary.as_record(ranks, on_gpu=self._on_gpu),
        }
        try:
            write_whole(self._folder / "summary.json", json.dumps(record, indent=2) + "\n")
            write_whole(self._folder / "summary.txt", "\n".join(lines) + "\n")
        except OSError as error:
            self._reporter.print(f"warning: the profile's summary could not be written: {error}")
