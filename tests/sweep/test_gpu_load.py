"""The figure of nvidia-smi's samples, and files that are cut off, repeated or of something else."""

import pytest
from run_folders import write_run

from lab.base.errors import UserError
from lab.sweep.collect.collect import collect
from lab.sweep.compare.frame import typed
from lab.sweep.draw.axes import plt
from lab.sweep.draw.gpu_load import gpu_utilization, samples, working
from lab.sweep.draw.plot import plot

HEADER = (
    "timestamp, index, utilization.gpu [%], utilization.memory [%], memory.used [MiB], "
    "power.draw [W], temperature.gpu"
)


def sampled(run, node, lines):
    folder = run / "slurm-77"
    folder.mkdir(exist_ok=True)
    (folder / f"gpus-{node}.csv").write_text("\n".join([HEADER, *lines]) + "\n")


def at(second, gpu, busy, power=300.0):
    return f"2026/03/01 10:00:{second:02d}.500, {gpu}, {busy}, 10, 2000, {power}, 40"


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.sweep.draw.plot.DPI", 30)
    write_run(tmp_path, "none", 1, device="A card")
    ddp = write_run(tmp_path, "ddp", 2, device="A card")
    busy = [0, 0, 80, 100, 60, 0]
    sampled(ddp, "node1", [at(5 * i, gpu, max(b - 20 * gpu, 0)) for i, b in enumerate(busy) for gpu in (0, 1)])
    yield tmp_path
    plt.close("all")


def test_samples_of_all_nodes_with_their_seconds(results):
    sampled(results / "ddp-2", "node2", [at(10, 0, 50)])
    found = samples(results / "ddp-2")
    assert sorted(found["gpu"].unique()) == ["node1:0", "node1:1", "node2:0"]
    assert found["seconds"].max() == 25.0
    assert samples(results / "none-1").empty


def test_start_up_and_end_are_not_in_the_mean(results):
    found = working(samples(results / "ddp-2"))
    assert found["seconds"].tolist() == [10.0, 10.0, 15.0, 15.0, 20.0, 20.0]
    assert found["utilization.gpu"].mean() == pytest.approx((80 + 60 + 100 + 80 + 60 + 40) / 6)


def test_the_figure_has_a_curve_over_time_and_the_mean_with_its_power(results):
    runs = typed(collect(results).rows)
    left, right = gpu_utilization(runs[runs["world_size"] == 2], "setting", results).axes
    assert list(left.lines[0].get_ydata()) == [0, 0, 70, 90, 50, 0]
    assert list(right.lines[0].get_ydata()) == [70]
    assert "300 W" in {text.get_text() for text in right.texts}


def test_it_is_drawn_where_there_are_samples_and_only_there(results):
    table = collect(results).path
    assert "gpu_utilization.png" in {file.name for file in plot(table).files}
    (results / "ddp-2" / "slurm-77" / "gpus-node1.csv").unlink()
    assert "gpu_utilization.png" not in {file.name for file in plot(table).files}
    assert not (results / "figures" / "gpu_utilization.png").exists()


def test_a_job_started_again_a_cut_line_and_an_unknown_power(results):
    run = results / "ddp-2"
    sampled(run, "node1", [at(0, 0, 10, "[N/A]"), HEADER, at(5, 0, 30), "2026/03/01 10:00:10.500, 0"])
    found = samples(run)
    assert found["seconds"].tolist() == [0.0, 5.0, 10.0]
    assert found["utilization.gpu"].tolist()[:2] == [10.0, 30.0]
    assert found["power.draw"].isna().tolist() == [True, False, True]


def test_an_empty_file_is_no_sample_and_another_table_is_named(results):
    file = results / "ddp-2" / "slurm-77" / "gpus-node1.csv"
    file.write_text("")
    assert samples(results / "ddp-2").empty
    file.write_text("No devices were found\n")
    with pytest.raises(UserError, match=r"gpus-node1.csv has no column timestamp"):
        samples(results / "ddp-2")
