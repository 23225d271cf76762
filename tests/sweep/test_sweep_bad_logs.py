"""Bare logs, most of them bad: each is one row, and only a whole log of one run gives figures."""

import re
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from run_folders import write_run

import collect_results
from lab.base.errors import UserError
from lab.sweep.collect.bare_log import read_log
from lab.sweep.collect.collect import collect
from lab.sweep.compare.columns import Row

FIGURES = ("time_epoch_s", "images_per_sec", "step_time_s", "train_loss", "val_loss", "val_top1", "mem_gb")

REPORT = """ddp: cnn (113,738 parameters) on shapes, fp32
  ranks      2 on 1 node (laptop), backend gloo, device cpu
  batch      256 in all, 128 on each rank; 20 steps an epoch, 0 samples dropped
  length     3 epochs
  optimizer  sgd, learning rate 0.03 = 0.03 x 256 / 256, momentum 0.9, weight decay 0.0005
  precision  fp32
  seed       0
"""


def metric(epoch: int, seconds: float = 2.0, loss: str = "0.9000") -> str:
    return (
        f"[METRIC] epoch={epoch} time={seconds:.3f} train_loss=1.0000 val_loss={loss} acc=0.7000 "
        f"images_per_sec={5120 / seconds:.1f} peak_mem=512MB\n"
    )


STEPS = "epoch 1/3, step 20/20, loss 1.5, 2000 images/s\n"
WHOLE = REPORT + metric(1, 9.0) + STEPS + metric(2, 2.0) + metric(3, 2.2)
OTHER = WHOLE.replace("ddp: cnn", "fsdp: cnn").replace("time=2", "time=1")
FP32_TO_BF16 = WHOLE.replace("on shapes, fp32", "on shapes, bf16")
MEASURED = REPORT.replace("3 epochs", "60 measured steps, after 20 that are discarded") + metric(1, 4.0)
RESUMED = (
    REPORT + metric(1) + REPORT + "  resumed    from x/latest.pth, the end of epoch 1\n" + metric(2) + metric(3)
)
SCANCEL = "slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2026-01-05T10:00:00 ***\n"
TIME_LIMIT = SCANCEL.replace(" ***\n", " DUE TO TIME LIMIT ***\n")

# name -> what is in the file, status, what the reason holds, seconds an epoch ("" for no figures)
LOGS: dict[str, tuple[str | bytes, str, str, str]] = {
    "whole": (WHOLE, "done", "", "2.1"),
    "with Windows' line ends": (WHOLE.replace("\n", "\r\n"), "done", "", "2.1"),
    "of a measurement": (MEASURED, "done", "", "4"),
    "of one's own network and data": (
        WHOLE.replace("cnn (", "mynet:MyNet (").replace("on shapes", "on my.data:load"),
        *("done", "", "2.1"),
    ),
    "of a resumed run": (RESUMED, "done", "", "2"),
    "amid noise": ("\x1b[31mnoise\x1b[0m\nW0105 NCCL\n" + WHOLE + "bye\n", "done", "", "2.1"),
    "amid bytes that are no text": (b"\xff\xfe\n" + WHOLE.encode() + b"\x80\x81\n", "done", "", "2.1"),
    "with a loss that is nan": (WHOLE.replace("0.9000", "nan"), "done", "", "2.1"),
    "with a test line": (WHOLE + "[METRIC] test_loss=0.5000 test_acc=0.8000\n", "done", "", "2.1"),
    "with a very long line": ("x" * 200_000 + "\n" + WHOLE, "done", "", "2.1"),
    "empty": ("", "failed", "the log is empty", ""),
    "binary": (bytes(range(256)) * 100, "failed", "this is not text", ""),
    "null bytes at the end": (WHOLE.encode() + b"\0" * 4096, "failed", "this is not text", ""),
    "null bytes in the middle": (WHOLE.replace(STEPS, "\0\0\0\n"), "failed", "this is not text", ""),
    "of something else": ("Hello, world\n" * 100, "failed", "no start report", ""),
    "only line ends": ("\n" * 1000, "failed", "no start report", ""),
    "without its beginning": (metric(1) + metric(2) + metric(3), "failed", "no start report", ""),
    "without its first epoch": (REPORT + metric(2) + metric(3), "failed", "epoch 2 follows 0", ""),
    "without an epoch": (REPORT + metric(1) + metric(3), "failed", "epoch 3 follows 1", ""),
    "without its last epoch": (REPORT + metric(1) + metric(2), "running", "2 of 3 epochs", ""),
    "cut off in a metric": (WHOLE[:-40], "running", "2 of 3 epochs", ""),
    "cut off before the line's end": (WHOLE[:-1], "running", "2 of 3 epochs", ""),
    "cut off in the report": (REPORT[:80], "running", "does not say how many epochs", ""),
    "only the report": (REPORT, "running", "0 of 3 epochs", ""),
    "without the length": (WHOLE.replace("  length     3 epochs\n", ""), "running", "it has 3", ""),
    "without the batch": (WHOLE.replace("  batch ", "  biscuit "), "running", "3 of 3 epochs", ""),
    "without the ranks": (WHOLE.replace("  ranks ", "  crank "), "running", "3 of 3 epochs", ""),
    "with an epoch too many": (WHOLE + metric(4), "running", "4 of 3 epochs", ""),
    "with an epoch twice": (WHOLE + metric(3), "failed", "epoch 3 follows 3", ""),
    "with epochs backwards": (REPORT + metric(3) + metric(2) + metric(1), "failed", "epoch 3 follows 0", ""),
    "twice in one file": (WHOLE + WHOLE, "failed", "two runs wrote into this log, one after", ""),
    "two runs, one after the other": (WHOLE + OTHER, "failed", "two different runs wrote", ""),
    "two runs that differ in precision": (WHOLE + FP32_TO_BF16, "failed", "two different runs wrote", ""),
    "two runs at the same time": (
        "".join(a + b for a, b in zip(WHOLE.splitlines(True), OTHER.splitlines(True), strict=True)),
        *("failed", "two different runs wrote", ""),
    ),
    "two runs with other batches": (
        REPORT + REPORT.replace("256", "512") + metric(1),
        *("failed", "two different runs wrote", ""),
    ),
    "lines mixed with each other": (
        WHOLE.replace("[METRIC] epoch=2", "[METRIC] epo[METRIC] epoch=2 ch=2"),
        *("failed", "a garbled line: [METRIC] epo", ""),
    ),
    "half a metric with another line": (
        WHOLE.replace("val_loss=0.9000 acc=0.7000 images_per_sec=2560.0", "val_epoch 2/3, step 20"),
        *("failed", "a garbled line", ""),
    ),
    "a metric behind another line": (
        WHOLE.replace("[METRIC] epoch=2", "warning: [METRIC] epoch=2"),
        *("failed", "a garbled line: warning: [METRIC]", ""),
    ),
    "a metric without a number": (WHOLE.replace("time=2.200", "time=fast"), "failed", "a garbled line", ""),
    "a metric with a number too long": (
        WHOLE.replace("time=2.200", "time=2.200.1"),
        "failed",
        "a garbled line",
        "",
    ),
    "a metric without a field": (WHOLE.replace(" acc=0.7000", ""), "failed", "a garbled line", ""),
    "a metric in 64 KiB": (
        WHOLE + "[METRIC] " + "x" * 100_000 + "\n",
        "failed",
        "a garbled line of more than",
        "",
    ),
    "with an exception": (
        REPORT + metric(1) + "Traceback (most recent call last):\nValueError: bad batch\n",
        *("failed", "ValueError: bad batch", ""),
    ),
    "out of memory": (
        REPORT + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB\n",
        *("out of memory", "CUDA out of memory", ""),
    ),
    "of a cancelled job": (REPORT + metric(1) + SCANCEL, "cancelled", "cancelled", ""),
    "of a job at its time limit": (REPORT + metric(1) + TIME_LIMIT, "timed out", "time limit", ""),
    "of a job at its time limit, after an exception": (
        REPORT + "Traceback (most recent call last):\nValueError: bad batch\n" + TIME_LIMIT,
        *("timed out", "time limit", ""),
    ),
    "of a job that was preempted": (
        REPORT + TIME_LIMIT.replace("TIME LIMIT", "PREEMPTION"),
        *("interrupted", "took its nodes", ""),
    ),
    "of a job on a node that died": (
        REPORT + TIME_LIMIT.replace("TIME LIMIT", "NODE FAILURE"),
        *("node failure", "a node failed", ""),
    ),
    "of an impossible number of ranks": (
        WHOLE.replace("      2 on 1", "      0 on 1"),
        *("failed", "world_size is '0'", ""),
    ),
}


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def row_of(results: Path, name: str) -> Row:
    (row,) = [row for row in collect(results).rows if row["run_id"] == name]
    return row


def test_the_corpus_is_large_enough():
    assert len(LOGS) >= 40


@pytest.mark.parametrize("name", LOGS)
def test_each_log_is_its_row(tmp_path, name):
    content, status, reason, seconds = LOGS[name]
    write(tmp_path / "results" / "slurm-1.out", content)
    row = row_of(tmp_path / "results", "slurm-1.out")
    assert row["status"] == status
    assert reason in row["reason"]
    assert row["time_epoch_s"] == seconds
    if not seconds:
        assert {column: row[column] for column in FIGURES} == dict.fromkeys(FIGURES, "")


def test_no_log_lends_its_figures_to_another_or_stops_the_others(tmp_path):
    """All of them in one folder, each row as it is alone, and the run folder among them untouched."""
    results = tmp_path / "results"
    run = write_run(results, "none", 1)
    for number, (content, status, *_) in enumerate(LOGS.values()):
        write(results / f"{number}.log", content)
        if status == "done":  # each of a run of its own: a copy would not be a row
            with (results / f"{number}.log").open("r+b") as file:
                text = re.sub(rb"images_per_sec=\d+", b"images_per_sec=%d" % (7000 + number), file.read())
                file.seek(0)
                file.write(text)
                file.truncate()
    rows = {row["run_id"]: row for row in collect(results).rows}
    assert len(rows) == len(LOGS) + 1
    for number, (_, status, _, seconds) in enumerate(LOGS.values()):
        assert (rows[f"{number}.log"]["status"], rows[f"{number}.log"]["time_epoch_s"]) == (status, seconds)
    assert rows[run.name]["eff_strong"] == "1"


@pytest.mark.parametrize("content", [WHOLE, MEASURED], ids=["in epochs", "of a measurement"])
def test_a_copied_log_is_no_repeat(tmp_path, content, capsys):
    results = tmp_path / "results"
    run = write_run(results, "ddp", 2)
    (run / "train.log").write_text(content)
    for name in ("results/slurm-1.out", "results/slurm-1-copy.out", "elsewhere/slurm-1.out"):
        write(tmp_path / name, content)
    write(results / "slurm-2.out", content.replace("time=2.200", "time=2.201").replace("time=4.000", "time=4.001"))
    collection = collect(results, [tmp_path / "elsewhere" / "slurm-1.out"])
    assert {row["run_id"] for row in collection.rows} == {"ddp-2", "slurm-2.out"}
    copies = [f"{name} (a copy of ddp-2/train.log)" for name in ("slurm-1-copy.out", "slurm-1.out", "slurm-1.out")]
    assert collection.ignored == copies
    shutil.rmtree(run)
    assert {row["run_id"] for row in collect(results).rows} == {"slurm-1-copy.out", "slurm-2.out"}
    assert collect_results.main([str(results)]) == 0
    assert f"ignored: {results / 'slurm-1.out'} (a copy of slurm-1-copy.out)\n" in capsys.readouterr().out


def test_figures_of_a_whole_log(tmp_path):
    write(tmp_path / "results" / "a.log", WHOLE)
    row = row_of(tmp_path / "results", "a.log")
    known = ("strategy", "model", "dataset", "precision", "world_size", "nodes", "global_batch", "per_gpu_batch")
    assert [row[name] for name in known] == ["ddp", "cnn", "shapes", "fp32", "2", "1", "256", "128"]
    assert (row["device"], row["epochs"], row["steps_per_epoch"], row["measured_steps"]) == (
        "cpu",
        "3",
        "20",
        "40",
    )
    assert [float(row[name]) for name in FIGURES] == [2.1, pytest.approx(2443.65), 0.105, 1.0, 0.9, 0.7, 0.5]


def test_nan_in_a_log_stays_visible(tmp_path):
    write(tmp_path / "results" / "a.log", WHOLE.replace("0.9000", "nan").replace("time=2.000", "time=nan"))
    row = row_of(tmp_path / "results", "a.log")
    assert (row["val_loss"], row["time_epoch_s"], row["step_time_s"]) == ("nan", "nan", "nan")


def test_logs_are_compared_with_each_other_and_not_with_runs_of_which_more_is_known(tmp_path):
    results = tmp_path / "results"
    write_run(results, "none", 1)
    write(results / "two.log", WHOLE)
    assert row_of(results, "two.log")["eff_strong"] == ""
    one = WHOLE.replace("ddp: cnn", "none: cnn").replace("2 on 1 node", "1 on 1 node").replace("128 on", "256 on")
    write(results / "one.log", one.replace("time=2", "time=4"))
    assert float(row_of(results, "two.log")["eff_strong"]) == pytest.approx(4.1 / 2.1 / 2, rel=1e-3)


def test_a_real_start_report_is_understood(tiny, tmp_path):
    """What announce.describe writes today, so that the two cannot drift apart."""
    tiny("--epochs", "2", "--no-checkpoints")
    log = (tmp_path / "results" / "r" / "train.log").read_text()
    write(tmp_path / "logs" / "a.log", log)
    row = row_of(tmp_path / "logs", "a.log")
    assert (row["status"], row["epochs"], row["world_size"], row["global_batch"]) == ("done", "2", "2", "8")


def test_a_real_measurements_log_is_understood(tiny, tmp_path):
    tiny("--measure-steps", "4", "--measure-warmup", "2", "--input", "device", noise=0)
    write(tmp_path / "logs" / "a.log", (tmp_path / "results" / "r" / "train.log").read_text())
    row = row_of(tmp_path / "logs", "a.log")
    assert (row["status"], row["measured_steps"], row["input"], row["steps_per_epoch"]) == (
        "done",
        "4",
        "device",
        "4",
    )


def test_logs_from_elsewhere_are_named(tmp_path, capsys):
    write_run(tmp_path / "results", "none", 1)
    log = write(tmp_path / "elsewhere" / "slurm-7.txt", WHOLE)
    assert collect_results.main([str(tmp_path / "results"), "--logs", str(log)]) == 0
    assert "2 runs: 2 done" in capsys.readouterr().out
    with pytest.raises(UserError, match="there is no log"):
        collect(tmp_path / "results", [tmp_path / "nothing.out"])


Change = Callable[[Path], object]
UNREADABLE: dict[str, Change] = {
    "a folder with a log's name": lambda path: (path.unlink(), path.mkdir()),
    "a link to nowhere": lambda path: (path.unlink(), path.symlink_to("nowhere")),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_file_is_passed_over(tmp_path, name):
    write_run(tmp_path / "results", "none", 1)
    UNREADABLE[name](write(tmp_path / "results" / "a.log", WHOLE))
    assert "a.log" not in [row["run_id"] for row in collect(tmp_path / "results").rows if row["status"] == "done"]


def test_a_log_that_is_written_while_it_is_read_is_running(tmp_path):
    """As a growing file is seen at any moment: never an error, never figures before the last line is whole."""
    path = tmp_path / "results" / "a.log"
    for length in range(0, len(WHOLE), 7):
        write(path, WHOLE[:length])
        row = row_of(tmp_path / "results", "a.log")
        assert row["status"] in ("running", "failed")
        assert row["status"] == "running" or length < len(REPORT.split("\n")[0])
        assert row["time_epoch_s"] == ""


def test_memory_does_not_grow_with_a_log(tmp_path):
    path = write(tmp_path / "results" / "a.log", REPORT + STEPS * 100_000 + metric(1) + metric(2) + metric(3))
    assert path.stat().st_size > 4 << 20
    tracemalloc.start()
    try:
        assert read_log(path)["status"] == "done"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_runs_take_under_thirty_seconds_and_little_memory(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    import collect as benchmark

    figures = benchmark.measure([1_000, 10_000])
    print(figures)
    _, processor, memory = figures[10_000]
    assert processor < 30  # not by the clock: that of a busy machine says nothing
    assert memory < 60  # MiB: their rows, and nothing of their files
