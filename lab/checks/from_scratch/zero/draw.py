"""What the checks of 9.3 draw for each run, and what one process makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, AdamW, Optimizer

from lab.checks.common.tiny import one_thread
from lab.checks.from_scratch.zero.formulas import FORMULAS, State

RANKS, STEPS = 3, 2

# What is trained: six layers that grow, each with a bias and a number. Dealt out one by one to three ranks, from
# the largest on too, or in runs of equal length, they make shares that are far apart; from the largest on, each to
# the lightest share, they come out even.
SHAPES = [
    shape
    for inputs, outputs in ((10, 14), (12, 18), (15, 20), (18, 24), (22, 28), (26, 32))
    for shape in ((outputs, inputs), (outputs,), (1,))
]
FEW = [(4, 3, 2, 2), (3,)]  # fewer than ranks; filters, which lie in memory as channels_last ones do
UNUSED = 4  # the parameter that has no gradient in the second step


@dataclass(frozen=True)
class Case:
    """An optimizer of two groups, every other layer in each, and with a rate of its own.

    layer  how many parameters are a layer
    """

    name: str
    kind: type[Optimizer]
    shapes: Sequence[tuple[int, ...]]
    layer: int
    options: tuple[dict[str, Any], dict[str, Any]]
    dtype: torch.dtype = torch.float32

    def group_of(self, number: int) -> int:
        """The group of the parameter of this number."""
        return number // self.layer % 2

    def build(
        self, weights: Sequence[Tensor], *, contiguous: bool = False
    ) -> tuple[list[nn.Parameter], Optimizer]:
        """`contiguous`: whether filters, too, lie in memory as they are indexed."""
        parameters = [nn.Parameter(tensor.clone() if contiguous else laid_out(tensor)) for tensor in weights]
        groups = [
            {"params": [one for i, one in enumerate(parameters) if self.group_of(i) == number], **options}
            for number, options in enumerate(self.options)
        ]
        return parameters, self.kind(groups)  # type: ignore[call-arg]


CASES = (
    Case("AdamW", AdamW, SHAPES, 3, ({"lr": 0.1, "weight_decay": 0.2}, {"lr": 0.03, "weight_decay": 0.0})),
    Case(
        "SGD with momentum",
        SGD,
        FEW,
        1,
        ({"lr": 0.2, "momentum": 0.9}, {"lr": 0.05, "momentum": 0.5}),
        torch.float64,
    ),
    Case("Adagrad", Adagrad, SHAPES, 3, ({"lr": 0.2}, {"lr": 0.05})),
)


def laid_out(tensor: Tensor) -> Tensor:
    """A copy; filters by their channels last, so that flatten() of them is a copy, too, and view(-1) an error."""
    return tensor.clone(memory_format=torch.channels_last if tensor.dim() == 4 else torch.preserve_format)


@dataclass(frozen=True)
class Drawn:
    """Of each case: weights; gradients[step], the same on all ranks. `factor` is that of a scheduler."""

    weights: list[list[Tensor]]
    gradients: list[list[list[Tensor]]]
    factor: float = 0.5


def draw(generator: torch.Generator) -> Drawn:
    def numbers(case: Case) -> list[Tensor]:
        return [torch.randn(shape, generator=generator, dtype=case.dtype) for shape in case.shapes]

    def weights(case: Case) -> list[Tensor]:
        """A number that is a tensor of its own is far from 0, or rounding alone would move it by a part of it."""
        return [one.sign() + one if one.numel() == 1 else one for one in numbers(case)]

    return Drawn([weights(case) for case in CASES], [[numbers(case) for _ in range(STEPS)] for case in CASES])


def sent(drawn: Drawn, *, contiguous: bool = False) -> dict[str, Any]:
    return {
        "weights": drawn.weights,
        "gradients": drawn.gradients,
        "factor": drawn.factor,
        "contiguous": contiguous,
    }


def give(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor], step: int) -> None:
    for number, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        parameter.grad = None if step and number == UNUSED else gradient


def twin(drawn: Drawn, case: int, *, one_group: bool = False, same_rate: bool = False) -> list[list[Tensor]]:
    """One process's weights after each step.

    Args:
        one_group: the second group is trained with the first one's options.
        same_rate: the rates do not change after the first step.
    """
    with one_thread():
        weights = [tensor.clone() for tensor in drawn.weights[case]]
        states: list[State] = [{} for _ in weights]
        after = []
        for step, gradients in enumerate(drawn.gradients[case]):
            factor = 1.0 if same_rate else drawn.factor**step
            step_all(CASES[case], weights, states, gradients, step, factor, one_group=one_group)
            after.append([tensor.clone() for tensor in weights])
        return after


def step_all(
    case: Case,
    weights: Sequence[Tensor],
    states: Sequence[State],
    gradients: Sequence[Tensor],
    step: int,
    factor: float = 1.0,
    *,
    one_group: bool = False,
) -> None:
    """One step of the case's optimizer by its formula, with rates times `factor`. Changes weights and states."""
    for number, (weight, gradient, state) in enumerate(zip(weights, gradients, states, strict=True)):
        if not (step and number == UNUSED):
            options = case.options[0 if one_group else case.group_of(number)]
            FORMULAS[case.kind](weight, gradient, state, **{**options, "lr": options["lr"] * factor})


def whole_states(drawn: Drawn, case: int) -> int:
    """The bytes of the states of all parameters in one process."""
    with one_thread():
        states: list[State] = [{} for _ in drawn.weights[case]]
        weights = [tensor.clone() for tensor in drawn.weights[case]]
        step_all(CASES[case], weights, states, drawn.gradients[case][0], 0)
        return sum(value.nbytes for state in states for value in state.values())


def states_bytes(optimizer: Optimizer) -> int:
    states = [value for own in optimizer.state.values() for value in own.values() if isinstance(value, Tensor)]
    return sum(value.nbytes for value in states)
