"""--startup-times: what a run does before its first step, and how long each part takes."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from lab.base import startup
from lab.runs.options.precision import CAPTURE_WARM_UP
from lab.runs.records.progress import Progress
from lab.training.watching.watcher import StepReport, Watcher

STAGES = ("imports", "process group", "run folder", "data", "model", "checkpoint and input", "first step")
GRAPH = "warm-up and graph"  # with --capture, the steps after the first one until the graph has replayed once


class StartupTimes(Watcher):
    """One rank's.

    Args:
        say: prints a line on rank 0.
        captured: a graph replays the steps after the first CAPTURE_WARM_UP ones.
    """

    def __init__(self, device: torch.device, say: Callable[[str], None], *, captured: bool) -> None:
        self._device = device
        self._graph_at = CAPTURE_WARM_UP + 1 if captured else None
        self._say = say
        self._steps = 0

    def begin(self, progress: Progress, model: nn.Module, optimizer: Optimizer) -> None:
        self._wait()
        startup.reach("checkpoint and input")

    def step(self, report: StepReport) -> None:
        self._steps += 1
        if self._steps == 1:
            self._wait()
            startup.reach("first step")
            self._show(STAGES, "start-up, seconds on rank 0 (on the slowest rank)")
        elif self._steps == self._graph_at:
            self._wait()
            startup.reach(GRAPH)
            self._show((GRAPH,))

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _show(self, stages: tuple[str, ...], title: str | None = None) -> None:
        """Collective."""
        mine = startup.seconds()
        everyone: list[dict[str, float]] = [mine] * dist.get_world_size()
        dist.all_gather_object(everyone, mine)
        known = [stage for stage in stages if all(stage in one for one in everyone)]
        lines = {stage: [one[stage] for one in everyone] for stage in known}
        if title is not None:
            lines["in all"] = [sum(one[stage] for stage in known) for one in everyone]
            self._say(title)
        for name, seconds in lines.items():
            self._say(f"  {name:<20} {seconds[0]:6.2f}  ({max(seconds):.2f})")
