"""Submission to Slurm, with sbatch, sinfo, sacct and scontrol played by scripts on PATH."""

import json
import os
import shutil
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from lab.base.errors import UserError
from lab.sweep.collect.collect import collect
from lab.sweep.draw.report_tables import run_hours
from lab.sweep.launch import job_folder, launch
from lab.sweep.plan.plan import plan_jobs
from lab.sweep.plan.sweep import Sweep

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
    assert ddp.startswith("CODE=solutions --parsable --nodes=1 --ntasks-per-node=2 --gpus-per-node=2 ")
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


@pytest.mark.parametrize("state", ["done", "queued", "done while it waits"])
def test_a_job_that_was_made_another_way_counts_for_the_comparison_too(cluster, monkeypatch, state):
    plain = replace(SWEEP, precisions=("bf16",), strategies=("none",))
    launch.run_sweep(plain)
    (job,) = plan_jobs(plain)
    if state == "queued":
        play(cluster, "scontrol", 'echo "JobId=41 JobState=RUNNING Reason=None ExitCode=0:0"')
    else:
        looks = iter([state == "done", *[True] * 9])
        monkeypatch.setattr(launch, "is_done", lambda one: one.run_id == job.run_id and next(looks))
    compared = replace(SWEEP, compare=("--precision", "bf16"), strategies=("none",))
    for sweep, compare in ((compared, "--precision bf16"), (plain, "--precision bf16")):
        launch.run_sweep(sweep)
        record = json.loads((job.folder / "job.json").read_text())
        assert (record["compare"], record["jobid"]) == (compare, "41")


def test_a_job_that_has_ended_may_be_submitted_again(cluster):
    launch.run_sweep(SWEEP)
    assert launch.run_sweep(SWEEP) == 0
    assert job_file(0)["jobid"] == "43"


NO_ANSWER = "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"


@pytest.mark.parametrize("sacct", ["exit 1", "true"])  # none; it has not heard of the job yet
def test_a_slurm_that_gives_no_answer_does_not_mean_that_the_job_has_ended(cluster, capsys, sacct):
    launch.run_sweep(SWEEP)
    write_status(plan_jobs(SWEEP)[1].folder, "running")
    play(cluster, "sacct", sacct)
    play(cluster, "scontrol", NO_ANSWER)
    assert launch.run_sweep(SWEEP) == 1
    assert (cluster / "calls").read_text().count("\n") == 2
    assert [job_file(i)["jobid"] for i in (0, 1)] == ["41", "42"]
    assert (plan_jobs(SWEEP)[1].folder / "status.json").exists()
    out = capsys.readouterr().out
    said = "Slurm does not say what has become of job 42 (slurm_load_jobs error: Unable to contact"
    assert said in out
    assert "try again later, or choose another --output-dir" in out


def test_a_run_that_says_itself_that_it_has_ended_may_be_done_again_without_slurms_word(cluster):
    launch.run_sweep(SWEEP)
    play(cluster, "scontrol", NO_ANSWER)
    write_status(plan_jobs(SWEEP)[0].folder, "failed")
    assert launch.run_sweep(SWEEP) == 1
    assert [job_file(i)["jobid"] for i in (0, 1)] == ["43", "42"]


def test_no_launcher_takes_the_folder_of_a_job_that_may_still_run(cluster):
    launch.run_sweep(SWEEP)
    job = plan_jobs(SWEEP)[1]
    play(cluster, "scontrol", 'echo "JobId=42 JobName=x JobState=RUNNING Reason=None ExitCode=0:0"')
    with pytest.raises(job_folder.StillQueuedError, match="job 42 for the same point is still running"):
        job_folder.prepare(job, "local", "")
    play(cluster, "scontrol", NO_ANSWER)
    with pytest.raises(UserError, match="Slurm does not say"):
        job_folder.prepare(job, "local", "")
    assert job_file(1)["jobid"] == "42"


def test_nothing_is_submitted_when_one_point_does_not_fit_the_nodes(cluster, capsys):
    from lab.base.errors import UsageError

    with pytest.raises(UsageError, match="7 devices"):
        launch.run_sweep(replace(SWEEP, devices=(2, 7), global_batches=(14,)))
    assert not (cluster / "calls").exists()


@pytest.mark.parametrize(
    ("err", "state", "reason"),
    [
        (
            "main.py: no folder data\nsrun: error: node1: task 0: Exited with exit code 1\n",
            "failed",
            "no folder data",
        ),
        (
            "slurmstepd-node2: error: *** STEP 11.0 ON node2 CANCELLED AT 2026-01-05T10:00:00 ***\n"
            "srun: error: node2: task 1: Terminated\n",
            "failed",
            "srun: error: node2: task 1: Terminated",
        ),
        (
            "slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2026-01-05T10:00:00 ***\n",
            "cancelled",
            "cancelled",
        ),
        (
            "slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME LIMIT ***\n",
            "timed out",
            "ended by Slurm at its time limit",
        ),
        (
            "slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2026-01-05T10:00:00 DUE TO NODE FAILURE ***\n",
            "node failure",
            "a node failed",
        ),
        (
            "srun: error: node1: task 0: User defined signal 1\n",
            "timed out",
            "ended by Slurm's warning (SIGUSR1) before its time limit, which came too early for it to save",
        ),
        (
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.0.\n",
            "out of memory",
            "out of memory (Slurm's limit)",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory.\nsrun: error: node1: task 0: Exited with exit code 1\n",
            "out of memory",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
        ("run.sh: scontrol named no node for this job\n", "failed", "scontrol named no node for this job"),
    ],
)
def test_where_slurm_says_nothing_the_log_tells_how_a_job_has_ended(cluster, err, state, reason):
    launch.run_sweep(SWEEP)
    folder = plan_jobs(SWEEP)[1].folder
    (folder / "status.json").write_text('{"status": "running", "reason": "", "started": "x", "ended": null}')
    assert collect(Path("results")).rows[1]["status"] == "running"
    (folder / "train.err").write_text(err)
    row = collect(Path("results")).rows[1]
    assert (row["status"], row["reason"]) == (state, reason)


ACCOUNTING = [
    # Slurm's words, its exit code, what status.json says -> our state, and what the reason holds
    ("PENDING", "0:0", None, "pending", "job 42 waits"),
    ("RUNNING", "0:0", "running", "running", "job 42 runs"),
    ("FAILED", "7:0", "running", "failed", "exit code 7"),
    ("OUT_OF_MEMORY", "0:125", "running", "out of memory", "OUT_OF_MEMORY"),
    ("TIMEOUT", "0:0", "running", "timed out", "ended by Slurm at its time limit"),
    ("DEADLINE", "0:0", "running", "timed out", "ended by Slurm at its time limit"),
    ("CANCELLED by 1000", "0:15", "interrupted", "cancelled", "CANCELLED by 1000; stopped by SIGTERM"),
    ("CANCELLED by 0", "0:0", None, "cancelled", "CANCELLED by 0"),
    ("NODE_FAIL", "1:0", "running", "node failure", "a node failed"),
    ("PREEMPTED", "0:0", "running", "interrupted", "PREEMPTED"),
    ("COMPLETED", "0:0", "running", "failed", "Slurm says COMPLETED, but the run did not train to the end"),
    ("SOMETHING_NEW", "0:0", "running", "running", "has not ended"),
]


def write_status(folder: Path, status: str | None) -> None:
    if status is not None:
        reason = "stopped by SIGTERM: no checkpoint at epoch 1, step 3" if status == "interrupted" else ""
        (folder / "status.json").write_text(json.dumps({"status": status, "reason": reason}))


@pytest.mark.parametrize(("word", "exit_code", "status", "state", "reason"), ACCOUNTING)
@pytest.mark.parametrize("source", ["sacct", "scontrol"])
def test_slurms_word_is_the_state_where_the_run_is_not_done(
    cluster, source, word, exit_code, status, state, reason
):
    launch.run_sweep(SWEEP)
    write_status(plan_jobs(SWEEP)[1].folder, status)
    if source == "sacct":
        play(cluster, "sacct", f'echo "42|{word}|{exit_code}|Unknown|Unknown"')
    else:  # which says CANCELLED without by whom
        word = word.split()[0]
        play(cluster, "scontrol", f'echo "JobId=42 JobName=x JobState={word} Reason=None ExitCode={exit_code}"')
    row = collect(Path("results")).rows[1]
    assert row["status"] == state
    assert reason.split(" by ")[0] in row["reason"]


@pytest.mark.parametrize("named_by", ["slurm-42/", "run.csv"])
@pytest.mark.parametrize(
    ("status", "word", "expected", "reason"),
    [
        ("running", "NODE_FAIL", "node failure", "a node failed"),
        ("running", "OUT_OF_MEMORY", "out of memory", "OUT_OF_MEMORY"),
        ("running", "RUNNING", "running", "job 42 runs"),
        ("interrupted", "PENDING", "pending", "job 42 waits"),  # queued again
        ("failed", "RUNNING", "failed", "no folder data"),  # srun in an allocation that goes on
        ("failed", "TIMEOUT", "failed", "no folder data"),
    ],
)
def test_slurm_is_asked_about_a_job_that_no_sweep_submitted(cluster, named_by, status, word, expected, reason):
    from run_folders import write_run

    for name in ("ddp-41", "ddp-42"):  # two runs of one job
        in_csv = {"jobid": "42"} if named_by == "run.csv" else {}
        run = write_run(
            Path("results"), run_id=name, status=status, reason="no folder data" * (status == "failed"), **in_csv
        )
        if named_by == "slurm-42/":
            for job in (7, 42):  # it was resumed once
                (run / f"slurm-{job}").mkdir()
        told_last(run, "2026-01-05T11:00:30")  # within what the clocks may differ by
    play(cluster, "sacct", f'echo "42|{word}|1:0|2026-01-05T10:00:00|2026-01-05T11:00:00"')
    for row in collect(Path("results")).rows:
        assert (row["status"], row["jobid"]) == (expected, "42")
        assert reason in row["reason"]


def told_last(run: Path, time: str) -> None:
    """The run has written its status.json at that time."""
    seconds = datetime.fromisoformat(time).timestamp()
    os.utime(run / "status.json", (seconds, seconds))


@pytest.mark.parametrize(
    "err", ["", "slurmstepd: error: *** JOB 42 ON node1 CANCELLED AT x DUE TO TIME LIMIT ***\n"]
)
def test_a_run_that_goes_on_outside_of_slurm_is_not_what_its_job_was(cluster, err):
    from run_folders import write_run

    run = write_run(Path("results"), status="running")
    (run / "slurm-42").mkdir()
    (run / "train.err").write_text(err)
    told_last(run, "2026-01-05T11:05:00")
    play(cluster, "sacct", 'echo "42|TIMEOUT|0:0|2026-01-05T10:00:00|2026-01-05T11:00:00"')
    (row,) = collect(Path("results")).rows
    assert (row["status"], row["reason"]) == ("running", "has not ended")
    assert json.loads((run / "status.json").read_text())["status"] == "running"


@pytest.mark.parametrize(
    ("file", "text", "word", "status", "reason"),
    [
        ("train.log", "job 42: 2 ranks on node1\n", "", "failed", "status.json is missing: the run ended before"),
        ("train.err", "Traceback:\nImportError: no data\n", "", "failed", "ImportError: no data"),
        ("train.err", "", "", "pending", "job 42 has written nothing yet"),
        ("train.log", "job 42: 2 ranks on node1\n", "RUNNING", "running", "job 42 runs"),
        ("train.log", "job 42: 2 ranks on node1\n", "FAILED", "failed", "exit code 3; train.err does not say why"),
    ],
)
def test_a_plain_job_that_ended_before_its_run_began_does_not_wait_for_ever(
    cluster, file, text, word, status, reason
):
    run = Path("results", "scaling-lab-42")
    (run / "slurm-42").mkdir(parents=True)
    (run / file).write_text(text)
    if word:
        play(cluster, "sacct", f'echo "42|{word}|3:0|2026-01-05T10:00:00|2026-01-05T11:00:00"')
    (row,) = collect(Path("results")).rows
    assert row["status"] == status
    assert row["reason"].startswith(reason)
    if status == "failed":
        play(cluster, "sacct", "exit 1")  # it has forgotten the job
        assert collect(Path("results")).rows == [row]


def test_a_local_sweep_in_an_allocation_is_not_slurms(cluster):
    from run_folders import write_run

    run = write_run(Path("results"), status="running", jobid="42")
    (run / "job.json").write_text(json.dumps({"launcher": "local"}))
    play(cluster, "sacct", 'echo "42|TIMEOUT|1:0|2026-01-05T10:00:00|2026-01-05T11:00:00"')
    (row,) = collect(Path("results")).rows
    assert (row["status"], row["jobid"]) == ("running", "")


def test_how_a_job_ended_is_kept_when_slurm_has_forgotten_it(cluster):
    launch.run_sweep(SWEEP)
    write_status(plan_jobs(SWEEP)[1].folder, "running")
    play(cluster, "sacct", 'echo "42|TIMEOUT|0:0|2026-03-01T10:00:00|2026-03-01T11:00:00"')
    first = collect(Path("results")).rows[1]
    assert collect(Path("results")).rows[1] == first  # asked again: the same words
    play(cluster, "sacct", "exit 1")
    assert collect(Path("results")).rows[1] == first
    assert (first["status"], first["reason"]) == ("timed out", "ended by Slurm at its time limit")


def here(time: str) -> str:
    """With the time zone of this machine, which is Slurm's."""
    return datetime.fromisoformat(time).astimezone().isoformat()


@pytest.mark.parametrize(
    ("source", "own_end", "err", "hours"),
    [
        ("sacct", None, "", 1.0),
        ("sacct", None, "slurmstepd: error: *** JOB 42 CANCELLED DUE TO TIME LIMIT ***\n", 1.0),
        ("sacct", "2026-03-01T10:30:00", "", 0.5),  # the run's own word is nearer
        ("scontrol", None, "", 1.0),
        ("scontrol Unknown", None, "", None),
        ("sacct, two runs in the job", None, "", None),
    ],
)
def test_hours_end_when_the_job_ended_not_when_it_was_collected(cluster, source, own_end, err, hours):
    launch.run_sweep(SWEEP)
    folder = plan_jobs(SWEEP)[1].folder
    times = {"started": here("2026-03-01T10:00:00"), "ended": own_end and here(own_end)}
    (folder / "status.json").write_text(json.dumps({"status": "running", "reason": "", **times}))
    (folder / "train.err").write_text(err)
    if "two runs" in source:
        shutil.copytree(folder, folder.with_name("the-other"))
    if source.startswith("sacct"):
        play(cluster, "sacct", 'echo "42|TIMEOUT|0:0|2026-03-01T09:00:00|2026-03-01T11:00:00"')
    else:
        end = "2026-03-01T11:00:00" if source == "scontrol" else "Unknown"
        play(cluster, "scontrol", f'echo "JobId=42 JobState=TIMEOUT ExitCode=0:0 EndTime={end}"')
    assert collect(Path("results")).rows[1]["status"] == "timed out"
    assert run_hours(folder) == hours


def test_a_waiting_job_says_what_it_waits_for(cluster):
    launch.run_sweep(SWEEP)
    play(cluster, "scontrol", 'echo "JobId=42 JobName=x JobState=PENDING Reason=Resources ExitCode=0:0"')
    assert collect(Path("results")).rows[1]["reason"] == "job 42 waits (Resources)"


def test_a_run_that_is_done_stays_done_whatever_slurm_says(cluster):
    from run_folders import write_run

    launch.run_sweep(SWEEP)
    job = plan_jobs(SWEEP)[1]
    (job.folder / "job.json").rename("job.json")
    job.folder.rmdir()
    write_run(Path("results"), "ddp", 2, run_id=job.run_id)
    Path("job.json").rename(job.folder / "job.json")
    play(cluster, "sacct", 'echo "42|FAILED|1:0|Unknown|Unknown"')
    assert collect(Path("results")).rows[1]["status"] == "done"


def test_again_submits_what_failed_and_not_what_is_done_or_waits(cluster, capsys):
    from run_folders import write_run

    launch.run_sweep(SWEEP)
    done, failed = plan_jobs(SWEEP)
    (done.folder / "job.json").unlink()
    done.folder.rmdir()
    write_run(Path("results"), "none", 1, run_id=done.run_id)
    play(cluster, "sacct", 'echo "42|NODE_FAIL|1:0|Unknown|Unknown"')
    assert launch.run_sweep(SWEEP) == 0
    assert (cluster / "calls").read_text().count("\n") == 3
    assert f"[1/1] ddp   2 devices  job 43  results/{failed.run_id}/train.log" in capsys.readouterr().out


def test_max_jobs_waits_for_room_in_the_queue(cluster, capsys, monkeypatch):
    """The queue holds what sbatch took; it is emptied by looking at it twice."""
    monkeypatch.setattr(launch, "LOOK_EVERY", 0.01)
    state = "looks=$(cat looks 2>/dev/null || echo 0); echo $((looks + 1)) >looks; "
    state += "state=RUNNING; ((looks % 3 == 2)) && state=COMPLETED; n=$(wc -l <calls); "
    state += (
        'for ((i = 1; i <= n; i++)); do echo "JobId=$((40 + i)) JobState=$state Reason=None ExitCode=0:0"; done'
    )
    play(cluster, "scontrol", state)
    assert launch.run_sweep(SWEEP, choices=launch.Choices(max_jobs=1)) == 0
    out = capsys.readouterr().out
    assert "1 jobs in the queue (--max-jobs 1): waiting for one to end" in out
    assert int((cluster / "looks").read_text()) == 3
    assert (cluster / "calls").read_text().count("\n") == 2


def test_max_jobs_counts_what_an_earlier_call_has_in_the_queue(cluster, capsys, monkeypatch):
    """Job 41 of the first call ends well while the second waits: it is neither too much nor done again."""
    monkeypatch.setattr(launch, "LOOK_EVERY", 0.01)
    launch.run_sweep(replace(SWEEP, devices=(1,), strategies=("none",)))
    (baseline,) = plan_jobs(replace(SWEEP, devices=(1,), strategies=("none",)))
    play(
        cluster,
        "scontrol",
        "looks=$(cat looks 2>/dev/null || echo 0); echo $((looks + 1)) >looks; ((looks == 2)) && exit 1; "
        "state=RUNNING; ((looks > 2)) && state=COMPLETED; "
        'for n in 41 42; do echo "JobId=$n JobState=$state Reason=None ExitCode=0:0"; done',
    )
    assert launch.run_sweep(SWEEP, choices=launch.Choices(max_jobs=1)) == 0
    out = capsys.readouterr().out
    assert "[1/2] none  1 device   not submitted  job 41 for the same point is still running" in out
    waited = (
        "1 jobs in the queue (--max-jobs 1): waiting for one to end\nSlurm does not say what has become of job"
    )
    assert waited in out
    assert "[2/2] ddp   2 devices  job 42" in out
    assert json.loads((baseline.folder / "job.json").read_text())["jobid"] == "41"


def test_a_job_that_was_done_while_the_sweep_waited_is_not_done_again(cluster, capsys, monkeypatch):
    launch.run_sweep(SWEEP)
    done = iter([False, False, True, False])  # none at the start; the first one by the time of its turn
    monkeypatch.setattr(launch, "is_done", lambda job: next(done))
    assert launch.run_sweep(SWEEP) == 0
    assert "[1/2] none  1 device   done since this sweep was started" in capsys.readouterr().out
    assert [job_file(i)["jobid"] for i in (0, 1)] == ["41", "43"]


def test_a_time_limit_is_slurms_and_the_cpu_hides_the_gpus(cluster):
    play(cluster, "sbatch", 'echo "GPUS=$CUDA_VISIBLE_DEVICES. $*" >>calls; echo 41')
    launch.run_sweep(replace(SWEEP, time_limit=7, cpu=True))
    for call in (cluster / "calls").read_text().splitlines():
        assert call.startswith("GPUS=. --parsable --time=7 ")
        assert " --gpus-per-node=0 " in call
