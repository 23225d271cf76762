"""--sync-batchnorm: many ranks with few images each are as one with all of them."""

import warnings
from typing import Any

import pytest
import torch
from tiny_run import SOLUTIONS
from torch import nn

from lab.base.errors import UsageError
from lab.ranks.rank import Rank
from lab.training.networks.sync_batchnorm import CPUSyncBatchNorm, synchronise_batchnorm

CPU = torch.device("cpu")
STILL = {"noise": 0, "net": {"dropout": 0.0, "norm": True}}
ARGV = ("--epochs", "2", "--base-lr", "1")


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max((tensor.double() - other[name].double()).abs().max().item() for name, tensor in one.items())


def test_ranks_with_a_part_of_the_batch_train_as_one_with_all_of_it(tiny):
    whole = tiny("--strategy", "none", *ARGV, world_size=1, double=True, **STILL).values[0]
    for strategy in ("ddp", "fsdp"):
        argv = ("--strategy", strategy, *ARGV)
        alone = tiny(*argv, "--run-id", f"{strategy}-alone", double=True, **STILL).values[0]
        group = tiny(*argv, "--run-id", strategy, "--sync-batchnorm", double=True, **STILL)
        synced = group.values[0]
        assert synced["ended"] == "done"
        assert apart(whole["weights"], synced["weights"]) < 1e-9, strategy  # and the running statistics
        assert synced["records"] == [pytest.approx(record, rel=1e-9) for record in whole["records"]]
        assert apart(whole["weights"], alone["weights"]) > 1e-3, strategy
        assert "  batchnorm  by the images of all ranks" in group.reports[0].output


def test_fsdp1_has_it_too(tiny):
    whole = tiny("--strategy", "none", *ARGV, world_size=1, **STILL).values[0]
    argv = ("--strategy", "fsdp1", *ARGV, "--sync-batchnorm")
    synced = tiny(*argv, "--run-id", "fsdp1", **STILL).values[0]
    assert synced["records"] == [pytest.approx(record, rel=1e-4) for record in whole["records"]]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_resumed_run_takes_the_same_way(tiny, strategy):
    def train(*more, **inputs):
        argv = ("--strategy", strategy, *ARGV, "--global-batch-size", "9", "--precision", "bf16", *more)
        return tiny(*argv, world_size=3, images=36, net={"norm": True}, **inputs)

    whole = train("--sync-batchnorm", "--run-id", "whole").values[0]
    train("--sync-batchnorm", "--save-every-steps", "1", stop=[1, 2])
    rest = train("--sync-batchnorm", "--resume", "latest").values[0]
    assert rest["records"] == whole["records"]
    assert apart(whole["weights"], rest["weights"]) == 0
    other = train("--resume", "latest", "--epochs", "3").reports[0].output
    assert "resumed with another --sync-batchnorm: False, before it was True" in other


def test_what_cannot_be_done_is_said(tiny):
    assert "cnn has no BatchNorm layer" in tiny("--strategy", "ddp", *ARGV, "--sync-batchnorm").values[0]["ended"]
    group = tiny("--strategy", "none", *ARGV, "--sync-batchnorm", world_size=1, **STILL)
    assert "warning: --sync-batchnorm has no effect on one rank" in group.reports[0].output


def unlike(rank: Rank) -> dict[str, Any]:
    """A layer on ranks with unlike numbers of images: what it makes, its gradients, what it remembers."""
    inputs = rank.receive()
    layer = nn.Sequential(nn.BatchNorm2d(3, momentum=inputs["momentum"]).double())
    synchronise_batchnorm(layer, "it", CPU)
    images = inputs["images"][:2] if rank.rank == 0 else inputs["images"][2:]
    images = images.clone().requires_grad_()
    made = layer(images)
    (made * inputs["weights"][:2] if rank.rank == 0 else made * inputs["weights"][2:]).sum().backward()
    state = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    return {"made": made.detach(), "gradient": images.grad, "of weight": layer[0].weight.grad, **state}


@pytest.mark.parametrize("momentum", [0.1, None])
def test_it_is_batchnorm_of_all_images_also_where_ranks_have_unlike_numbers(rank_server, momentum):
    generator = torch.Generator().manual_seed(0)
    images, weights = (torch.randn(5, 3, 4, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    given = {"images": images + 100, "weights": weights, "momentum": momentum}
    ranks = rank_server.run(unlike, 2, code=SOLUTIONS, inputs=given).values
    layer = nn.BatchNorm2d(3, momentum=momentum).double()
    whole = (images + 100).requires_grad_()
    made = layer(whole)
    (made * weights).sum().backward()
    torch.testing.assert_close(torch.cat([rank["made"] for rank in ranks]), made)
    torch.testing.assert_close(torch.cat([rank["gradient"] for rank in ranks]), whole.grad)
    torch.testing.assert_close(sum(rank["of weight"] for rank in ranks), layer.weight.grad)  # DDP's to add up
    for rank in ranks:
        for name, tensor in layer.state_dict().items():
            torch.testing.assert_close(rank[f"0.{name}"], tensor)


def test_evaluation_is_as_it_was_and_names_stay():
    plain, synced = (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)) for _ in range(2))
    synced.load_state_dict(plain.state_dict())
    synchronise_batchnorm(synced, "it", CPU)
    assert list(synced.state_dict()) == list(plain.state_dict())
    assert isinstance(synced[1], CPUSyncBatchNorm)
    on_gpu = nn.Sequential(nn.BatchNorm2d(4))
    synchronise_batchnorm(on_gpu, "it", torch.device("cuda"))
    assert isinstance(on_gpu[0], nn.SyncBatchNorm)
    for one in (synced[1], on_gpu[0]):
        assert isinstance(one, nn.BatchNorm2d)  # as fsdp_utils.py looks for it
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(plain.eval()(images), synced.eval()(images))
    with pytest.raises(UsageError, match="--sync-batchnorm: vit has no BatchNorm layer, so leave it out"):
        synchronise_batchnorm(nn.Linear(2, 2), "vit", CPU)


@pytest.mark.usefixtures("world_of_one")
def test_pytorch_warns_of_nothing_in_it():
    model = nn.Sequential(nn.BatchNorm1d(3))
    synchronise_batchnorm(model, "it", CPU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.randn(4, 3)).square().sum().backward()
