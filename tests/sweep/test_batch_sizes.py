"""The time to an accuracy against the batch: who is first, who never gets there, and what is not compared."""

import csv

import pytest
from run_folders import write_run

import plot_results
from lab.base.errors import UserError
from lab.sweep.collect.collect import collect
from lab.sweep.compare.frame import typed
from lab.sweep.draw.axes import plt
from lab.sweep.draw.batches import by_batch, fastest, time_to_accuracy
from lab.sweep.draw.plot import plot


def run(results, batch, seconds, accuracies, **more):
    folder = write_run(
        results, "ddp", 2, run_id=f"b{batch}{more.get('repeat', '')}", seconds=seconds, global_batch=batch, **more
    )
    with (folder / "run.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row, accuracy in zip(rows, [*accuracies, accuracies[-1]], strict=True):
        row["val_top1"] = accuracy
    with (folder / "run.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return folder


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Small batches need few slow epochs, large ones many fast ones; the largest never gets there."""
    monkeypatch.setattr("lab.sweep.draw.plot.DPI", 30)
    run(tmp_path, 64, (6.0, 6.0, 6.0), (0.6, 0.9, 0.9))
    run(tmp_path, 256, (2.0, 2.0, 2.0), (0.4, 0.7, 0.88))
    run(tmp_path, 1024, (1.0, 1.0, 1.0), (0.2, 0.4, 0.5))
    yield tmp_path
    plt.close("all")


def test_the_time_until_the_accuracy_is_first_reached_and_none_where_it_never_is(results):
    table, target = by_batch(typed(collect(results).rows), results)
    assert target == pytest.approx(0.95 * 0.9)
    found = table.set_index("global_batch")[["epoch", "seconds"]]
    assert found.loc[64].tolist() == [2, 12.0]
    assert found.loc[256].tolist() == [3, 6.0]
    assert found.loc[1024].isna().all()
    given, target = by_batch(typed(collect(results).rows), results, 0.5)
    assert given.set_index("global_batch")["seconds"].tolist() == [3.0, 4.0, 6.0]  # 1024, 256, 64


def test_the_largest_throughput_is_said_not_to_decide(results):
    (said,) = fastest(typed(collect(results).rows), results)
    assert "batch 256 is there first, after 6 s" in said
    assert "batch 1024 has the most images/s and never gets there" in said


def test_the_figure_has_the_epochs_and_a_cross_for_a_batch_that_never_got_there(results):
    figure = time_to_accuracy(typed(collect(results).rows), results)
    left, right = figure.axes
    assert [text.get_text() for text in left.texts[1:]] == ["2", "3"]
    (cross,) = [line for line in left.lines if line.get_marker() == "X"]
    assert list(cross.get_xdata()) == [1024]
    assert list(right.lines[0].get_ydata()) == pytest.approx([90, 88, 50])
    assert "85.5%" in left.texts[0].get_text()
    assert [text.get_text() for text in right.texts] == ["85.5%"]
    assert not figure.legends, "one line needs no legend"


def test_the_figure_says_in_words_what_was_run(results):
    figure = time_to_accuracy(typed(collect(results).rows), results)
    (words,) = [text.get_text() for text in figure.axes[0].texts if "validation accuracy" in text.get_text()]
    assert "images from the loader" in words
    assert ", loader," not in words


def test_repeats_are_one_point_and_other_options_another_line(results):
    run(results, 64, (6.0, 6.0, 8.0), (0.6, 0.7, 0.9), repeat=2)
    run(results, 256, (9.0, 9.0, 9.0), (0.1, 0.1, 0.1), repeat=3, variant="--base-lr 9")
    table, _ = by_batch(typed(collect(results).rows), results)
    assert table["line"].nunique() == 1  # of --base-lr 9 there is one batch only
    assert sorted(table["global_batch"]) == [64, 64, 256, 1024]
    figure = time_to_accuracy(typed(collect(results).rows), results)
    assert figure.axes[0].lines[0].get_ydata()[0] == 16.0  # of 12 and 20


def test_without_varied_batches_there_is_no_figure_and_a_target_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.sweep.draw.plot.DPI", 30)
    write_run(tmp_path, "none", 1)
    write_run(tmp_path, "ddp", 2)
    table = collect(tmp_path).path
    assert "time_to_accuracy.png" not in {file.name for file in plot(table).files}
    with pytest.raises(UserError, match=r"--target-accuracy 0.8: no runs .* --preset batches"):
        plot(table, target_accuracy=0.8)


def test_steps_that_were_only_timed_are_no_epochs(tmp_path):
    for batch in (64, 128):
        write_run(tmp_path, run_id=f"b{batch}", seconds=(4.0,), global_batch=batch, measure_steps=50)
    assert by_batch(typed(collect(tmp_path).rows), tmp_path)[0].empty


def test_the_command_draws_and_says_it_and_refuses_no_fraction(results, capsys):
    table = str(collect(results).path)
    assert plot_results.main([table, "--target-accuracy", "0.85"]) == 0
    said = capsys.readouterr().out
    assert "time to 85.0%" in said
    assert (results / "figures" / "time_to_accuracy.png").is_file()
    with pytest.raises(SystemExit):
        plot_results.main([table, "--target-accuracy", "85"])
    assert "give a fraction" in capsys.readouterr().err


def test_a_damaged_table_of_epochs_is_named(results):
    rows = collect(results).rows
    (results / "b64" / "run.csv").write_text("nothing\n")
    with pytest.raises(UserError, match=r"b64/run.csv"):
        by_batch(typed(rows), results)


def test_of_a_table_without_its_runs_all_else_is_drawn_and_it_is_said(results, tmp_path_factory):
    table = collect(results)
    alone = tmp_path_factory.mktemp("alone")
    (alone / "b64").mkdir()
    (alone / "results.csv").write_bytes((results / "results.csv").read_bytes())
    (alone / "b64" / "run.csv").write_bytes((results / "b64" / "run.csv").read_bytes())
    assert len(table.rows) == 3
    drawn = plot(alone / "results.csv")
    assert not [file for file in drawn.files if file.stem == "time_to_accuracy"], "one batch compares with none"
    (lost,) = [note for note in drawn.notes if "and 1 more" in note]
    assert f"there is no {alone}/b" in lost
    with pytest.raises(UserError, match=r"there is no .*run\.csv"):
        plot(alone / "results.csv", target_accuracy=0.5)
