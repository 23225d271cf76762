"""`lab predict --bandwidth`: links that were measured take the place of constants that nobody knows."""

import csv

import numpy as np
import pytest
from test_predict import sweep
from test_predict_laws import BATCH, TRIALS, batch_on, measured

from lab.bandwidth.timings import COLLECTIVES, Timing, save
from lab.cli import main
from lab.sweep.compare.predict import Talk, fit

ALPHA, BETA = 20e-6, 200e9
CARD = "A card"


def file_of(path, device=CARD, alpha=ALPHA):
    timings = [
        Timing(name, 2, 1, size, (2 if name == "all-reduce" else 1) * (alpha + size / 2 / BETA), "nccl", device)
        for name in COLLECTIVES
        for size in (2**n for n in range(10, 27, 2))
    ]
    save(timings, path)
    return path


def draw_ring(draw):
    """A machine that waits for its links, and what lab bandwidth would say of them: up to 1.5 times too little."""
    image = 10 ** draw.uniform(-5, -3)
    work = image * BATCH
    launch, latency, moved = (draw.uniform(low, high) * work for low, high in ((0, 0.3), (0, 0.02), (0.3, 1.0)))
    hidden, beside = draw.uniform(0, 0.5), draw.uniform(1, 1.5)

    def law(devices, batch):
        compute = launch + image * batch
        exposed = moved * (devices - 1) / devices - hidden * 2 / 3 * compute
        return compute + latency * (devices - 1) + max(0.0, exposed)

    return law, Talk(latency / beside, moved / beside, 0.05, 4)


@pytest.mark.parametrize("scaling", ["strong", "weak"])
def test_from_two_devices_the_truth_still_lies_in_a_range_that_is_narrower(scaling):
    inside, narrower = {8: 0}, []
    for trial in range(TRIALS):
        draw = np.random.default_rng(trial)
        law, talk = draw_ring(draw)
        points = [measured(law, "none", scaling, 1, draw)]
        points += [measured(law, "ddp", scaling, devices, draw) for devices in (1, 2)]
        widths = []
        for told in (None, talk):
            _, low, high = fit(points, "ddp", talk=told).predict(scaling, 8, BATCH).seconds
            widths.append(high - low)
        inside[8] += low <= law(8, batch_on(8, scaling)) <= high
        narrower.append(widths[1] / widths[0])
    assert inside[8] >= 0.7 * TRIALS
    assert float(np.median(narrower)) < 0.8


@pytest.fixture
def results(tmp_path):
    """Weak scaling of ddp on 1 and 2 devices, and its baseline."""
    rows = [one for one in sweep(counts=(1, 2)) if one["scaling"] == "weak"]
    with (tmp_path / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return tmp_path / "results.csv"


def predict(results, capsys, *argv):
    code = main(["predict", str(results), "--devices", "4", *map(str, argv)])
    return code, capsys.readouterr()


def test_the_file_beside_the_results_is_taken_and_it_is_said(results, capsys):
    _, without = predict(results, capsys)
    assert "links as measured" not in without.out
    file_of(results.parent / "bandwidth.csv")
    code, said = predict(results, capsys)
    assert code == 0
    assert "links as measured alone on 2 ranks: " in said.out
    numbers = [next(line for line in one.out.splitlines() if line.split()[0] == "4") for one in (without, said)]
    assert numbers[0] != numbers[1]
    assert max(map(len, said.out.split("Drawn")[0].splitlines())) <= 80


def test_links_so_slow_that_no_step_could_be_so_fast_are_doubted(results, tmp_path, capsys):
    code, said = predict(results, capsys, "--bandwidth", file_of(tmp_path / "slow.csv", alpha=1.0))
    assert code == 0
    assert "The measurements do not quite fit the model" in said.out


def test_a_file_of_other_devices_is_not_taken_and_it_is_said(results, tmp_path, capsys):
    code, said = predict(results, capsys, "--bandwidth", file_of(tmp_path / "other.csv", device="cpu"))
    assert code == 0
    assert (
        f"Links not taken from the bandwidth file: ddp, resnet18: it is of cpu, the runs are of {CARD}" in said.out
    )
    assert "links as measured" not in said.out


def test_a_damaged_file_is_refused_where_it_was_asked_for_and_named_where_it_lies_there(results, capsys):
    file = results.parent / "bandwidth.csv"
    file.write_text("collective,ranks\n")
    code, said = predict(results, capsys, "--bandwidth", file)
    assert code == 1
    assert "lacks columns of a table of collectives" in said.err
    code, said = predict(results, capsys)
    assert code == 0
    assert f"Links not taken from the bandwidth file: {file} lacks columns" in said.out
