"""A training run's whole state, in one format for a single process, DDP and FSDP, at any number of ranks.

Parameters and optimizer state are whole tensors under the model's own names ("blocks.0.0.weight"), so that whoever
loads them can shard them anew. All functions here are collective: every rank calls them.
"""

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
from lab.training.stepping.stepper import Stepper
from lab.training.stepping.together import from_rank_0

# Every rank takes part in gathering; the whole state arrives in rank 0's main memory only.
GATHER = StateDictOptions(full_state_dict=True, cpu_offload=True)
SCATTER = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


def collect(stepper: Stepper, of_rank: dict[str, Any]) -> dict[str, Any]:
    """Weights, optimizer state, scaler, and what each rank keeps for itself. Empty on all ranks but 0.

    What it returns stays as it is while the training goes on.

    Args:
        stepper: has the wrapped model and its optimizer.
        of_rank: this rank's own part: the states of its random generators, its sums.
    """
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, of_rank)
    with stepper.released():
        weights = get_model_state_dict(stepper.model, options=GATHER)
        optimizer_state = get_optimizer_state_dict(stepper.model, stepper.optimizer, options=GATHER)
    if dist.get_rank() != 0:
        return {}
    scaler = None if stepper.scaler is None else stepper.scaler.state_dict()
    return {
        "model": _snapshot(weights, stepper.model),
        "optimizer": _snapshot(optimizer_state, stepper.model),
        "scaler": scaler,
        "ranks": ranks,
    }


def _snapshot(state: Any, model: nn.Module) -> Any:
    """Every tensor in the usual order in memory, and none of them one that the next step changes.

    A broadcast sends memory as it lies there: ranks that expect the usual order would read a channels_last tensor
    with its numbers in other places. And what lives in main memory is not copied by bringing it there: all of a
    model on the CPU, the step counters of Adam also beside a model on a GPU.
    """
    on_cpu = all(parameter.device.type == "cpu" for parameter in model.parameters())

    def take(tensor: Tensor) -> Tensor:
        if on_cpu or tensor.ndim == 0:
            return tensor.clone(memory_format=torch.contiguous_format)
        return tensor.contiguous()

    return tree_map_only(Tensor, take, state)


def is_finite(weights: dict[str, Tensor]) -> bool:
    """Whether every weight is a number."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in weights.values() if tensor.is_floating_point())


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
    model, optimizer = stepper.model, stepper.optimizer
    _check_fit(state, model, source)
    from_rank_0(lambda: _check_groups(state, optimizer, source))
    settings = [
        {name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups
    ]
    if from_rank_0(lambda: bool(state["optimizer"]["state"])):  # plain SGD has none
        with stepper.released():  # PyTorch sets up an empty state with a step of its own
            set_optimizer_state_dict(model, optimizer, state.get("optimizer", {}), options=SCATTER)
        _lay_out_as_parameters(optimizer)
    for group, own in zip(optimizer.param_groups, settings, strict=True):
        group.update(own)
    _put_weights(state, model)
    scaler = from_rank_0(lambda: state["scaler"])
    if stepper.scaler is not None and scaler is not None:
        stepper.scaler.load_state_dict(scaler)


def restore_weights(state: dict[str, Any], model: nn.Module, source: str) -> None:
    """Put a checkpoint's weights into a wrapped model, and nothing else. Raises as restore."""
    _check_fit(state, model, source)
    _put_weights(state, model)


def _put_weights(state: dict[str, Any], model: nn.Module) -> None:
    set_model_state_dict(model, state.get("model", {}), options=SCATTER)


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
        raise UserError(f"{source} is of another model: it has no {missing[0]}, which this model has")
    if extra := [name for name in saved if name not in wanted]:
        raise UserError(f"{source} is of another model: it has {extra[0]}, which this model has not")
    for name, tensor in wanted.items():
        before, now = list(saved[name].shape), list(tensor.shape)
        if before != now:
            raise UserError(f"{source} is of another model: its {name} is {before}, but this model's is {now}")


def _check_groups(state: dict[str, Any], optimizer: Optimizer, source: str) -> None:
    groups, wanted_groups = len(state["optimizer"]["param_groups"]), len(optimizer.param_groups)
    if groups != wanted_groups:
        raise UserError(f"{source} has {groups} groups of parameters, but this optimizer has {wanted_groups}")
