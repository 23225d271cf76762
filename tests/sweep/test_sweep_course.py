"""The preset course for real: interrupted in the middle, gone on with, collected and drawn."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from practice_cluster import wait_until
from run_folders import write_few_images

from lab.sweep.collect.collect import collect


def start(root: Path, folder: Path, *arguments: str, program: str = "run_benchmarks.py") -> subprocess.Popen[str]:
    for name in ("solutions", "lab"):
        if not (folder / name).exists():
            (folder / name).symlink_to(root / name)
    return subprocess.Popen(
        [sys.executable, root / program, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=1500)
    assert process.returncode == 0, out
    return out


def interrupt_and_go_on(root: Path, folder: Path, *arguments: str) -> dict[str, str]:
    """Press Ctrl-C while the second job trains, start again; the outputs of both."""
    results = folder / "results" / "course"
    first = start(root, folder, *arguments)

    def second_job_trains() -> bool:
        assert first.poll() is None, first.communicate()[0]
        return len(list(results.glob("*/config.json"))) >= 2

    wait_until("the second job trains", second_job_trains)
    first.send_signal(signal.SIGINT)
    out, _ = first.communicate(timeout=120)
    assert first.returncode == 130, out
    done = [row for row in collect(results).rows if row["status"] == "done"]
    assert [row["strategy"] for row in done] == ["none"]
    (cancelled,) = [row for row in collect(results).rows if row["status"] == "cancelled"]
    assert cancelled["reason"].startswith("interrupted after ")
    before = (results / done[0]["run_id"] / "run.csv").stat().st_mtime_ns

    again = finish(start(root, folder, *arguments))
    assert (results / done[0]["run_id"] / "run.csv").stat().st_mtime_ns == before
    return {"first": out, "again": again}


def test_the_course_goes_on_after_ctrl_c(root, tmp_path):
    """On few images and steps, so that it is about the sweep."""
    small = "--strategies ddp --scaling weak --per-device-batch-size 8 --repeat 1 --measure-steps 4"
    data = ("--", "--dataset", "imagefolder", "--data-dir", str(write_few_images(tmp_path / "data")))
    arguments = ("--preset", "course", *small.split(), "--measure-warmup", "2", *data)
    out = interrupt_and_go_on(root, tmp_path, *arguments)
    assert "1 of 3 jobs ended before; left to do: ddp-1-" in out["first"]
    assert "1 of 3 jobs are done already" in out["again"]
    assert "2 done, 0 failed; next: ./plot_results.sh results/course" in out["again"]
    rows = collect(tmp_path / "results" / "course").rows
    assert [(row["strategy"], row["world_size"], row["status"]) for row in rows] == [
        *(("none", "1", "done"), ("ddp", "1", "done"), ("ddp", "2", "done"))
    ]
    assert all(float(row["eff_weak"]) > 0 for row in rows)
    assert {(row["measured_steps"], row["input"], row["device"]) for row in rows} == {("4", "device", "cpu")}
    assert "nothing left to do" in finish(start(root, tmp_path, *arguments))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_whole_course_ends_in_figures(root, tmp_path):
    interrupt_and_go_on(root, tmp_path, "--preset", "course")
    table = finish(start(root, tmp_path, "results/course", program="collect_results.py"))
    print(table)
    assert "20 runs: 20 done" in table
    assert "steps were measured" not in table
    finish(start(root, tmp_path, "results/course/results.csv", program="plot_results.py"))
    assert list((tmp_path / "results" / "course" / "figures").glob("*.png"))
