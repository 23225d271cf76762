"""my-ddp, my-zero and my-fsdp: a finished main.py trains with what a student has built, as with PyTorch's."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lab.base.errors import UsageError, UserError
from lab.ranks.rank import Rank
from lab.ranks.server import RankServer
from lab.runs import options
from lab.training import own_strategy

SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions"
SMALL = ("--model", "cnn", "--epochs", "2", "--global-batch-size", "16", "--base-lr", "0.3")


def train(rank: Rank) -> dict[str, Any]:
    """main.py's own run, with few images; every rank draws other weights, which the strategy must make alike."""
    main = rank.student("main")
    given = rank.receive()
    images = torch.rand(40, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(40) % 10
    data = torch.utils.data.TensorDataset(images, labels)
    small = type("Data", (), {"train": data, "valid": data, "test": None, "classes": [str(n) for n in range(10)]})
    models: list[nn.Module] = []
    optimizers: list[torch.optim.Optimizer] = []
    build = main.build_optimizer
    main.read_datasets = lambda args: small
    main.cleanup = lambda: None  # the weights are gathered afterwards

    def build_optimizer(model: nn.Module, args: Any) -> torch.optim.Optimizer:
        models.append(model)
        optimizers.append(build(model, args))
        return optimizers[-1]

    main.build_optimizer = build_optimizer
    seed = torch.manual_seed
    main.torch.manual_seed = lambda number: seed(number + rank.rank)
    records = main.run(options.parse([*given, "--output-dir", str(rank.code / "out"), "--no-tensorboard"]))
    return {
        "losses": [record.train_loss for record in records],
        "valid": [record.valid_loss for record in records],
        "weights": whole_weights(models[0]),
        "class": type(models[0]).__name__,
        "states": sum(s["exp_avg"].numel() for s in optimizers[0].state.values() if "exp_avg" in s),
    }


def whole_weights(model: Any) -> list[torch.Tensor]:
    """Of all parameters in the order of their names, on every rank."""
    if hasattr(model, "full_state_dict"):
        named = model.full_state_dict()
    else:
        named = {name.removeprefix("module."): parameter for name, parameter in model.named_parameters()}
    whole = {
        name: value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in named.items()
    }
    return [whole[name].detach().clone() for name in sorted(whole)]


@pytest.fixture(scope="module")
def ranks() -> Any:
    with RankServer() as server:
        yield server


def run(ranks: RankServer, code: Path, *given: str) -> list[dict[str, Any]]:
    return ranks.run(train, 2, code=code, inputs=[*SMALL, *given], timeout=280, set_up_process_group=False).values


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import shutil

    folder = tmp_path_factory.mktemp("own") / "code"
    shutil.copytree(SOLUTIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize(
    ("strategy", "kind", "more"),
    [
        ("ddp", "MyDDP", ()),
        ("ddp", "MyDDP", ("--accumulate", "2", "--clip-norm", "0.5")),
        ("fsdp", "MyFSDP", ("--accumulate", "2")),
        ("zero", "DistributedDataParallel", ("--accumulate", "2", "--clip-norm", "0.5", "--optimizer", "adamw")),
    ],
)
def test_it_has_the_losses_of_pytorchs_and_one_model_on_all_ranks(
    ranks: RankServer, code: Path, strategy: str, kind: str, more: tuple[str, ...]
):
    own = run(ranks, code, "--strategy", f"my-{strategy}", *more)
    theirs = run(ranks, code, "--strategy", "ddp" if strategy == "zero" else strategy, *more)
    assert [one["class"] for one in own] == [kind] * 2
    if strategy == "zero":  # each has the states of its share
        assert sum(one["states"] for one in own) == theirs[0]["states"] == theirs[1]["states"]
        assert max(one["states"] for one in own) < 0.7 * theirs[0]["states"]
    else:
        assert kind not in [one["class"] for one in theirs]
    for name in ("losses", "valid"):
        assert own[0][name] == pytest.approx(theirs[0][name], rel=1e-4)
    for here, there, other in zip(own[0]["weights"], own[1]["weights"], theirs[0]["weights"], strict=True):
        assert torch.equal(here, there)
        torch.testing.assert_close(here, other, rtol=1e-3, atol=1e-5)


def test_a_sharded_optimizer_that_hands_nothing_out_leaves_its_mark(ranks: RankServer, code: Path, tmp_path: Path):
    """The run steps with the student's optimizer: without its hand_out() the ranks drift apart."""
    import shutil

    broken = Path(shutil.copytree(code, tmp_path / "code"))
    file = broken / "from_scratch" / "zero.py"
    file.write_text(file.read_text().replace("self.hand_out()", "pass"))
    here, there = (one["weights"] for one in run(ranks, broken, "--strategy", "my-zero"))
    assert not any(torch.equal(a, b) for a, b in zip(here, there, strict=True))


@pytest.mark.parametrize(
    ("given", "device", "said"),
    [
        (["--capture"], "cuda", "--capture cannot record --strategy my-ddp"),
        (["--compile"], "cuda", "--compile cannot compile --strategy my-ddp"),
        (["--precision", "fp16"], "cuda", "--strategy my-ddp has no fp16 here"),
        (["--resume", "latest", "--run-id", "a"], "cpu", "--strategy my-ddp has no checkpoints, so no --resume"),
        (
            ["--strategy", "my-zero", "--capture"],
            "cuda",
            "--capture cannot record --strategy my-zero.*--strategy ddp",
        ),
        (["--strategy", "my-zero", "--precision", "fp16"], "cuda", "my-zero has no fp16 here: .* --strategy ddp"),
        (["--strategy", "my-zero", "--resume", "auto"], "cpu", "my-zero has no checkpoints, .* --strategy ddp"),
        (["--strategy", "my-fsdp", "--clip-norm", "1"], "cpu", "which --strategy my-fsdp does not compute"),
        (["--strategy", "my-fsdp", "--checkpoint-activations"], "cpu", "does not gather them"),
    ],
)
def test_what_it_cannot_do_is_refused_in_a_sentence(given: list[str], device: str, said: str):
    with pytest.raises(UsageError, match=said):
        options.resolve(options.parse(["--strategy", "my-ddp", *given]), 2, device=device)


def test_it_says_that_it_writes_no_checkpoints():
    resolved, warnings = options.resolve(options.parse(["--strategy", "my-ddp", "--bucket-cap-mb", "2"]), 2)
    assert not resolved.checkpoints
    assert warnings == ["--strategy my-ddp writes no checkpoints"]


def test_a_model_that_was_wrapped_again_or_not_at_all_is_not_trained():
    args = options.parse(["--strategy", "my-ddp"])
    own = nn.Linear(1, 1)
    own_strategy.check_wrapped(own, own, args)
    for other in (nn.Sequential(own), nn.Linear(1, 1)):
        with pytest.raises(UserError, match=r"--strategy my-ddp: main\.py must go on with the model"):
            own_strategy.check_wrapped(other, own, args)
    own_strategy.check_wrapped(own, None, options.parse(["--strategy", "ddp"]))


def test_where_there_is_no_such_module_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in [name for name in sys.modules if name.startswith("from_scratch")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UserError, match=r"lab reset --file from_scratch/ddp\.py brings it back"):
        own_strategy.wrap(nn.Linear(1, 1), options.parse(["--strategy", "my-ddp"]))
