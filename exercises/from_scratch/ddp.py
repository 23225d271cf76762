"""Exercise 9.2: DistributedDataParallel, built by hand.

Every rank has the whole model and a part of the batch; the gradients are averaged while the backward pass still
runs. It goes from the last layer to the first, so the last layers' gradients are there first. They are gathered in
buckets, each one flat tensor, for one large all-reduce is faster than many small ones; and a bucket's all-reduce
begins as soon as it is full, while the layers before it are still being computed.

    backward   [ layer 4 | layer 3 | layer 2 | layer 1 ]
    bucket 0             [ all-reduce 4, 3 ]
    bucket 1                                [ all-reduce 2, 1 ]

Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", 2020.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def laid_out_as(parameter: Tensor, part: Tensor) -> Tensor:
    """A part of a flat tensor, in the parameter's shape and order in memory, which may be channels_last."""
    return part.as_strided(parameter.shape, parameter.stride(), part.storage_offset())


class Bucket:
    """Parameters whose gradients lie in one flat tensor, one behind the other, and are reduced at once.

    flat    the gradients; views[i] is the part of parameters[i]
    ready   how many of the gradients this backward pass has computed
    work    the all-reduce that is under way
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        self.flat = parameters[0].new_zeros(sum(parameter.numel() for parameter in parameters))
        parts = self.flat.detach().split([parameter.numel() for parameter in parameters])
        self.views = [laid_out_as(parameter, part) for part, parameter in zip(parts, parameters, strict=True)]
        self.ready = 0
        self.work: dist.Work | None = None

    def collect(self) -> None:
        """Bring the gradients into `flat`, and let every .grad be its view of it; one that is missing is zero."""
        for parameter, view in zip(self.parameters, self.views, strict=True):
            if parameter.grad is None:
                view.zero_()
            elif parameter.grad is not view:
                view.copy_(parameter.grad)
            parameter.grad = view


def make_buckets(module: nn.Module, cap_mb: float) -> list[Bucket]:
    """The parameters that are trained, in buckets: one is closed when it has reached `cap_mb` MiB."""
    # TODO 9.2a: go through the parameters from the last to the first, since their gradients come in this order.
    raise NotImplementedError("Exercise 9.2a is not done yet: make_buckets() in from_scratch/ddp.py")


def broadcast(tensors: Sequence[Tensor]) -> None:
    """Give all ranks what rank 0 has in these tensors, those of one type in one message."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        same = [tensor.detach() for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.flatten() for tensor in same])
        dist.broadcast(flat, src=0)
        for tensor, part in zip(same, flat.split([tensor.numel() for tensor in same]), strict=True):
            tensor.copy_(part.view_as(tensor))


class MyDDP(nn.Module):
    """A model whose gradients are the means over all ranks once loss.backward() and finish() were called.

    Args:
        module: on its device, with parameters of one type.
        bucket_cap_mb: the size at which a bucket is full, in MiB.
    """

    def __init__(self, module: nn.Module, bucket_cap_mb: float = 25.0) -> None:
        super().__init__()
        self.module = module
        self.syncs = True  # whether backward passes communicate
        self.begun = 0  # the buckets whose all-reduce has begun in this backward pass
        self.buckets = make_buckets(module, bucket_cap_mb)
        # TODO 9.2b: let all ranks begin with the parameters and buffers of rank 0; and have self._ready(bucket)
        # called for each parameter when its gradient is complete: register_post_accumulate_grad_hook.
        raise NotImplementedError("Exercise 9.2b is not done yet: MyDDP.__init__() in from_scratch/ddp.py")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's. In training, its buffers (BatchNorm's statistics) become those of rank 0 before."""
        if self.training and self.syncs:
            broadcast(list(self.module.buffers()))
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, gradients add up on each rank; the next backward pass outside reduces them all."""
        self.syncs = False
        try:
            yield
        finally:
            self.syncs = True

    def _ready(self, bucket: Bucket) -> None:
        """One more gradient of this bucket is complete."""
        # TODO 9.2c: nothing in no_sync(). Else count it, and begin the next buckets as long as they are full: in
        # the order of self.buckets, so that all ranks call the same all-reduces in the same order.
        raise NotImplementedError("Exercise 9.2c is not done yet: MyDDP._ready() in from_scratch/ddp.py")

    def _begin(self, bucket: Bucket) -> None:
        """Begin to average a bucket over all ranks, and go on without waiting."""
        bucket.collect()
        # TODO 9.2d: divide, then an all-reduce with async_op=True, whose Work finish() waits for.
        raise NotImplementedError("Exercise 9.2d is not done yet: MyDDP._begin() in from_scratch/ddp.py")

    def finish(self) -> None:
        """After backward(): the gradients are complete when this returns."""
        # TODO 9.2e: nothing in no_sync(). Else begin the buckets that never got full, because this rank has not
        # used all of their parameters; wait for all; and be ready for the next backward pass.
        raise NotImplementedError("Exercise 9.2e is not done yet: MyDDP.finish() in from_scratch/ddp.py")
