"""What a message and a byte cost: alpha and beta of each collective on so many ranks.

    t = rounds alpha + sent / beta

with the ring's rounds, 2 (N - 1) for an all-reduce, N - 1 for an all-gather or a reduce-scatter, and the bytes
that it sends over each link (Thakur, Rabenseifner and Gropp 2005, Optimization of collective communication
operations in MPICH). Libraries choose other ways for small sizes, trees for example: alpha is what a round would
cost if there were rings only. Where a library changes its way in between, the fit is worse and says by how much.

Relative least squares: an error of a tenth counts as much at a microsecond as at a second. From FEWEST_TO_DOUBT
sizes on, one size may be set aside: a single disturbed point would else bend the whole curve.
"""

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from lab.bandwidth.timings import COLLECTIVES, GB, Timing
from lab.base.errors import UserError
from lab.base.words import digits

COLUMNS = 80  # of a terminal
FEWEST = 3  # sizes: two always fit
FEWEST_TO_DOUBT = 5  # sizes from which one may be set aside
DISTURBED = 0.25  # at least so far off the curve of all others
BETTER = 4  # and the others at least so many times nearer to theirs without it
LOOSE = 0.25  # typically farther off than that, the constants are none
LATENCY = 0.9  # of the time: a size with more is no more than latency


@dataclass(frozen=True)
class Fit:
    """One collective on so many ranks.

    alpha   seconds a round
    beta    bytes a second over each link; infinite where no size was large enough to show it
    points  the timings that were fitted, by size
    aside   the one that was not, if any
    """

    alpha: float
    beta: float
    points: tuple[Timing, ...]
    aside: Timing | None

    @property
    def collective(self) -> str:
        return self.points[0].collective

    @property
    def ranks(self) -> int:
        return self.points[0].ranks

    @property
    def nodes(self) -> int:
        return self.points[0].nodes

    @property
    def device(self) -> str:
        return self.points[0].device

    def latency(self, rounds: int) -> float:
        """Seconds for no bytes."""
        return rounds * self.alpha

    def seconds(self, rounds: int, sent: float) -> float:
        return self.latency(rounds) + sent / self.beta

    def off(self, one: Timing) -> float:
        """How far the curve is from a timing, as a fraction of it."""
        return self.seconds(one.rounds, one.sent) / one.seconds - 1

    @property
    def typically_off(self) -> float:
        return median(abs(self.off(one)) for one in self.points)

    @property
    def worst_off(self) -> float:
        return max(abs(self.off(one)) for one in self.points)

    @property
    def holds(self) -> bool:
        """Whether the times follow alpha and beta, and both are to be seen in them."""
        return self.typically_off <= LOOSE and self.alpha > 0 and math.isfinite(self.beta)

    @property
    def only_latency(self) -> tuple[Timing, ...]:
        """Of all sizes, those that are too small to be more."""
        return tuple(
            one for one in self.points if self.latency(one.rounds) > LATENCY * self.seconds(one.rounds, one.sent)
        )


def fits(timings: Iterable[Timing]) -> tuple[list[Fit], list[str]]:
    """A fit for each collective, number of ranks and nodes, backend and device; a sentence for what has none."""
    found, why_not = [], []
    for _, own in groupby(sorted(timings, key=_group), key=_group):
        points = list(own)
        try:
            found.append(fit(points))
        except UserError as error:
            why_not.append(f"{points[0].collective} on {points[0].ranks} ranks: {error}")
    return found, why_not


def _group(one: Timing) -> tuple[int, int, int, str, str]:
    return COLLECTIVES.index(one.collective), one.ranks, one.nodes, one.backend, one.device


def fit(timings: Sequence[Timing]) -> Fit:
    """Of one collective on so many ranks.

    Raises:
        UserError: there are fewer than FEWEST sizes.
    """
    points = sorted(timings, key=lambda one: one.bytes)
    sizes = len({one.bytes for one in points})
    if sizes < FEWEST:
        raise UserError(
            f"{sizes} size{'s' * (sizes > 1)}: at least {FEWEST} tell what a message costs from a byte"
        )
    whole = _least_squares(points)
    if sizes < FEWEST_TO_DOUBT:
        return whole
    without = (_least_squares([other for other in points if other is not one], one) for one in points)
    best = min(without, key=lambda fit: _error(fit) + 1e-12 * abs(fit.alpha))
    assert best.aside is not None
    is_disturbed = abs(best.off(best.aside)) > DISTURBED and BETTER * _error(best) < _error(whole)
    return best if is_disturbed else whole


def _error(one: Fit) -> float:
    """Root mean square of the relative errors."""
    return math.sqrt(sum(one.off(point) ** 2 for point in one.points) / len(one.points))


def _least_squares(points: Sequence[Timing], aside: Timing | None = None) -> Fit:
    """Of x alpha + y / beta = 1 with x = rounds / t, y = sent / t; neither cost is below 0."""
    x, y = [one.rounds / one.seconds for one in points], [one.sent / one.seconds for one in points]
    # Each column in units of its own length, so that the two can be compared.
    long, wide = math.hypot(*x), math.hypot(*y)
    x, y = [one / long for one in x], [one / wide for one in y]
    xy, sum_x, sum_y = sum(a * b for a, b in zip(x, y, strict=True)), sum(x), sum(y)
    room = 1 - xy**2
    first, second = ((sum_x - xy * sum_y) / room, (sum_y - xy * sum_x) / room) if room > 1e-12 else (sum_x, 0.0)
    if first < 0:
        first, second = 0.0, sum_y
    elif second <= 0:
        first, second = sum_x, 0.0
    return Fit(first / long, wide / second if second else math.inf, tuple(points), aside)


def table(found: Sequence[Fit]) -> list[str]:
    """The fits as lines for people."""
    lines = [f"{'fitted':<15} ranks  nodes  alpha (us)  beta (GB/s)  typically off  at worst"]
    for one in found:
        beta = f"{digits(one.beta / GB, 4):>11}" if math.isfinite(one.beta) else f"{'not seen':>11}"
        lines.append(
            f"{one.collective:<15} {one.ranks:5}  {one.nodes:5}  {digits(1e6 * one.alpha, 4):>10}  {beta}  "
            f"{one.typically_off:13.0%}  {one.worst_off:8.0%}"
        )
    return [*lines, *(line for one in found for said in _sentences(one) for line in textwrap.wrap(said, COLUMNS))]


def _sentences(one: Fit) -> Iterator[str]:
    """What its reader must know."""
    name = f"{one.collective} on {one.ranks} ranks"
    if one.typically_off > LOOSE:
        yield f"{name}: the times follow no such curve, its constants say nothing. Measure again."
        return
    if one.aside is not None:
        took, others = 1e6 * one.aside.seconds, 1e6 * one.seconds(one.aside.rounds, one.aside.sent)
        yield (
            f"{name}: {size_text(one.aside.bytes)} was set aside, {digits(took, 4)} us where the others say "
            f"{digits(others, 4)}."
        )
    small = one.only_latency
    if len(small) == len(one.points):
        yield f"{name}: every size is latency only; take larger --sizes to see the bandwidth."
    elif small:
        yield f"{name}: up to {size_text(small[-1].bytes)} it is no more than latency."
    if one.alpha == 0:
        yield f"{name}: no size is small enough to show a message's cost."


def size_text(size: int) -> str:
    """1024 -> "1 KiB"; other numbers to three digits."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{digits(size / unit, 3)} {name}"
    return f"{size} B"


def timing_table(timings: Sequence[Timing]) -> list[str]:
    """The measurements as lines for people."""
    lines = [f"{'measured':<15} ranks  nodes      size    time (us)  algorithm GB/s   bus GB/s"]
    lines += [
        f"{one.collective:<15} {one.ranks:5}  {one.nodes:5}  {size_text(one.bytes):>8}  "
        f"{digits(1e6 * one.seconds, 4):>11}  {digits(one.algorithm_gb_s, 3):>14}  {digits(one.bus_gb_s, 3):>9}"
        for one in timings
    ]
    return lines
