"""`lab plan`: its parameters are the networks', its bytes those that gloo ranks are seen to send."""

import importlib
import sys

import pytest
import torch

from lab.plan.layout import DDP, FSDP, FSDP_GRAD, HSDP, PP, TP, ZERO, Layout
from lab.plan.memory import held_parameters, zero_share
from lab.plan.network import describe
from lab.plan.traffic import traffic
from lab.ranks.rank import Rank
from lab.ranks.server import server

BATCH = 2
NETWORKS = {
    "cnn": ("cnn", {}),
    "resnet18": ("resnet18", {}),
    "vit": ("vit", {"width": 128, "depth": 3}),
}


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("cnn", {}),
        ("mnist_cnn", {}),
        ("resnet18", {}),
        ("resnet18", {"image_size": 64}),
        ("vit", {}),
        ("vit", {"width": 64, "depth": 1}),
        ("vit", {"width": 256, "depth": 5, "image_size": 128}),
    ],
)
def test_parameters_are_exactly_those_of_the_network(code, model, options):
    network = describe(model, "bf16", **options)
    with torch.device("meta"):
        real = code.build_model(model, **options)
    assert network.parameters == sum(parameter.numel() for parameter in real.parameters())
    assert sorted(network.shapes) == sorted(tuple(parameter.shape) for parameter in real.parameters())
    assert len(network.blocks) == len(real.blocks)
    for unit, block in zip(network.blocks, real.blocks, strict=True):
        assert unit.parameters == sum(parameter.numel() for parameter in block.parameters())


@pytest.fixture
def code(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "solutions"))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    yield importlib.import_module("model")
    sys.modules.pop("model", None)


# On real ranks ---------------------------------------------------------------------------------------------


def listen(rank: Rank) -> dict:
    """Train a step in each way; the collectives seen, as {way: {name: bytes of all calls}}."""
    from plan_steps import WAYS

    torch.set_num_threads(1)
    solutions, asked = rank.receive()
    sys.path.append(solutions)
    return {way: WAYS[way](rank, *arguments) for way, *arguments in asked}


def seen(root, world_size: int, asked: list) -> list:
    inputs = (str(root / "solutions"), asked)
    return server().run(listen, world_size, code=root / "solutions", inputs=inputs, timeout=240).values


def planned(layout: Layout, network) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in traffic(network, layout):
        found[one.collective] = found.get(one.collective, 0) + one.payload
    return found


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("cnn", "fp32"),
        pytest.param("resnet18", "fp32", marks=pytest.mark.slow),
        ("vit", "fp32"),
        ("resnet18", "bf16"),
        ("vit", "bf16"),
    ],
)
def test_data_parallel_sends_what_is_planned(root, name, precision):
    model, options = NETWORKS[name]
    network = describe(model, precision, **options)
    ways = {"ddp": DDP, "full": FSDP, "grad": FSDP_GRAD} | ({"zero": ZERO} if name == "vit" else {})
    ranks = seen(root, 3, [(way, model, options, precision, BATCH) for way in ways])
    for rank in ranks:
        for way, kind in ways.items():
            layout = Layout(kind, 3, 3, BATCH, shards=3 if "FSDP" in kind else 1)
            assert rank[way]["bytes"] == planned(layout, network), (way, name)
            if "FSDP" in kind:
                assert rank[way]["calls"] == {one.collective: one.calls for one in traffic(network, layout)}
    if "zero" in ways:
        assert max(rank["zero"]["held"] for rank in ranks) == zero_share(network, 3)


@pytest.mark.parametrize("name", [pytest.param("resnet18", marks=pytest.mark.slow), "vit"])
def test_hybrid_sends_what_is_planned(root, name):
    model, options = NETWORKS[name]
    network = describe(model, "fp32", **options)
    layout = Layout(HSDP, 4, 2, BATCH, shards=2)
    for rank in seen(root, 4, [("hybrid", model, options, "fp32", BATCH)]):
        assert rank["hybrid"]["bytes"] == planned(layout, network)


def test_tensor_parallel_sends_and_holds_what_is_planned(root):
    options = {"width": 128, "depth": 3}
    network = describe("vit", "fp32", **options)
    layout = Layout(TP, 2, 2, BATCH, tensor=2)
    for rank in seen(root, 2, [("tensor", "vit", options, "fp32", layout.replica_batch)]):
        assert rank["tensor"]["bytes"] == planned(layout, network)
        assert rank["tensor"]["calls"] == {one.collective: one.calls for one in traffic(network, layout)}
        assert rank["tensor"]["held"] == held_parameters(network, layout)


def test_a_pipeline_sends_what_is_planned(root):
    options = {"width": 64, "depth": 3}
    network = describe("vit", "fp32", **options)
    layout = Layout(PP, 3, 3, BATCH, stages=3, micro=3)
    ranks = seen(root, 3, [("pipeline", "vit", options, "fp32", layout.replica_batch, layout.micro)])
    assert max(rank["pipeline"]["bytes"]["send"] for rank in ranks) == planned(layout, network)["send"]
    assert max(rank["pipeline"]["calls"]["send"] for rank in ranks) == 2 * layout.micro
