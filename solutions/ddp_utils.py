"""Section 4, first part: a copy of the model on every rank, and gradients averaged between them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def average_gradients(model: nn.Module) -> None:
    """Replace every gradient by its mean over all ranks: what DDP does for you, by hand.

    Call it between loss.backward() and optimizer.step().
    """
    # TODO 4.0: all-reduce each parameter's gradient and divide by the number of ranks.
    ### BEGIN SOLUTION 4.0
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
            parameter.grad /= dist.get_world_size()
    ### END SOLUTION


def get_ddp_model(model: nn.Module, device: torch.device, *, bucket_cap_mb: float = 25) -> DistributedDataParallel:
    """The model on its device, wrapped so that backward() averages the gradients over all ranks.

    Args:
        model: the same architecture on every rank; rank 0's weights and buffers are sent to the others.
        device: where the model lives: this rank's GPU, or the CPU.
        bucket_cap_mb: gradients are all-reduced in buckets of this many MiB, each as soon as it is full, while
            the backward pass goes on computing the others.

    With gradient_as_bucket_view=True the gradients live in the buckets, and need not be copied there and back: it
    is for you to choose, here.
    """
    # TODO 4.1: move the model to its device, then wrap it. device_ids is for a CUDA device only.
    ### BEGIN SOLUTION 4.1
    model.to(device)
    device_ids = [device] if device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids, bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True)
    ### END SOLUTION
