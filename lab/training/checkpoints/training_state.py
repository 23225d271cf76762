"""A training run's whole state, in one format for a single process, DDP and FSDP, at any number of ranks.

Parameters and optimizer state are whole tensors under the model's own names ("blocks.0.0.weight"), so that whoever
loads them can shard them anew. All functions here are collective: every rank calls them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from lab.base.errors import UserError
from lab.training.checkpoints.host_copies import HostCopies
from lab.training.checkpoints.other_model import WORDS, OtherModel
from lab.training.checkpoints.shards import MODEL, OPTIMIZER, Shards
from lab.training.stepping.stepper import Stepper
from lab.training.stepping.together import from_rank_0

# Every rank takes part in gathering; the whole state arrives in rank 0's main memory only.
GATHER = StateDictOptions(full_state_dict=True, cpu_offload=True)
SCATTER = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


@dataclass(frozen=True)
class Collected:
    """A training state that stays as it is while the training goes on."""

    state: dict[str, Any]  # all of it, or what is not sharded; empty on all ranks but 0
    shards: dict[str, Tensor] = field(default_factory=dict)  # this rank's, where they are not gathered
    copied: torch.cuda.Event | None = None  # from the GPU; the numbers are there when it has come

    def wait(self) -> None:
        """Until the numbers are there."""
        if self.copied is not None:
            self.copied.synchronize()


def collect(stepper: Stepper, of_rank: dict[str, Any], *, sharded: bool = False) -> Collected:
    """Weights, optimizer state, scaler, and what each rank keeps for itself.

    From a GPU the copying is only started: the stepper lets its next update wait for it.

    Args:
        stepper: has the wrapped model and its optimizer.
        of_rank: this rank's own part: the states of its random generators, its sums.
        sharded: each rank keeps its shards. Else all is gathered on rank 0.
    """
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, of_rank)
    device = next(stepper.model.parameters()).device
    copies = HostCopies(device) if device.type == "cuda" else None
    options = GATHER if copies is None and not sharded else None
    with stepper.released():
        weights: dict[str, Any] = get_model_state_dict(stepper.model, options=options)
        optimizer: dict[str, Any] = get_optimizer_state_dict(stepper.model, stepper.optimizer, options=options)
    take = _snapshot if copies is None else _copier(copies, stepper.model, gather=not sharded)
    shards: dict[str, Tensor] = {}
    if sharded:
        shards = {MODEL + name: take(tensor) for name, tensor in weights.items()}
        rest: dict[str, Any] = {name: {} for name in optimizer["state"]}
        for name, kept in optimizer["state"].items():
            for key, one in kept.items():
                if isinstance(one, Tensor):
                    shards[f"{OPTIMIZER}{name}/{key}"] = take(one)
                else:
                    rest[name][key] = one
        weights, optimizer = {}, {**optimizer, "state": rest}
    else:
        weights, optimizer = tree_map_only(Tensor, take, (weights, optimizer))
    if copies is not None:
        stepper.copied = copies.started()
    if dist.get_rank() != 0:
        return Collected({}, shards, stepper.copied)
    scaler = None if stepper.scaler is None else stepper.scaler.state_dict()
    whole = {"model": weights, "optimizer": optimizer, "scaler": scaler, "ranks": ranks}
    return Collected(whole, shards, stepper.copied)


def _snapshot(tensor: Tensor) -> Tensor:
    """What the next step does not change, in the usual order in memory.

    A broadcast sends memory as it lies there: ranks that expect the usual order would read a channels_last tensor
    with its numbers in other places. And what lives in main memory is not copied by bringing it there.
    """
    return tensor.clone(memory_format=torch.contiguous_format)


def _copier(copies: HostCopies, model: nn.Module, *, gather: bool) -> Callable[[Tensor], Tensor]:
    """The same for what is on a GPU: _snapshot's copies are started.

    Args:
        gather: for rank 0 all of what is sharded, where the others only take part.
    """
    # The next forward pass changes them already, before the optimizer's step.
    buffers = {buffer.data_ptr() for buffer in model.buffers()}

    def take(tensor: Tensor) -> Tensor:
        if gather and isinstance(tensor, DTensor):
            whole = tensor.full_tensor()
            return copies.take(whole, passing=True) if dist.get_rank() == 0 else whole.new_empty(0)
        if gather and dist.get_rank() != 0:
            return tensor
        is_buffer = not isinstance(tensor, DTensor) and tensor.data_ptr() in buffers
        return copies.take(tensor.clone() if is_buffer else tensor)

    return take


def all_finite(model: nn.Module) -> bool:
    """Whether every weight of every rank is a number. Collective; it waits for the GPU."""
    floats = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point()]
    local = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in floats]
    finite = torch.stack([torch.isfinite(tensor).all() for tensor in local]).all().to(torch.int32)
    dist.all_reduce(finite, op=dist.ReduceOp.MIN)
    return bool(finite.item())


def restore(state: dict[str, Any], stepper: Stepper, source: str) -> None:
    """Put a checkpoint's weights, optimizer state and scaler where they belong.

    The optimizer's settings (rates, momentum, weight decay) stay as the command line has them.

    Args:
        state: what `collect` returned; the weights and the optimizer state are needed on rank 0 only.
        stepper: has the model, wrapped as this run wants it, however it was when the checkpoint was written.
        source: the file's name, for messages.

    Raises:
        UserError: they are of another model or another optimizer.
    """
    _check_fit(state, stepper.model, source)
    from_rank_0(lambda: _check_groups(state, stepper.optimizer, source))
    if from_rank_0(lambda: bool(state["optimizer"]["state"])):  # plain SGD has none
        _put_optimizer_state(stepper, state.get("optimizer", {}), SCATTER)
    _put_weights(state, stepper.model)
    _put_scaler(stepper, state)


def restore_weights(state: dict[str, Any], model: nn.Module, source: str) -> None:
    """Put a checkpoint's weights into a wrapped model, and nothing else. Raises as restore."""
    _check_fit(state, model, source)
    _put_weights(state, model)


def restore_shards(folder: Path, state: dict[str, Any], stepper: Stepper) -> None:
    """As restore, for a sharded checkpoint, of which every rank reads what it needs.

    Args:
        folder: of the checkpoint.
        state: what is not sharded; needed on rank 0 only.

    Raises as restore; and UserError where the shards cannot be read.
    """
    shards = Shards(folder)
    weights = _fitting(shards, stepper.model, folder)
    from_rank_0(lambda: _check_groups(state, stepper.optimizer, str(folder)))
    room = {}
    for name, size in shards.sizes(OPTIMIZER).items():
        weight, dtype = weights[name.rpartition("/")[0]], shards.dtype(OPTIMIZER + name)
        # Momentum and the like are sharded as their weights are; step counters are numbers.
        like_it = size == weight.shape
        room[name] = torch.empty_like(weight, dtype=dtype) if like_it else torch.empty(size, dtype=dtype)
    shards.fill(_named(MODEL, weights) | _named(OPTIMIZER, room))
    optimizer_state = from_rank_0(lambda: state["optimizer"])
    for name, tensor in room.items():
        weight_name, _, key = name.rpartition("/")
        optimizer_state["state"].setdefault(weight_name, {})[key] = tensor
    if optimizer_state["state"]:
        _put_optimizer_state(stepper, optimizer_state, None)
    set_model_state_dict(stepper.model, weights)
    _put_scaler(stepper, state)


def restore_shard_weights(folder: Path, model: nn.Module) -> None:
    """As restore_weights, for a sharded checkpoint. Raises as restore_shards."""
    shards = Shards(folder)
    weights = _fitting(shards, model, folder)
    shards.fill(_named(MODEL, weights))
    set_model_state_dict(model, weights)


def _fitting(shards: Shards, model: nn.Module, folder: Path) -> dict[str, Any]:
    """The model's own weights, to be filled in place; UserError where the checkpoint has others."""
    sizes = {name: torch.empty(size, device="meta") for name, size in shards.sizes(MODEL).items()}
    _check_fit({"model": sizes}, model, str(folder))
    weights: dict[str, Any] = get_model_state_dict(model)
    return weights


def _named(prefix: str, tensors: dict[str, Any]) -> dict[str, Any]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _put_optimizer_state(stepper: Stepper, state: dict[str, Any], options: StateDictOptions | None) -> None:
    """Without options each rank has its shards."""
    optimizer = stepper.optimizer
    settings = [
        {name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups
    ]
    with stepper.released():  # PyTorch sets up an empty state with a step of its own
        set_optimizer_state_dict(stepper.model, optimizer, state, options=options)
    _lay_out_as_parameters(optimizer)
    for group, own in zip(optimizer.param_groups, settings, strict=True):
        group.update(own)


def _put_weights(state: dict[str, Any], model: nn.Module) -> None:
    set_model_state_dict(model, state.get("model", {}), options=SCATTER)


def _put_scaler(stepper: Stepper, state: dict[str, Any]) -> None:
    scaler = from_rank_0(lambda: state["scaler"])
    if stepper.scaler is not None and scaler is not None:
        stepper.scaler.load_state_dict(scaler)


def _lay_out_as_parameters(optimizer: Optimizer) -> None:
    """Momentum and the like in the memory order of their parameters, without which every step would be slower."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and not isinstance(value, DTensor) and value.shape == parameter.shape:
                state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _check_fit(state: dict[str, Any], model: nn.Module, source: str) -> None:
    wanted = get_model_state_dict(model)  # sharded: nothing is gathered, only names and shapes are looked at
    from_rank_0(lambda: _check_names(state["model"], wanted, source))


def _check_names(saved: dict[str, Any], wanted: dict[str, Any], source: str) -> None:
    if missing := [name for name in wanted if name not in saved]:
        raise OtherModel(f"{source} {WORDS}it has no {missing[0]}, which this model has")
    if extra := [name for name in saved if name not in wanted]:
        raise OtherModel(f"{source} {WORDS}it has {extra[0]}, which this model has not")
    for name, tensor in wanted.items():
        before, now = list(saved[name].shape), list(tensor.shape)
        if before != now:
            raise OtherModel(f"{source} {WORDS}its {name} is {before}, but this model's is {now}")


def _check_groups(state: dict[str, Any], optimizer: Optimizer, source: str) -> None:
    groups, wanted_groups = len(state["optimizer"]["param_groups"]), len(optimizer.param_groups)
    if groups != wanted_groups:
        raise UserError(f"{source} has {groups} groups of parameters, but this optimizer has {wanted_groups}")
