"""Bytes that the fullest device holds at the peak of a training step.

parameters, gradients, optimizer
    4 bytes a parameter each, in fp32 under every precision of main.py; the optimizer 4 (SGD's momentum) or 8
    (Adam's two means). ZeRO-1 shares out the optimizer's, FSDP (ZeRO-3) all three (Rajbhandari et al. 2020,
    ZeRO, arXiv:1910.02054, section 3 and figure 1). FSDP2 cuts each parameter along its first dimension and
    fills up the last shards: of [1, 64, width] every rank but one holds filling. Tensor parallel splits a
    block's four matrices, and not its norms (Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053, section 3).
activations
    what autograd keeps, counted (network.py). Tensor parallel splits what lies inside of attention and MLP: 24
    bytes a token and unit of width in 16 bits (Korthikanti et al. 2022, arXiv:2205.05198, equation 2 without
    dropout and stored scores). A pipeline's first stage keeps min(stages, micro-batches) micro-batches with
    1F1B (Narayanan et al. 2021, arXiv:2104.04473, section 2.2). Checkpointed: every block's input, and one
    block whole (Chen et al. 2016, arXiv:1604.06174).
working
    16-bit copies of the weights that autocast keeps until the backward pass has used them; FSDP's gathered
    units: the root, which stays gathered, and two blocks (in use, and fetched ahead), with the gradients of one
    in the width that is computed in and in fp32 for the reduce-scatter (Zhao et al. 2023, arXiv:2304.11277,
    section 3.3); the gradients of activations on their way back; cuBLAS's workspace, 32 MiB on a Hopper GPU
    (PyTorch's notes on CUDA), and what cuDNN keeps for convolutions: 80 MiB, which is what was missing in this
    lab's measured runs of ResNet-18 on one H100 without a wrapper (docs/results), and an assumption elsewhere.
Not counted: images that lie on the device, the CUDA context (about 0.5 GiB) and fragments. DDP's buckets are the
gradients, as with gradient_as_bucket_view=True: without it they are held twice.
"""

import heapq
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

from lab.plan.layout import FSDP_GRAD, TP, ZERO, Layout
from lab.plan.network import Network, Unit

STATE = {"sgd": 4, "adam": 8, "adamw": 8}  # bytes a parameter
CUBLAS, CUDNN = 32 * 2**20, 80 * 2**20
WIDE = 4  # bytes of a parameter, and of a gradient


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest device."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    working: float

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.optimizer + self.activations + self.working


def memory(network: Network, layout: Layout, optimizer: str, *, checkpoint: bool = False) -> Memory:
    """What the fullest device of a layout holds.

    Args:
        optimizer: one of STATE.
        checkpoint: whether activations are checkpointed, block by block.
    """
    held = held_parameters(network, layout)
    states = zero_share(network, layout.gpus) if layout.kind == ZERO else held
    return Memory(
        WIDE * held,
        WIDE * held,
        STATE[optimizer] * states,
        _activations(network, layout, checkpoint),
        _working(network, layout),
    )


def held_parameters(network: Network, layout: Layout) -> int:
    """Parameters whose fp32 values the fullest device holds, filling included."""
    if layout.shards > 1:
        return sum(filled(shape, layout.shards) // layout.shards for shape in network.shapes)
    if layout.tensor > 1:
        return network.root.parameters + sum(split(network, unit, layout.tensor) for unit in network.blocks)
    if layout.stages > 1:
        # The root is the stem on the first stage and the head on the last: all of it is counted with both.
        last = layout.stages - 1
        return max(
            sum(unit.parameters for unit in stage) + (network.root.parameters if number in (0, last) else 0)
            for number, stage in enumerate(stages(network, layout.stages))
        )
    return network.parameters


def filled(shape: tuple[int, ...], ranks: int) -> int:
    """Numbers in a parameter after FSDP2 has filled up its first dimension to a multiple of the ranks."""
    first, *rest = shape
    return math.ceil(first / ranks) * ranks * math.prod(rest)


def split(network: Network, unit: Unit, tensor: int) -> int:
    """Parameters of a vit's block on one of `tensor` ranks.

    Columns of query_key_value (with their bias 3 w) and of the MLP's first layer (4 w), rows of the layers that
    follow: 12 w^2 + 7 w are split. Two norms and the biases of the rows, 6 w, are on every rank.
    """
    assert network.width is not None
    shared = 12 * network.width**2 + 7 * network.width
    return unit.parameters - shared + shared // tensor


def stages(network: Network, count: int) -> list[tuple[Unit, ...]]:
    """Blocks in their order, as many in each stage as in any other, or one more in the first ones."""
    each, more = divmod(len(network.blocks), count)
    ends = [number * each + min(number, more) for number in range(count + 1)]
    return [network.blocks[a:b] for a, b in itertools.pairwise(ends)]


def zero_share(network: Network, ranks: int) -> int:
    """Parameters that the fullest rank steps: ZeroRedundancyOptimizer hands each, the largest first, to the
    rank that has the least, and splits none."""
    loads = [0] * ranks
    for size in sorted(map(math.prod, network.shapes), reverse=True):
        heapq.heapreplace(loads, loads[0] + size)
    return max(loads)


def _activations(network: Network, layout: Layout, checkpoint: bool) -> float:
    narrow = layout.shards > 1
    images = layout.replica_batch
    if layout.stages > 1:
        alive = images / layout.micro * min(layout.stages, layout.micro)
        first = stages(network, layout.stages)[0]
        return alive * (_kept(first, narrow, checkpoint) + _kept_outside(network.root, narrow))
    kept = _kept(network.blocks, narrow, checkpoint) + _kept_outside(network.root, narrow)
    if layout.kind == TP:
        assert network.width is not None
        inside = 12 * network.itemsize * network.tokens * network.width
        blocks = 1 if checkpoint else len(network.blocks)
        kept -= blocks * inside * (1 - 1 / layout.tensor)
    return images * kept


def _kept(blocks: Iterable[Unit], narrow: bool, checkpoint: bool) -> float:
    """Bytes an image."""
    each = [unit.kept_cast if narrow else unit.kept for unit in blocks]
    return sum(unit.entering_bytes for unit in blocks) + max(each) if checkpoint else sum(each)


def _kept_outside(root: Unit, narrow: bool) -> float:
    return root.kept_cast if narrow else root.kept


def _working(network: Network, layout: Layout) -> float:
    width, images = network.itemsize, layout.replica_batch / layout.micro
    libraries = CUBLAS + (CUDNN if network.width is None else 0)
    # The most is held when the backward pass begins, at the last block: its own are all that is on the way then.
    on_their_way = libraries + 2 * images * network.blocks[-1].entering_bytes
    if layout.shards == 1:
        share = layout.tensor * layout.stages
        return on_their_way + sum(unit.casts for unit in network.units) / share
    whole = [sum(filled(s, layout.shards) for s in (*unit.shapes, *unit.norms)) for unit in network.units]
    *blocks, root = whole
    gathered = sum(whole) if layout.kind == FSDP_GRAD else root + 2 * max(blocks)
    return on_their_way + gathered * width + max(whole) * (width + WIDE)
