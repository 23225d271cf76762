"""A step of SGD on the shards of FSDP2 that a CUDA graph can record.

torch.optim.SGD has none: its fused kernel is not known for DTensors, and its loop over tensors reads a learning
rate that is a tensor with .item(), for which the CPU must wait. The kernel works element by element, so that each
rank can run it on its own shards.
"""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import SGD
from torch.optim.sgd import sgd


@torch.no_grad()
def sharded_sgd_step(optimizer: SGD) -> None:
    """optimizer.step() for parameters that are DTensors; the same formula, and the same state for a checkpoint."""
    for group in optimizer.param_groups:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        momenta = [_local(optimizer.state[parameter].get("momentum_buffer")) for parameter in parameters]
        sgd(
            [parameter.to_local() for parameter in parameters],
            [parameter.grad.to_local() for parameter in parameters],
            momenta,
            fused=True,
            found_inf=getattr(optimizer, "found_inf", None),  # from fp16's scaler: where it is 1, nothing changes
            lr=group["lr"],
            momentum=group["momentum"],
            dampening=group["dampening"],
            weight_decay=group["weight_decay"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
        )
        for parameter, momentum in zip(parameters, momenta, strict=True):
            if momentum is not None and "momentum_buffer" not in optimizer.state[parameter]:
                optimizer.state[parameter]["momentum_buffer"] = _like(parameter, momentum)


def _local(tensor: DTensor | None) -> Tensor | None:
    return None if tensor is None else tensor.to_local()


def _like(parameter: DTensor, local: Tensor) -> DTensor:
    """A DTensor with this rank's part of it, laid out as the parameter is: its last shards may be smaller."""
    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
