"""What an exercise records a training step with: a CUDA graph on a GPU, and one with the same rules on the CPU.

with side_stream(device):
    ...                         # the steps before: whatever is made once is made in them
graph = new_graph(device)
with recording(graph):
    loss = step()               # nothing is computed yet
graph.replay()                  # the same operations on the same tensors
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from lab.training.stepping.cpu_graph import CPUGraph, is_recording

Graph = torch.cuda.CUDAGraph | CPUGraph

_ASIDE: ContextVar[bool] = ContextVar("_ASIDE", default=False)


def new_graph(device: torch.device) -> Graph:
    """An empty graph for work on this device, with replay() and reset()."""
    return torch.cuda.CUDAGraph() if device.type == "cuda" else CPUGraph()


@contextmanager
def recording(graph: Graph) -> Iterator[None]:
    """Record what is done inside, and compute nothing yet.

    Raises:
        RuntimeError: what is done inside needs a tensor's numbers on the CPU.
    """
    if isinstance(graph, CPUGraph):
        with graph.recording():
            yield
        return
    # Other threads, such as the one that pins a loader's batches, go on using CUDA meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        yield


@contextmanager
def side_stream(device: torch.device) -> Iterator[None]:
    """Do the work inside in a stream of its own: what was before is done first, what follows waits for it.

    Before a recording all work must have been in such a stream: none is recorded in the default one. The CPU has
    no streams, so there this only notes that it was asked for.
    """
    if device.type != "cuda":
        token = _ASIDE.set(True)
        try:
            yield
        finally:
            _ASIDE.reset(token)
        return
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)


def place_of_work(device: torch.device) -> str:
    """Where work goes now: "graph", "side stream" or "default stream"."""
    if device.type != "cuda":
        return "graph" if is_recording() else "side stream" if _ASIDE.get() else "default stream"
    if torch.cuda.is_current_stream_capturing():
        return "graph"
    aside = torch.cuda.current_stream(device) != torch.cuda.default_stream(device)
    return "side stream" if aside else "default stream"


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that it was given. The CPU has done it already."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
