"""Gradient norms, the loss scale, step times: right for each step, over all ranks, and kept on the device."""

import csv
import math
from pathlib import Path

import pytest
import torch
from one_process import make_loader, make_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from lab.training.metrics.step_figures import StepFigures

STILL = {"noise": 0, "net": {"dropout": 0.0, "width": 5}}  # 5 does not divide by 2: the ranks' shards are unlike
STEPS = 4
WAYS = (
    ("none", ("--strategy", "none"), 1),
    ("ddp", ("--strategy", "ddp"), 2),
    ("fsdp", ("--strategy", "fsdp"), 2),
    ("fsdp1", ("--strategy", "fsdp1"), 2),
    ("hybrid", ("--strategy", "fsdp", "--shard", "hybrid", "--shard-ranks", "2"), 4),  # two copies of each shard
)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "run.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def curve(folder: Path, tag: str) -> dict[int, float]:
    shown = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {event.step: event.value for event in shown.Scalars(tag)}


@pytest.mark.parametrize("more", [(), ("--accumulate", "2", "--clip-norm", "0.1")], ids=["", "accumulated"])
def test_the_norm_is_that_of_all_parameters_whatever_the_strategy(tiny, tmp_path, more):
    norms = {}
    for strategy, argv, ranks in WAYS:
        ended = tiny("--run-id", strategy, *argv, *more, "--epochs", "2", world_size=ranks, **STILL)
        assert ended.values[0]["ended"] == "done"
        found = curve(tmp_path / "results" / strategy, "step/gradient norm")
        assert list(found) == list(range(1, 2 * STEPS + 1))
        norms[strategy] = list(found.values())
        table = rows(tmp_path / "results" / strategy)
        assert float(table[0]["grad_norm"]) == pytest.approx(sum(norms[strategy][:STEPS]) / STEPS, rel=1e-4)
        assert [row["loss_scale"] for row in table] == ["", "", ""]
    assert min(norms["none"]) > 0.1  # and so it is the norm before clipping
    for strategy, _, _ in WAYS:
        assert norms[strategy] == pytest.approx(norms["none"], rel=1e-4), strategy


@pytest.mark.usefixtures("world_of_one")
def test_it_is_the_norm_that_one_computes_by_hand(tmp_path):
    model, loader, expected = nn.Linear(4, 2), make_loader(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with make_run(tmp_path, "--epochs", "1") as run:
        run.begin(model, optimizer, loader)
        for epoch in run.epochs():
            for images, labels in run.batches(loader):
                optimizer.zero_grad()
                run.backward(nn.functional.cross_entropy(model(images), labels))
                expected.append(math.sqrt(sum(p.grad.square().sum().item() for p in model.parameters())))
                optimizer.step()
            model.eval()(images)
            record = run.record(epoch, 0.5, 0.25, 0.75)
    found = curve(tmp_path / "results" / "r", "step/gradient norm")
    assert list(found.values()) == pytest.approx(expected, rel=1e-5)
    assert record.gradient_norm == pytest.approx(sum(expected) / len(expected), rel=1e-6)
    seconds = curve(tmp_path / "results" / "r", "step/seconds")
    assert list(seconds) == list(found)
    assert 0 < sum(seconds.values()) <= record.seconds


@pytest.mark.parametrize("ranks", [2, 1])
def test_a_resumed_epoch_has_the_mean_of_all_its_steps(tiny, tmp_path, ranks):
    argv = ("--strategy", "fsdp", "--epochs", "1")
    tiny(*argv, "--run-id", "whole", **STILL)
    tiny(*argv, "--save-every-steps", "2", stop=[1, 3], **STILL)
    tiny(*argv, "--resume", "latest", world_size=ranks, **STILL)
    whole, resumed = (float(rows(tmp_path / "results" / name)[0]["grad_norm"]) for name in ("whole", "r"))
    assert resumed == pytest.approx(whole, rel=1e-5)


@pytest.mark.usefixtures("world_of_one")
class TestOneProcess:
    def test_fp16s_scale_is_kept_and_a_step_that_overflows_does_not_count(self):
        model = nn.Linear(3, 1, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        figures = StepFigures(model, 4, torch.device("cpu"), scaler)
        figures.begin_epoch()
        scales = []
        for step, size in enumerate((1.0, math.inf, 2.0, 3.0), start=1):
            optimizer.zero_grad()
            scaler.scale(model(torch.tensor([[size, 0.0, 0.0]])).sum()).backward()
            scaler.unscale_(optimizer)
            figures.square.measure([model.weight.grad])
            scaler.step(optimizer)
            scaler.update()
            figures.end_step(step)
            scales.append(figures.last_step().loss_scale.item())
        assert scales == [1024.0, 512.0, 512.0, 1024.0]
        assert figures.totals() == (pytest.approx(2.0), 1024.0)  # the mean of 1, 2 and 3

    def test_a_loop_without_an_optimizer_has_no_norm(self, tmp_path):
        model, loader = nn.Linear(4, 2), make_loader()
        with make_run(tmp_path, "--epochs", "1") as run:
            run.begin(model, torch.optim.SGD(model.parameters()), loader)
            for epoch in run.epochs():
                for images, _ in run.batches(loader):
                    model(images)
                model.eval()(images)
                assert math.isnan(run.record(epoch, 0.5, 0.25, 0.75).gradient_norm)
        assert rows(tmp_path / "results" / "r")[0]["grad_norm"] == ""

    def test_a_measurement_pays_for_none_of_it(self, tmp_path):
        model, loader = nn.Linear(4, 2), make_loader()
        optimizer = torch.optim.SGD(model.parameters())
        with make_run(tmp_path, "--measure-steps", "2", "--measure-warmup", "1") as run:
            run.begin(model, optimizer, loader)
            assert run._loop.meter.figures is None
            assert run._loop._stepper.square is None
