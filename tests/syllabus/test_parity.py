"""Training on W ranks at a given global batch is training on one: the reference, in float64."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.data import TensorDataset

from lab.ranks.rank import Rank
from lab.ranks.reports import GroupResult
from lab.ranks.server import RankServer
from lab.runs import options
from lab.training.run import Run

SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions"

GLOBAL_BATCH, STEPS = 84, 10
EPOCHS = 5  # of two steps each; what is left of the samples is dropped
SAMPLES = GLOBAL_BATCH * STEPS // EPOCHS + 7
CPU = torch.device("cpu")


class AveragingRun(Run):
    """Averages the gradients by hand, where DDP and FSDP do it during the backward pass."""

    def average(self, model: nn.Module, average_gradients: Any) -> None:
        self.after_backward = lambda: average_gradients(model)

    def backward(self, loss: Tensor) -> None:
        super().backward(loss)
        self.after_backward()


def train(rank: Rank) -> dict[str, Any]:
    """Ten steps of the CNN through the reference's own functions. Returns whole weights and mean losses."""
    solution = {name: rank.student(name) for name in ("data", "ddp_utils", "fsdp_utils", "model", "train")}
    given = rank.receive()
    strategy, dtype = given["strategy"], getattr(torch, given["dtype"])
    images = torch.randn(SAMPLES, 3, 32, 32, generator=torch.Generator().manual_seed(1)).to(dtype)
    labels = torch.randint(0, 10, (SAMPLES,), generator=torch.Generator().manual_seed(2))
    loader, _ = solution["data"].get_dataloaders(
        TensorDataset(images, labels), TensorDataset(images[:1], labels[:1]), GLOBAL_BATCH, seed=given["seed"]
    )
    # Where the wrapper sends rank 0's weights to the others, they start with weights of their own.
    own = rank.rank if strategy in ("ddp", "fsdp") else 0
    torch.manual_seed(given["seed"] + own)
    model = solution["model"].build_model("cnn").to(dtype)
    run = AveragingRun(options.parse(["--per-device-batch-size", "1"]), CPU, records=False)
    run.average(model, solution["ddp_utils"].average_gradients if strategy == "by hand" else lambda model: None)
    if strategy == "ddp":
        model = solution["ddp_utils"].get_ddp_model(model, CPU)
    elif strategy == "fsdp":
        model = solution["fsdp_utils"].get_fsdp_model(model, CPU)
    elif strategy == "fsdp1":
        model = solution["fsdp_utils"].get_fsdp1_model(model, CPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=given["rate"], momentum=0.9)
    losses = [
        solution["train"].train_one_epoch(model, optimizer, loader, epoch, run)
        for epoch in range(1, given["epochs"] + 1)
    ]
    return {"losses": losses, "steps": len(loader) * given["epochs"], "weights": whole_weights(model)}


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model, writeback=False):
            return {plain(name): value.detach().clone() for name, value in model.named_parameters()}
    return {
        plain(name): (value.full_tensor() if hasattr(value, "full_tensor") else value).detach()
        for name, value in model.named_parameters()
    }


def plain(name: str) -> str:
    return name.removeprefix("module.").replace("_fsdp_wrapped_module.", "")


@pytest.fixture(scope="module")
def ranks() -> Iterator[RankServer]:
    with RankServer() as server:
        yield server


def run(
    ranks: RankServer,
    strategy: str,
    world_size: int,
    *,
    dtype: str = "float64",
    rate: float = 0.1,
    epochs: int = EPOCHS,
    seed: int = 0,
) -> list[dict[str, Any]]:
    given = {"strategy": strategy, "dtype": dtype, "rate": rate, "epochs": epochs, "seed": seed}
    result: GroupResult = ranks.run(train, world_size, code=SOLUTIONS, inputs=given, timeout=280)
    return result.values


@pytest.fixture(scope="module")
def alone(ranks: RankServer) -> dict[str, Any]:
    """The same without a wrapper on one rank."""
    return run(ranks, "none", 1)[0]


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("strategy", ["by hand", "ddp", "fsdp", "fsdp1"])
def test_ten_steps_on_several_ranks_are_ten_steps_on_one(
    ranks: RankServer, alone: dict[str, Any], strategy: str, world_size: int
):
    assert alone["steps"] == STEPS
    for own in run(ranks, strategy, world_size):
        assert own["losses"] == pytest.approx(alone["losses"], abs=1e-6)
        assert own["weights"].keys() == alone["weights"].keys()
        difference = max((own["weights"][name] - alone["weights"][name]).abs().max() for name in own["weights"])
        print(f"{strategy} on {world_size} ranks: largest difference {difference:.1e}")
        assert difference < 1e-5


def test_the_weights_do_move(alone: dict[str, Any], ranks: RankServer):
    start = run(ranks, "none", 1, epochs=0)[0]
    assert max((alone["weights"][n] - start["weights"][n]).abs().max() for n in alone["weights"]) > 1e-2


def test_two_runs_with_the_same_seed_have_the_same_losses(ranks: RankServer):
    first, second, other = (run(ranks, "ddp", 2, dtype="float32", epochs=2, seed=seed) for seed in (3, 3, 4))
    assert [own["losses"] for own in first] == [own["losses"] for own in second]
    assert first[0]["losses"] != other[0]["losses"]


def test_ranks_that_do_not_average_drift_apart(ranks: RankServer):
    """The comparison above can fail: without averaging, two steps are enough."""
    here, there = (own["weights"] for own in run(ranks, "alone on each rank", 2, epochs=1))
    assert max((here[name] - there[name]).abs().max() for name in here) > 1e-4
