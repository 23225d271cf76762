"""Which part of a training step is going on: ranges in torch.profiler's traces, and in Nsight's as NVTX."""

import time
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import nn
from torch.profiler import record_function

DATA, FORWARD, BACKWARD, OPTIMIZER = "data", "forward", "backward", "optimizer"
GRAPH = "graph"  # a replay of the captured step, whose parts cannot be told apart on the CPU
PARTS = (DATA, FORWARD, BACKWARD, OPTIMIZER, GRAPH)
PREFIX = "step/"  # of the ranges' names in a trace

Batch = TypeVar("Batch")


class Phases:
    """One rank's. A part lasts until the next begins; time that belongs to none has no range.

    Its callers are the run and its optimizer's methods, never the training loop. While nobody looks, that costs
    them one comparison.
    """

    def __init__(self, *, nvtx: bool = False) -> None:
        self._part = ""
        self._nvtx = nvtx
        self._recording = False
        self._range: Any = None  # of torch.profiler, going on
        self._since: float | None = None  # when the data part going on began, while it is timed
        self._timing = False
        self.data_seconds = 0.0  # spent in data while it was timed
        self._watched = nvtx

    def enter(self, part: str) -> None:
        """One of PARTS begins; an empty string only ends the one before."""
        if self._watched and part != self._part:
            self._switch(part)

    def fetching(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches; each begins the part DATA before it is there."""
        while True:
            self.enter(DATA)
            try:
                batch = next(batches)
            except StopIteration:
                self.enter("")
                return
            yield batch

    def follow(self, model: nn.Module) -> None:
        """Let the forward pass of this wrapped model begin its part by itself. It lasts until backward()."""

        def begin(model: nn.Module, inputs: object) -> None:
            if model.training:
                self.enter(FORWARD)

        model.register_forward_pre_hook(begin, prepend=True)  # before FSDP's own, which gathers

    def time_data(self, on: bool) -> None:
        """Begin or end to add up `data_seconds`. To be called between two steps."""
        self._timing = on
        self._watch()

    def record(self, on: bool) -> None:
        """Begin or end to leave ranges for torch.profiler. To be called between two steps."""
        self.enter("")
        self._recording = on
        self._watch()

    def _watch(self) -> None:
        self._watched = self._recording or self._timing or self._nvtx

    def _switch(self, part: str) -> None:
        if self._since is not None:
            self.data_seconds += time.perf_counter() - self._since
            self._since = None
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None
        if self._nvtx and self._part:
            torch.cuda.nvtx.range_pop()
        self._part = part
        if self._nvtx and part:
            torch.cuda.nvtx.range_push(part)
        if self._recording and part:
            self._range = record_function(PREFIX + part)
            self._range.__enter__()
        if self._timing and part == DATA:
            self._since = time.perf_counter()
