"""FLOPs are counted, not estimated; the MFU is told for cards whose peak is known, and for no other device."""

import csv
import sys
from pathlib import Path

import pytest
import torch
from one_process import make_loader, make_run
from torch import nn

from lab.training.metrics.peaks import PEAKS, peak_flops
from lab.training.metrics.work import WorkCounter
from lab.training.networks import build_network

CPU, IMAGE = torch.device("cpu"), torch.Size([3, 32, 32])


def counter(said: list[str], card: str = "cpu", precision: str = "fp32", devices: int = 1) -> WorkCounter:
    one = WorkCounter(CPU, devices, precision, said.append)
    one._card = card
    return one


def test_the_flops_are_those_that_one_counts_by_hand():
    said: list[str] = []
    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 32 * 32, 10))
    work = counter(said)
    work.keep(network)
    convolution, product = 2 * 8 * 27 * 32 * 32, 2 * 8 * 32 * 32 * 10
    # Backward: twice as much, but nobody needs the gradient of the images.
    assert work.of(IMAGE).flops == 2 * convolution + 3 * product
    assert not said


def test_a_transformers_attention_counts():
    work = counter([])
    work.keep(build_network("vit", 10, width=64, depth=2))
    tokens, width, depth = 64, 64, 2
    linear = tokens * 2 * 12 * width**2 * depth
    attention = 2 * 2 * tokens**2 * width * depth
    patches, head = 2 * tokens * 3 * 16 * width, 2 * width * 10
    assert work.of(IMAGE).flops == 3 * (linear + attention + head) + 2 * patches


def test_weights_and_random_numbers_stay_as_they_were():
    network = build_network("resnet18")
    before = [tensor.clone() for tensor in network.state_dict().values()]
    state = torch.get_rng_state()
    work = counter([])
    work.keep(network)
    work.of(IMAGE)
    assert all(map(torch.equal, before, network.state_dict().values()))
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_the_mfu_is_the_time_at_the_peak_over_the_time_taken():
    flops = 2e9

    class Costs(nn.Module):  # 2e9 FLOPs an image and pass; only products of matrices
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(3 * 1024, 10, device="meta"))

        def forward(self, x):
            return x.flatten(1) @ self.weight

    work = counter([], "NVIDIA A100-SXM4-80GB", "bf16", devices=4)
    work.keep(Costs())
    found = work.of(IMAGE)
    assert found.utilisation(1000.0) == pytest.approx(found.flops * 1000 / (4 * 312e12))
    assert found.flops_per_second(flops) == found.flops * flops / 4


@pytest.mark.parametrize("convolutions", [True, False])
def test_in_fp32_the_peak_is_tf32s_where_it_is_used(monkeypatch, convolutions):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", convolutions)
    work = counter([], "NVIDIA A100-SXM4-80GB", "fp32")
    work.keep(nn.Conv2d(3, 8, 3))
    found = work.of(IMAGE)
    assert found.best_seconds == pytest.approx(found.flops / (156e12 if convolutions else 19.5e12))


def test_a_peak_is_told_for_whole_names_only():
    assert peak_flops("NVIDIA H100 80GB HBM3", "bf16") == 989.4e12
    assert peak_flops("Tesla V100-SXM2-16GB", "bf16") is None  # it has none
    assert peak_flops("Tesla V100-SXM2-16GB", "fp32", tf32=True) == 15.7e12
    for unknown in ("cpu", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "NVIDIA A100-SXM-64GB", "NVIDIA H100", ""):
        assert peak_flops(unknown, "fp32") is None
    for name, peak in PEAKS.items():  # and no figure with sparsity has slipped in
        assert peak.tf32 is None or peak.half == pytest.approx(2 * peak.tf32, rel=0.02), name


def test_a_network_that_cannot_be_counted_is_named_and_trains_on():
    class Looks(nn.Module):
        def forward(self, x):
            return x * (1.0 if x.sum().item() > 0 else 2.0)

    said: list[str] = []
    work = counter(said)
    work.keep(Looks())
    assert work.of(IMAGE).flops != work.of(IMAGE).flops  # nan
    assert len(said) == 1
    assert said[0].startswith("warning: no FLOPs and no MFU: they cannot be counted (RuntimeError: ")


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.parametrize("card", ["cpu", "NVIDIA H200"])
def test_a_run_records_what_is_known_and_leaves_the_rest_empty(tmp_path, monkeypatch, card):
    model, loader = nn.Linear(4, 2), make_loader()
    with make_run(tmp_path, "--epochs", "1") as run:
        run._context.work._card = card
        run.begin(run.prepare_model(model), torch.optim.SGD(model.parameters()), loader)
        for epoch in run.epochs():
            for images, _ in run.batches(loader):
                model(images)
            model.eval()(images)
            record = run.record(epoch, 0.5, 0.25, 0.75)
    with (tmp_path / "results" / "r" / "run.csv").open(newline="") as file:
        row = list(csv.DictReader(file))[-1]
    flops = 2 * (2 * 4 * 2)  # forward, and backward for the weights
    rate = flops * record.images_per_second
    assert float(row["tflops_per_device"]) == pytest.approx(rate / 1e12, rel=1e-4)
    assert row["mfu"] == "" if card == "cpu" else float(row["mfu"]) == pytest.approx(rate / 66.9e12, rel=1e-4)


@pytest.mark.usefixtures("world_of_one")
def test_the_command_and_the_system_are_texts_beside_the_curves(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model, loader = nn.Linear(4, 2), make_loader()
    with make_run(tmp_path, "--epochs", "1") as run:
        run.begin(model, torch.optim.SGD(model.parameters()), loader)
        for epoch in run.epochs():
            for images, _ in run.batches(loader):
                model(images)
            model.eval()(images)
            run.record(epoch, 0.5, 0.25, 0.75)
    folder = tmp_path / "results" / "r" / "tensorboard"
    shown = EventAccumulator(str(folder)).Reload()
    texts = {}
    for tab in ("command", "system"):
        (text,) = shown.Tensors(f"{tab}/text_summary")[0].tensor_proto.string_val
        texts[tab] = text.decode()
    assert f"main.py --strategy none --output-dir {tmp_path}/results" in texts["command"]
    assert f"python {sys.version.split()[0]}" in texts["system"]
    assert "| device | cpu |" in texts["system"]
    assert "peak of the card" not in texts["system"]
    assert Path(folder).is_dir()
