"""One step of an optimizer for one parameter, by its formula in PyTorch's documentation.

The grader's own process computes with these: torch.optim's first optimizer imports a compiler, for a second.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.optim import SGD, Adagrad, AdamW, Optimizer

State = dict[str, Tensor]  # empty at first; then as torch.optim keeps it, of the same sizes


def adamw(weight: Tensor, gradient: Tensor, state: State, lr: float, weight_decay: float) -> None:
    state = begun(state, weight, "exp_avg", "exp_avg_sq", counted=True)
    weight.mul_(1 - lr * weight_decay)
    state["exp_avg"].mul_(0.9).add_(0.1 * gradient)
    state["exp_avg_sq"].mul_(0.999).add_(0.001 * gradient**2)
    steps = int(state["step"])
    mean = state["exp_avg"] / (1 - 0.9**steps)
    square = state["exp_avg_sq"] / (1 - 0.999**steps)
    weight.sub_(lr * mean / (square.sqrt() + 1e-8))


def sgd(weight: Tensor, gradient: Tensor, state: State, lr: float, momentum: float) -> None:
    state = begun(state, weight, "momentum_buffer")
    state["momentum_buffer"].mul_(momentum).add_(gradient)
    weight.sub_(lr * state["momentum_buffer"])


def adagrad(weight: Tensor, gradient: Tensor, state: State, lr: float) -> None:
    state = begun(state, weight, "sum", counted=True)
    state["sum"].add_(gradient**2)
    weight.sub_(lr * gradient / (state["sum"].sqrt() + 1e-10))


def begun(state: State, weight: Tensor, *names: str, counted: bool = False) -> State:
    """The state with tensors of these names, zero at first; `counted`: with the number of this step, too."""
    for name in names:
        state.setdefault(name, torch.zeros_like(weight))
    if counted:
        state["step"] = state.get("step", torch.zeros(())) + 1
    return state


FORMULAS: Mapping[type[Optimizer], Callable[..., None]] = {AdamW: adamw, SGD: sgd, Adagrad: adagrad}
