"""bandwidth.csv: how long each collective took, and the two bandwidths that follow. Imports no torch.

As nccl-tests has them (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md): the algorithm bandwidth is bytes over
time; the bus bandwidth multiplies it by what a ring sends over each link for each of these bytes,
2 (N - 1) / N for an all-reduce and (N - 1) / N for an all-gather or a reduce-scatter on N ranks, so that it can be
compared with the link's own. `bytes` are those of the whole buffer: of an all-gather's output, of a
reduce-scatter's input.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.base import rows
from lab.base.errors import UsageError

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter")
FILE = "bandwidth.csv"
COLUMNS = (
    *("collective", "ranks", "nodes", "bytes", "seconds", "algorithm_gb_s", "bus_gb_s", "backend", "device"),
)
GB = 1e9
ITEM = 4  # bytes of a float32, of which the buffers are


@dataclass(frozen=True)
class Timing:
    """One collective of one size: seconds of a call, the median over repeats of the slowest rank."""

    collective: str
    ranks: int
    nodes: int
    bytes: int
    seconds: float
    backend: str
    device: str

    @property
    def rounds(self) -> int:
        """In how many steps, one after the other, a ring does it."""
        return (self.ranks - 1) * (2 if self.collective == ALL_REDUCE else 1)

    @property
    def sent(self) -> float:
        """Bytes that a ring sends over each link."""
        return self.bytes * self.rounds / self.ranks

    @property
    def algorithm_gb_s(self) -> float:
        return self.bytes / self.seconds / GB

    @property
    def bus_gb_s(self) -> float:
        return self.sent / self.seconds / GB


def save(timings: Sequence[Timing], path: Path) -> None:
    rows.save(timings, path, COLUMNS)


def load(path: Path) -> list[Timing]:
    """What save() has written. The bandwidths are computed anew.

    Raises:
        UserError: it cannot be read, or is no such file.
    """
    return rows.load(path, Timing, "a table of collectives", "measure it again with lab bandwidth", _is_whole)


def _is_whole(one: Timing) -> bool:
    return (
        one.collective in COLLECTIVES
        and one.ranks >= 2
        and 1 <= one.nodes <= one.ranks
        and one.bytes > 0
        and one.seconds > 0
        and math.isfinite(one.seconds)
    )


def require_enough(size: int, ranks: int) -> None:
    """Refuse a size of which a rank would have nothing.

    Raises:
        UsageError: it is so.
    """
    if size < ITEM * ranks:
        raise UsageError(f"--sizes {size}: {ranks} ranks share at least {ITEM * ranks} bytes")
