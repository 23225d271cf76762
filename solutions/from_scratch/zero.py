"""Exercise 9.3: an optimizer whose states are shared out over the ranks, built by hand.

Adam keeps two numbers for each parameter, and with DDP every rank keeps all of them, which are the same. Here the
parameters are dealt out: a rank steps those of its share only, so it has their states alone, and then hands out
what came of them:

    backward   averages the gradients on all ranks, as DDP does
    step       on each rank the optimizer's own step(), of this rank's share
    hand out   each share is broadcast by its owner: together as many bytes as the model has

This is the first stage of ZeRO, where states are sharded. In the second one a rank keeps the gradients of its
share alone, too, and in the third one, which is FSDP (exercise 9.4), the parameters. Rajbhandari et al., "ZeRO:
Memory Optimizations Toward Training Trillion Parameter Models", 2020.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer


def divide(parameters: Sequence[nn.Parameter], ranks: int) -> list[list[nn.Parameter]]:
    """One share a rank, each parameter in one of them, with about as many numbers in each.

    It depends on the sizes and their order only, so all ranks come to the same shares without a word. Where there
    are fewer parameters than ranks, some shares are empty.
    """
    # TODO 9.3a: go through the parameters from the largest to the smallest, and give each to the share that has
    # the fewest numbers so far. A large one that comes last would spoil the balance; small ones fill it up.
    ### BEGIN SOLUTION 9.3a
    shares: list[list[nn.Parameter]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for parameter in sorted(parameters, key=lambda one: one.numel(), reverse=True):
        lightest = loads.index(min(loads))
        shares[lightest].append(parameter)
        loads[lightest] += parameter.numel()
    return shares
    ### END SOLUTION


class ZeroOptimizer:
    """Steps like `optimizer`, with states of 1/N on each of N ranks.

    Args:
        optimizer: any of PyTorch's that treats each parameter by itself, made of all parameters and not used yet.
            They, and their gradients when it steps, are the same on all ranks.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.shares = divide(self.parameters, dist.get_world_size())
        # TODO 9.3b: let the optimizer know this rank's share only. Each of its param_groups keeps its options and
        # loses the parameters of others from group["params"]; so does optimizer.state, which some optimizers
        # (Adagrad) fill when they are made. Compare parameters with `is`, or by id(): == compares their numbers.
        ### BEGIN SOLUTION 9.3b
        own = {id(parameter) for parameter in self.shares[dist.get_rank()]}
        for group in optimizer.param_groups:
            group["params"] = [parameter for parameter in group["params"] if id(parameter) in own]
        for parameter in self.parameters:
            if id(parameter) not in own:
                optimizer.state.pop(parameter, None)
        ### END SOLUTION

    def step(self) -> None:
        """One step of every parameter, on all ranks."""
        # TODO 9.3c: the own share's step, and then what all others have made of theirs.
        ### BEGIN SOLUTION 9.3c
        self.optimizer.step()
        self.hand_out()
        ### END SOLUTION

    @torch.no_grad()
    def hand_out(self) -> None:
        """Give all ranks each share as its owner has it."""
        # TODO 9.3d: for each owner, on all ranks: its share as one flat tensor, broadcast from it, and copied back
        # into the parameters. All ranks call all broadcasts, in the same order; an empty share has none.
        ### BEGIN SOLUTION 9.3d
        for owner, share in enumerate(self.shares):
            if share:
                flat = torch.cat([parameter.flatten() for parameter in share])
                dist.broadcast(flat, src=owner)
                parts = flat.split([parameter.numel() for parameter in share])
                for parameter, part in zip(share, parts, strict=True):
                    parameter.copy_(part.view_as(parameter))
        ### END SOLUTION

    def zero_grad(self) -> None:
        """Of all parameters: the backward pass computes the gradients of other ranks' shares, too."""
        for parameter in self.parameters:
            parameter.grad = None
