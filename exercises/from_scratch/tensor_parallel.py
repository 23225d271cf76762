"""Exercise 9.5: tensor parallelism, built by hand.

A layer that is too large for one device is cut: each rank keeps a part of its weight and computes with that, for
all of the batch. Two linear layers with something between them that takes each number by itself need one sum only:

    the first, column parallel   each rank computes some of the outputs: x @ [A1 | A2] = [x @ A1 | x @ A2]
    between                      GELU, or attention, whose heads know nothing of each other: nothing to send
    the second, row parallel     each rank has some of the inputs: [y1 | y2] @ [B1 ; B2] = y1 @ B1 + y2 @ B2

The sum is an all-reduce. Backward it is the other way round: each rank has the gradient of x that came through its
own columns, and x went to all ranks, so these are summed. A transformer's block has two such pairs, and so two
all-reduces forward and two backward, each as large as the activations; no weight travels.

Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019:
there ToRanks is called f, and SumOverRanks g.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


def summed(tensor: Tensor) -> Tensor:
    """The sum of all ranks' tensors, as a new one."""
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


def own_part(tensor: Tensor, dim: int, pieces: int = 1) -> Tensor:
    """What this rank keeps of a whole weight or bias, as a tensor of its own.

    Args:
        pieces: the tensor has so many pieces, one behind the other along `dim`, and the rank gets a part of each.
    """
    ranks, rank = dist.get_world_size(), dist.get_rank()
    if tensor.shape[dim] % (ranks * pieces):
        raise ValueError(f"{tensor.shape[dim]} numbers in {pieces} pieces cannot be cut into {ranks} equal parts")
    # TODO 9.5a: part `rank` of `ranks` of each piece, joined: torch.chunk and torch.cat. A view would keep the
    # whole in memory; what torch.cat returns is a tensor of its own.
    raise NotImplementedError("Exercise 9.5a is not done yet: own_part() in from_scratch/tensor_parallel.py")


class ToRanks(torch.autograd.Function):
    """Where what all ranks have goes into different computations: [*] -> the same."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        # TODO 9.5b: each rank comes with the gradient that has gone through its own weights. Which one is x's?
        raise NotImplementedError(
            "Exercise 9.5b is not done yet: ToRanks.backward() in from_scratch/tensor_parallel.py"
        )


class SumOverRanks(torch.autograd.Function):
    """Where the ranks' results come together: [*] on each rank -> their sum, on all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return summed(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        # TODO 9.5c: the gradient of a sum is here already, on every rank. Which one is that of each term?
        raise NotImplementedError(
            "Exercise 9.5c is not done yet: SumOverRanks.backward() in from_scratch/tensor_parallel.py"
        )


class ColumnParallelLinear(nn.Module):
    """A linear layer of which each of N ranks has 1/N of the outputs: [*, inputs] -> [*, outputs / N].

    Args:
        whole: the layer to take a part of, the same on all ranks.
        pieces: of which its outputs are made: 3 where query, key and value are one layer.
    """

    def __init__(self, whole: nn.Linear, pieces: int = 1) -> None:
        super().__init__()
        # TODO 9.5d: self.weight and self.bias, each an nn.Parameter: of the weight [outputs, inputs] and the bias
        # [outputs] the own part.
        raise NotImplementedError(
            "Exercise 9.5d is not done yet: ColumnParallelLinear.__init__() in from_scratch/tensor_parallel.py"
        )

    def forward(self, x: Tensor) -> Tensor:
        # TODO 9.5e: the same x on all ranks meets the own part of the weight: F.linear, and .apply of one of the
        # two functions above.
        raise NotImplementedError(
            "Exercise 9.5e is not done yet: ColumnParallelLinear.forward() in from_scratch/tensor_parallel.py"
        )


class RowParallelLinear(nn.Module):
    """A linear layer of which each of N ranks has 1/N of the inputs: [*, inputs / N] -> [*, outputs], on all."""

    def __init__(self, whole: nn.Linear) -> None:
        super().__init__()
        # TODO 9.5f: the weight is cut along its other dimension. The bias stays whole, as a parameter of its own.
        raise NotImplementedError(
            "Exercise 9.5f is not done yet: RowParallelLinear.__init__() in from_scratch/tensor_parallel.py"
        )

    def forward(self, x: Tensor) -> Tensor:
        # TODO 9.5g: the sum over all ranks of what each has made of its inputs (the other function); and the bias,
        # once.
        raise NotImplementedError(
            "Exercise 9.5g is not done yet: RowParallelLinear.forward() in from_scratch/tensor_parallel.py"
        )


def parallelize(block: nn.Module) -> None:
    """Cut a block of the lab's vision transformer, which is the same on all ranks, in place.

    It has attention.query_key_value, whose outputs are all queries, then all keys, then all values; attention.out;
    and mlp, a sequence of linear, GELU, linear. The norms stay as they are: each rank computes them for itself.
    Attention makes heads of 64 of what query_key_value gives it: of 1/N of the features, 1/N of the heads.
    """
    # TODO 9.5h: column, row; column, row.
    raise NotImplementedError("Exercise 9.5h is not done yet: parallelize() in from_scratch/tensor_parallel.py")
