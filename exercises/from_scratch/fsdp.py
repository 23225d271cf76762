"""Exercise 9.4: fully sharded data parallelism, built by hand.

DDP keeps all parameters, gradients and optimizer states on every rank. Here each rank keeps 1/N of them, in one
flat shard for each block, and a block is whole only while it is computed:

    forward    for each block: all-gather its parameters, compute, free them
    backward   for each block, from the last: all-gather again, compute, reduce-scatter the gradients, free
    step       the optimizer sees the shards alone

An all-gather and a reduce-scatter are the two halves of an all-reduce (exercise 9.1): sharding costs one half more
than DDP, and saves (N-1)/N of the memory. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
Parameter Models", 2020; Zhao et al., "PyTorch FSDP", 2023.
"""

from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

# Called ..._single since PyTorch 2.14.
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


class Unit:
    """The parameters of one block in one flat tensor, of which this rank keeps its shard.

    shard  this rank's part, in fp32: what the optimizer trains. The last rank's may end in padding
    whole  all of it while the block is computed; in between it has no memory
    """

    def __init__(self, places: list[tuple[nn.Module, str, nn.Parameter]], dtype: torch.dtype) -> None:
        ranks, rank = dist.get_world_size(), dist.get_rank()
        self.places = [(module, name, parameter.shape) for module, name, parameter in places]
        self.sizes = [parameter.numel() for _, _, parameter in places]
        self.dtype = dtype
        self.whole: Tensor | None = None
        self.pending: tuple[dist.Work, Tensor, Tensor] | None = None  # the reduce-scatter under way
        self.earlier: Unit | None = None  # the one that the backward pass comes to just before this one
        # TODO 9.4a: all parameters as one flat tensor, with zeros at its end so that N divides it; that of rank 0
        # for all; and self.shard, an nn.Parameter with a copy of this rank's part, so that the rest can go.
        raise NotImplementedError("Exercise 9.4a is not done yet: Unit.__init__() in from_scratch/fsdp.py")
        for module, name, _ in places:
            del module._parameters[name]  # from here on a view of `whole` takes its place

    def views(self, whole: Tensor) -> list[tuple[nn.Module, str, Tensor]]:
        """Each parameter's module and name, with its part of a tensor of them all."""
        parts = whole[: sum(self.sizes)].split(self.sizes)
        return [(*place, part.view(shape)) for (*place, shape), part in zip(self.places, parts, strict=True)]

    def allocate(self) -> Tensor:
        return torch.empty(len(self.shard) * dist.get_world_size(), dtype=self.dtype, device=self.shard.device)

    def fill(self, whole: Tensor) -> None:
        """Give `whole` its memory back, and gather all shards into it."""
        size = len(self.shard) * dist.get_world_size() * whole.element_size()
        # TODO 9.4b: whole.untyped_storage().resize_(size); then all_gather(whole, the shard in self.dtype).
        raise NotImplementedError("Exercise 9.4b is not done yet: Unit.fill() in from_scratch/fsdp.py")

    def free(self, *_: Any) -> None:
        """Take the memory of `whole`; whoever has a view of it can use it when it is filled again."""
        # TODO 9.4c: the storage of self.whole to 0 bytes.
        raise NotImplementedError("Exercise 9.4c is not done yet: Unit.free() in from_scratch/fsdp.py")

    def before_forward(self, *_: Any) -> None:
        """Give the block its parameters, as views of what is gathered."""
        self.whole = Gather.apply(self.shard, self)
        for module, name, view in self.views(self.whole):
            setattr(module, name, view)

    def before_backward(self, *_: Any) -> None:
        """Autograd must not take what is gathered again for a change of what it has kept."""
        if self.whole is not None:
            with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(self.whole):
                self.fill(self.whole)

    def reduce(self, gradient: Tensor) -> None:
        """Begin to bring the mean of all ranks' gradients to the shards; finish() waits for it."""
        # TODO 9.4d: the gradient of the whole, in fp32 and divided by N, is reduce-scattered with async_op=True
        # into a tensor like the shard. self.pending is (work, that tensor, the gradient), which must live so long.
        raise NotImplementedError("Exercise 9.4d is not done yet: Unit.reduce() in from_scratch/fsdp.py")

    def finish(self) -> None:
        """Wait, and add what has come to the shard's gradient."""
        if self.pending is not None:
            work, own, _ = self.pending
            work.wait()
            self.shard.grad = own if self.shard.grad is None else self.shard.grad + own
            self.pending = None


class Gather(torch.autograd.Function):
    """From the shard to the whole; backward, from the whole's gradient to the shard's."""

    @staticmethod
    def forward(ctx: Any, shard: Tensor, unit: Unit) -> Tensor:
        ctx.unit = unit
        whole = unit.allocate()
        unit.fill(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None]:  # type: ignore[override]
        ctx.unit.finish()  # with what the micro-batch before has left
        ctx.unit.reduce(gradient)
        ctx.unit.free()
        if ctx.unit.earlier is not None:  # its whole gradient can go, too: one at a time is under way
            ctx.unit.earlier.finish()
        return None, None  # finish() sets the shard's gradient when it has come


class MyFSDP(nn.Module):
    """A model with `.blocks`, of which each rank keeps a shard. Call backward(), then finish(), then step.

    Args:
        module: on its device, with fp32 parameters, none of them used by two modules.
        dtype: what the blocks compute in; the shards stay fp32.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.module = module
        self.names = {id(part): name for name, part in module.named_modules()}
        # TODO 9.4e: self.units, a Unit for each of module.blocks from the first to the last, and then one for what
        # is left; with hooks: a unit is gathered before its module's forward pass, a block's is freed after it,
        # and has the hook of gather_again(). A place is (the module that owns a parameter, its name in there, it):
        # part.modules() are a part and all that are in it; named_parameters(recurse=False) gives each one's own.
        raise NotImplementedError("Exercise 9.4e is not done yet: MyFSDP.__init__() in from_scratch/fsdp.py")
        *blocks, rest = self.units  # in the order of the forward pass
        for unit, earlier in pairwise([rest, *blocks]):
            unit.earlier = earlier
        for buffer in module.buffers():
            dist.broadcast(buffer, src=0)
        self.shards = nn.ParameterList(unit.shard for unit in self.units)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = self.module(*args, **kwargs)
        if not torch.is_grad_enabled():
            self.units[-1].free()
        return output

    def finish(self) -> None:
        for unit in self.units:
            unit.finish()

    def full_state_dict(self) -> dict[str, Tensor]:
        """The whole model's, as a single process would load it. All ranks call it."""
        state = dict(self.module.state_dict())
        for unit in self.units:
            whole = unit.shard.new_empty(len(unit.shard) * dist.get_world_size())
            all_gather(whole, unit.shard.detach())
            for module, name, view in unit.views(whole):
                state[f"{self.names[id(module)]}.{name}".removeprefix(".")] = view
        return state


def gather_again(unit: Unit) -> Any:
    """A forward hook: when the gradient of the module's output is there, its parameters are gathered again."""

    def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(unit.before_backward)

    return hook
