"""plot: the figures, what they mark, and what happens without results."""

import csv
import math
import re
from pathlib import Path

import pytest
from run_folders import write_run

import plot_results
from lab.base.errors import UserError
from lab.sweep.collect.collect import collect
from lab.sweep.compare.columns import Row
from lab.sweep.compare.frame import load, typed
from lab.sweep.compare.pairs import pairs, unpaired
from lab.sweep.compare.points import points
from lab.sweep.compare.table import summary
from lab.sweep.draw.axes import plt
from lab.sweep.draw.figures import FIGURES, efficiency, memory, throughput, time_per_epoch, validation
from lab.sweep.draw.figures_across import before_after
from lab.sweep.draw.plot import plot
from lab.sweep.draw.sensitivity import left_out, lines, sensitivity
from lab.sweep.draw.style import DPI, LOOKS, STYLE
from lab.sweep.launch import job_folder
from lab.sweep.plan.plan import plan_jobs
from lab.sweep.plan.sweep import Sweep

NAMES = ("time_per_epoch", "throughput", "efficiency", "validation", "memory", "accuracy_beside_efficiency")


@pytest.fixture
def results(tmp_path) -> Path:
    """A finished sweep on 1, 2 and 4 devices, in which fsdp failed on 4."""
    folder = tmp_path / "results"
    write_run(folder, "none", 1, seconds=(9.0, 8.0))
    for devices in (1, 2, 4):
        write_run(folder, "ddp", devices, seconds=(9.0, 8.4 / devices), memory=0.5)
        failed = {"status": "failed", "reason": "CUDA out of memory"} if devices == 4 else {}
        write_run(folder, "fsdp", devices, seconds=(9.0, 9.0 / devices), memory=0.4 / devices, **failed)
    return folder


@pytest.fixture
def rows(results) -> list[Row]:
    return collect(results).rows


@pytest.fixture(autouse=True)
def close_figures(monkeypatch):
    monkeypatch.setattr("lab.sweep.draw.plot.DPI", 30)  # quickly drawn
    yield
    plt.close("all")


def labels(axes) -> set[str]:
    return set(axes.get_legend_handles_labels()[1])


def line(axes, label: str):
    handles, names = axes.get_legend_handles_labels()
    handle = handles[names.index(label)]
    return handle[0] if isinstance(handle, tuple) else handle


def test_the_figures_are_png_and_svg_beside_the_csv(results, monkeypatch):
    monkeypatch.setattr("lab.sweep.draw.plot.DPI", DPI)
    plots = plot(collect(results).path)
    assert [path.name for path in plots.files] == [f"{name}.png" for name in NAMES]
    for path in plots.files:
        assert path.parent == results / "figures"
        assert path.read_bytes().startswith(b"\x89PNG")
        width, height = (int.from_bytes(path.read_bytes()[i : i + 4]) for i in (16, 20))
        assert min(width, height) > 900  # sharp in print
        assert "<svg" in path.with_suffix(".svg").read_text()


def test_the_same_results_give_the_same_svg(results, tmp_path):
    csv = collect(results).path
    for name in ("first", "second"):
        plot(csv, tmp_path / name)
    for name in NAMES:
        first, second = (tmp_path / folder / f"{name}.svg" for folder in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()


def test_time_is_logarithmic_with_the_ideal_line_and_whole_ticks(rows):
    (axes,) = time_per_epoch(typed(rows), "setting").axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    axes.figure.canvas.draw()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "4"]
    ideal = {drawn.get_gid(): list(drawn.get_ydata()) for drawn in axes.lines if drawn.get_gid()}
    assert ideal == {"ideal none": [8.0, 4.0, 2.0]}  # as the labels: from one device without a wrapper
    assert list(line(axes, "ddp").get_ydata()) == pytest.approx([8.4, 4.2, 2.1])
    assert "3.8x" in {text.get_text() for text in axes.texts}  # ddp on 4: 8.0 / 2.1
    assert axes.get_ylabel() == "time per epoch (seconds, log scale)"
    assert axes.get_xlabel() == "number of devices (CPU ranks)"


def test_y_ticks_of_a_logarithmic_axis_are_written_out(rows):
    (axes,) = time_per_epoch(typed(rows), "setting").axes
    axes.figure.canvas.draw()
    assert {"2", "5"} <= {label.get_text() for label in axes.get_yticklabels()}


def test_without_a_baseline_each_strategy_has_an_ideal_line_from_its_own_device_or_none(rows):
    rows = [row for row in rows if row["strategy"] != "none"]
    (axes,) = time_per_epoch(typed(rows), "setting").axes
    ideal = {drawn.get_gid(): list(drawn.get_ydata()) for drawn in axes.lines if drawn.get_gid()}
    assert ideal == {"ideal ddp": pytest.approx([8.4, 4.2, 2.1]), "ideal fsdp": [9.0, 4.5, 2.25]}
    (axes,) = time_per_epoch(typed([row for row in rows if row["world_size"] != "1"]), "setting").axes
    assert not any("ideal" in label for label in labels(axes))


def test_the_labels_of_two_strategies_never_touch(rows):
    """On 2 devices 4.20 s and 4.21 s would be written on top of each other."""
    close = [row | ({"time_epoch_s": "4.21"} if row["strategy"] == "fsdp" else {}) for row in rows]
    close = [row for row in close if row["world_size"] != "4"]
    figure = time_per_epoch(typed(close), "setting")
    figure.canvas.draw()
    first, second = (
        text.get_window_extent() for text in figure.axes[0].texts if re.fullmatch(r"\d\.\dx", text.get_text())
    )
    assert not first.overlaps(second)


def test_throughput_is_over_all_devices(rows):
    (axes,) = throughput(typed(rows), "setting").axes
    mine = [float(row["images_per_sec"]) for row in rows if row["strategy"] == "ddp"]
    assert list(line(axes, "ddp").get_ydata()) == pytest.approx(mine)


def test_efficiency_has_the_lines_of_70_and_90_per_cent(rows):
    (axes,) = efficiency(typed(rows), "setting").axes
    assert list(line(axes, "ddp").get_ydata()) == pytest.approx([100 * 8.0 / 8.4] * 3, rel=1e-3)
    assert {text.get_text().strip() for text in axes.texts} >= {"70%", "90%"}
    assert axes.get_ylim()[0] == 0
    without = [row | {"eff_strong": "", "eff_weak": ""} for row in rows]
    assert efficiency(typed(without), "setting") is None  # no baseline, nothing to show


def test_validation_shows_loss_and_accuracy_in_percent(rows):
    loss, accuracy = validation(typed(rows), "setting").axes
    assert list(line(loss, "ddp").get_ydata()) == pytest.approx([0.75, 0.75, 0.75])
    assert list(line(accuracy, "ddp").get_ydata()) == pytest.approx([70.0, 70.0, 70.0])
    assert (loss.get_ylabel(), accuracy.get_ylabel()) == (
        "validation loss (cross-entropy)",
        "validation accuracy (%)",
    )
    low, high = accuracy.get_ylim()
    assert high - low >= 10  # equal values must not look like a trend


def test_memory_starts_at_zero(rows):
    (axes,) = memory(typed(rows), "setting").axes
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylabel() == "peak memory per device (GiB)"
    assert list(line(axes, "fsdp").get_ydata()) == pytest.approx([0.4, 0.2])


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_point_is_marked_where_it_would_be(rows, name):
    for axes in FIGURES[name](typed(rows), "setting").axes:
        mark = line(axes, "fsdp failed on 4")
        assert mark.get_marker() == "X"
        assert list(mark.get_xdata()) == [4]
        assert mark.get_color() == LOOKS["fsdp"].colour
        assert max(line(axes, "fsdp").get_xdata()) < 3  # and the line ends before


def test_a_point_that_failed_once_and_then_was_done_is_not_marked(results):
    write_run(results, "fsdp", 4, run_id="fsdp-4-again", seconds=(9.0, 3.0))
    (axes,) = time_per_epoch(typed(collect(results).rows), "setting").axes
    assert not any("failed" in label for label in labels(axes))


def test_repeats_are_a_median_with_the_least_and_the_largest(tmp_path):
    for repeat, seconds in enumerate((2.0, 3.0, 7.0), start=1):
        write_run(tmp_path, "ddp", 2, run_id=f"ddp-{repeat}", repeat=repeat, seconds=(seconds,))
    (point,) = points(typed(collect(tmp_path).rows)).itertuples()
    spread = (point.time_epoch_s, point.time_epoch_s_least, point.time_epoch_s_largest)
    assert (point.label, point.world_size, point.runs, spread) == ("ddp", 2, 3, (3.0, 2.0, 7.0))


def test_a_diverged_run_is_shown_as_nan(tmp_path):
    write_run(tmp_path, "none", 1)
    write_run(tmp_path, "ddp", 2, loss=math.nan)
    loss, _ = validation(typed(collect(tmp_path).rows), "setting").axes
    assert any("nan" in str(drawn.get_marker()) for drawn in loss.lines)


def measured(rows: list[Row], **more: str) -> list[Row]:
    return [row | {"step_time_s": "0.01", "steps_per_epoch": "20", "bucket_cap_mb": "25", **more} for row in rows]


def test_weak_scaling_shows_the_time_of_one_devices_epoch(rows):
    weak = measured(rows, scaling="weak")
    (axes,) = time_per_epoch(typed(weak), "setting").axes
    assert list(line(axes, "ddp").get_ydata()) == pytest.approx([0.2, 0.2, 0.2])
    assert axes.get_title(loc="left") == "Time per epoch, weak scaling"


def test_what_was_varied_by_itself_is_a_line_of_its_own(rows):
    ddp = [row for row in measured(rows) if row["strategy"] == "ddp" and row["world_size"] == "4"]
    more = [row | {"bucket_cap_mb": "5", "images_per_sec": "7"} for row in ddp]
    more += [row | {"precision": "bf16", "images_per_sec": "9"} for row in ddp]
    more += [row | {"precision": "bf16", "bucket_cap_mb": "5", "model": "vit"} for row in ddp]  # differs in three
    buckets = lines(typed([*ddp, *more]), "bucket_cap_mb")
    assert list(buckets[["bucket_cap_mb", "images_per_sec"]].iloc[0]) == [5, 7]
    assert list(buckets["bucket_cap_mb"]) == [5, 25]
    figure = sensitivity(typed([*ddp, *more]))
    assert [axes.get_xlabel() for axes in figure.axes] == ["DDP's bucket (MiB)", "precision"]
    assert sensitivity(typed(ddp)) is None


def eight_points(rows: list[Row]) -> list[Row]:
    """Those of slurm/sensitivity.sh: four buckets in two precisions."""
    (ddp,) = (
        row for row in measured(rows, device="A card") if (row["strategy"], row["world_size"]) == ("ddp", "4")
    )
    return [
        ddp | {"bucket_cap_mb": cap, "precision": precision, "images_per_sec": str(9000 + 100 * float(cap))}
        for cap in ("1", "5", "25", "100")
        for precision in ("fp32", "bf16")
    ]


def drawn_lines(axes) -> dict[str, object]:
    return {text: line(axes, text) for text in labels(axes)}


def test_the_eight_points_of_sensitivity_sh_can_be_told_apart(rows):
    with plt.rc_context(STYLE):
        buckets, precision = sensitivity(typed(eight_points(rows))).axes
    assert drawn_lines(buckets).keys() == {"bf16", "fp32"}
    four = drawn_lines(precision)
    assert four.keys() == {"1 MiB buckets", "5 MiB buckets", "25 MiB buckets", "100 MiB buckets"}
    for feature in ("get_color", "get_marker"):
        assert len({getattr(drawn, feature)() for drawn in four.values()}) == 4
    assert "cnn on shapes, A card, ddp, 4 devices" in buckets.texts[0].get_text()


def test_of_more_lines_than_can_be_told_apart_the_figure_says_which_are_drawn(rows):
    many = [
        row | {"world_size": str(2**n), "repeat": str(repeat), "run_id": f"{row['run_id']}-{n}-{repeat}"}
        for row in eight_points(rows)
        for n in range(4)
        for repeat in range(2 if n == 1 else 1)
    ]
    _, precision = sensitivity(typed(many)).axes
    assert len(labels(precision)) == 6
    said = precision.get_legend().get_title().get_text()
    assert said.endswith("6 of 16 lines: those with most runs, then on most devices")
    assert {text.split(",")[0] for text in labels(precision)} == {"2 devices", "8 devices"}
    assert "sensitivity: of 16 lines over precision 6 are drawn, those with most runs" in left_out(typed(many))


def test_a_repeat_that_is_no_number_breaks_the_line_and_is_marked(rows):
    eight = eight_points(rows)
    lost = [row | {"repeat": "2", "run_id": "lost", "images_per_sec": "nan"} for row in eight[2:3]]  # 5 MiB, fp32
    buckets, _ = sensitivity(typed([*eight, *lost])).axes
    drawn = drawn_lines(buckets)["fp32"]
    assert [math.isnan(value) for value in drawn.get_ydata()] == [False, True, False, False]
    assert any("nan" in str(other.get_marker()) for other in buckets.lines)
    without = [row | ({"images_per_sec": "nan"} if row["world_size"] == "2" else {}) for row in rows]
    (axes,) = throughput(typed(without), "setting").axes
    assert [math.isnan(value) for value in line(axes, "ddp").get_ydata()] == [False, True, False]


@pytest.mark.parametrize("other", [{}, {"model": "resnet18", "dataset": "cifar10"}], ids=["one network", "two"])
def test_before_and_after_names_network_and_data(rows, other):
    ddp = [row for row in measured(rows) if row["strategy"] == "ddp"]
    before = [*ddp, *([row | other for row in ddp] if other else [])]
    (axes,) = before_after(typed([*before, *[row | {"variant": "--capture"} for row in before]])).axes
    title, ticks = axes.texts[0].get_text(), [tick.get_text() for tick in axes.get_xticklabels()]
    assert ("cnn on shapes" in title) is not bool(other)
    assert sum("resnet18" in tick and "cifar10" in tick for tick in ticks) == (3 if other else 0)
    assert sum("cnn" in tick and "shapes" in tick for tick in ticks) == (3 if other else 0)


def test_loader_processes_are_taken_from_the_options(rows):
    ddp = [row | {"input": "loader"} for row in measured(rows) if row["strategy"] == "ddp"]
    four = [row | {"variant": "--num-workers 4 --augment"} for row in ddp]
    found = lines(typed([*ddp, *[row | {"variant": "--augment"} for row in ddp], *four]), "workers")
    assert [list(line["workers"]) for _, line in found.groupby("line")] == [[0, 4]] * 3


def test_before_and_after_compare_runs_that_differ_in_options_and_in_nothing_else(rows):
    ddp = [row for row in measured(rows) if row["strategy"] == "ddp"]
    after = [row | {"variant": "--capture", "step_time_s": "0.004"} for row in ddp]
    (axes,) = before_after(typed([*ddp, *after])).axes
    assert [text.get_text() for text in axes.texts[1:]] == ["2.50x"] * 3
    assert "--capture" in axes.get_title(loc="left")
    assert before_after(typed(ddp)) is None
    assert before_after(typed([*ddp, *[row | {"precision": "bf16"} for row in after]])) is None
    both = [row | {"variant": "--accumulate 2 --capture"} for row in after]
    assert {*pairs(typed([*ddp, *both]))["compared"]} == {"--accumulate 2 --capture"}
    # one that is between them is nearer
    assert {*pairs(typed([*ddp, *after, *both]))["compared"]} == {"--capture", "--accumulate 2"}
    compiled = [row | {"variant": "--capture --compile"} for row in after]
    assert {*pairs(typed([*ddp, *after, *compiled]))["compared"]} == {"--capture", "--compile"}
    # how long was measured is no optimisation
    assert pairs(
        typed([*ddp, *[row | {"variant": "--measure-steps 50 --measure-warmup 10"} for row in ddp]])
    ).empty


@pytest.mark.parametrize(
    ("compare", "before", "after"),
    [
        ("--precision bf16", {}, {"precision": "bf16"}),
        ("--input device", {"input": "loader"}, {"input": "device"}),
        ("--bucket-cap-mb=50", {}, {"bucket_cap_mb": "50"}),
        ("--num-workers 4", {"variant": "--num-workers 2"}, {"variant": "--num-workers 4"}),
        ("--capture --precision bf16", {}, {"variant": "--capture", "precision": "bf16"}),
        ("--accumulate 2", {}, {"variant": "--accumulate 2", "per_gpu_batch": "32"}),
    ],
)
def test_what_a_sweep_was_told_to_compare_is_paired_whatever_it_sets(rows, compare, before, after):
    plain = [row | before for row in measured(rows) if row["strategy"] == "ddp"]
    told = [row | after | {"compare": compare, "run_id": f"{row['run_id']}-after"} for row in plain]
    assert [*pairs(typed([*plain, *told]))["compared"]] == [compare] * 3
    assert unpaired(typed([*plain, *told])) == []
    half = [row for row in plain if row["world_size"] != "4"]
    assert unpaired(typed([*half, *told])) == [
        f"no before and after of {compare} (ddp on 4, {told[-1]['per_gpu_batch']} each, strong): "
        "no run without it is done"
    ]
    useless = [row | {"run_id": f"{row['run_id']}-again", "compare": compare} for row in half]
    assert unpaired(typed([*half, *useless]))[0].endswith(
        "the runs with it did the same work as those without: it changes nothing here"
    )
    failed = [row | {"status": "failed"} for row in told]
    assert all(said.endswith("no run with it is done") for said in unpaired(typed([*plain, *failed])))


def test_the_run_before_may_be_one_that_another_comparison_made(rows):
    ddp = [row for row in measured(rows) if row["strategy"] == "ddp"]
    bf16 = [row | {"run_id": f"{row['run_id']}-bf16", "precision": "bf16"} for row in ddp]
    bf16 = [row | {"compare": "--precision bf16"} for row in bf16]
    for compare, sets in (("--capture", {"variant": "--capture"}), ("--input device", {"input": "device"})):
        told = [row | sets | {"run_id": f"{row['run_id']}-after", "compare": compare} for row in bf16]
        found = pairs(typed([*ddp, *bf16, *told]))
        assert sorted(found["compared"]) == sorted([compare, "--precision bf16"] * 3)
        assert {*found["precision_before"][found["compared"] == compare]} == {"bf16"}
        assert unpaired(typed([*ddp, *bf16, *told])) == []
    # but not one that sets the same
    no_amp = [row | {"precision": "fp32", "compare": "--no-amp"} for row in bf16]
    assert pairs(typed([*bf16, *no_amp])).empty
    assert unpaired(typed([*bf16, *no_amp]))[0].endswith("no run without it is done")


def test_a_sweep_notes_what_it_was_told_to_compare(tmp_path):
    sweep = Sweep(devices=(2,), strategies=("ddp",), compare=("--precision", "bf16"), output_dir=tmp_path)
    for job in plan_jobs(sweep):
        job_folder.prepare(job, "local", "")
    assert sorted({row["compare"] for row in collect(tmp_path).rows}) == ["", "--precision bf16"]


def test_the_share_of_communication_is_that_of_a_profiled_run_of_the_same_setting(tmp_path):
    steps = {"seconds": (4.0,), "measure_steps": 50}
    for name, options in (("before", ""), ("after", "--capture")):
        variant = f"{options} --measure-steps 50".strip()
        write_run(tmp_path, "ddp", 2, run_id=name, variant=variant, **steps)
        run = write_run(tmp_path, "ddp", 2, run_id=f"{name}-profiled", variant=options, seconds=(5.0, 4.0, 4.0))
        with (run / "run.csv").open(newline="") as file:
            *epochs, last = list(csv.DictReader(file))
        with (run / "run.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, last)
            writer.writeheader()
            writer.writerows([*epochs, last | {"comm_time_s": 2.0 if name == "before" else 1.0}])
    collection = collect(tmp_path)
    (axes,) = before_after(typed(collection.rows)).axes
    assert [text.get_text() for text in axes.texts[1:]] == [
        "50%",
        "25%",
        "1.00x",
    ]  # and no pair of the profiled runs
    without = [row for row in collection.rows if not row["run_id"].endswith("profiled")]
    assert [text.get_text() for text in before_after(typed(without)).axes[0].texts[1:]] == ["1.00x"]


def test_a_setting_with_one_count_of_devices_is_left_to_the_figures_across_settings(results):
    write_run(results, "ddp", 2, run_id="five", global_batch=64)
    plots = plot(collect(results).path)
    assert {path.parent.name for path in plots.files} == {"figures"}


def test_a_figure_that_has_nothing_to_show_any_more_is_removed(results):
    old = results / "figures" / "before_after.png"
    old.parent.mkdir()
    old.write_bytes(b"of other results")
    plot(collect(results).path)
    assert not old.exists()


def test_the_command_is_in_the_files(results):
    plots = plot(collect(results).path, command="python plot_results.py one two")
    assert b"plot_results.py one two" in plots.files[0].read_bytes()
    assert "plot_results.py one two" in plots.files[0].with_suffix(".svg").read_text()


def test_strategies_differ_in_colour_marker_and_line():
    for feature in ("colour", "marker", "line"):
        assert len({getattr(look, feature) for look in LOOKS.values()}) == len(LOOKS)


@pytest.mark.parametrize("devices", [(1,), (1, 2), (1, 2, 4, 8, 16, 64)])
def test_any_number_of_points_can_be_drawn(tmp_path, devices):
    write_run(tmp_path, "none", 1)
    for count in devices:
        write_run(tmp_path, "ddp", count, global_batch=256)
    with plt.rc_context(STYLE):
        for draw in FIGURES.values():
            if (figure := draw(typed(collect(tmp_path).rows), "setting")) is not None:
                figure.canvas.draw()


def test_runs_that_cannot_be_compared_are_not_in_one_figure(results):
    write_run(results, "ddp", 1, run_id="other-1", precision="bf16")
    write_run(results, "ddp", 2, run_id="other-2", precision="bf16")
    plots = plot(collect(results).path)
    folders = {path.parent.name for path in plots.files}
    drawn = sum(path.parent.name != "figures" for path in plots.files)
    assert drawn == len(NAMES) - 2  # those of bf16 have no baseline, so no efficiency
    assert folders == {"figures", "cnn-on-shapes-bf16-global-batch-256-strong-scaling-3-epochs-cpu"}


def test_settings_that_differ_in_their_measured_steps_have_titles_and_folders_of_their_own(results, monkeypatch):
    for steps in (50, 100):
        options = f"--measure-steps {steps} --measure-warmup 10"
        for strategy, devices in (("none", 1), ("ddp", 2)):
            write_run(results, strategy, devices, run_id=f"{steps}-{devices}", seconds=(4.0,), variant=options)
    collection = collect(results)
    folders = []
    monkeypatch.setattr(
        "lab.sweep.draw.plot.draw_all", lambda drawings, folder, command: folders.append(folder) or []
    )
    plot(collection.path)
    *of_settings, _across_settings = folders
    assert len(set(of_settings)) == 3
    text = summary(collection.rows)
    assert "strong scaling, --measure-steps 50 --measure-warmup 10, CPU\n" in text
    assert "strong scaling, 2 epochs, CPU\n" in text


def test_the_folder_of_a_long_setting_has_a_name_that_can_be_typed(results):
    for devices in (1, 2):
        write_run(results, "ddp", devices, run_id=f"other-{devices}", precision="bf16")
    path = collect(results).path
    text = path.read_text().replace("bf16", "bf16" + "-and-something-long" * 6)
    path.write_text(text)
    folders = {path.parent.name for path in plot(path).files} - {"figures"}
    assert all(len(name) <= 80 for name in folders)
    assert len(folders) == 1


def test_unfinished_runs_are_named(results):
    write_run(results, "ddp", 8, seconds=(9.0, 2.0), status="running")
    assert plot(collect(results).path).notes == ["not finished, so not drawn: ddp-8"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no"),
        (b"", "is empty"),
        (b"a,b\n1,2\n", "lacks columns"),
        (bytes(range(256)), "is not a CSV file"),
    ],
)
def test_a_csv_that_cannot_be_used_is_one_sentence(tmp_path, capsys, content, says):
    path = tmp_path / "results.csv"
    if content is not None:
        path.write_bytes(content)
    assert plot_results.main([str(path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("plot_results.py: ")
    assert says in error
    assert "collect_results.py" in error
    assert error.count("\n") == 1


def test_a_damaged_line_is_named(results):
    path = collect(results).path
    path.write_text(path.read_text()[:-100])
    with pytest.raises(UserError, match=r"line 8 of .*results.csv is damaged"):
        load(path)


def test_only_the_header_is_empty(results):
    path = collect(results).path
    path.write_text(path.read_text().splitlines()[0] + "\n")
    with pytest.raises(UserError, match="is empty"):
        load(path)


def test_without_a_finished_run_there_is_nothing_to_draw(tmp_path):
    write_run(tmp_path, "ddp", 2, status="failed", reason="lost")
    with pytest.raises(UserError, match="has 1 run, but none is done"):
        plot(collect(tmp_path).path)


def test_a_folder_that_cannot_be_made_is_one_sentence(results, tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(UserError, match="cannot write figures to"):
        plot(collect(results).path, tmp_path / "taken")


def test_the_program_prints_where_the_figures_are(results, capsys):
    collect(results)
    assert plot_results.main([str(results / "results.csv")]) == 0
    assert capsys.readouterr().out.split() == [str(results / "figures" / f"{name}.png") for name in NAMES]
