"""What each device sends in one optimizer step, collective by collective, and where.

Of a payload of S bytes among n ranks, a ring sends from every rank
    all-reduce                        2 S (n - 1) / n    in 2 (n - 1) messages
    all-gather, reduce-scatter          S (n - 1) / n    in n - 1
    broadcasts from all ranks in turn   S (n - 1) / n    on average (the last of a chain sends nothing on)
    send to the next stage              S
(Thakur, Rabenseifner and Gropp 2005, Optimization of collective communication operations in MPICH; Patarasuk and
Yuan 2009, Bandwidth optimal all-reduce algorithms). With m of the n ranks in each node one of m sends crosses to
another node, whether there is one ring or, as in NCCL, several that leave a node by different cards.

DDP        all-reduce of all gradients, 4 bytes a parameter
ZeRO-1     the same, and each rank hands out the parameters that it stepped
FSDP full  all-gather of every unit for the forward pass and again of every block for the backward pass, in the
width
           that is computed in; reduce-scatter of gradients in fp32, all of it filled up (memory.py). 3/2 of
           DDP's bytes in fp32 (ZeRO, section 7.2). The root is gathered once: PyTorch keeps it.
FSDP grad  without the second all-gather
HSDP       FSDP full in a node, then an all-reduce of the shards' gradients between nodes
TP         four all-reduces a block of [images, tokens, width]: f and g of Megatron-LM, forward and backward
PP         a block's input to the next stage, its gradient back
"""

import math
from dataclasses import dataclass

from lab.plan.layout import FSDP_GRAD, HSDP, TP, ZERO, Layout
from lab.plan.memory import WIDE, filled, held_parameters
from lab.plan.network import Network
from lab.runs.options.precision import DEFAULT_BUCKET_CAP_MB

FIRST_BUCKET = 2**20  # bytes: DDP makes its first bucket small, so that the first all-reduce begins early
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all-reduce", "all-gather", "reduce-scatter"
BROADCAST, SEND = "broadcast", "send"


@dataclass(frozen=True)
class Traffic:
    """One kind of collective in one step.

    payload   bytes that it is about, over all its calls
    ranks     of a group, `together` of them in a node
    hidden    whether the ranks go on computing meanwhile
    """

    what: str
    collective: str
    payload: float
    calls: int
    ranks: int
    together: int
    hidden: bool

    @property
    def sent(self) -> float:
        """Bytes that a rank sends."""
        if self.collective == SEND:
            return self.payload
        return self.payload * (self.ranks - 1) / self.ranks * (2 if self.collective == ALL_REDUCE else 1)

    @property
    def between(self) -> float:
        """Of them, those to another node, averaged over the ranks."""
        return self.sent / self.together if self.together < self.ranks else 0.0

    @property
    def inside(self) -> float:
        return self.sent - self.between


def traffic(network: Network, layout: Layout) -> list[Traffic]:
    """All that a layout sends in a step."""
    found: list[Traffic] = []
    gpus, node = layout.gpus, min(layout.node, layout.gpus)
    if layout.shards > 1:
        found += _sharded(network, layout)
        if layout.kind == HSDP:
            shard = WIDE * held_parameters(network, layout)
            found.append(
                Traffic("gradients between copies", ALL_REDUCE, shard, len(network.units), layout.copies, 1, True)
            )
        return found
    if layout.kind == TP:
        each = layout.replica_batch * network.tokens * (network.width or 0) * network.itemsize
        calls = 4 * len(network.blocks)
        found.append(Traffic("activations", ALL_REDUCE, calls * each, calls, layout.tensor, layout.tensor, False))
    if layout.stages > 1:
        # A stage in the middle sends its output on and the gradient of its input back.
        largest = max(unit.entering_bytes for unit in network.blocks[1:])
        payload = layout.replica_batch * largest * (2 if layout.stages > 2 else 1)
        apart = max(1, gpus // layout.stages)  # neighbouring stages lie so many ranks apart
        together = layout.stages if gpus <= node else max(1, node // apart)
        found.append(Traffic("activations", SEND, payload, 2 * layout.micro, layout.stages, together, False))
    if layout.copies > 1:
        gradients = WIDE * held_parameters(network, layout)
        # Ranks of a pipeline's stage are neighbours, those of a layer's part are `tensor` apart.
        together = min(layout.copies, max(1, node // layout.tensor))
        buckets = 1 + math.ceil(max(0, gradients - FIRST_BUCKET) / (DEFAULT_BUCKET_CAP_MB * 2**20))
        found.append(Traffic("gradients", ALL_REDUCE, gradients, buckets, layout.copies, together, True))
        if layout.kind == ZERO:
            calls = len(network.shapes)
            found.append(Traffic("parameters", BROADCAST, WIDE * network.parameters, calls, gpus, node, False))
    return found


def _sharded(network: Network, layout: Layout) -> list[Traffic]:
    """All-gathers and reduce-scatters of FSDP in one copy."""
    once = layout.kind == FSDP_GRAD
    norms_apart = network.itemsize < WIDE and any(unit.norms for unit in network.units)
    gathered, reduced, calls = 0.0, 0.0, 0
    for unit in network.units:
        times = 1 if once or unit is network.root else 2
        gathered += times * _whole(unit.shapes, layout.shards) * network.itemsize
        # In 16 bits all BatchNorms are a group of their own, in fp32, which is gathered again like a block.
        norm_times = 1 if once or (unit is network.root and not norms_apart) else 2
        gathered += norm_times * _whole(unit.norms, layout.shards) * WIDE
        reduced += _whole((*unit.shapes, *unit.norms), layout.shards) * WIDE
        calls += times
    together = min(layout.node, layout.shards)
    units = len(network.units) + norms_apart
    return [
        Traffic(
            "parameters", ALL_GATHER, gathered, calls + norms_apart * (2 - once), layout.shards, together, True
        ),
        Traffic("gradients", REDUCE_SCATTER, reduced, units, layout.shards, together, True),
    ]


def _whole(shapes: tuple[tuple[int, ...], ...], ranks: int) -> int:
    return sum(filled(shape, ranks) for shape in shapes)
