"""Exercise 9.6: pipeline parallelism, built by hand.

Each of p ranks has some of the layers, a stage: rank 0 the first ones, the last rank the last ones and the loss.
A batch is cut into m micro-batches, so that the ranks can work at the same time. For p = 3 and m = 4, where F2 is
the forward pass of micro-batch 2 and B2 its backward pass:

    GPipe   rank 0   F0 F1 F2 F3             B0 B1 B2 B3
            rank 1      F0 F1 F2 F3       B0 B1 B2 B3
            rank 2         F0 F1 F2 F3 B0 B1 B2 B3

    1F1B    rank 0   F0 F1 F2       B0 F3 B1    B2    B3
            rank 1      F0 F1    B0 F2 B1 F3 B2    B3
            rank 2         F0 B0 F1 B1 F2 B2 F3 B3

The gaps are the bubble: with both, (p-1)/(m+p-1) of the time when F and B take equally long. But GPipe keeps the
activations of all m micro-batches until their backward pass, and 1F1B those of p - rank at most.

Huang et al., "GPipe", 2019; Narayanan et al., "PipeDream", 2019, and "Memory-Efficient Pipeline-Parallel DNN
Training", 2021.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

FORWARD, BACKWARD = "F", "B"
Action = tuple[str, int]  # FORWARD or BACKWARD, and the micro-batch


def gpipe(rank: int, ranks: int, micro_batches: int) -> list[Action]:
    """What a rank does, in its order: all forward passes, then all backward passes, each from the first on."""
    # TODO 9.6a: the same on all ranks.
    raise NotImplementedError("Exercise 9.6a is not done yet: gpipe() in from_scratch/pipeline.py")


def one_forward_one_backward(rank: int, ranks: int, micro_batches: int) -> list[Action]:
    """What a rank does, in its order, so that few micro-batches are in between forward and backward."""
    # TODO 9.6b: first as many forward passes as there are ranks behind this one (or micro-batches, if they are
    # fewer). Then one forward and one backward in turn, while there are forward passes. Then the backward passes
    # that are left.
    raise NotImplementedError(
        "Exercise 9.6b is not done yet: one_forward_one_backward() in from_scratch/pipeline.py"
    )


class Stage:
    """The part of a model that this rank has; its neighbours have what comes before and behind it.

    Args:
        module: this rank's layers.
        shape: of what goes from rank to rank, for one micro-batch.
    """

    def __init__(self, module: nn.Module, shape: Sequence[int]) -> None:
        self.module, self.shape = module, shape
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.is_first, self.is_last = self.rank == 0, self.rank == self.ranks - 1
        self.held: dict[int, tuple[Tensor, Tensor, dist.Work | None]] = {}  # of micro-batches in between
        self.sending: list[dist.Work] = []  # gradients under way

    def run(
        self, schedule: Sequence[Action], inputs: Sequence[Tensor], loss_of: Callable[[Tensor, int], Tensor]
    ) -> list[Tensor]:
        """One step's forward and backward passes: afterwards each parameter's .grad is that of the mean loss.

        Args:
            inputs: the micro-batches, which rank 0 begins with.
            loss_of: from the last stage's output and the number of the micro-batch to its loss.

        Returns: on the last rank the loss of each micro-batch, divided by their number; on the others nothing.
        """
        self.inputs, self.loss_of, self.losses = inputs, loss_of, list[Tensor]()
        for kind, micro in schedule:
            if kind == FORWARD:
                self.forward(micro)
            else:
                self.backward(micro)
        for work in self.sending:
            work.wait()
        self.sending.clear()
        return self.losses

    def empty(self) -> Tensor:
        """To receive into: a new tensor each time, for autograd keeps what a forward pass has used."""
        return torch.empty(self.shape, device=next(self.module.parameters()).device)

    def forward(self, micro: int) -> None:
        """From the rank before to the rank behind; what the backward pass needs goes into self.held[micro]."""
        # TODO 9.6c: x is the micro-batch on the first rank; elsewhere it is received, and needs a gradient. Then
        # the module. The last rank makes the loss of its output, divided by len(self.inputs), and adds it to
        # self.losses (detached); the others send their output (detached) with isend. Do not wait for that here:
        # the rank behind receives it when it comes to it, and meanwhile this one can go on. (If gradients were
        # sent with a wait, too, both might wait for each other.) self.held[micro] is (x, output, what isend has
        # returned, or None).
        raise NotImplementedError("Exercise 9.6c is not done yet: Stage.forward() in from_scratch/pipeline.py")

    def backward(self, micro: int) -> None:
        """From the rank behind to the rank before; then nothing of this micro-batch is held any more."""
        # TODO 9.6d: take it out of self.held. On all ranks but the last one, receive the gradient of the output
        # from the rank behind, which has the output by then, so that its isend can be waited for. Then
        # output.backward(gradient). On all ranks but the first one, isend x.grad to the rank before; run() waits
        # for what is in self.sending.
        raise NotImplementedError("Exercise 9.6d is not done yet: Stage.backward() in from_scratch/pipeline.py")
