"""lab predict on drawn machines whose law is known: how often the truth lies in the range that is printed."""

import statistics
from collections.abc import Callable

import numpy as np
import pytest

from lab.cli import main
from lab.sweep.compare.predict import Measured, fit

BATCH = 512
TRIALS = 20
Law = Callable[[int, int], float]  # devices, images on each -> seconds a step


def ring(draw: np.random.Generator) -> Law:
    """All-reduces that the backward pass hides in part: what the model is made of."""
    image = 10 ** draw.uniform(-5, -3)
    work = image * BATCH
    launch, issue, latency = (draw.uniform(0, most) * work for most in (0.3, 0.1, 0.02))
    moved, hidden = draw.uniform(0.05, 0.8) * work, draw.uniform(0, 1)

    def law(devices: int, batch: int) -> float:
        compute = launch + image * batch
        if devices == 1:
            return compute
        messages = latency * (devices - 1)
        hides = hidden * 2 / 3 * compute
        return compute + issue + max(messages, messages + moved * (devices - 1) / devices - hides)

    return law


def amdahl(draw: np.random.Generator) -> Law:
    """A part of the work is not divided (Amdahl 1967)."""
    work, serial = 10 ** draw.uniform(-3, 0), draw.uniform(0.01, 0.3)
    return lambda devices, batch: work * (serial + (1 - serial) / devices)


def flat(draw: np.random.Generator) -> Law:
    """Weak scaling that loses something once."""
    work, lost = 10 ** draw.uniform(-3, 0), draw.uniform(0, 0.15)
    return lambda devices, batch: work * (1 + lost * (devices > 1))


def launch_bound(draw: np.random.Generator) -> Law:
    """A step is never shorter than it takes to launch its kernels."""
    work = 10 ** draw.uniform(-3, 0)
    floor = draw.uniform(0.1, 0.6) * work
    return lambda devices, batch: max(floor, work * batch / BATCH) + 0.02 * work * (devices > 1)


def batch_on(devices: int, scaling: str) -> int:
    return BATCH // devices if scaling == "strong" else BATCH


def measured(law: Law, strategy: str, scaling: str, devices: int, draw: np.random.Generator) -> Measured:
    """Three repeats that scatter by 1%."""
    batch = batch_on(devices, scaling)
    repeats = [law(devices, batch) * (1 + 0.01 * draw.standard_normal()) for _ in range(3)]
    middle = statistics.median(repeats)
    return Measured(strategy, scaling, devices, batch, middle, (max(repeats) - min(repeats)) / 2 / middle, node=8)


@pytest.mark.parametrize(
    ("make", "scaling"),
    [(ring, "strong"), (ring, "weak"), (amdahl, "strong"), (flat, "weak"), (launch_bound, "strong")],
)
def test_from_four_devices_the_truth_for_8_and_16_lies_in_the_range(make, scaling):
    inside = {8: 0, 16: 0}
    for trial in range(TRIALS):
        draw = np.random.default_rng(trial)
        law = make(draw)
        points = [measured(law, "none", scaling, 1, draw)]
        points += [measured(law, "ddp", scaling, devices, draw) for devices in (1, 2, 4)]
        model = fit(points, "ddp")
        for devices in inside:
            _, low, high = model.predict(scaling, devices, BATCH).seconds
            inside[devices] += low <= law(devices, batch_on(devices, scaling)) <= high
    assert min(inside.values()) >= 0.7 * TRIALS, inside


def test_farther_than_four_times_what_was_measured_there_is_no_number(root, tmp_path, capsys):
    results = str(root / "docs" / "results" / "gpu" / "results.csv")
    options = ["--fit-on", "1", "2", "--output", str(tmp_path)]
    assert main(["predict", results, "--devices", "4", "64", *options]) == 0
    out = capsys.readouterr().out
    assert "64 devices are more than 4 times the 2 that were measured: no number would be honest" in out
    assert "measure on 16, and predict from there" in out
    assert not [line for line in out.splitlines() if line.split()[:1] == ["64"] and "%" in line]
    assert main(["predict", results, "--devices", "64", *options]) == 1
    assert "64 devices are more than 4 times the 2" in capsys.readouterr().err
