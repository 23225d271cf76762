"""lab roofline: FLOPs and bytes of known layers, times of known kernels, the file, the figure, what is refused."""

import csv
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lab.base.errors import UserError
from lab.cli import main
from lab.roofline import measure as measuring
from lab.roofline import step as stepping
from lab.roofline.kinds import COPY, PEAK, PROFILER, TF32, Kind, counted_table, load, save, short, steps, table
from lab.roofline.measure import _by_kind, _products, measure
from lab.roofline.step import Operator, Subject, Tally, kind_of
from lab.training.networks import build_network

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")
ABOUT = ("net", "bf16", 8, "card")


def a_step() -> list[Kind]:
    """A device of 100 TFLOP/s and 1 TB/s: its ridge is at 100 FLOPs a byte."""
    return [
        Kind(*ABOUT, "convolution, forward", 4, 1e-3, 50e9, 0.1e9, 0.04e9),  # 500 a byte, half of its peak
        Kind(*ABOUT, "normalisation", 10, 3e-3, 0.3e9, 1.5e9, 0.5e9),  # 0.2 a byte, half of the bandwidth
        Kind(*ABOUT, f"{PEAK}bf16", 1, 1.0, 100e12, 1e9, 0.3e9),
        Kind(*ABOUT, COPY, 1, 1.0, 0.0, 1e12, 0.5e12),
    ]


def test_a_linear_layer_costs_what_it_must():
    layer = nn.Linear(20, 30)
    x = torch.randn(8, 20)
    with Tally() as tally:
        loss = layer(x).sum()
        loss.backward()
    products = [one for one in tally.operators if one.kind == "matrix product"]
    # forward, and the gradient of the weights; that of the input is not asked for
    assert [one.flops for one in products] == [2 * 8 * 20 * 30, 2 * 8 * 20 * 30]
    forward = 4 * (8 * 20 + 20 * 30 + 30 + 8 * 30)  # input, weights, bias, output
    assert products[0].bytes == forward
    assert products[1].bytes == 4 * (8 * 30 + 8 * 20 + 20 * 30)


def test_an_operator_without_a_formula_counts_an_operation_an_element():
    x = torch.randn(6, 7)
    with Tally() as tally:
        x.relu()
    assert tally.operators == [Operator("element by element", 42, 2 * 4 * 42, 4 * 42)]


def test_what_a_list_of_tensors_becomes_in_place_is_written():
    weights, gradients = [torch.randn(6), torch.randn(7)], [torch.randn(6), torch.randn(7)]
    with Tally() as tally:
        torch._foreach_add_(weights, gradients, alpha=-0.1)
    assert tally.operators == [Operator("element by element", 13, 3 * 4 * 13, 4 * 13)]


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("convolution", "convolution, forward"),
        ("convolution_backward", "convolution, backward"),
        ("addmm", "matrix product"),
        ("cudnn_batch_norm_backward", "normalisation"),
        ("native_layer_norm", "normalisation"),
        ("_scaled_dot_product_flash_attention", "attention"),
        ("max_pool2d_with_indices", "pooling"),
        ("_log_softmax", "loss"),
        ("add_", "element by element"),
    ],
)
def test_operators_are_sorted_by_name(operator, kind):
    assert kind_of(operator) == kind


def test_the_step_of_a_network_is_counted_whole(monkeypatch):
    monkeypatch.setattr(stepping, "WARM_UP", 0)
    monkeypatch.setattr(measuring, "STEPS", 2)
    monkeypatch.setattr(measuring, "_fastest", lambda work, device: 1e-3)
    kinds = measure(Subject("mnist_cnn", "fp32", 4), CPU)
    (step,) = steps(kinds)
    network, images = build_network("mnist_cnn"), torch.randn(4, 1, 28, 28)
    with FlopCounterMode(display=False) as counter:
        network(images).sum().backward()
    matrices = sum(
        one.flops for one in step.kinds if one.kind.startswith(("convolution", "matrix")) and not one.is_peak
    )
    assert matrices == counter.get_total_flops()
    by_name = {one.kind: one for one in step.kinds}
    assert {"convolution, forward", "convolution, backward", "matrix product", "optimizer", "loss"} <= set(by_name)
    parameters = sum(one.numel() for one in network.parameters())
    assert by_name["optimizer"].bytes > 4 * 3 * parameters  # weight, gradient, momentum
    assert all(one.seconds > 0 for one in step.kinds)
    assert step.peaks[0].rate == 2 * 1024**3 / 1e-3


def event(name, *, parent=None, kernels=(), microseconds=0.0, children=("aten::mm",)):
    return SimpleNamespace(
        name=name,
        cpu_parent=parent,
        kernels=[SimpleNamespace(duration=one) for one in kernels],
        cpu_time_total=microseconds,
        cpu_children=[SimpleNamespace(name=child) for child in children],
    )


def test_kernels_belong_to_the_operator_that_launched_them(monkeypatch):
    monkeypatch.setattr(measuring, "STEPS", 2)
    operators = [
        Operator("matrix product", 10.0, 20.0, 5.0),
        Operator("loss", 1.0, 2.0, 1.0),
        Operator("loss", 3.0, 4.0, 1.0),
    ]
    first, view, second = (event(f"operator {number}") for number in range(3))
    inner = event("aten::mm", parent=first)
    events = [
        *(first, view, second, inner),
        event("cudaLaunchKernel", parent=inner, kernels=(5, 7)),
        event("cudaLaunchKernel", parent=second, kernels=(2,)),
        event("cudaLaunchKernel", kernels=(100,)),  # of no operator
    ]
    found = {one.kind: one for one in _by_kind(events, operators, on_gpu=True)}
    assert found["matrix product"].seconds == pytest.approx(6e-6)  # of one step of two
    assert found["matrix product"].kernels == 1
    assert (found["loss"].flops, found["loss"].bytes, found["loss"].written) == (
        1.5,
        2.0,
        0.5,
    )  # operator 1 launched nothing


def test_on_the_cpu_views_take_no_time(monkeypatch):
    monkeypatch.setattr(measuring, "STEPS", 1)
    operators = [Operator("matrix product", 10.0, 20.0, 5.0), Operator("element by element", 1.0, 2.0, 1.0)]
    events = [
        event("operator 0", microseconds=30.0),
        event("operator 1", microseconds=9.0, children=("aten::view",)),
    ]
    (found,) = _by_kind(events, operators, on_gpu=False)
    assert (found.kind, found.seconds) == ("matrix product", pytest.approx(3e-5))


def test_a_kind_is_compared_with_its_own_roof():
    (step,) = steps(a_step())
    assert [one.kind for one in step.kinds] == ["normalisation", "convolution, forward"]  # longest first
    assert [step.roof(one) for one in step.kinds] == [pytest.approx(0.2e12), 100e12]
    lines = table(step)
    assert lines[0] == "net, bf16, 8 images on card: 4.00 ms in kernels"
    assert lines[2].split() == ["normalisation", "10", "3.00", "75%", "0.100", "500", "0.200", "50%"]
    assert lines[3].split()[-6:] == ["1.00", "25%", "50.0", "100", "500", "50%"]
    assert lines[-1] == "  the device at its best, measured: 100 TFLOP/s in bf16; 1,000 GB/s copied"


@pytest.mark.parametrize(
    ("kind", "share"),
    [("convolution, backward", "10%"), ("attention", "10%"), ("matrix product", "50%"), ("normalisation", "50%")],
)
def test_the_roof_of_fp32_is_that_of_tf32_only_for_what_is_computed_in_it(kind, share):
    about = ("net", "fp32", 8, "card")
    (step,) = steps(
        [
            Kind(*about, kind, 1, 1e-3, 10e9, 0.01e9),  # 10 TFLOP/s at 1,000 FLOPs a byte
            Kind(*about, f"{PEAK}fp32", 1, 1.0, 20e12, 1e9),
            Kind(*about, TF32, 1, 1.0, 100e12, 1e9),
            Kind(*about, COPY, 1, 1.0, 0.0, 1e12),
        ]
    )
    assert table(step)[2].split()[-1] == share
    assert counted_table(step.kinds, step)[2].split()[-1] == share


@pytest.mark.parametrize(
    ("convolutions", "products", "peaks"),
    [
        (True, False, [f"{PEAK}fp32", TF32]),  # as PyTorch has it
        (True, True, [TF32]),
        (False, False, [f"{PEAK}fp32"]),
    ],
)
def test_a_peak_is_measured_of_what_fp32_is_computed_in(convolutions, products, peaks, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", convolutions)
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(allow_tf32=products))
    assert _products("fp32", on_gpu=True) == peaks
    assert _products("bf16", on_gpu=True) == [f"{PEAK}bf16"]
    assert _products("fp32", on_gpu=False) == [f"{PEAK}fp32"]


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1234.5, "1,234"), (12.34, "12.3"), (0.0123, "0.0123"), (1e-5, "<0.001")]
)
def test_numbers_have_three_digits(value, text):
    assert short(value) == text


def test_the_file_keeps_everything(tmp_path):
    save(a_step(), tmp_path / "kernels.csv")
    assert load(tmp_path / "kernels.csv") == a_step()


def test_a_file_is_drawn_again(tmp_path, capsys):
    save(a_step(), tmp_path / "kernels.csv")
    assert main(["roofline", str(tmp_path / "kernels.csv")]) == 0
    out = capsys.readouterr().out
    assert "normalisation" in out
    assert f"Drawn: roofline.png in {tmp_path}" in out
    assert (tmp_path / "roofline.png").stat().st_size > 10_000


def test_a_file_of_before_lacks_what_is_written(tmp_path):
    path = tmp_path / "kernels.csv"
    about = "net,bf16,8,card"
    path.write_text(
        "model,precision,batch,device,kind,kernels,seconds,flops,bytes\n"
        f"{about},normalisation,10,0.003,3e+08,1.5e+09\n"
        f"{about},peak: bf16,1,1,1e+14,1e+09\n"
        f"{about},peak: copy,1,1,0,1e+12\n"
    )
    (step,) = steps(load(path))
    assert (step.kinds[0].source, step.kinds[0].bytes) == (PROFILER, 1.5e9)
    assert math.isnan(step.kinds[0].written)
    save(step.kinds, path)
    assert math.isnan(load(path)[0].written)


def changed(row: int, column: str, value: str):
    def change(rows):
        rows[row][column] = value

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (changed(0, "seconds", "0"), "line 2 of .* is damaged"),
        (changed(1, "bytes", "nan"), "line 3 of .* is damaged"),
        (changed(1, "flops", "many"), "line 3 of .* is damaged"),
        (changed(0, "batch", "8.5"), "line 2 of .* is damaged"),
        (changed(0, "written", "2e12"), "line 2 of .* is damaged"),
        (changed(0, "source", "guess"), "line 2 of .* is damaged"),
        (changed(1, "kind", "convolution, forward"), "convolution, forward is there twice"),
        (lambda rows: rows.pop(), "are not whole: a step, its device's copy"),
        (lambda rows: rows.pop(2), "are not whole: a step, its device's copy"),
        (lambda rows: rows.clear(), "is empty"),
        (lambda rows: [row.pop("kind") for row in rows], "lacks columns"),
    ],
)
def test_a_damaged_file_is_said(tmp_path, change, sentence):
    path = tmp_path / "kernels.csv"
    save(a_step(), path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
        names = list(rows[0])
    change(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [n for n in names if not rows or n in rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(UserError, match=sentence):
        steps(load(path))


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["none.csv"], "cannot read none.csv (No such file or directory)"),
        (["kernels.csv", "--model", "vit"], "kernels.csv is drawn as it is: --model is for measuring"),
        (["kernels.csv", "--ncu"], "kernels.csv is drawn as it is: --ncu is for measuring"),
        (["--model", "resnet19"], "--model resnet19: no such network; take cnn, resnet18, "),
        (["--per-device-batch-size", "0"], "--per-device-batch-size 0: at least 1"),
        (["--width", "128"], "--width sizes vit, not resnet18"),
        (["--model", "cnn", "--image-size", "64"], "--image-size sizes resnet18 and vit, not cnn"),
        (["--model", "vit", "--depth", "0"], "--depth 0: at least 1"),
        (["--code", "solutions"], "--code solutions is for --model cnn and FILE:NAME: resnet18 is the lab's own"),
    ],
)
def test_what_cannot_be_done_is_said(argv, sentence, capsys):
    assert main(["roofline", *argv]) in (1, 2)
    assert sentence in capsys.readouterr().err


@pytest.fixture
def quick(monkeypatch):
    """One step, no peaks, and no figure; a student's modules are imported anew."""
    monkeypatch.setattr(stepping, "WARM_UP", 1)
    monkeypatch.setattr(measuring, "STEPS", 1)
    monkeypatch.setattr(measuring, "_fastest", lambda work, device: 1e-3)
    monkeypatch.setattr("lab.sweep.draw.plot.draw_all", lambda *arguments: [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    yield
    sys.modules.pop("model", None)


@pytest.mark.parametrize(
    ("model", "code"), [("cnn", []), ("cnn", ["--code", "solutions"]), ("model:CNN", ["--code", "solutions"])]
)
def test_the_cnn_of_the_exercises_is_measured(model, code, quick, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)  # where exercises/ holds nothing but stubs
    argv = ["--model", model, "--per-device-batch-size", "4", "--output", str(tmp_path)]
    assert main(["roofline", *argv, *code]) == 0
    kinds = {one.kind: one for one in load(tmp_path / "kernels.csv")}
    assert kinds["matrix product"].model == model
    forward = 2 * 4 * 9 * (32 * 32 * 3 * 32 + 16 * 16 * 32 * 64 + 8 * 8 * 64 * 128)
    assert kinds["convolution, forward"].flops == pytest.approx(forward, rel=1e-5)


def test_a_cnn_that_is_not_written_yet_is_said(quick, tmp_path, capsys):
    argv = ["--model", "cnn", "--code", str(ROOT / "exercises"), "--output", str(tmp_path)]
    assert main(["roofline", *argv]) == 1
    assert "exercises/model.py: Exercise 1.1 is not done yet" in capsys.readouterr().err


def test_a_vit_of_a_size_is_named_by_it(quick, tmp_path):
    sizes = ["--width", "64", "--depth", "2", "--image-size", "16"]
    argv = ["--model", "vit", *sizes, "--per-device-batch-size", "2", "--output", str(tmp_path)]
    assert main(["roofline", *argv]) == 0
    kinds = load(tmp_path / "kernels.csv")
    assert {one.model for one in kinds} == {"vit width=64 depth=2 image_size=16"}
    network = build_network("vit", width=64, depth=2, image_size=16)
    with FlopCounterMode(display=False) as counter:
        network(torch.randn(2, 3, 16, 16)).sum().backward()
    products = {one.kind: one.flops for one in kinds}
    assert products["matrix product"] + products.get("attention", 0) + products[
        "convolution, forward"
    ] == pytest.approx(counter.get_total_flops(), rel=0.05)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_kernels_of_a_gpu_stay_below_its_roof(precision):
    (step,) = steps(measure(Subject("resnet18", precision, 128), torch.device("cuda", 0)))
    assert 5e-4 < step.seconds < 1.0
    by_name = {one.kind: one for one in step.kinds}
    assert by_name["convolution, forward"].kernels >= 20
    for one in step.kinds:  # caches can be faster than a copy through memory
        assert one.rate < 3 * step.roof(one), table(step)
