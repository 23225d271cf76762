"""The grader's own process imports little, and computes what PyTorch would all the same."""

import subprocess
import sys
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from lab.checks.common.tiny import MOMENTUM, RATE, Descent, TinyNet, draw_batch, make_optimizer
from lab.checks.from_scratch.zero import draw as zero

# What only ranks need: a second each to import.
HEAVY = ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor", "lab.training.run")
JUDGING = """
import sys
import torch
from lab.grading.suite import checks_of
from lab.syllabus.syllabus import syllabus

for exercise in (*syllabus().exercises, *syllabus().optional):
    assert checks_of(exercise), exercise.id
generator = torch.Generator().manual_seed(0)

from lab.checks.fast import draw as fast
training = fast.draw_training(generator, world_size=2)
fast.train(training.weights, training.batches)

from lab.checks.from_scratch.zero import draw as zero
for case in range(len(zero.CASES)):
    zero.twin(zero.draw(generator), case), zero.whole_states(zero.draw(generator), case)

from lab.checks.from_scratch.hsdp import judge as hsdp
hsdp.twin(hsdp.draw(generator))

from lab.checks.from_scratch.tensor_parallel import judge as tensor_parallel
tensor_parallel.twin(tensor_parallel.draw(generator))
print(*(name for name in sys.argv[1:] if name in sys.modules))
"""


def test_judging_imports_nothing_that_only_ranks_need() -> None:
    done = subprocess.run([sys.executable, "-c", JUDGING, *HEAVY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stdout.strip()


def all_close(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return all(torch.allclose(one, other, rtol=1e-5, atol=1e-6) for one, other in zip(some, others, strict=True))


@pytest.mark.parametrize("case", range(len(zero.CASES)), ids=lambda case: zero.CASES[case].name)
@pytest.mark.parametrize("same_rate", [False, True])
def test_the_formulas_are_those_of_the_optimizers(case: int, same_rate: bool) -> None:
    drawn = zero.draw(torch.Generator().manual_seed(case))
    parameters, optimizer = zero.CASES[case].build(drawn.weights[case])
    after = zero.twin(drawn, case, same_rate=same_rate)
    for step in range(zero.STEPS):
        zero.give(parameters, drawn.gradients[case][step], step)
        optimizer.step()
        assert all_close(after[step], [parameter.detach() for parameter in parameters])
        for group in optimizer.param_groups:
            group["lr"] *= 1 if same_rate else drawn.factor
    assert zero.whole_states(drawn, case) == zero.states_bytes(optimizer)


def test_merged_groups_have_the_first_ones_options() -> None:
    drawn = zero.draw(torch.Generator().manual_seed(3))
    parameters, optimizer = zero.CASES[0].build(drawn.weights[0])
    first, second = optimizer.param_groups
    second.update({name: value for name, value in first.items() if name != "params"})
    zero.give(parameters, drawn.gradients[0][0], 0)
    optimizer.step()
    merged = zero.twin(drawn, 0, one_group=True)[0]
    assert all_close(merged, [parameter.detach() for parameter in parameters])
    assert not all_close(merged, zero.twin(drawn, 0)[0])


def test_descent_steps_as_sgd_does() -> None:
    nets = [TinyNet(), TinyNet()]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [make_optimizer(nets[0]), Descent(nets[1].parameters(), RATE, MOMENTUM)]
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        images, labels = draw_batch(generator, 4)
        for net, optimizer in zip(nets, optimizers, strict=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
        assert all_close(*([parameter.detach() for parameter in net.parameters()] for net in nets))
