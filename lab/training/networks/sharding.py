"""--shard: what FSDP2 gathers and when, on which mesh; and the bytes that this costs in every step.

full    a block's parameters are gathered for its forward pass, given back, and gathered again for its backward
        pass
grad    they stay gathered in between: one all-gather less, and the memory of all parameters
hybrid  several copies of the model, each sharded over a group of ranks (HSDP: a 2D mesh of copies and shards): the
        all-gathers stay in the group, and the copies average the shards of their gradients

Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054) call the first two stage 3 and stage 2; Zhao et al. 2023 (PyTorch
FSDP, arXiv:2304.11277) have the third.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from lab.base.errors import UserError

MIB = 2**20


@dataclass(frozen=True)
class Sharding:
    """How a model is sharded, and what a rank sends in one optimizer step, in bytes.

    Counted as rings send it: of N bytes that G ranks gather or reduce in parts, each sends N (G - 1) / G; of N
    bytes that R ranks all-reduce, 2 N (R - 1) / R. Other algorithms of NCCL send as much or less over other ways.
    """

    choice: str  # full, grad or hybrid
    shard_ranks: int  # ranks that share one copy
    copies: int
    gathered: float  # bytes of parameters, to the ranks of the same copy
    reduced: float  # bytes of gradients, to the same ranks
    averaged: float  # bytes of gradients, to the ranks of the other copies

    @property
    def columns(self) -> dict[str, str]:
        """Of run.csv (records/folder.py)."""
        return {
            "shard": self.choice,
            "shard_ranks": str(self.shard_ranks),
            "shard_group_mb": f"{(self.gathered + self.reduced) / MIB:.6g}",
            "copies_group_mb": f"{self.averaged / MIB:.6g}",
        }

    def __str__(self) -> str:
        copies = (
            f"{self.copies} copies, each over {self.shard_ranks} ranks" if self.copies > 1 else "over all ranks"
        )
        text = (
            f"{self.choice}, {copies}; in a step a rank sends {self.gathered / MIB:.3g} MiB of parameters and "
            f"{self.reduced / MIB:.3g} MiB of gradients"
        )
        return f"{text} in its copy, {self.averaged / MIB:.3g} MiB between the copies" * (self.copies > 1) or text


def shard_as_asked(model: nn.Module, args: argparse.Namespace) -> tuple[Sharding | None, list[str]]:
    """Let FSDP2 reshard as --shard says, or make sure that the model's mesh is the one it says.

    Args:
        model: wrapped.
        args: resolved.

    Returns:
        How it is sharded, None without FSDP2; and warnings.

    Raises:
        UserError: the mesh is another one, or nothing is sharded.
    """
    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    groups = len(list(_groups(model)))
    if args.shard is None:
        return (describe(model, args.accumulate) if groups else None), []
    if not isinstance(model, FSDPModule):
        raise UserError(
            f"--shard {args.shard}: wrap_model() has returned a {type(model).__name__} that fully_shard has not "
            "sharded as a whole: shard the blocks, and the model itself last"
        )
    _check_mesh(model, args)
    for unit in units:
        if args.shard == "grad":
            unit.set_reshard_after_forward(False, recurse=False)
        elif unit is not model:  # the root's are needed again at once, so that PyTorch keeps them
            unit.set_reshard_after_forward(True, recurse=False)
    warnings = []
    if args.shard == "grad" and groups == 1:
        warnings.append("--shard grad has no effect: the model is one unit, whose parameters stay gathered anyway")
    return describe(model, args.accumulate), warnings


def _check_mesh(model: nn.Module, args: argparse.Namespace) -> None:
    for name, parameter in model.named_parameters():
        if not isinstance(parameter, DTensor):
            raise UserError(f"--shard {args.shard}: {name} is not sharded: shard the model itself last")
        shape = tuple(parameter.device_mesh.shape)
        if args.shard != "hybrid":
            if len(shape) > 1 and shape[0] > 1:
                raise UserError(
                    f"--shard {args.shard}: wrap_model() has sharded {name} on a mesh of {_times(shape)} ranks, "
                    "which is hybrid: use a mesh of one dimension, or --shard hybrid"
                )
            continue
        ranks = math.prod(shape)
        wanted = ranks // args.shard_ranks, args.shard_ranks
        rows = parameter.device_mesh.mesh.reshape(-1).tolist()
        if shape != wanted or rows != sorted(rows):
            raise UserError(
                f"--shard hybrid: wrap_model() has sharded {name} on a mesh of {_times(shape)} ranks, not "
                f"{_times(wanted)}: hand **options.shard_options(args) on to get_fsdp_model(), and let it make "
                f'init_device_mesh(device.type, {wanted}, mesh_dim_names=("copies", "shards")) of that'
            )


def _groups(model: nn.Module) -> Iterator[tuple[Any, bool]]:
    """FSDP2's units of parameters, and whether each is sharded again after its forward pass.

    PyTorch has no public way to ask. Before 2.12 or so a module had one group, not a list of them.
    """
    seen: list[Any] = []  # the modules of a list that is one unit have one state
    for module in model.modules():
        if not isinstance(module, FSDPModule):
            continue
        state: Any = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        for group in [state._fsdp_param_group] if groups is None else groups:
            # A root that was told nothing is told so before its first forward pass.
            keeps = module is model and getattr(state, "_auto_reshard_after_forward", True)
            if group is not None and state not in seen:
                yield group, group.post_forward_mesh_info is not None and not keeps
        seen.append(state)


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def describe(model: nn.Module, accumulate: int) -> Sharding:
    """How a model is sharded, as FSDP2 has it, and what that sends in one optimizer step.

    Args:
        accumulate: micro-batches to the step: parameters are gathered for each, gradients reduced for the last.
    """
    groups = list(_groups(model))
    gathered = reduced = averaged = 0.0
    for group, reshards in groups:
        shards = group.mesh_info.shard_mesh_size
        copies = getattr(group.mesh_info, "replicate_mesh_size", 1)
        again = group.post_forward_mesh_info.shard_mesh_size if reshards else 1  # ranks that it is gathered from
        for one in group.fsdp_params:
            shape, policy = list(one.sharded_param.shape), group.mp_policy
            dim = one.sharded_param.placements[-1].dim
            shape[dim] = math.ceil(shape[dim] / shards) * shards  # FSDP2 fills up the last shards
            own = one.sharded_param.dtype
            computed = policy.param_dtype or own
            weights = math.prod(shape) * computed.itemsize
            gathered += accumulate * (weights * (shards - 1) / shards + weights * (again - 1) / again)
            if one.sharded_param.requires_grad:
                gradients = math.prod(shape) * (policy.reduce_dtype or computed).itemsize
                reduced += gradients * (shards - 1) / shards
                averaged += 2 * gradients / shards * (copies - 1) / copies
    info = groups[0][0].mesh_info
    copies = getattr(info, "replicate_mesh_size", 1)
    alone = len(groups) == 1  # the root alone keeps its parameters, whatever is asked
    kept = "full" if alone or any(reshards for _, reshards in groups) else "grad"
    return Sharding("hybrid" if copies > 1 else kept, info.shard_mesh_size, copies, gathered, reduced, averaged)


def held_bytes(optimizer: Optimizer) -> int:
    """Bytes of weights, gradients and optimizer state on this rank; of FSDP2's, rank 0 has the most.

    What FSDP2 has gathered is not counted: the optimizer knows the shards only.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    tensors = [tensor for parameter in parameters for tensor in (parameter, parameter.grad)]
    tensors += [value for state in optimizer.state.values() for value in state.values()]
    return sum(_own(tensor).nbytes for tensor in tensors if isinstance(tensor, Tensor))


def _own(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
