"""Predictions from points whose constants are known, and what is said where they fail."""

import csv

import numpy as np
import pytest

from lab.base.errors import UserError
from lab.cli import main
from lab.sweep.compare.columns import RESULT_COLUMNS
from lab.sweep.compare.forecast import Forecast, table
from lab.sweep.compare.forecast import forecast as forecast_and_left_out
from lab.sweep.compare.frame import typed
from lab.sweep.compare.predict import fit, measurements
from lab.sweep.draw.forecast_figure import file_names

# Seconds: starting kernels, the wrapper, an image, a message, all bytes; and what the backward pass hides.
LAUNCH, WRAPPER, IMAGE, LATENCY, BYTES, HIDDEN = 9e-3, 4e-3, 9e-5, 3e-4, 8e-3, 0.3


def step(devices: int, batch: int) -> float:
    compute = LAUNCH + IMAGE * batch
    messages, moved = LATENCY * (devices - 1), BYTES * (devices - 1) / devices
    return compute + WRAPPER + max(messages, messages + moved - HIDDEN * 2 / 3 * compute)


def row(strategy: str, scaling: str, devices: int, batch: int, seconds: float, **more: str) -> dict[str, str]:
    known = {
        "run_id": f"{strategy}-{devices}-{scaling}-{batch}",
        "strategy": strategy,
        "model": "resnet18",
        "dataset": "shapes",
        "precision": "bf16",
        "scaling": scaling,
        "status": "done",
        "world_size": str(devices),
        "nodes": "1",
        "gpus_per_node": str(devices),
        "global_batch": str(batch * devices),
        "per_gpu_batch": str(batch),
        "images_per_sec": str(batch * devices / seconds),
        "device": "A card",
    }
    return dict.fromkeys(RESULT_COLUMNS, "") | known | more


def sweep(counts=(1, 2, 4), noise: float = 0.01) -> list[dict[str, str]]:
    """Strong scaling of 512 images and weak scaling of 128, twice each, as they would be measured."""
    draw = np.random.default_rng(7)
    rows = []
    for repeat in ("1", "2"):
        for scaling, one in (("strong", 512), ("weak", 128)):
            alone = LAUNCH + IMAGE * one
            rows.append(row("none", scaling, 1, one, alone * (1 + noise * draw.standard_normal()), repeat=repeat))
            for devices in counts:
                batch = one // devices if scaling == "strong" else one
                seconds = step(devices, batch) * (1 + noise * draw.standard_normal())
                rows.append(row("ddp", scaling, devices, batch, seconds, repeat=repeat))
    return rows


def forecast(rows: list[dict[str, str]], devices: list[int]) -> list[Forecast]:
    return forecast_and_left_out(typed(rows), devices)[0]


@pytest.mark.parametrize("devices", [4, 8])
@pytest.mark.parametrize("scaling", ["strong", "weak"])
def test_from_one_and_two_devices_to_more(scaling, devices):
    (points,) = measurements(typed(sweep(counts=(1, 2)))).values()
    one = 512 if scaling == "strong" else 128
    predicted = fit(points, "ddp").predict(scaling, devices, one)
    truth = step(devices, predicted.batch)
    assert predicted.seconds[0] == pytest.approx(truth, rel=0.15)
    assert predicted.seconds[1] <= truth <= predicted.seconds[2]
    alone = LAUNCH + IMAGE * one
    expected = alone / (devices * truth) if scaling == "strong" else alone / truth
    assert predicted.efficiency[0] == pytest.approx(expected, rel=0.15)


def test_the_range_widens_away_from_what_was_measured():
    (points,) = measurements(typed(sweep(counts=(1, 2)))).values()
    model = fit(points, "ddp")
    widths = []
    for devices in (2, 4, 16, 64):
        middle, low, high = model.predict("weak", devices, 128).seconds
        widths.append((high - low) / middle)
    assert widths == sorted(widths)


def test_the_same_points_give_the_same_prediction():
    (points,) = measurements(typed(sweep(counts=(1, 2)))).values()
    assert fit(points, "ddp").predict("weak", 8, 128) == fit(points, "ddp").predict("weak", 8, 128)


def test_a_held_out_measurement_is_not_known_to_the_model():
    rows = sweep()
    honest = forecast(rows, [4])
    for one in rows:  # a lie about 4 devices changes no prediction
        if one["world_size"] == "4":
            one["images_per_sec"] = "1"
    lied = forecast(rows, [4])
    assert [line.predicted for one in honest for line in one.outcomes] == [
        line.predicted for one in lied for line in one.outcomes
    ]
    assert all(abs(line.off) < 0.15 for one in honest for line in one.outcomes)
    assert all("Within 15%" in one.verdict for one in honest)
    assert all("outside its range" in one.verdict for one in lied)


def test_machines_and_failed_runs_are_not_mixed_in():
    rows = [*sweep(counts=(1, 2)), row("ddp", "weak", 4, 128, 9.9, status="failed")]
    other = [one | {"device": "Another card", "images_per_sec": "5"} for one in sweep(counts=(1, 2))]
    alone = {one.title: one.outcomes for one in forecast(rows, [4]) if one.scaling == "weak"}
    both = {one.title: one.outcomes for one in forecast([*rows, *other], [4]) if one.scaling == "weak"}
    (title,) = alone
    assert both[title] == alone[title]
    assert alone[title][0].measured is None


def test_strong_scaling_ends_where_a_device_has_no_image():
    (points,) = measurements(typed(sweep(counts=(1, 2)))).values()
    with pytest.raises(UserError, match="cannot be divided among 1024 devices"):
        fit(points, "ddp").predict("strong", 1024, 512)


def test_it_says_where_more_devices_are_wasted():
    (strong,) = (one for one in forecast(sweep(counts=(1, 2)), [4, 64]) if one.scaling == "strong")
    assert strong.breaks is not None
    under = next(p for p in strong.curve if p.devices == strong.breaks)
    assert under.efficiency[0] < 0.5
    text = "\n".join(table(strong))
    assert f"From {strong.breaks} devices on" in text
    assert "the network between nodes is in no measurement" in text


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "no run in it is done"),
        ([one for one in sweep() if one["strategy"] == "ddp"], "no finished run of --strategy none"),
        (sweep(counts=(1,)), "nothing tells what talking costs"),
        ([one for one in sweep() if one["strategy"] == "none"], "only its baseline is done"),
        ([one for one in sweep(counts=(1, 2)) if one["scaling"] == "strong"], "cannot be divided among 600"),
    ],
)
def test_too_little_to_go_by_is_a_sentence(rows, says):
    with pytest.raises(UserError, match=says):
        forecast(rows, [600])


def test_what_cannot_be_predicted_beside_the_rest_is_said():
    rows = sweep(counts=(1, 2))
    rows += [one | {"strategy": "fsdp"} for one in rows if (one["strategy"], one["world_size"]) == ("ddp", "1")]
    rows = [one for one in rows if (one["strategy"], one["scaling"]) != ("none", "weak")]
    found, (weak, fsdp) = forecast_and_left_out(typed(rows), [4, 600])
    assert weak.startswith("ddp, weak scaling (resnet18 on shapes, bf16, A card): there is no finished run")
    assert fsdp.startswith(
        "fsdp (resnet18 on shapes, bf16, A card): there is no finished run of fsdp on 2 devices"
    )
    (strong,) = found
    assert [line.predicted.devices for line in strong.outcomes] == [4]
    assert "      600   a batch of 512 cannot be divided among 600 devices: predict for fewer" in table(strong)


def test_a_missed_prediction_of_work_that_the_model_did_not_know_has_a_verdict():
    rows = [
        one
        for one in sweep()
        if one["scaling"] == "strong" or one["world_size"] == "4" or one["strategy"] == "none"
    ]
    rows = [
        one | ({"images_per_sec": "1"} if one["scaling"] == "weak" and one["strategy"] == "ddp" else {})
        for one in rows
    ]
    (weak,) = (one for one in forecast(rows, [4]) if one.scaling == "weak")
    assert "outside its range" in weak.verdict
    assert "  fitted on the baseline and other batches of ddp: none of these was known to it" in table(weak)


@pytest.mark.parametrize(
    "other",
    [
        {"model": "cnn"},
        {"precision": "fp32"},
        {"device": "Another card"},
        {"input": "device"},
        {"variant": "--measure-steps 300"},
    ],
)
def test_no_figure_is_written_over_another(other):
    rows = [one | {"variant": "--measure-steps 100"} for one in sweep(counts=(1, 2))]
    names = file_names(forecast([*rows, *[one | other for one in rows]], [4]))
    assert len(set(names)) == len(names) == 4
    assert file_names(forecast(rows, [4])) == ["predict_ddp_strong_512", "predict_ddp_weak_128"]


def test_the_command_prints_and_draws(tmp_path, capsys):
    results = tmp_path / "results.csv"
    with results.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, RESULT_COLUMNS)
        writer.writeheader()
        writer.writerows(sweep())
    assert main(["predict", str(results), "--devices", "4", "8", "64"]) == 0
    out = capsys.readouterr().out
    assert "ddp, strong scaling: resnet18 on shapes, bf16, A card" in out
    assert "fitted on the baseline and ddp on 1, 2 device(s)" in out
    names = {file.name for file in (tmp_path / "figures").iterdir()}
    assert names == {
        f"predict_ddp_{name}.{kind}" for name in ("strong_512", "weak_128") for kind in ("png", "svg")
    }
    svg = (tmp_path / "figures" / "predict_ddp_weak_128.svg").read_text(encoding="utf-8")
    assert "lab predict" in svg
    assert "Doubtful" not in out
    assert main(["predict", str(results), "--devices", "0"]) == 1
    assert "at least 1" in capsys.readouterr().err


def test_the_command_repeats_what_is_doubtful_in_its_data(tmp_path, capsys):
    results = tmp_path / "results.csv"
    rows = [one | {"eff_strong": "1.16"} if one["strategy"] == "ddp" else one for one in sweep()]
    with results.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, RESULT_COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    assert main(["predict", str(results), "--devices", "4"]) == 0
    (doubt,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("Doubtful"))
    assert "strong scaling" in doubt
    assert "faster than ideal" in doubt


def test_ddps_usual_bucket_is_not_another_machine_and_other_buckets_are_left_out():
    rows = [one | {"bucket_cap_mb": "25" if one["strategy"] == "ddp" else ""} for one in sweep(counts=(1, 2))]
    odd = [one | {"bucket_cap_mb": "1", "images_per_sec": "1"} for one in rows if one["strategy"] == "ddp"]
    (points,) = measurements(typed([*rows, *odd])).values()
    assert {point.strategy for point in points} == {"none", "ddp"}
    assert all(point.seconds < 1 for point in points)


def test_ranks_on_a_node_are_counted_without_gpus_too():
    rows = [row("ddp", "weak", 8, 128, 0.1, nodes="2", gpus_per_node="0"), row("ddp", "weak", 2, 128, 0.1)]
    (points,) = measurements(typed(rows)).values()
    assert {point.devices: point.node for point in points} == {8: 4, 2: 2}


def test_a_wrapper_that_alone_costs_more_than_half_is_called_that():
    slow = [
        one | {"images_per_sec": str(float(one["images_per_sec"]) / (4 if one["strategy"] == "ddp" else 1))}
        for one in sweep(counts=(1, 2))
    ]
    for one in forecast(slow, [4]):
        assert one.breaks == 1
        assert "The wrapper alone, on one device, costs more than half." in "\n".join(table(one))


def test_how_long_was_measured_is_not_in_the_title():
    rows = [one | {"variant": "--capture --measure-steps 100 --measure-warmup 20"} for one in sweep()]
    assert forecast(rows, [4])[0].title == "resnet18 on shapes, bf16, --capture, A card"
