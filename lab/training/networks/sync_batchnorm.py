"""--sync-batchnorm: BatchNorm normalises by the images of all ranks, not of each rank by itself.

With few images on a device their mean and variance are rough guesses, and every rank makes another one. This is as
if one device had the whole batch, for a collective more in each layer, forward and backward.

On a GPU it is torch.nn.SyncBatchNorm, which knows no CPU; there it is the same formula, with collectives that
autograd goes back through. (Ioffe and Szegedy 2015, arXiv:1502.03167; across devices: Peng et al. 2018, MegDet,
arXiv:1711.07240.)
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm

from lab.base.errors import UsageError


class _Sum(torch.autograd.Function):
    """The sum over all ranks. Each rank's part goes into every rank's sum: its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        whole = part.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _Sum.forward(ctx, gradient)


class CPUSyncBatchNorm(_BatchNorm):
    """What torch.nn.SyncBatchNorm is on a GPU. It is none, because DDP refuses that on the CPU."""

    def forward(self, input: Tensor) -> Tensor:  # the name that its callers use
        return self._normalise(input) if self.training else super().forward(input)

    def _normalise(self, x: Tensor) -> Tensor:
        """[B, C, ...] -> the same: (x - mean) / sqrt(variance + eps) * weight + bias, over all ranks.

        The variance is the mean square of what is left without the mean: the mean of the squares less the square
        of the mean would be the difference of two large numbers.
        """
        others = [dim for dim in range(x.ndim) if dim != 1]
        column = (1, -1, *[1] * (x.ndim - 2))
        wide = x if x.dtype == torch.float64 else x.float()
        count = wide.new_full((1,), x.numel() // x.shape[1])  # a rank may have fewer images than another
        sums, count = _Sum.apply(torch.cat([wide.sum(others), count])).split([x.shape[1], 1])
        centred = wide - (sums / count).view(column)
        variance = _Sum.apply(centred.square().sum(others)) / count
        self._remember((sums / count).detach(), (variance * count / (count - 1)).detach())
        normal = centred * torch.rsqrt(variance + self.eps).view(column)
        if self.affine:
            normal = normal * self.weight.view(column) + self.bias.view(column)
        return normal.to(x.dtype)

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """Into the running statistics. The variance is that of a sample, over one less than all images."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        weight = 1.0 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), weight)
        self.running_var.lerp_(variance.to(self.running_var.dtype), weight)


# They stay what they were too, so that whoever looks for BatchNorm, such as fsdp_utils.py, finds them.
KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
ON_CPU, ON_GPU = (
    {kind: type(f"Sync{kind.__name__}", (synchronised, kind), {}) for kind in KINDS}
    for synchronised in (CPUSyncBatchNorm, nn.SyncBatchNorm)
)


def synchronise_batchnorm(model: nn.Module, name: str, device: torch.device) -> None:
    """Let every BatchNorm of a model that is not wrapped yet look at all ranks. Names and weights stay.

    Args:
        name: of the model, for messages.
        device: where it will compute.

    Raises:
        UsageError: it has none.
    """
    norms = [module for module in model.modules() if type(module) in KINDS]
    if not norms:
        raise UsageError(f"--sync-batchnorm: {name} has no BatchNorm layer, so leave it out")
    for norm in norms:
        norm.__class__ = (ON_CPU if device.type == "cpu" else ON_GPU)[type(norm)]  # type: ignore[index]
        norm.process_group = None  # type: ignore[assignment]  # all ranks


def is_synchronised(model: nn.Module) -> bool:
    """Whether a model, wrapped or not, has such layers."""
    return any(isinstance(module, CPUSyncBatchNorm | nn.SyncBatchNorm) for module in model.modules())
