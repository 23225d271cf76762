"""Submission to Slurm, with sbatch, sinfo, sacct and scontrol played by scripts on PATH."""

import json
import os
from pathlib import Path

import pytest

from lab.sweep import launch
from lab.sweep.collect import collect
from lab.sweep.plan import Sweep, plan_jobs

SWEEP = Sweep(devices=(2,), strategies=("ddp",), code="solutions", launcher="slurm")


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Path:
    """A folder to submit from, and a PATH whose sbatch notes what it was given, in a Slurm that knows no job."""
    for name in ("solutions/main.py", "run.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    play(tmp_path, "sbatch", 'echo "CODE=$CODE $*" >>calls; n=$(wc -l <calls); echo "$((40 + n));ci"')
    play(tmp_path, "sinfo", "echo compute")
    play(tmp_path, "sacct", "exit 1")  # no accounting here
    play(tmp_path, "scontrol", 'echo "No jobs in the system"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def play(folder: Path, name: str, body: str) -> None:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


def job_file(index: int) -> dict[str, object]:
    return json.loads((plan_jobs(SWEEP)[index].folder / "job.json").read_text())


def test_every_job_is_submitted_with_its_code_and_its_log(cluster, capsys):
    assert launch.run_sweep(SWEEP) == 0
    baseline, ddp = (cluster / "calls").read_text().splitlines()
    run_id = plan_jobs(SWEEP)[1].run_id
    assert ddp.startswith("CODE=solutions --parsable --nodes=1 --ntasks-per-node=2 ")
    assert f"--output=results/{run_id}/train.log --error=results/{run_id}/train.err run.sh --strategy ddp" in ddp
    assert "--ntasks-per-node=1" in baseline
    assert [job_file(i)["jobid"] for i in (0, 1)] == ["41", "42"]
    out = capsys.readouterr().out
    assert f"[2/2] ddp   2 devices  job 42  results/{run_id}/train.log" in out
    assert out.endswith("Follow them with: squeue --me\nWhen they have ended: ./plot_results.sh\n")


def test_submitted_jobs_are_pending_in_the_results(cluster):
    launch.run_sweep(SWEEP)
    rows = collect(Path("results")).rows
    assert [(row["strategy"], row["status"], row["jobid"]) for row in rows] == [
        *(("none", "pending", "41"), ("ddp", "pending", "42"))
    ]


def test_a_refused_job_says_why_and_the_others_are_submitted(cluster, capsys):
    play(
        cluster,
        "sbatch",
        'case $* in *--strategy\\ none*) echo "sbatch: error: invalid partition" >&2; exit 1;; esac; echo 7',
    )
    assert launch.run_sweep(SWEEP) == 1
    out = capsys.readouterr().out
    assert "[1/2] none  1 device   not submitted  sbatch: invalid partition" in out
    assert "[2/2] ddp   2 devices  job 7" in out
    assert [row["status"] for row in collect(Path("results")).rows] == ["failed", "pending"]


def test_when_nothing_could_be_submitted_the_local_launcher_is_named(cluster, capsys):
    play(cluster, "sbatch", 'echo "sbatch: error: Unable to contact slurm controller" >&2; exit 1')
    assert launch.run_sweep(SWEEP) == 1
    assert "Nothing was submitted. To run the jobs on this machine: --launcher local" in capsys.readouterr().out


def test_a_job_that_is_still_queued_is_not_submitted_twice(cluster, capsys):
    launch.run_sweep(SWEEP)
    waiting = "JobName=x JobState=PENDING Reason=Priority ExitCode=0:0"
    play(cluster, "scontrol", f'echo "JobId=41 {waiting}"; echo "JobId=42 {waiting}"')
    assert launch.run_sweep(SWEEP) == 0  # nothing failed: they are on their way
    assert (cluster / "calls").read_text().count("\n") == 2
    assert "job 41 for the same point is still pending: wait for it, or scancel 41" in capsys.readouterr().out
    assert job_file(0)["jobid"] == "41"


def test_a_job_that_has_ended_may_be_submitted_again(cluster):
    launch.run_sweep(SWEEP)
    assert launch.run_sweep(SWEEP) == 0
    assert job_file(0)["jobid"] == "43"


def test_nothing_is_submitted_when_one_point_does_not_fit_the_nodes(cluster, capsys):
    from dataclasses import replace

    from lab.training.errors import UsageError

    with pytest.raises(UsageError, match="7 devices"):
        launch.run_sweep(replace(SWEEP, devices=(2, 7), global_batches=(14,)))
    assert not (cluster / "calls").exists()


@pytest.mark.parametrize(
    ("err", "reason"),
    [
        ("main.py: no folder data\nsrun: error: node1: task 0: Exited with exit code 1\n", "no folder data"),
        (
            "slurmstepd-node2: error: *** STEP 11.0 ON node2 CANCELLED AT 2026-01-05T10:00:00 ***\n"
            "srun: error: node2: task 1: Terminated\n",
            "srun: error: node2: task 1: Terminated",
        ),
        ("slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2026-01-05T10:00:00 ***\n", "cancelled"),
        (
            "slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME LIMIT ***\n",
            "ended by Slurm at its time limit",
        ),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.0.\n", "out of memory (Slurm's limit)"),
        ("run.sh: scontrol named no node for this job\n", "scontrol named no node for this job"),
    ],
)
def test_a_job_that_slurm_has_ended_is_failed_in_the_results(cluster, err, reason):
    launch.run_sweep(SWEEP)
    folder = plan_jobs(SWEEP)[1].folder
    (folder / "status.json").write_text('{"status": "running", "reason": "", "started": "x", "ended": null}')
    assert collect(Path("results")).rows[1]["status"] == "running"
    (folder / "train.err").write_text(err)
    row = collect(Path("results")).rows[1]
    assert (row["status"], row["reason"]) == ("failed", reason)
