"""Seconds a step, with their range; what a training costs; how often to save.

    step = bubble x compute + exposed
    compute = of all operators of both passes the sum of KERNEL + max(FLOPs / (the card's peak x PRODUCTS),
              bytes in and out / (its memory's bandwidth x MOVED)), times 4/3 with checkpointing
    a collective = latency + bytes inside / bandwidth inside, or + bytes between / bandwidth between, the longer
    bubble = 1 + (stages - 1) / micro-batches

(alpha-beta: Thakur et al. 2005, Optimization of collective communication operations in MPICH; the bubble of
GPipe and 1F1B: Narayanan et al. 2021, arXiv:2104.04473, section 2.2; one more forward pass for checkpointing:
Chen et al. 2016.)

(An operator by its roofline: Williams, Waterman and Patterson 2009, Roofline: an insightful visual performance
model.) Operators are counted on fake tensors, network.py.

The range is from what is not known. Of the roof this lab's kernels reached on one H200 (docs/results): 80% in
large products of bf16, 32 to 48% in convolutions; 91 to 103% in what goes element by element, 21 and 50% in
normalisation. So 80, 50 and 25% of the peak, 90, 60 and 20% of the bandwidth. A kernel takes 1 to 4 us however
little it does, which is an assumption. Bandwidth of links: half to nine tenths of the data sheet. Latency: of a
tree, 2 log2 n messages, to that of a ring for what gathers and scatters, and of the better one for the rest.
Overlap: at best DDP hides its all-reduces behind the backward pass, two thirds of the compute, and FSDP behind
all of it; at worst neither hides anything. What is not in it: input, stragglers, the optimizer (at least 28 bytes
a parameter that a device steps, for Adam), and that matrices cut into parts are slower.

It is a step as a GPU could go through it, which is what --capture makes of it. Eager, the CPU issues it operator
by operator, 15 to 60 us each: 29 to 63 us in this lab's eager runs without a wrapper on one H200 (docs/results),
less on faster hosts. No eager step is shorter; FSDP's own, longer way through Python is not counted.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lab.plan.hardware import GB, LATENCY, NETWORKS, Card
from lab.plan.layout import Layout
from lab.plan.links import Links
from lab.plan.network import Network
from lab.plan.traffic import ALL_REDUCE, BROADCAST, SEND, Traffic

PRODUCTS, MOVED = (0.8, 0.5, 0.25), (0.9, 0.6, 0.2)  # of the card's peaks: best, middle, worst
KERNEL = (1e-6, 2e-6, 4e-6)  # seconds, at least
LAUNCH = (15e-6, 30e-6, 60e-6)  # seconds of the CPU, for an operator of an eager step
REACHED = (0.9, 0.7, 0.5)  # of a bandwidth
HOUR = 3600.0


@dataclass(frozen=True)
class Range:
    """Likely value, between the best and the worst case."""

    best: float
    middle: float
    worst: float

    def scaled(self, factor: float) -> "Range":
        return Range(self.best * factor, self.middle * factor, self.worst * factor)


@dataclass(frozen=True)
class Step:
    """Seconds of a step, and the efficiency: one device's compute for its images over them."""

    seconds: Range
    efficiency: Range  # best is the largest
    communication: Range


def compute_seconds(network: Network, images: float, card: Card, *, checkpoint: bool = False) -> Range:
    """Of a device that computes `images` images whole."""
    alike = Counter(id(unit.work) for unit in network.units)
    works = {id(unit.work): unit.work for unit in network.units}
    peak, moves = card.peak(network.precision), card.moves * GB

    def seconds(case: int) -> float:
        products, moved = peak * PRODUCTS[case], moves * MOVED[case]
        return sum(
            count * (KERNEL[case] + max(one.flops.of(images) / products, one.moved.of(images) / moved))
            for key, count in alike.items()
            for one in works[key]
        )

    return Range(*(seconds(case) * (4 / 3 if checkpoint else 1) for case in range(3)))


def launch_seconds(network: Network, *, checkpoint: bool = False) -> Range:
    """What the CPU needs to issue a step that is not captured: no such step is shorter."""
    return Range(*(network.operators * each * (4 / 3 if checkpoint else 1) for each in LAUNCH))


def step(
    layout: Layout, sent: Sequence[Traffic], alone: Range, card: Card, network: str, links: Links | None = None
) -> Step:
    """What a step takes.

    Args:
        alone: compute of one device for its share of the images, `layout.batch`.
        network: between nodes, one of NETWORKS.
        links: what was measured of them.
    """
    computes = (alone.best, alone.middle, alone.worst)
    # The least efficient is a fast device on a slow network, and not the slow one that hides everything.
    pairs = ((0, 0), (1, 1), (2, 2), (0, 2), (2, 0))
    best, middle, worst, least, most = (
        _seconds(layout, sent, computes[a], card, network, b, links) for a, b in pairs
    )
    efficiency = Range(alone.worst / most, alone.middle / middle, alone.best / least)
    talking = (sum(collective_seconds(one, card, network, case, links) for one in sent) for case in range(3))
    return Step(Range(best, middle, worst), efficiency, Range(*talking))


def _seconds(
    layout: Layout,
    sent: Sequence[Traffic],
    compute: float,
    card: Card,
    network: str,
    case: int,
    links: Links | None,
) -> float:
    """A step with so much compute and collectives as they are at best, in the middle or at worst."""
    busy = compute * (1 + (layout.stages - 1) / layout.micro)
    hidden = shown = 0.0
    for one in sent:
        seconds = collective_seconds(one, card, network, case, links)
        hidden, shown = (hidden + seconds, shown) if one.hidden else (hidden, shown + seconds)
    cover = (0.0 if case == 2 else busy) * (1 if layout.shards > 1 else 2 / 3)
    return busy + shown + max(0.0, hidden - cover)


def collective_seconds(one: Traffic, card: Card, network: str, case: int, links: Links | None = None) -> float:
    """Of all calls of a step; case 0: at best, 1: in the middle, 2: at worst."""
    measured = links.seconds(one, case) if links else None
    if measured is not None:
        return measured
    share = REACHED[case]
    moving = max(one.inside / (card.link * GB), one.between / (NETWORKS[network] * GB)) / share
    return moving + one.calls * _latency(one, card, case)


def _latency(one: Traffic, card: Card, case: int) -> float:
    """Seconds that one call takes with next to no bytes."""
    inside = LATENCY["nvlink" if card.nvlink else "pcie"]
    low, high = inside if one.together >= one.ranks else LATENCY["network"]
    if one.collective == SEND:
        return (low, math.sqrt(low * high), high)[case]
    hops = 2 * math.ceil(math.log2(one.ranks))
    crossing = one.ranks / one.together if one.together < one.ranks else 0.0
    ring = ((one.ranks - 1 - crossing) * inside[1] + crossing * high) * (
        2 if one.collective == ALL_REDUCE else 1
    )  # NCCL has trees for these; what gathers and scatters goes around the ring (before PAT of NCCL 2.23).
    worst = min(ring, hops * high) if one.collective in (ALL_REDUCE, BROADCAST) else ring
    best = min(hops * low, worst)
    return (best, math.sqrt(best * worst), worst)[case]


def daly(write: float, between_failures: float) -> float:
    """Seconds of work between two checkpoints that lose the least time.

        T = sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + (d / 2M) / 9) - d    for d < 2M, else M

    for d seconds to write one and M between failures (Daly 2006, A higher order estimate of the optimum
    checkpoint interval for restart dumps, equation 37; sqrt(2 d M) is Young's of 1974).
    """
    if write >= 2 * between_failures:
        return between_failures
    ratio = write / (2 * between_failures)
    return math.sqrt(2 * write * between_failures) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write


def lost_share(write: float, interval: float, between_failures: float) -> float:
    """Of the time, what checkpoints and failures cost: each failure loses half an interval (first order)."""
    return min(1.0, write / (interval + write) + (interval + write) / 2 / between_failures)
