"""`lab plan`: the peak that it says is that of the tensors which are alive in a rank's step."""

import sys

import pytest
import torch

from lab.plan.layout import ALONE, DDP, FSDP, FSDP_GRAD, Layout
from lab.plan.memory import BACKWARD, CUBLAS, CUDNN, OPTIMIZER, memory
from lab.plan.network import describe
from lab.ranks.rank import Rank
from lab.ranks.server import server

SMALL = {"width": 128, "depth": 2}
DEEP = {"width": 64, "depth": 8}


def watch(rank: Rank) -> dict:
    """A step in each way; {way: bytes alive at its peak}."""
    from plan_steps import alive_at_most

    torch.set_num_threads(1)
    solutions, asked = rank.receive()
    sys.path.append(solutions)
    return {way: alive_at_most(way, *arguments) for way, *arguments in asked}


def seen(root, world_size: int, asked: list) -> list:
    inputs = (str(root / "solutions"), asked)
    return server().run(watch, world_size, code=root / "solutions", inputs=inputs, timeout=240).values


KINDS = {"none": ALONE, "ddp": DDP, "full": FSDP, "grad": FSDP_GRAD}


def planned(way: str, ranks: int, model: str, options: dict, precision: str, batch: int) -> float:
    """Without what cuBLAS and cuDNN keep: these are the tensors."""
    network = describe(model, precision, **options)
    layout = Layout(KINDS[way], ranks, ranks, batch, shards=ranks if way in ("full", "grad") else 1)
    return memory(network, layout, "adamw").total - CUBLAS - (CUDNN if network.width is None else 0)


@pytest.mark.parametrize(
    ("ranks", "ways", "network"),
    [
        (2, ("none", "ddp", "full", "grad"), ("vit", SMALL, "bf16", 32)),
        (2, ("full", "grad"), ("vit", {"width": 256, "depth": 2}, "bf16", 1)),  # weights and little else
        pytest.param(1, ("none", "ddp", "full"), ("vit", SMALL, "bf16", 32), marks=pytest.mark.slow),
        pytest.param(2, ("ddp", "full"), ("vit", DEEP, "fp32", 8), marks=pytest.mark.slow),
        pytest.param(2, ("ddp", "full"), ("resnet18", {}, "bf16", 16), marks=pytest.mark.slow),
    ],
)
def test_the_peak_is_that_of_the_tensors_that_are_alive(root, ranks, ways, network):
    reports = seen(root, ranks, [(way, *network) for way in ways])
    for way in ways:
        assert planned(way, ranks, *network) == pytest.approx(max(rank[way] for rank in reports), rel=0.03), way


def test_the_peak_is_in_the_optimizer_where_weights_outweigh_activations(vit):
    wide = describe("vit", "bf16", width=512, depth=2)
    few, many = memory(wide, Layout(DDP, 8, 8, 1), "adamw"), memory(vit, Layout(FSDP, 8, 8, 64, shards=8), "adamw")
    assert (few.phase, many.phase) == (OPTIMIZER, BACKWARD)
    # Weights, gradients, Adam's two means, and the list that it makes for a moment.
    assert few.total - CUBLAS == 5 * few.parameters
    # When the backward pass begins no gradient of FSDP is there yet, and all of DDP's buckets are.
    assert many.total < many.parameters + many.optimizer + many.activations + many.working
    ddp = memory(vit, Layout(DDP, 8, 8, 64), "adamw")
    assert ddp.total == sum((ddp.parameters, ddp.gradients, ddp.optimizer, ddp.activations, ddp.working))


def test_on_one_device_fsdp_still_computes_in_its_own_precision(vit):
    """It shards nothing there, and hands on 16 bits between blocks where autocast's sum is in fp32."""
    fsdp, ddp = (memory(vit, Layout(kind, 1, 1, 64), "adamw") for kind in (FSDP, DDP))
    assert fsdp.parameters == ddp.parameters
    assert fsdp.activations == 64 * sum(unit.kept_cast for unit in vit.units) < 0.9 * ddp.activations


def test_a_checkpointed_block_is_computed_again_with_its_own_copies_of_weights():
    layout = Layout(DDP, 8, 8, 64)
    deep = describe("vit", "bf16", **DEEP)
    whole, less = (memory(deep, layout, "adamw", checkpoint=checkpoint) for checkpoint in (False, True))
    assert less.total < whole.total - 0.5 * whole.activations


@pytest.fixture(scope="module")
def vit():
    return describe("vit", "bf16", **SMALL)
