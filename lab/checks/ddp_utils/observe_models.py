"""What ranks observe of average_gradients with models beside the first one."""

from contextlib import ExitStack
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from lab.checks.common.attempt import attempt
from lab.checks.common.left_behind import no_memory, swallowed
from lab.checks.common.meta_device import one_gpu_a_node
from lab.checks.common.tiny import TinyNet, gradients_of
from lab.ranks.rank import Rank

COLLECTIVES = (
    *(
        "all_reduce",
        "all_reduce_coalesced",
        "reduce",
        "broadcast",
        "all_gather",
        "all_gather_into_tensor",
        "gather",
    ),
    *(
        "reduce_scatter",
        "reduce_scatter_tensor",
        "all_to_all",
        "all_to_all_single",
        "all_gather_object",
        "barrier",
    ),
)


def average_again(ddp_utils: ModuleType, rank: int, held: list[Any]) -> list[dict[str, torch.Tensor]]:
    """The gradients of a model after each of three calls; two and two of its parameters have the same shape.

    In the second call they are the same tensors with other numbers, in the third one other tensors.
    """
    model = TinyNet()
    model.twins = nn.ModuleList([nn.Linear(13, 11), nn.Linear(11, 10)])
    held.append(model)
    after = []
    for call in (1, 2, 3):
        for number, parameter in enumerate(model.parameters(), 1):
            value = torch.full_like(parameter, call * number * (rank + 1.0)).detach()
            if call == 2 and parameter.grad is not None:
                with torch.no_grad():
                    parameter.grad.copy_(value)
            else:
                held.append(parameter.grad)
                parameter.grad = value
        ddp_utils.average_gradients(model)
        after.append(gradients_of(model))
    return after


def average_in(rank: Rank, ddp_utils: ModuleType, kind: torch.dtype, held: list[Any]) -> list[float]:
    """Of each parameter of this type one number of its gradient, which was r + 1; none where an error says so."""
    model = with_gradients(TinyNet().to(kind), rank.rank + 1.0)
    held.append(model)
    if attempt(rank, ddp_utils.average_gradients, model)["error"]:
        return []
    return [float(gradient.flatten()[0]) for gradient in gradients_of(model).values()]


def with_gradients(model: nn.Module, value: float) -> nn.Module:
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value)
    return model


def fail_to_average(ddp_utils: ModuleType) -> str:
    """The type of what average_gradients returns where every collective raises; "" where that comes out."""
    failing = mock.Mock(side_effect=no_memory)
    with ExitStack() as stack:
        for name in COLLECTIVES:
            original = getattr(dist, name)
            for home in (dist, ddp_utils):
                if getattr(home, name, None) is original:
                    stack.enter_context(mock.patch.object(home, name, failing))
        kind = swallowed(ddp_utils.average_gradients, with_gradients(TinyNet(), 1.0))
    return kind if failing.called else ""  # others, such as the functional ones, have gone on working


def average_on_a_node(rank: Rank, ddp_utils: ModuleType) -> float | None:
    """A gradient of r + 1 on rank r, averaged where each rank is on a node of its own; None if no CPU will do."""
    model = with_gradients(TinyNet(), rank.rank + 1.0)
    with one_gpu_a_node():
        if attempt(rank, ddp_utils.average_gradients, model)["error"]:
            return None
    return next((float(gradient.flatten()[0]) for gradient in gradients_of(model).values()), None)
