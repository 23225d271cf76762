"""Accumulation, clipping, schedule and scaler against a loop written by hand on one device."""

import json
import re

import pytest
import stepping_observers
import tiny_run
import torch
from torch import nn

from lab.base.errors import UserError
from lab.runs.options.schedule import rate_factor
from lab.training.stepping import stepper as stepping

PLAIN = {"net": {"dropout": 0.0}, "noise": 0.0, "double": True}
CLIP = 0.05
LR = 0.5


def twin(epochs: int, clip: float | None = None, schedule: str = "constant", warmup: int = 0) -> dict:
    """One process, whole batches of 8, nothing of the lab's training code."""
    torch.manual_seed(0)
    model = tiny_run.TinyNet(dropout=0.0).double()
    images = tiny_run.Images(32, noise=0.0, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4)
    step = 0
    for epoch in range(1, epochs + 1):
        # DistributedSampler deals this order out to the ranks in turn, so a global batch is a piece of it.
        order = torch.randperm(32, generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(8):
            factor = rate_factor(step, schedule=schedule, total_steps=4 * epochs, warmup_steps=warmup)
            optimizer.param_groups[0]["lr"] = LR * factor
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images.images[batch]), images.labels[batch]).backward()
            if clip is not None:
                assert nn.utils.clip_grad_norm_(model.parameters(), clip) > clip
            optimizer.step()
            step += 1
    return model.state_dict()


@pytest.mark.parametrize(
    ("strategy", "accumulate", "clip"),
    [
        ("none", 4, CLIP),
        ("ddp", 1, CLIP),
        ("ddp", 2, CLIP),
        ("fsdp", 1, CLIP),
        ("fsdp", 2, CLIP),
        ("fsdp", 4, None),
    ],
)
def test_accumulated_and_clipped_gradients_are_those_of_the_whole_batch(tiny, strategy, accumulate, clip):
    argv = ["--strategy", strategy, "--accumulate", str(accumulate), "--base-lr", str(LR * 32), "--epochs", "2"]
    argv += [] if clip is None else ["--clip-norm", str(clip)]
    result = tiny(*argv, world_size=1 if strategy == "none" else 2, **PLAIN).values[0]
    for name, tensor in twin(2, clip).items():
        torch.testing.assert_close(result["weights"][name], tensor, rtol=0, atol=1e-12)


def test_fsdp1_accumulates_and_clips_too(tiny):
    """It has no checkpoints and so no whole weights here: its losses tell. Its clipping knows no float64."""
    argv, plain = ("--accumulate", "2", "--clip-norm", str(CLIP), "--epochs", "3"), {**PLAIN, "double": False}
    first, second = (
        tiny("--strategy", name, "--run-id", name, *argv, **plain).values[0] for name in ("fsdp", "fsdp1")
    )
    for mine, theirs in zip(first["records"], second["records"], strict=True):
        assert mine == pytest.approx(theirs, rel=0, abs=1e-6)


def test_the_rate_follows_the_schedule(tiny):
    argv = ("--strategy", "ddp", "--base-lr", str(LR * 32), "--epochs", "3", "--schedule", "cosine")
    result = tiny(*argv, "--warmup-epochs", "0.75", **PLAIN).values[0]
    for name, tensor in twin(3, schedule="cosine", warmup=3).items():
        torch.testing.assert_close(result["weights"][name], tensor, rtol=0, atol=1e-12)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_no_gradients_are_communicated_inside_a_window(tiny, strategy):
    group = tiny(
        *("--strategy", strategy, "--accumulate", "4"),
        observe=stepping_observers.communication,
        env={"TORCH_FR_BUFFER_SIZE": "2000"},
    )
    for micro_batches in group.values:
        assert len(micro_batches) == 12  # 24 images in global batches of 8: three windows of four
        for index, names in enumerate(micro_batches):
            kinds = {name.partition(":")[2] for name in names}
            assert any("reduce" in kind for kind in kinds) == (index % 4 == 3), (index, kinds)
            if index % 4 < 3 and index > 4:  # at 4 DDP agrees on its buckets, once
                # FSDP gathers its parameters, which are sharded all the time; DDP has nothing to say.
                assert kinds == ({"all_gather"} if strategy == "fsdp" else set())


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_gradient_that_overflows_on_one_rank_skips_the_step_on_all(tiny, strategy):
    ranks = tiny(observe=stepping_observers.overflow, strategy=strategy).values
    start = [p.detach() for p in start_weights()]
    for rank in ranks:
        (first_scale, first), (second_scale, second) = rank["states"]
        assert (first_scale, second_scale) == (128.0, 128.0)  # halved once
        assert all(torch.equal(a, b) for a, b in zip(first, start, strict=True))
        assert not any(torch.equal(a, b) for a, b in zip(second, start, strict=True))
    for mine, others in zip(ranks[0]["states"][1][1], ranks[1]["states"][1][1], strict=True):
        assert torch.equal(mine, others)


def start_weights() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return list(tiny_run.TinyNet(dropout=0.0).parameters())


def test_the_ranks_draw_the_same_random_numbers_at_first_and_then_their_own(tiny):
    """What is drawn for the model is the same (main.py seeds torch itself), dropout and augmentation are not."""
    first, second = tiny(observe=stepping_observers.random_streams).values
    assert first["before"] == second["before"]
    assert not set(first["after"]) & set(second["after"])
    again, _ = tiny(observe=stepping_observers.random_streams).values
    assert again == first
    assert not first["deterministic"]
    assert tiny("--deterministic", observe=stepping_observers.random_streams).values[0]["deterministic"]


def test_a_loader_that_does_not_fit_the_accumulation_is_named(tiny):
    wrong, too_few = tiny(observe=stepping_observers.misuse).values[0]
    assert "needs a loader of 2 images on each rank, but this one has 4: give args.loader_batch_size" in wrong
    assert "an epoch has 8 micro-batches, too few for one step of --accumulate 16" in too_few


# One process ----------------------------------------------------------------------------------------------------


class Counting(torch.optim.SGD):
    """Notes what reaches the real optimizer."""

    def __init__(self, parameters, **settings):
        super().__init__(parameters, **settings)
        self.calls = []

    def zero_grad(self, set_to_none=True):
        self.calls.append("zero_grad")
        super().zero_grad(set_to_none)

    def step(self, closure=None):
        self.calls.append("step")
        return super().step(closure)


def linear() -> tuple[nn.Module, Counting]:
    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model, Counting(model.parameters(), lr=1.0)


def test_inside_a_window_only_its_ends_reach_the_optimizer():
    model, optimizer = linear()
    stepper = stepping.Stepper(model, optimizer, accumulate=3)
    for index in range(6):
        with stepper.micro_batch(index):
            optimizer.zero_grad()
            model.zero_grad()
            model(torch.tensor([[1.0, float(index)]])).sum().backward()  # not through the run: as right
            optimizer.step()
    assert optimizer.calls == ["zero_grad", "step", "zero_grad", "step"]
    assert stepper.steps == 2
    assert model.weight.tolist() == [[-2.0, -(0 + 1 + 2) / 3 - (3 + 4 + 5) / 3]]


def test_outside_of_a_window_every_call_counts_and_release_gives_the_methods_back():
    model, optimizer = linear()
    stepper = stepping.Stepper(model, optimizer, accumulate=3)
    optimizer.zero_grad()
    optimizer.step()
    stepper.release()
    optimizer.step()
    assert optimizer.calls == ["zero_grad", "step", "step"]
    assert stepper.steps == 1


def test_every_group_keeps_its_own_rate():
    a, b = (nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = torch.optim.SGD([{"params": [a], "lr": 1.0}, {"params": [b], "lr": 0.1}])
    stepper = stepping.Stepper(nn.ParameterList([a, b]), optimizer, rate_factor=lambda step: 1 / (1 + step))
    rates = []
    for _ in range(2):
        optimizer.step()
        rates.append([group["lr"] for group in optimizer.param_groups])
    assert rates == [[1.0, 0.1], [0.5, 0.05]]
    assert stepper.steps == 2


def test_a_closure_is_refused():
    model, optimizer = linear()
    stepping.Stepper(model, optimizer)
    with pytest.raises(ValueError, match="takes no closure"):
        optimizer.step(lambda: None)


def test_fp16_without_a_scaled_loss_is_refused():
    model, optimizer = linear()
    stepper = stepping.Stepper(model, optimizer, scaler=torch.amp.GradScaler("cpu"))
    model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(UserError, match=r"call run.backward\(loss\) instead of loss.backward\(\)"):
        optimizer.step()
    stepper.backward(model(torch.ones(1, 2)).sum())
    optimizer.step()


# Losses that are no numbers -----------------------------------------------------------------------------------


def test_a_loss_that_is_no_number_stops_the_run_and_names_step_and_checkpoint(tiny, tmp_path):
    """One image in one rank's part of step 3 is no number."""
    order = torch.randperm(32, generator=torch.Generator().manual_seed(1)).tolist()
    argv = ("--strategy", "ddp", "--epochs", "2", "--save-every-steps", "1")
    group = tiny(*argv, bad_image=order[2 * 8 + 5])
    file = tmp_path / "results" / "r" / "checkpoints" / "latest.pth"
    for value in group.values:
        assert value["ended"] == (
            "NotFinite: the loss became nan at epoch 1, step 3: lower --base-lr, or use --warmup-epochs or "
            f"--clip-norm. The last good checkpoint is {file} (epoch 1, step 2)"
        )
    status = json.loads((tmp_path / "results" / "r" / "status.json").read_text())
    assert status["status"] == "failed"
    assert status["reason"].startswith("the loss became nan at epoch 1, step 3")
    saved = torch.load(file, weights_only=True)
    assert all(tensor.isfinite().all() for tensor in saved["model"].values())
    assert tiny(*argv, "--resume", "latest").values[0]["ended"] == "done"  # with a better image


def test_a_bad_loss_stops_the_run_at_once_even_where_nothing_is_saved(tiny):
    order = torch.randperm(32, generator=torch.Generator().manual_seed(1)).tolist()
    for value in tiny("--strategy", "fsdp", "--epochs", "1", bad_image=order[8 + 2]).values:
        assert "the loss became nan at epoch 1, step 2: lower --base-lr" in value["ended"]
        assert value["ended"].endswith("There is no checkpoint yet")


def test_weights_that_are_no_numbers_are_not_saved(tiny, tmp_path):
    argv = ("--epochs", "1", "--save-every-steps", "1", "--base-lr", "3200", "--weight-decay", "1e38")
    group = tiny("--strategy", "fsdp", *argv)
    for value in group.values:
        assert "the weights are no longer finite numbers at epoch 1, step 1" in value["ended"]
        assert "There is no checkpoint yet" in value["ended"]
    assert not (tmp_path / "results" / "r" / "checkpoints" / "latest.pth").exists()


def test_a_validation_loss_that_is_no_number_stops_the_run(tiny):
    value = tiny("--strategy", "none", "--epochs", "3", "--base-lr", "1e9", world_size=1, images=8).values[0]
    assert re.match("NotFinite: the validation loss of epoch [123] is nan: lower --base-lr", value["ended"])
