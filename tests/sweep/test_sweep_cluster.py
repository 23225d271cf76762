"""A sweep through a real Slurm, sbatch and srun: the practice cluster on this machine, ranks on the CPU."""

import csv
import re
import sys

import pytest
from practice_cluster import wait_until
from run_folders import write_few_images

import collect_results
from lab.sweep.collect.collect import collect

pytestmark = pytest.mark.slurm


def test_a_sweep_through_sbatch_ends_in_results(root, cluster, tmp_path):
    for name in ("solutions", "run.sh", "lab", "slurm"):
        (tmp_path / name).symlink_to(root / name)
    sweep = "--launcher slurm --code solutions --devices 2 --strategies ddp --epochs 2 --global-batch-size 32"
    data = ("--", "--dataset", "imagefolder", "--data-dir", write_few_images(tmp_path / "data"))
    submitted = cluster.run(sys.executable, root / "run_benchmarks.py", *sweep.split(), *data, cwd=tmp_path)

    jobs = [line.split("job ")[1].split()[0] for line in submitted.stdout.splitlines() if "  job " in line]
    for job in jobs:
        assert cluster.wait(job, "COMPLETED")
    rows = collect(tmp_path / "results").rows
    assert [(row["strategy"], row["world_size"], row["status"], row["reason"]) for row in rows] == [
        *(("none", "1", "done", ""), ("ddp", "2", "done", ""))
    ]
    assert [row["jobid"] for row in rows] == jobs
    folder = tmp_path / "results" / rows[1]["run_id"]
    log = (folder / "train.log").read_text()
    assert re.search(rf"2 ranks on (node\d); they meet at \1:{10000 + int(jobs[1])}\n", log)
    assert log.count("[METRIC] epoch=1 ") == 1  # srun's output and the run's own log are the same file
    assert (folder / "train.err").exists()
    assert f"JobId={jobs[1]} " in (folder / f"slurm-{jobs[1]}" / "scontrol.txt").read_text()


# Stands for a student's main.py: none trains, ddp raises, fsdp never ends and heeds no warning, fsdp1 trains on.
UNRULY = """
import signal, sys, time
sys.path.insert(0, {solutions!r})
argv = sys.argv[1:]
strategy = argv[argv.index("--strategy") + 1]
if strategy == "ddp":
    raise ValueError("the batch is too large")
if strategy == "fsdp":
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    print("waits", flush=True)
    time.sleep(600)
import main
main.main([*argv, *(["--epochs", "100000"] if strategy == "fsdp1" else [])])
"""


def test_what_fails_times_out_or_is_cancelled_is_shown_as_such(root, cluster, tmp_path, monkeypatch, capsys):
    for name in ("run.sh", "lab", "slurm"):
        (tmp_path / name).symlink_to(root / name)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "main.py").write_text(UNRULY.format(solutions=str(root / "solutions")))
    sweep = "--launcher slurm --code code --devices 1 --epochs 1 --global-batch-size 32"
    data = ("--", "--dataset", "imagefolder", "--data-dir", write_few_images(tmp_path / "data"))
    command = (sys.executable, root / "run_benchmarks.py", *sweep.split(), "--strategies")
    submitted = cluster.run(*command, "ddp", "fsdp", "fsdp1", "--time-limit", "5", *data, cwd=tmp_path).stdout
    ids = re.findall(r"\] (\w+) .*  job (\d+)  (\S+)/train.log", submitted)
    jobs = {strategy: job for strategy, job, _ in ids}
    folders = {strategy: tmp_path / folder for strategy, _, folder in ids}

    def rows() -> dict[str, dict[str, str]]:
        """As collect_results.py sees it on the login node."""
        cluster.run(sys.executable, root / "collect_results.py", cwd=tmp_path)
        with (tmp_path / "results" / "results.csv").open(newline="") as file:
            return {row["strategy"]: row for row in csv.DictReader(file)}

    waiting = folders["fsdp"] / "train.log"
    wait_until("fsdp waits", lambda: waiting.exists() and "waits" in waiting.read_text())
    assert cluster.show(jobs["fsdp"])["TimeLimit"] == "00:05:00"
    cluster.run("scontrol", "update", f"JobId={jobs['fsdp']}", "EndTime=now+1")  # limits are whole minutes else

    log = folders["fsdp1"] / "train.log"
    wait_until("fsdp1 trains", lambda: log.exists() and "[METRIC]" in log.read_text())
    assert rows()["fsdp1"]["status"] == "running"
    cluster.run("scancel", jobs["fsdp1"])
    for strategy, state in (("none", "COMPLETED"), ("ddp", "FAILED"), ("fsdp1", "CANCELLED"), ("fsdp", "TIMEOUT")):
        cluster.wait(jobs[strategy], state)
    found = rows()
    assert {strategy: row["status"] for strategy, row in found.items()} == {
        "none": "done",
        "ddp": "failed",
        "fsdp": "timed out",
        "fsdp1": "cancelled",
    }
    assert found["ddp"]["reason"] == "ValueError: the batch is too large"
    assert found["fsdp"]["reason"] == "ended by Slurm at its time limit"
    assert "stopped by SIGTERM" in found["fsdp1"]["reason"]
    assert {row["jobid"] for row in found.values()} == set(jobs.values())

    again = cluster.run(*command, "ddp", "fsdp", "fsdp1", "--dry-run", *data, cwd=tmp_path)
    assert again.stdout.count("done already") == 2  # the baseline, and in the sum
    monkeypatch.chdir(tmp_path)  # where no Slurm is: what was found is kept
    assert collect_results.main([]) == 0
    assert "4 runs: 1 done, 1 failed, 1 timed out, 1 cancelled" in capsys.readouterr().out
