"""What is said of a job with the help of Slurm: how it was submitted, and what it waits for."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from lab.base.errors import UserError
from lab.cli import main
from lab.diagnose.evidence import gather, tasks
from lab.diagnose.slurm_job import ASKS, longer, stuck, submitted
from lab.diagnose.verdict import findings
from lab.slurm.accounting import COLUMNS
from lab.slurm.query import SlurmJob, Submission, submission

# Of scontrol show job, Slurm 22.05.
SHOWN = """JobId=6 JobName=scaling-lab
   JobState=RUNNING Reason=None Dependency=(null)
   NumNodes=2 NumCPUs=8 NumTasks=4 CPUs/Task=4 ReqB:S:C:T=0:0:*:*
   Socks/Node=* NtasksPerN:B:S:C=2:0:*:* CoreSpec=*
   Command=/home/ada/my-lab/run.sh --epochs 30 --run-id scaling-lab-4 --resume=auto
   WorkDir=/home/ada/my-lab
   Power=
   TresPerNode=gres:gpu:4
"""
LOGS = Path(__file__).parent / "failed_jobs"
SAVED = "stopped by SIGUSR1: saved at epoch 2, step 4"


@pytest.fixture
def slurm(monkeypatch, tmp_path):
    """Slurm says this of each job; commands run in an empty folder."""
    said: dict[str, SlurmJob] = {}
    monkeypatch.setattr("lab.slurm.query.jobs", lambda ids: {one: said[one] for one in ids if one in said})
    monkeypatch.setattr("lab.slurm.query.submission", lambda job: Submission())
    monkeypatch.setattr("shutil.which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr("lab.diagnose.evidence.stuck", lambda: [job for job in said if said[job].reason])
    monkeypatch.chdir(tmp_path)
    return said


def run_of(job: str, *, status: str, log: str = "") -> Path:
    """A run's folder as run.sh leaves it."""
    folder = Path("results") / f"scaling-lab-{job}"
    (folder / f"slurm-{job}").mkdir(parents=True)
    (folder / f"slurm-{job}" / "scontrol.txt").write_text(SHOWN, encoding="utf-8")
    (folder / "status.json").write_text(json.dumps({"status": status, "reason": SAVED}), encoding="utf-8")
    begun = f"job {job}: 2 ranks on node1; they meet at node1:1000{job}\n"
    (folder / "train.log").write_text(begun + log, encoding="utf-8")
    (folder / "train.err").touch()
    return folder


def test_the_job_that_went_on_in_a_log_is_the_last_one(slurm):
    folder = run_of("4", status="failed", log="job 5: 2 ranks on node1; they meet at node1:10005\n")
    assert gather(folder).jobid == "5"


def test_a_run_is_submitted_again_as_it_was(slurm):
    slurm["6"] = SlurmJob("CANCELLED by 1000")
    first, *_ = findings(gather(run_of("6", status="interrupted")))
    assert first.do == (
        "sbatch --nodes=2 --ntasks-per-node=2 run.sh --epochs 30 --run-id scaling-lab-6 --resume auto",
    )


AGAIN = "sbatch --nodes=2 --ntasks-per-node=2"
GPUS = "   TresPerNode=gres:gpu:4\n"


@pytest.mark.parametrize(
    ("old", "new", "command"),
    [
        ("", "", f"{AGAIN} run.sh --epochs 30"),
        ("gres:gpu:4", "gres/gpu:2", f"{AGAIN} --gpus-per-node=2 run.sh --epochs 30"),
        (GPUS, "", f"{AGAIN} --gpus-per-node=0 run.sh --epochs 30"),
        ("gres:gpu:4", "gres:gpu:a100:2", f"{AGAIN} --gpus-per-node=a100:2 run.sh --epochs 30"),
        ("gres:gpu:4", "gres/gpu:a100=2", f"{AGAIN} --gpus-per-node=a100:2 run.sh --epochs 30"),
        (GPUS, f"{GPUS}   TresPerTask=gres/gpu=1\n", f"{AGAIN} --gpus-per-task=1 run.sh --epochs 30"),
        (
            "   Power=",
            "   CODE=exercises\n   LAUNCHER=torchrun\n   LAB_ENV=/my env",
            f"LAUNCHER=torchrun LAB_ENV='/my env' {AGAIN} run.sh --epochs 30",
        ),
        (
            "   Power=",
            "   CODE=solutions",
            f"CODE=solutions {AGAIN} run.sh --epochs 30",
        ),
        (
            "   NumNodes",
            "   RunTime=05:00:03 TimeLimit=05:00:00 TimeMin=N/A\n   Account=(null) QOS=normal\n"
            "   Partition=gpu AllocNode:Sid=login:9\n   NumNodes",
            "sbatch --partition=gpu --time=05:00:00 --nodes=2 --ntasks-per-node=2 run.sh --epochs 30",
        ),
        (
            "   NumNodes",
            "   TimeLimit=00:30:00 TimeMin=N/A\n   Account=csstaff QOS=normal\n   NumNodes",
            "sbatch --account=csstaff --nodes=2 --ntasks-per-node=2 run.sh --epochs 30",
        ),
        (
            "JobName=",
            "ArrayTaskId=3 JobName=",
            "sbatch --array=3 --nodes=2 --ntasks-per-node=2 run.sh --epochs 30",
        ),
        ("my-lab/run.sh", "my-lab/slurm/baseline.sh", f"{AGAIN} slurm/baseline.sh --epochs 30"),
        ("--epochs 30", "--data-dir $(rm)", f"{AGAIN} run.sh --data-dir '$(rm)'"),
        ("/home/ada/my-lab/run.sh --", "(null) --", ""),
        (SHOWN, "garbage", ""),
    ],
)
def test_the_command_is_read_from_slurms_record(old, new, command):
    assert submitted(SHOWN.replace(old, new) if old else SHOWN) == command


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("sbatch run.sh --strategy ddp", "sbatch --time=01:00:00 run.sh --strategy ddp"),
        ("CODE=x sbatch --time=05:00:00 --nodes=2 run.sh", "CODE=x sbatch --time=10:00:00 --nodes=2 run.sh"),
        ("sbatch --time=1-00:00:30 run.sh", "sbatch --time=48:01:00 run.sh"),
        ("LAB_ENV=/x/sbatch/env sbatch run.sh", "LAB_ENV=/x/sbatch/env sbatch --time=01:00:00 run.sh"),
        ("./run.sh", "./run.sh"),
    ],
)
def test_a_job_that_was_too_slow_gets_twice_its_time(command, expected):
    assert longer(command) == expected


def test_what_run_sh_asks_for_need_not_be_repeated(root):
    text = (root / "run.sh").read_text(encoding="utf-8")
    assert dict(re.findall(r"^#SBATCH (--(?:nodes|time|\S+-per-\S+))=(\S+)$", text, re.M)) == ASKS


@pytest.mark.parametrize(("state", "where"), [("PENDING", "in the queue again"), ("RUNNING", "running again")])
def test_a_job_that_goes_on_by_itself_is_left_alone(slurm, state, where):
    slurm["6"] = SlurmJob(state, "BeginTime" if state == "PENDING" else "")
    first, *_ = findings(gather(run_of("6", status="interrupted")))
    assert first.name == "goes-on"
    assert where in first.saw
    assert not any("sbatch" in command for command in first.do)


ENDED = "slurmstepd: error: *** JOB 6 ON node1 CANCELLED AT 2026-11-28T05:20:11 DUE TO"


@pytest.mark.parametrize("why", ["NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "PREEMPTION", "JOB REQUEUE", ""])
def test_a_job_that_slurm_starts_again_is_not_to_be_submitted_a_second_time(slurm, why):
    slurm["6"] = SlurmJob("PENDING", "BeginTime")
    folder = run_of("6", status="running")
    if why:
        (folder / "train.err").write_text(f"{ENDED} {why} ***\n", encoding="utf-8")
    found = findings(gather(folder))
    assert found[0].name == "goes-on"
    assert "The job, 6, is in the queue again." in found[0].saw
    assert "cancelled" not in [finding.name for finding in found]
    # It has, and has failed by itself.
    slurm["6"] = SlurmJob("FAILED")
    again = f"run.sh: here begins job 6\n{(LOGS / 'srun-a-rank-raised.err').read_text(encoding='utf-8')}"
    (folder / "train.err").write_text(f"{ENDED} {why} ***\n{again}", encoding="utf-8")
    assert [finding.name for finding in findings(gather(folder))] == ["raised"]


def test_a_requeue_is_no_end(slurm):
    folder = run_of("6", status="failed")
    rows = "JobID|State\n6|NODE_FAIL\n6|RUNNING\n6.0|FAILED\n"
    (folder / "slurm-6" / "sacct.txt").write_text(rows, encoding="utf-8")
    assert gather(folder).state == ""


def test_a_job_that_can_never_start_is_named_without_being_asked_for(slurm, capsys):
    Path("train.err").symlink_to(run_of("1", status="done") / "train.err")
    slurm["10"] = SlurmJob("PENDING", "PartitionConfig")
    assert main(["diagnose"]) == 0
    out = capsys.readouterr().out
    assert "saw    Job 10 is in the queue and cannot start: PartitionConfig." in out
    assert "scancel 10" in out
    assert out.index("cannot start") < out.index("The run is done, nothing went wrong.")


def test_a_job_is_found_by_its_number(slurm, capsys):
    run_of("1", status="done")
    slurm["12"] = SlurmJob("PENDING", "Resources")
    assert main(["diagnose", "1", "12"]) == 0
    out = capsys.readouterr().out
    assert "The run is done, nothing went wrong." in out
    assert "Job 12 is in the queue (Resources), and has not begun." in out
    assert main(["diagnose", "13"]) == 1
    assert "job 13: there is no log of it here, and Slurm does not know it" in capsys.readouterr().err


def test_a_job_is_found_by_its_own_records_however_deep_and_an_array_by_its_tasks(slurm):
    named = run_of("7", status="failed")
    named.rename("results/ddp-1")  # --run-id ddp-1
    Path("results/demo").mkdir()
    run_of("1", status="done").rename("results/demo/mine")
    assert gather(Path("1")).name == "results/demo/mine"
    with pytest.raises(UserError):
        gather(Path("2"))
    swept = Path("results/sweep-8")  # by hand
    swept.mkdir()
    (swept / "job.json").write_text('{"jobid": "9"}', encoding="utf-8")
    assert gather(Path("9")).name == "results/sweep-8"
    with pytest.raises(UserError):
        gather(Path("8"))
    for index in (10, 2):
        run_of(f"6_{index}", status="done")
    assert tasks(Path("6")) == [Path("6_2"), Path("6_10")]
    assert tasks(Path("6_2")) == [Path("6_2")]
    assert gather(Path("6_2")).name == "results/scaling-lab-6_2"


def test_a_job_is_found_in_another_output_dir(slurm, tmp_path, monkeypatch):
    run_of("7", status="failed")
    Path("results").rename("mine")  # --output-dir mine
    assert gather(Path("7")).name == "mine/scaling-lab-7"
    assert tasks(Path("7")) == [Path("7")]
    # Outside of this folder: where the latest run lies, ...
    Path("here").mkdir()
    Path("here/train.err").symlink_to(tmp_path / "mine" / "scaling-lab-7" / "train.err")
    monkeypatch.chdir("here")
    assert gather(Path("7")).name == str(tmp_path / "mine" / "scaling-lab-7")
    # ... or where Slurm says that it was to be.
    Path("train.err").unlink()
    with pytest.raises(UserError, match="job 7: there is no log of it here"):
        gather(Path("7"))
    for command in ("run.sh --output-dir mine", "sbatch run.sh --output-dir=mine --epochs 3"):
        record = Submission(command, str(tmp_path))
        monkeypatch.setattr("lab.slurm.query.submission", lambda job, record=record: record)
        assert gather(Path("7")).name == str(tmp_path / "mine" / "scaling-lab-7")


def test_a_log_that_is_not_there_is_named(slurm, tmp_path, monkeypatch):
    log = tmp_path / "elsewhere" / "x-8.err"
    monkeypatch.setattr("lab.slurm.query.submission", lambda job: Submission("x.sh", str(tmp_path), str(log)))
    slurm["8"] = SlurmJob("FAILED", exit_code="1:0")
    (first,) = findings(gather(Path("8")))
    assert (first.name, str(log) in first.saw) == ("log-missing", True)
    slurm["8"] = SlurmJob("OUT_OF_MEMORY")  # what Slurm says of its end says more
    assert [one.name for one in findings(gather(Path("8")))] == ["out-of-memory", "log-missing"]
    slurm["8"] = SlurmJob("PENDING")  # it has none yet
    assert [one.name for one in findings(gather(Path("8")))] == ["in-queue"]
    log.parent.mkdir()
    log.write_text("srun: error: node1: task 1: Killed\n", encoding="utf-8")
    assert findings(gather(Path("8")))[0].name == "killed"


def test_what_accounting_knows_is_written_once_more_after_the_end(slurm, root, monkeypatch):
    folder = run_of("6", status="done")
    kept = folder / "slurm-6" / "sacct.txt"
    during = f"{COLUMNS.replace(',', '|')}\n6|a|RUNNING{'|' * 9}\n6.0|python|COMPLETED{'|' * 9}\n"
    after = during.replace("RUNNING", "COMPLETED")
    asked = []

    def answer(*command: str) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, after, "")

    monkeypatch.setattr("lab.slurm.query.ask", answer)
    kept.write_text(during, encoding="utf-8")
    slurm["6"] = SlurmJob("RUNNING")
    gather(folder)
    assert not asked
    slurm["6"] = SlurmJob("COMPLETED")
    gather(folder)
    assert kept.read_text(encoding="utf-8") == after
    gather(folder)  # it is complete
    assert asked == [("sacct", "--jobs=6", "--duplicates", "--parsable2", f"--format={COLUMNS}")]
    assert f"--format={COLUMNS} " in (root / "slurm" / "system_records.sh").read_text(encoding="utf-8")


def test_slurm_is_asked_how_a_job_was_submitted(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert submission("6") == Submission()  # no Slurm
    programs = {"sacct": "echo '/home/ada/my lab|sbatch run.sh --output-dir \"a|b\"'", "scontrol": "exit 1"}
    for name, does in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    assert submission("6") == Submission('sbatch run.sh --output-dir "a|b"', "/home/ada/my lab")
    shown = f"{SHOWN}   StdErr=/home/ada/my-lab/train-6.err\n"
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\ncat <<'END'\n{shown}END\n".replace("cat", "/bin/cat"))
    assert submission("6") == Submission(
        "/home/ada/my-lab/run.sh --epochs 30 --run-id scaling-lab-4 --resume=auto",
        "/home/ada/my-lab",
        "/home/ada/my-lab/train-6.err",
    )


def test_of_a_job_without_a_log_here_slurms_word_is_given(slurm, capsys):
    slurm["14"] = SlurmJob("FAILED", exit_code="9:0")
    assert main(["diagnose", "14"]) == 1
    out = capsys.readouterr().out
    assert "Slurm  FAILED, exit code 9:0" in out
    assert "scontrol show job 14" in out


def test_a_run_that_failed_before_it_had_records_is_submitted_again_as_it_was(slurm):
    folder = run_of("3", status="failed", log="main.py: it cannot be divided evenly among 3 ranks\n")
    (folder / "status.json").unlink()
    Path("train.err").symlink_to(folder / "train.err")
    first, *_ = findings(gather(Path("train.err")))
    assert first.do[0].startswith("sbatch --nodes=2 --ntasks-per-node=2 run.sh --epochs 30 ")


def test_a_job_that_has_only_begun_is_not_called_unknown(slurm, capsys):
    slurm["2"] = SlurmJob("RUNNING")
    Path("train.log").write_text("job 2: 4 ranks on node1 node2; they meet at node1:10002\n", encoding="utf-8")
    Path("train.err").touch()
    assert main(["diagnose"]) == 0
    assert "Slurm says that it is running, and its log shows no error." in capsys.readouterr().out


def test_slurm_decides_whether_a_run_still_runs(slurm, capsys):
    slurm["2"] = SlurmJob("FAILED", exit_code="3:0")
    folder = run_of("2", status="running")
    assert main(["diagnose", "2"]) == 1
    assert "Slurm  FAILED, exit code 3:0" in capsys.readouterr().out
    (folder / "train.err").write_text("srun: error: node2: task 1: Exited with exit code 3\n", encoding="utf-8")
    assert main(["diagnose", "2"]) == 0
    assert "Rank 1 ended with exit code 3." in capsys.readouterr().out


def test_a_job_that_run_sh_refused_is_the_latest(slurm, capsys):
    folder = run_of("1", status="done")
    Path("train.err").symlink_to(folder / "train.err")
    os.utime("train.err", (1, 1), follow_symlinks=False)
    Path("train-2.err").write_text("run.sh: LAUNCHER=mpi: it is srun or torchrun\n", encoding="utf-8")
    assert main(["diagnose"]) == 0
    out = capsys.readouterr().out
    assert "No rank was started: LAUNCHER=mpi: it is srun or torchrun." in out
    assert "nothing went wrong" not in out


def test_a_job_that_found_its_run_done_is_told_so(slurm):
    refused = (LOGS / "run-id-taken.err").read_text(encoding="utf-8")
    folder = run_of("4", status="done")
    (folder / "train.err").write_text(refused, encoding="utf-8")
    assert [finding.name for finding in findings(gather(folder))] == ["run-id-taken"]


def test_a_run_without_its_checkpoints_is_not_called_well(slurm):
    lost = "warning: the checkpoint of the end of epoch 1 could not be written (No space left on device); none yet"
    first, *_ = findings(gather(run_of("1", status="done", log=f"{lost}\n")))
    assert first.name == "no-checkpoint"
    assert "No space left on device" in first.saw


def test_the_queue_is_asked_for_jobs_that_can_never_start(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert stuck() == []  # no Slurm
    lines = ["10|PartitionConfig", "11|Resources", "12|PartitionTimeLimit", "13_[0-3]|Priority", "garbage"]
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines), encoding="utf-8")
    squeue.chmod(0o755)
    assert stuck() == ["10", "12"]


def test_what_an_earlier_job_of_the_run_said_is_not_held_against_a_later_one(slurm):
    folder = run_of("4", status="failed", log="job 5: 2 ranks on node1; they meet at node1:10005\n")
    (folder / "train.err").write_text(
        "slurmstepd-node1: error: *** JOB 4 ON node1 CANCELLED AT 2026-11-28T03:39:39 ***\n"
        "run.sh: here begins job 5\nsrun: error: node1: task 1: Killed\n",
        encoding="utf-8",
    )
    assert [finding.name for finding in findings(gather(folder))] == ["killed"]
