"""A step's kernels by kind, what they cost, and the device's best: the table, and the file that keeps it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from lab.base import rows
from lab.base.errors import UserError

PEAK = "peak: "  # begins the kind of a row that is no part of the step: one large kernel, as fast as can be
COPY = f"{PEAK}copy"


@dataclass(frozen=True)
class Kind:
    """All kernels of one kind in a step, or one peak."""

    model: str
    precision: str
    batch: int  # images in the step
    device: str
    kind: str
    kernels: float  # a step; on the CPU, operators
    seconds: float  # a step
    flops: float  # a step; multiplications and additions each count
    bytes: float  # a step: each operator reads its inputs and writes its outputs once

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.flops / self.seconds

    @property
    def bandwidth(self) -> float:
        """Bytes/s."""
        return self.bytes / self.seconds

    @property
    def intensity(self) -> float:
        """FLOPs a byte."""
        return self.flops / self.bytes

    @property
    def is_peak(self) -> bool:
        return self.kind.startswith(PEAK)


@dataclass(frozen=True)
class Step:
    """One network in one precision on one device."""

    kinds: tuple[Kind, ...]  # longest first
    peaks: tuple[Kind, ...]  # of matrix products, fastest first
    copy: Kind

    @property
    def title(self) -> str:
        one = self.copy
        return f"{one.model}, {one.precision}, {one.batch} images on {one.device}"

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.kinds)

    @property
    def unit(self) -> tuple[str, float]:
        """In which rates are told: its name, and FLOP/s."""
        return ("TFLOP/s", 1e12) if self.peaks[0].rate > 1e12 else ("GFLOP/s", 1e9)

    def roof(self, intensity: float) -> float:
        """The FLOP/s that the device allows at so many FLOPs a byte (Williams et al. 2009, CACM 52(4))."""
        return min(self.peaks[0].rate, intensity * self.copy.bandwidth)


def steps(kinds: Iterable[Kind]) -> list[Step]:
    """Rows of a file, in its order of networks, precisions and devices.

    Raises:
        UserError: the peaks of one are missing.
    """
    groups: dict[tuple[object, ...], list[Kind]] = {}
    for one in kinds:
        groups.setdefault((one.model, one.precision, one.batch, one.device), []).append(one)
    made = []
    for key, own in groups.items():
        copy = [row for row in own if row.kind == COPY]
        peaks = sorted((row for row in own if row.is_peak and row.kind != COPY), key=lambda row: -row.rate)
        parts = sorted((row for row in own if not row.is_peak), key=lambda row: -row.seconds)
        if len(copy) != 1 or not peaks or not parts:
            raise UserError(
                f"the rows of {', '.join(map(str, key))} are not whole: a step, its device's copy and a matrix "
                "peak belong together. Measure them again with lab roofline"
            )
        made.append(Step(tuple(parts), tuple(peaks), copy[0]))
    return made


def table(step: Step) -> list[str]:
    """The step's kinds as lines for people."""
    width = max(len(one.kind) for one in step.kinds)
    unit, size = step.unit
    lines = [
        f"{step.title}: {short(1e3 * step.seconds)} ms in kernels",
        f"  {'kind':{width}}  kernels      ms  share  {unit:>7}     GB/s  FLOP/byte  of roof",
    ]
    for one in step.kinds:
        share = one.seconds / step.seconds
        lines.append(
            f"  {one.kind:{width}}  {one.kernels:7.0f}  {short(1e3 * one.seconds):>6}  {share:5.0%}  "
            f"{short(one.rate / size):>7}  {short(one.bandwidth / 1e9):>7}  {short(one.intensity):>9}  "
            f"{one.rate / step.roof(one.intensity):7.0%}"
        )
    best = ", ".join(f"{short(one.rate / size)} {unit} in {one.kind.removeprefix(PEAK)}" for one in step.peaks)
    lines.append(f"  the device at its best, measured: {best}; {short(step.copy.bandwidth / 1e9)} GB/s copied")
    return lines


def short(value: float) -> str:
    """Three digits, written out."""
    if value <= 0:
        return "0"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(value)))}f}" if value >= 0.001 else "<0.001"


def save(kinds: Sequence[Kind], path: Path) -> None:
    """As CSV, a row a kind; seconds, FLOPs and bytes of one step."""
    rows.save(kinds, path, [field.name for field in fields(Kind)])


def load(path: Path) -> list[Kind]:
    """What save() has written.

    Raises:
        UserError: it cannot be read, or is no such file.
    """
    again = "lab roofline without a FILE measures this machine and writes one"
    return rows.load(path, Kind, "a table of kernels", again, _is_whole)


def _is_whole(one: Kind) -> bool:
    numbers = (one.seconds, one.flops, one.bytes)
    return one.seconds > 0 and one.bytes > 0 and one.flops >= 0 and all(map(math.isfinite, numbers))
