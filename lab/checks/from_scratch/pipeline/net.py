"""What the checks of 9.6 train: three stages whose activations weigh much more than what is sent."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

RANKS, MICRO_BATCHES, BATCH, WIDTH, HIDDEN = 3, 6, 96, 4, 48
SHAPE = (BATCH, WIDTH)

Weights = Mapping[str, Tensor]


def make_stage(weights: Weights | None = None) -> nn.Sequential:
    """[B, 4] -> [B, 4]."""
    stage = nn.Sequential(
        nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, WIDTH)
    )
    if weights is not None:
        stage.load_state_dict(dict(weights))
    return stage


def draw_weights(generator: torch.Generator) -> list[dict[str, Tensor]]:
    """Of each stage the state dict."""
    shapes = {name: value.shape for name, value in make_stage().state_dict().items()}
    return [
        {name: 0.4 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        for _ in range(RANKS)
    ]


def activations() -> int:
    """Bytes that autograd keeps in a stage for one micro-batch: the two results of tanh."""
    return 2 * BATCH * HIDDEN * 4


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target) ** 2).mean()


def output_gradients_passed_on(
    weights: Sequence[Weights], inputs: Sequence[Tensor], targets: Sequence[Tensor]
) -> list[dict[str, Tensor]]:
    """Each stage's gradients if those between send back what has come to them, not their input's gradient."""
    stages = [make_stage(own) for own in weights]
    for x, target in zip(inputs, targets, strict=True):
        given, outputs = [x], []
        for stage in stages:
            outputs.append(stage(given[-1]))
            given.append(outputs[-1].detach().requires_grad_())
        (loss_of(outputs.pop(), target) / len(inputs)).backward(inputs=[*stages[-1].parameters(), given[-2]])
        for output in outputs:
            output.backward(given[-2].grad)
    return [{name: p.grad for name, p in stage.named_parameters() if p.grad is not None} for stage in stages]


def of_sums(weights: Sequence[Weights], inputs: Sequence[Tensor]) -> list[dict[str, Tensor]]:
    """Each stage's gradients if it takes those of its own output's sum, whatever has come to it."""
    stages = [make_stage(own) for own in weights]
    for x in inputs:
        for stage in stages:
            output = stage(x)
            output.sum().backward()
            x = output.detach()
    return [{name: p.grad for name, p in stage.named_parameters() if p.grad is not None} for stage in stages]


def one_process(
    weights: Sequence[Weights], inputs: Sequence[Tensor], targets: Sequence[Tensor], used: Sequence[int]
) -> tuple[list[float], list[dict[str, Tensor]]]:
    """Each micro-batch's loss, divided by their number; each stage's gradients of the sum of those in `used`."""
    stages = [make_stage(own) for own in weights]
    losses = []
    for micro, (x, target) in enumerate(zip(inputs, targets, strict=True)):
        for stage in stages:
            x = stage(x)
        loss = loss_of(x, target) / len(inputs)
        losses.append(float(loss.detach()))
        if micro in used:
            loss.backward()
    return losses, [
        {name: p.grad for name, p in stage.named_parameters() if p.grad is not None} for stage in stages
    ]
