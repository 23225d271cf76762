"""Bytes that the fullest device holds at the peak of a training step.

A step's peak is a maximum over its moments and not the sum of everything: a block's gradients come when its
activations go. Each block's backward pass is one candidate, and the optimizer's step the last.

parameters, gradients, optimizer
    4 bytes a parameter each, in fp32 under every precision of main.py; the optimizer 4 (SGD's momentum) or 8
    (Adam's two means). ZeRO-1 shares out the optimizer's, FSDP (ZeRO-3) all three (Rajbhandari et al. 2020,
    ZeRO, arXiv:1910.02054, section 3 and figure 1). FSDP2 cuts each parameter along its first dimension and
    fills up the last shards: of [1, 64, width] every rank but one holds filling. Tensor parallel splits a
    block's four matrices, and not its norms (Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053, section 3).
    DDP's gradients are its buckets, which stay (gradient_as_bucket_view=True: without it they are held twice).
    Without a wrapper, and with FSDP, they are let go by zero_grad() and made anew, the last block's first.
activations
    what autograd keeps, counted (rehearsal.py). FSDP's mixed precision hands 16 bits on from block to block, in
    autocast the sum that runs through a transformer stays in fp32: 26 bytes in the place of 32 for a token and
    unit of width, whatever the number of ranks. Tensor parallel splits what lies inside of attention and MLP: 24
    bytes a token and unit of width in 16 bits (Korthikanti et al. 2022, arXiv:2205.05198, equation 2 without
    dropout and stored scores). A pipeline's first stage keeps min(stages, micro-batches) micro-batches with
    1F1B (Narayanan et al. 2021, arXiv:2104.04473, section 2.2). Checkpointed: every block's input, and one
    block whole (Chen et al. 2016, arXiv:1604.06174).
working
    16-bit copies of the weights that autocast keeps until the backward pass has used them; the gradients of
    activations on their way back and weights' gradients before they are in their place, counted (rehearsal.py;
    not split by tensor parallel here). FSDP's gathered units: the root, which stays gathered, the block in use and
    the one fetched ahead; the fp32 copy of the gradients of the block before, whose reduce-scatter goes on; at a
    block's end that of its own beside what it is made of (Zhao et al. 2023, arXiv:2304.11277, section 3.3; torch,
    distributed/fsdp/_fully_shard: _fsdp_collectives.foreach_reduce, _fsdp_param_group.post_backward). The
    optimizer's temporary list, 4 bytes a parameter that it steps: torch's default on a GPU, foreach, "uses
    sizeof(params) more peak memory" (torch.optim.AdamW); a fused one, as with --capture, has none. cuBLAS's
    workspace, 32 MiB on a Hopper GPU (PyTorch's notes on CUDA), and what cuDNN keeps for convolutions: 80 MiB,
    which is what was missing in this lab's measured runs of ResNet-18 on one H100 without a wrapper
    (docs/results), and an assumption elsewhere.
Not counted: images that lie on the device, the CUDA context (about 0.5 GiB) and fragments.
"""

import heapq
import itertools
import math
from dataclasses import dataclass

from lab.plan.layout import ALONE, FSDP, FSDP_GRAD, HSDP, TP, ZERO, Layout
from lab.plan.network import Network, Unit

STATE = {"sgd": 4, "adam": 8, "adamw": 8}  # bytes a parameter
CUBLAS, CUDNN = 32 * 2**20, 80 * 2**20
WIDE = 4  # bytes of a parameter, and of a gradient
SHARDED = (FSDP, FSDP_GRAD, HSDP)
BACKWARD, OPTIMIZER = "backward pass", "optimizer's step"


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest device: each part when it is largest, and the most that is held at once, with its
    phase."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    working: float
    total: float
    phase: str


def memory(network: Network, layout: Layout, optimizer: str, *, checkpoint: bool = False) -> Memory:
    """What the fullest device of a layout holds.

    Args:
        optimizer: one of STATE.
        checkpoint: whether activations are checkpointed, block by block.
    """
    held = held_parameters(network, layout)
    steps = zero_share(network, layout.gpus) if layout.kind == ZERO else held
    parameters, gradients, states = WIDE * held, WIDE * held, STATE[optimizer] * steps
    moments = _moments(network, layout, checkpoint)
    backward = max(moment.total for moment in moments)
    stepping = gradients + WIDE * steps + _libraries(network)
    return Memory(
        parameters,
        gradients,
        states,
        max(moment.activations for moment in moments),
        max(WIDE * steps + _libraries(network), *(moment.working for moment in moments)),
        parameters + states + max(backward, stepping),
        BACKWARD if backward >= stepping else OPTIMIZER,
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


@dataclass(frozen=True)
class _Moment:
    """Of the backward pass."""

    gradients: float
    activations: float
    working: float

    @property
    def total(self) -> float:
        return self.gradients + self.activations + self.working


def _moments(network: Network, layout: Layout, checkpoint: bool) -> list[_Moment]:
    """When the forward pass has reached the end, and in each block's backward pass its most and its end."""
    blocks = stages(network, layout.stages)[0] if layout.stages > 1 else network.blocks
    images = layout.replica_batch / layout.micro  # whose passes are gone through at a time
    sharded = layout.kind in SHARDED
    kept = _Kept(network, layout, blocks, checkpoint)
    held = _Held(network, layout, blocks)
    always = _libraries(network) + images * network.root.entering_bytes
    last = len(blocks)  # stands for what is after the blocks
    found = []
    for n, unit in enumerate((*blocks, network.root)):
        there = max(one.of(images) for one in (unit.moments_cast if sharded else unit.moments))
        working = always + kept.casts(n) + held.working(n)
        found.append(_Moment(held.gradients(n + 1), kept.activations(n), working + there))
        if n < last:
            leaving = always + kept.casts(n - 1) + held.leaving(n) + images * unit.entering_bytes
            found.append(_Moment(held.gradients(n), kept.below(n), leaving))
    return found


class _Kept:
    """Bytes of activations, and of 16-bit copies of weights, while block n goes back (the last n: before any)."""

    def __init__(self, network: Network, layout: Layout, blocks: tuple[Unit, ...], checkpoint: bool) -> None:
        self._checkpoint = checkpoint
        self._images = layout.replica_batch / layout.micro
        self._alive = self._images * min(layout.stages, layout.micro)  # whose forward pass was made
        self._each = [_kept(network, layout, unit) for unit in blocks]
        stay = [unit.entering_bytes for unit in blocks] if checkpoint else self._each
        self._below = list(itertools.accumulate(stay, initial=_kept(network, layout, network.root)))
        self._cast = [0.0 if layout.kind in SHARDED else unit.casts / layout.tensor for unit in blocks]
        root = 0.0 if layout.kind in SHARDED else network.root.casts
        self._casts = list(itertools.accumulate(self._cast, initial=root))

    def below(self, n: int) -> float:
        """Of all blocks before it, and of what is outside of blocks."""
        return self._alive * self._below[n]

    def activations(self, n: int) -> float:
        if n == len(self._each):
            return self.below(n)
        again = self._images * self._each[n] if self._checkpoint else 0.0  # its forward pass was made again
        return self.below(n + 1) + again

    def casts(self, n: int) -> float:
        """Autocast keeps the copies of a whole forward pass; made again for a checkpointed block, its own."""
        if n == len(self._each) or not self._checkpoint:
            return self._casts[min(n + 1, len(self._each))]
        return self._casts[0] + (self._cast[n] if n >= 0 else 0.0)


class _Held:
    """Bytes of gradients, and of what FSDP has gathered and reduces, at the same moments."""

    def __init__(self, network: Network, layout: Layout, blocks: tuple[Unit, ...]) -> None:
        self._sharded, self._width = layout.kind in SHARDED, network.itemsize
        self._keeps = layout.kind == FSDP_GRAD
        filled_up = [sum(filled(s, layout.shards) for s in (*u.shapes, *u.norms)) for u in (*blocks, network.root)]
        *self._whole, self._root = filled_up if self._sharded else [0] * len(filled_up)
        if self._sharded or layout.kind == ALONE:
            own = [WIDE * size / layout.shards for size in filled_up[:-1]]
            self._made = list(itertools.accumulate(reversed(own), initial=0.0))[::-1]
        else:
            self._made = [WIDE * held_parameters(network, layout)] * (len(blocks) + 1)

    def gradients(self, n: int) -> float:
        """Of block n and all after it: those of DDP are in buckets, which are always there."""
        return self._made[min(n, len(self._made) - 1)]

    def _gathered(self, *blocks: int) -> float:
        count = sum(self._whole[: max(blocks) + 1]) if self._keeps else sum(self._block(n) for n in blocks)
        return self._width * (self._root + count)

    def _block(self, n: int) -> int:
        return self._whole[n] if 0 <= n < len(self._whole) else 0

    def working(self, n: int) -> float:
        """While it goes back: itself and the next one gathered, the gradients of the last one being reduced."""
        return self._gathered(n, n - 1) + WIDE * self._block(n + 1)

    def leaving(self, n: int) -> float:
        """When it has been gone through: its gradients, and their copy in fp32 that will be reduced."""
        return self._gathered(n - 1) + (self._width + WIDE) * self._block(n)


def _kept(network: Network, layout: Layout, unit: Unit) -> float:
    """Bytes an image."""
    kept = unit.kept_cast if layout.kind in SHARDED else unit.kept
    if layout.kind == TP and unit is not network.root:
        assert network.width is not None
        kept -= 12 * network.itemsize * network.tokens * network.width * (1 - 1 / layout.tensor)
    return kept


def _libraries(network: Network) -> float:
    return CUBLAS + (CUDNN if network.width is None else 0)
