"""A step's kernels by kind, what they cost, and the device's best: the tables, and the files that keep them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from lab.base import rows
from lab.base.errors import UserError

PEAK = "peak: "  # begins the kind of a row that is no part of the step: one large kernel, as fast as can be
COPY = f"{PEAK}copy"
TF32 = f"{PEAK}TF32"
IN_TF32 = ("convolution", "attention")  # beside the peak of fp32: PyTorch computes fp32's matrix products in fp32
PROFILER, NCU = "profiler", "ncu"


@dataclass(frozen=True)
class Kind:
    """All kernels of one kind in a step, or one peak.

    Where the numbers come from, by `source`:
        profiler: seconds by torch.profiler; FLOPs and bytes by formulas, each operator reading its inputs and
            writing its outputs once.
        ncu: seconds of each kernel alone, from empty caches; FLOPs that were executed; bytes that went between
            DRAM and the L2 cache before the kernel ended.
    """

    model: str
    precision: str
    batch: int  # images in the step
    device: str
    kind: str
    kernels: float  # a step; on the CPU, operators
    seconds: float  # a step
    flops: float  # a step; multiplications and additions each count
    bytes: float  # a step
    written: float = math.nan  # of the bytes; not known in files from before there was the column
    source: str = PROFILER

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
        return self.flops / self.bytes if self.bytes else math.inf

    @property
    def is_peak(self) -> bool:
        return self.kind.startswith(PEAK)

    @property
    def subject(self) -> tuple[str, str, int, str]:
        """Of what it is a part."""
        return self.model, self.precision, self.batch, self.device

    @property
    def read(self) -> float:
        """Of the bytes."""
        return self.bytes - self.written


@dataclass(frozen=True)
class Step:
    """One network in one precision on one device."""

    kinds: tuple[Kind, ...]  # longest first
    peaks: tuple[Kind, ...]  # of matrix products, fastest first
    copy: Kind
    counted: tuple[Kind, ...] = ()  # those of ncu, longest first

    @property
    def title(self) -> str:
        return title(self.copy)

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.kinds)

    @property
    def unit(self) -> tuple[str, float]:
        """In which rates are told: its name, and FLOP/s."""
        return ("TFLOP/s", 1e12) if self.peaks[0].rate > 1e12 else ("GFLOP/s", 1e9)

    def peak(self, one: Kind) -> Kind:
        """The fastest matrix product of those that are computed as this kind may be."""
        allowed = (peak for peak in self.peaks if peak.kind != TF32 or one.kind.startswith(IN_TF32))
        return next(allowed, self.peaks[0])

    def roof(self, one: Kind) -> float:
        """The FLOP/s that the device allows a kind at its FLOPs a byte (Williams et al. 2009, CACM 52(4))."""
        return min(self.peak(one).rate, one.intensity * self.copy.bandwidth)


def title(one: Kind) -> str:
    return f"{one.model}, {one.precision}, {one.batch} images on {one.device}"


def steps(kinds: Iterable[Kind]) -> list[Step]:
    """Rows of files, in their order of networks, precisions and devices; those that only ncu has are left out.

    Raises:
        UserError: the peaks of one are missing, or a kind is there twice.
    """
    made = []
    for key, own in groups(kinds).items():
        counted = by_time(row for row in own if row.source == NCU)
        copy = [row for row in own if row.kind == COPY]
        peaks = sorted((row for row in own if row.is_peak and row.kind != COPY), key=lambda row: -row.rate)
        parts = by_time(row for row in own if row.source == PROFILER and not row.is_peak)
        if len(own) == len(counted):
            continue
        if not copy or not peaks or not parts:
            raise UserError(
                f"the rows of {', '.join(map(str, key))} are not whole: a step, its device's copy and a matrix "
                "peak belong together. Measure them again with lab roofline"
            )
        made.append(Step(parts, tuple(peaks), copy[0], counted))
    return made


def groups(kinds: Iterable[Kind]) -> dict[tuple[str, str, int, str], list[Kind]]:
    """By what they are a part of.

    Raises:
        UserError: a kind is there twice.
    """
    found: dict[tuple[str, str, int, str], list[Kind]] = {}
    for one in kinds:
        own = found.setdefault(one.subject, [])
        if any((other.kind, other.source) == (one.kind, one.source) for other in own):
            raise UserError(f"{title(one)}: {one.kind} is there twice; name each measurement once")
        own.append(one)
    return found


def by_time(kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    """Longest first."""
    return tuple(sorted(kinds, key=lambda row: -row.seconds))


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
            f"{one.rate / step.roof(one):7.0%}"
        )
    best = ", ".join(f"{short(one.rate / size)} {unit} in {one.kind.removeprefix(PEAK)}" for one in step.peaks)
    lines.append(f"  the device at its best, measured: {best}; {short(step.copy.bandwidth / 1e9)} GB/s copied")
    return lines


def counted_table(counted: Sequence[Kind], step: Step | None) -> list[str]:
    """What ncu counted in a step; beside it, where they are known, what the formulas say and the device's roof."""
    width = max(len(one.kind) for one in counted)
    formulas = {one.kind: one for one in step.kinds} if step else {}
    lines = [
        f"{title(counted[0])}: {short(1e3 * sum(one.seconds for one in counted))} ms, counted by ncu, each kernel "
        "alone and from empty caches",
        f"  {'kind':{width}}  kernels      ms    GFLOP  x formula  MB read  x least  written  x least  of roof",
    ]
    for one in counted:
        formula = formulas.get(one.kind)
        flops, read, written = (formula.flops, formula.read, formula.written) if formula else (math.nan,) * 3
        roof = f"{one.rate / step.roof(one):.0%}" if step and one.flops else "-"
        lines.append(
            f"  {one.kind:{width}}  {one.kernels:7.0f}  {short(1e3 * one.seconds):>6}  "
            f"{short(one.flops / 1e9):>7}  {_times(one.flops, flops):>9}  "
            f"{short(one.read / 1e6):>7}  {_times(one.read, read):>7}  "
            f"{short(one.written / 1e6):>7}  {_times(one.written, written):>7}  {roof:>7}"
        )
    return lines


def _times(counted: float, formula: float) -> str:
    return short(counted / formula) if formula > 0 else "-"


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
    if not one.seconds > 0 or one.flops < 0 or not all(map(math.isfinite, numbers)):
        return False
    if one.source == NCU:
        return 0 <= one.written <= one.bytes
    return one.source == PROFILER and one.bytes > 0 and not one.written > one.bytes
