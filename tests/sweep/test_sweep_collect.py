"""collect: whatever lies in results/, every run is one row, and no row has another run's figures."""

import csv
import json
import math
import os
import socket
import subprocess
from pathlib import Path

import pytest
from run_folders import write_run

import collect_results
from lab.base.allocator import KEEPS
from lab.base.errors import UserError
from lab.runs.records.folder import CORE_COLUMNS, RUN_COLUMNS, SHARD_COLUMNS
from lab.sweep.collect.collect import collect
from lab.sweep.compare.columns import RESULT_COLUMNS
from lab.sweep.compare.frame import typed
from lab.sweep.compare.table import describe_setting, doubts, summary

MEASURED = (
    "train_top1",
    "val_top1",
    "images_per_sec",
    "time_epoch_s",
    "mem_gb",
    "eff_strong",
    "train_loss",
    "val_loss",
)


@pytest.fixture
def results(tmp_path) -> Path:
    return tmp_path / "results"


def row_of(results: Path, run_id: str) -> dict[str, str]:
    (row,) = [row for row in collect(results).rows if row["run_id"] == run_id]
    return row


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_results_csv_has_the_columns_of_run_csv_and_one_row_a_run(results):
    write_run(results, "none", 1)
    write_run(results, "ddp", 2)
    with collect(results).path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == RESULT_COLUMNS
    new = (
        *("allocator", "captured", "compiled", "memory_format", "best_top1", "best_epoch"),
        *("grad_norm", "loss_scale", "tflops_per_device", "mfu"),
        *SHARD_COLUMNS,
    )
    assert RESULT_COLUMNS[: len(RUN_COLUMNS) - len(new)] == RUN_COLUMNS[: -len(new)]
    assert RESULT_COLUMNS[-len(new) :] == RUN_COLUMNS[-len(new) :] == new
    assert [(row["strategy"], row["world_size"], row["status"]) for row in rows] == [
        *(("none", "1", "done"), ("ddp", "2", "done"))
    ]
    assert rows[1]["commit"] == "0123456789ab"


def test_efficiency_is_that_of_the_settled_epochs_and_empty_where_it_is_not_known(results):
    folder = write_run(results, "ddp", 2, seconds=(9.0, 2.0, 4.0))
    write_run(results, "none", 1)
    with (folder / "run.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, mfu, norm in zip(rows, (0.1, 0.4, 0.2, 0.2), (3.0, 2.0, 1.0, 1.0), strict=True):
        row |= {"mfu": str(mfu), "grad_norm": str(norm)}
    with (folder / "run.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, RUN_COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    row = row_of(results, "ddp-2")
    assert (float(row["mfu"]), float(row["grad_norm"])) == (pytest.approx(0.3), 1.0)
    assert (row["tflops_per_device"], row["loss_scale"]) == ("", "")
    assert [row_of(results, "none-1")[name] for name in ("mfu", "grad_norm")] == ["", ""]


def test_figures_are_the_settled_time_the_last_accuracy_and_the_largest_memory(results):
    write_run(results, "ddp", 2, seconds=(9.0, 2.0, 4.0), loss=0.7, accuracy=0.8, memory=0.5)
    row = row_of(results, "ddp-2")
    assert float(row["time_epoch_s"]) == 3.0  # median without the first epoch
    assert float(row["val_top1"]) == 0.8
    assert float(row["val_loss"]) == 0.7
    assert float(row["mem_gb"]) == 0.5


def test_a_single_epoch_is_its_own_time(results):
    write_run(results, "ddp", 2, seconds=(9.0,))
    assert row_of(results, "ddp-2")["time_epoch_s"] == "9"


def test_strong_efficiency_is_a_fraction_of_the_baselines_time_over_devices(results):
    write_run(results, "none", 1, seconds=(9.0, 8.0))
    write_run(results, "ddp", 1, seconds=(9.0, 10.0))
    write_run(results, "ddp", 4, seconds=(9.0, 2.5))
    efficiency = {row["run_id"]: float(row["eff_strong"]) for row in collect(results).rows}
    assert efficiency == {"none-1": 1.0, "ddp-1": 0.8, "ddp-4": 0.8}


def test_a_repeated_baseline_counts_with_its_median(results):
    for repeat, seconds in enumerate((7.0, 8.0, 30.0), start=1):
        write_run(results, "none", 1, run_id=f"none-{repeat}", repeat=repeat, seconds=(seconds,))
    write_run(results, "ddp", 2, seconds=(4.0,))
    assert float(row_of(results, "ddp-2")["eff_strong"]) == 1.0


@pytest.mark.parametrize(
    "other",
    [
        {"model": "resnet18"},
        {"dataset": "cifar10"},
        {"precision": "bf16"},
        {"global_batch": 512},
        {"scaling": "weak"},
        {"epochs": 3, "variant": "--num-workers 4"},
        {"input": "device"},
        {"device": "NVIDIA H100"},
    ],
)
def test_a_baseline_of_other_work_or_hardware_gives_no_efficiency(results, other):
    write_run(results, "none", 1)
    write_run(results, "ddp", 2, **other)
    assert row_of(results, "ddp-2")["eff_strong"] == ""


def test_weak_efficiency_is_the_ratio_of_the_times_of_a_step(results):
    """Twice the devices, twice the work: an epoch of half as many steps, each as long, is perfect."""
    weak = {"scaling": "weak", "measure_steps": 60}
    write_run(results, "none", 1, seconds=(4.0,), global_batch=128, steps_per_epoch=40, **weak)
    write_run(results, "ddp", 2, seconds=(2.0,), global_batch=256, steps_per_epoch=20, **weak)
    write_run(results, "ddp", 4, seconds=(1.25,), global_batch=512, steps_per_epoch=10, **weak)
    rows = {row["run_id"]: row for row in collect(results).rows}
    assert [rows[name]["eff_weak"] for name in ("none-1", "ddp-2", "ddp-4")] == ["1", "1", "0.8"]
    assert {row["eff_strong"] for row in rows.values()} == {""}
    assert "time/step" in summary(list(rows.values()))


@pytest.mark.parametrize("other", [{"global_batch": 512}, {"scaling": "strong"}, {"precision": "bf16"}])
def test_weak_scaling_compares_equal_batches_per_device_only(results, other):
    write_run(results, "none", 1, scaling="weak", global_batch=128)
    write_run(results, "ddp", 2, **{"scaling": "weak", "global_batch": 256, **other})
    assert row_of(results, "ddp-2")["eff_weak"] == ""


def test_a_measurement_has_its_own_time_and_an_epoch_that_of_all_after_the_first(results):
    write_run(results, "none", 1, seconds=(3.0,), measure_steps=60)
    write_run(results, "ddp", 2, seconds=(9.0, 2.0, 4.0))
    one, two = row_of(results, "none-1"), row_of(results, "ddp-2")
    assert (float(one["time_epoch_s"]), float(one["step_time_s"]), one["measured_steps"]) == (3.0, 0.15, "60")
    assert (two["step_time_s"], two["measured_steps"], two["steps_per_epoch"]) == ("0.15", "40", "20")


def test_repeats_are_one_line_with_median_and_spread(results):
    for repeat, seconds in enumerate((2.0, 2.1, 2.4), start=1):
        write_run(
            results, "ddp", 2, run_id=f"ddp-2-r{repeat}", repeat=repeat, seconds=(seconds,), measure_steps=50
        )
    write_run(results, "none", 1, seconds=(4.2,), measure_steps=50)
    out = summary(collect(results).rows)
    (line,) = [line.split() for line in out.splitlines() if line.split()[:1] == ["ddp"]]
    assert line[:8] == ["ddp", "2", "3", "2.10", "s", "±9.5%", "2.00x", "100%"]
    assert "4 runs: 4 done" in out


def test_buckets_are_points_of_their_own(results):
    write_run(results, "none", 1)
    write_run(results, "ddp", 2)
    write_run(results, "ddp", 2, run_id="ddp-2-b", bucket_cap_mb="50", seconds=(4.0, 3.0, 3.0))
    out = summary(collect(results).rows)
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("  ddp")] == [
        *(["ddp", "2"], ["ddp", "50"])
    ]
    assert "ddp 50 MiB" in out


def test_few_steps_and_different_versions_are_said(results):
    write_run(results, "none", 1, seconds=(4.0, 4.0))
    run = write_run(results, "ddp", 2, seconds=(4.0, 4.0))
    edit(run / "run.csv", "0123456789ab", "ba9876543210")
    edit(run / "run.csv", "torch 2.14.0", "torch 2.15.0")
    out = summary(collect(results).rows)
    assert "only 20 steps were measured" in out
    assert "measured with different commits: 0123456789ab; ba9876543210" in out
    assert "measured with different versions: torch 2.14.0; torch 2.15.0" in out


def test_records_of_an_earlier_version_are_read(results):
    run = write_run(results, "ddp", 2)
    with (run / "run.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with (run / "run.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, CORE_COLUMNS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    row = row_of(results, "ddp-2")
    assert (row["status"], row["device"], float(row["step_time_s"])) == ("done", "cpu", 0.105)


def test_how_the_steps_were_computed_is_in_the_table(results):
    how = {"captured": "yes", "compiled": "model", "memory_format": "channels_last"}
    write_run(results, "ddp", 2, **how)
    write_run(results, "ddp", 4)
    assert {name: row_of(results, "ddp-2")[name] for name in how} == how
    assert {row_of(results, "ddp-4")[name] for name in how} == {""}  # not said: an earlier version's


def test_a_run_that_has_not_written_yet_is_starting_while_its_sweep_lives(results):
    run = write_run(results, "ddp", 2)
    for path in run.iterdir():
        path.unlink()
    gone = subprocess.Popen(["true"])
    gone.wait()
    here = socket.gethostname()
    for host, pid, status in (
        (here, os.getpid(), "running"),
        (here, gone.pid, "failed"),
        ("elsewhere", os.getpid(), "failed"),
    ):
        job = {"launcher": "local", "launched_by": {"host": host, "pid": pid}}
        (run / "job.json").write_text(json.dumps(job))
        row = row_of(results, "ddp-2")
        assert row["status"] == status
        assert ("still starting" in row["reason"]) == (status == "running")
        assert ("ended before it began" in row["reason"]) == (status == "failed")


def test_a_run_whose_sweep_is_gone_is_not_running(results):
    run = write_run(results, "ddp", 2, status="running")
    gone = subprocess.Popen(["true"])
    gone.wait()
    for pid, status in ((gone.pid, "failed"), (os.getpid(), "running")):
        launched = {"launcher": "local", "launched_by": {"host": socket.gethostname(), "pid": pid}}
        (run / "job.json").write_text(json.dumps(launched))
        assert row_of(results, "ddp-2")["status"] == status
    (run / "job.json").write_text(json.dumps(launched | {"launched_by": {"host": "elsewhere", "pid": gone.pid}}))
    assert row_of(results, "ddp-2")["status"] == "running"


def test_a_failed_baseline_gives_no_efficiency(results):
    write_run(results, "none", 1, status="failed", reason="lost")
    write_run(results, "ddp", 2)
    assert row_of(results, "ddp-2")["eff_strong"] == ""
    assert "there is no finished run of --strategy none on 1 device" in summary(collect(results).rows)


def test_a_speed_up_that_only_a_disturbed_baseline_explains_is_doubted(tmp_path: Path) -> None:
    results = tmp_path / "results"
    write_run(results, "none", 1, seconds=(4.0, 4.0))
    write_run(results, "ddp", 2, seconds=(2.0, 1.9))
    assert "faster than ideal" not in summary(collect(results).rows)
    write_run(results, "fsdp", 2, seconds=(2.0, 1.0))
    assert "faster than ideal" in summary(collect(results).rows)


@pytest.mark.parametrize(
    ("scaling", "device", "allocator", "cause"),
    [
        ("strong", "cpu", KEEPS, "larger batch costs more per image"),
        ("strong", "cpu", "MALLOC_TOP_PAD_=0", "the memory allocator (MALLOC_TOP_PAD_=0) may have given"),
        ("strong", "cpu", "", "the memory allocator (not recorded) may have given"),
        ("strong", "A card", "", "larger batch costs more per image"),
        ("weak", "cpu", "", "repeat it on a quiet machine"),
    ],
)
def test_a_doubt_names_what_can_be_its_cause(results, scaling, device, allocator, cause):
    same = {"scaling": scaling, "device": device, "allocator": allocator, "per_gpu_batch": 128}
    write_run(results, "none", 1, seconds=(4.0, 4.0), **same)
    write_run(results, "ddp", 2, seconds=(2.0, 1.0), **same)
    rows = collect(results).rows
    (line,) = (line for line in summary(rows).splitlines() if "faster than ideal" in line)
    assert cause in line
    (doubt,) = doubts(typed(rows))  # for lab predict
    assert doubt == f"{describe_setting(typed(rows)['setting'].iloc[0])}: {line.strip()}"


def test_nan_stays_visible(results):
    write_run(results, "ddp", 2, loss=math.nan, seconds=(3.0, math.nan, 3.0))
    row = row_of(results, "ddp-2")
    assert (row["status"], row["val_loss"], row["time_epoch_s"], row["eff_strong"]) == ("done", "nan", "nan", "")
    assert "nan" in summary([row])


# ---- damage: what is done to a complete folder, and what the reason must say

BINARY = bytes(range(256)) * 8
DAMAGES = {
    "no status": (lambda run: (run / "status.json").unlink(), "status.json is missing"),
    "empty status": (lambda run: (run / "status.json").write_text(""), "status.json is empty"),
    "cut status": (lambda run: (run / "status.json").write_text('{"status": "do'), "status.json is not JSON"),
    "status is a list": (lambda run: (run / "status.json").write_text("[]"), "holds no JSON object"),
    "strange status": (lambda run: edit(run / "status.json", '"done"', '"finished"'), "says 'finished'"),
    "status nested deeply": (lambda run: (run / "status.json").write_text("[" * 100_000), "not JSON"),
    "binary status": (lambda run: (run / "status.json").write_bytes(BINARY), "status.json is not text"),
    "no run.csv": (lambda run: (run / "run.csv").unlink(), "run.csv is missing"),
    "empty run.csv": (lambda run: (run / "run.csv").write_text("\n\n"), "run.csv is empty"),
    "binary run.csv": (lambda run: (run / "run.csv").write_bytes(BINARY), "run.csv is not text"),
    "run.csv is a folder": (
        lambda run: ((run / "run.csv").unlink(), (run / "run.csv").mkdir()),
        "run.csv is not a file",
    ),
    "run.csv cut in a line": (
        lambda run: (run / "run.csv").write_text((run / "run.csv").read_text()[:-60]),
        "fields instead of",
    ),
    "run.csv without summary": (
        lambda run: (run / "run.csv").write_text(
            "".join((run / "run.csv").read_text().splitlines(keepends=True)[:-1])
        ),
        "no summary row",
    ),
    "run.csv without header": (
        lambda run: (run / "run.csv").write_text((run / "run.csv").read_text().split("\n", 1)[1]),
        "not the names of its columns",
    ),
    "only the header": (
        lambda run: (run / "run.csv").write_text((run / "run.csv").read_text().split("\n")[0]),
        "no summary row",
    ),
    "an epoch is missing": (
        lambda run: (run / "run.csv").write_text(
            "".join(line for i, line in enumerate((run / "run.csv").read_text().splitlines(True)) if i != 2)
        ),
        "do not count 1, 2, 3",
    ),
    "fewer epochs than asked": (
        lambda run: (edit(run / "run.csv", ",3,", ",5,"), edit(run / "config.json", '"epochs": 3', '"epochs": 5')),
        "epochs",
    ),
    "words for a number": (lambda run: edit(run / "run.csv", ",2.2,", ",fast,"), "'fast' in epoch 3"),
    "interleaved lines": (
        lambda run: edit(run / "run.csv", "ddp-2,ddp,cnn", "ddp-2,dddp-2,ddp,cnndp,cnn"),
        "fields instead of",
    ),
    "an unclosed quote": (lambda run: edit(run / "run.csv", "ddp-2,ddp", 'ddp-2,"ddp'), "run.csv is not CSV"),
    "a huge field": (lambda run: edit(run / "run.csv", "0123456789ab", "a" * 200_000), "run.csv is not CSV"),
    "a huge file": (lambda run: (run / "run.csv").write_bytes(b"a" * (17 << 20)), "larger than 16 MiB"),
    "of another run": (lambda run: edit(run / "run.csv", "ddp-2,", "fsdp-8,"), "is of run 'fsdp-8'"),
    "run.csv disagrees": (lambda run: edit(run / "run.csv", ",done,", ",failed,"), "run.csv says 'failed'"),
    "config disagrees": (lambda run: edit(run / "config.json", '"ddp"', '"fsdp"'), "config.json says 'fsdp'"),
    "no config": (lambda run: (run / "config.json").unlink(), "config.json is missing"),
    "garbled config": (lambda run: (run / "config.json").write_text("{'a': 1}"), "config.json is not JSON"),
    "config nested deeply": (lambda run: (run / "config.json").write_text("[" * 100_000), "not JSON"),
    "a pipe for a record": (
        lambda run: ((run / "config.json").unlink(), os.mkfifo(run / "config.json")),
        "config.json is not a file",
    ),
    "no devices": (
        lambda run: (
            edit(run / "config.json", '"world_size": 2', '"world_size": 0'),
            edit(run / "run.csv", ",2,1,,256", ",0,1,,256"),
        ),
        "world_size is '0'",
    ),
    "no metrics": (lambda run: (run / "metrics.csv").unlink(), "metrics.csv is missing"),
    "metrics cut": (
        lambda run: (run / "metrics.csv").write_text((run / "metrics.csv").read_text().split("3,val")[0]),
        "no train and val rows of epoch 3",
    ),
    "metrics are words": (lambda run: edit(run / "metrics.csv", "3,val,0.75", "3,val,low"), "'low' in epoch 3"),
    "everything is gone": (lambda run: [path.unlink() for path in run.iterdir()], "the folder is empty"),
    "only a log": (
        lambda run: [path.unlink() for path in run.iterdir() if path.name != "train.log"],
        "status.json is missing",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_run_is_a_failed_row_without_figures(results, name):
    damage, reason = DAMAGES[name]
    write_run(results, "none", 1)
    damage(write_run(results, "ddp", 2))
    write_run(results, "fsdp", 2, accuracy=0.61)
    row = row_of(results, "ddp-2")
    assert row["status"] == "failed"
    assert reason in row["reason"]
    assert {column: row[column] for column in MEASURED} == dict.fromkeys(MEASURED, "")
    assert row_of(results, "fsdp-2")["val_top1"] == "0.61"
    assert row_of(results, "fsdp-2")["eff_strong"] != ""
    assert reason in summary(collect(results).rows)


def test_a_copy_of_a_run_does_not_count_again(results):
    run = write_run(results, "ddp", 2)
    copy = results / "ddp-2 (copy)"
    copy.mkdir()
    for path in run.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert row_of(results, copy.name)["status"] == "failed"
    assert row_of(results, "ddp-2")["status"] == "done"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("running", ""),
        ("failed", "the loss became nan"),
        ("interrupted", "stopped by SIGTERM: saved at epoch 2"),
        ("out of memory", "CUDA out of memory"),
        ("timed out", "ended at --time-limit 5 (minutes)"),
        ("cancelled", "interrupted after 5 s"),
        ("node failure", "a node failed"),
    ],
)
def test_an_unfinished_run_has_no_figures_even_if_it_wrote_some(results, status, reason):
    write_run(results, "ddp", 2, status=status, reason=reason)
    row = row_of(results, "ddp-2")
    assert row["status"] == status
    assert row["reason"] == (reason or "has not ended")
    assert not any(row[column] for column in MEASURED)
    assert (row["strategy"], row["world_size"], row["dataset"]) == ("ddp", "2", "shapes")


def test_a_failed_run_without_reason_is_explained_by_its_log(results):
    run = write_run(results, "ddp", 2, status="failed")
    assert row_of(results, "ddp-2")["reason"] == "no reason on record"
    (run / "train.err").write_bytes(b"\xff\xfe\nTraceback:\nRuntimeError: no kernel image\n")
    assert row_of(results, "ddp-2")["reason"] == "RuntimeError: no kernel image"


def test_a_job_that_wrote_nothing_is_known_by_its_job_file(results):
    folder = results / "ddp-4-abc"
    folder.mkdir(parents=True)
    job = {"strategy": "ddp", "world_size": 4, "model": "cnn", "dataset": "shapes", "precision": "fp32"}
    (folder / "job.json").write_text(json.dumps(job))
    row = row_of(results, "ddp-4-abc")
    assert (row["status"], row["strategy"], row["world_size"], row["model"]) == ("failed", "ddp", "4", "cnn")


def test_a_config_with_strange_values_does_not_reach_the_table(results):
    run = write_run(results, "ddp", 2, status="failed", reason="a\nb\x1b[31m" + "c" * 1000)
    config = {
        "strategy": ["ddp"],
        "world_size": "two",
        "model": {"a": 1},
        "dataset": None,
        "global_batch_size": True,
    }
    (run / "config.json").write_text(json.dumps(config))
    row = row_of(results, "ddp-2")
    assert (row["strategy"], row["world_size"], row["model"], row["dataset"], row["global_batch"]) == ("",) * 5
    assert "\n" not in row["reason"]
    assert "\x1b" not in summary([row])
    assert len(row["reason"]) < 300


def test_a_failed_job_stands_with_the_finished_runs_it_belongs_to(results):
    write_run(results, "none", 1)
    died_early = write_run(results, "ddp", 2, status="failed", reason="node is gone")
    edit(died_early / "config.json", '"device": "cpu"', '"device": ""')
    assert summary(collect(results).rows).count("cnn on shapes") == 1


def test_foreign_files_and_folders_are_no_runs(results):
    write_run(results, "ddp", 2)
    (results / "notes.txt").write_text("x")
    (results / "results.csv").write_bytes(BINARY)
    for name in (".cache", "figures", "demo"):
        (results / name).mkdir()
        (results / name / "something").touch()
    os.symlink("ddp-2", results / "latest")
    collection = collect(results)
    assert [row["run_id"] for row in collection.rows] == ["ddp-2"]
    assert collection.ignored == ["demo"]


def test_collect_again_gives_the_same_file(results):
    write_run(results, "none", 1)
    write_run(results, "ddp", 2)
    first = collect(results).path.read_bytes()
    assert collect(results).path.read_bytes() == first


def test_a_missing_or_empty_folder_is_one_sentence(results):
    with pytest.raises(UserError, match=r"there is no folder .*results: run_benchmarks.py makes it"):
        collect(results)
    results.mkdir()
    with pytest.raises(UserError, match=r"there are no runs in .*results"):
        collect(results)


def test_the_program_prints_a_table_and_where_the_file_is(results, capsys):
    write_run(results, "none", 1, seconds=(9.0, 8.0))
    write_run(results, "ddp", 2, seconds=(9.0, 5.0))
    write_run(results, "fsdp", 2, seconds=(9.0, 5.0), status="failed", reason="CUDA out of memory")
    assert collect_results.main([str(results)]) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert out.startswith("cnn on shapes, fp32, global batch 256, strong scaling, 2 epochs, CPU\n")
    assert lines[3][:7] == ["ddp", "2", "5.00", "s", "1.60x", "80%", "1,024"]
    assert "  fsdp            2  out of memory: CUDA out of memory" in out
    assert "3 runs: 2 done, 1 out of memory" in out
    assert out.endswith(f"-> {results / 'results.csv'}\n")


def test_the_program_ends_with_one_sentence_without_results(tmp_path, capsys):
    assert collect_results.main([str(tmp_path / "nothing")]) == 1
    assert capsys.readouterr().err.startswith("collect_results.py: there is no folder ")
