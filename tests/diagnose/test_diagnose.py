"""What is said about jobs that failed: on their real logs, their dumps, and on garbage."""

import json
from pathlib import Path

import pytest

from lab.base.errors import UserError
from lab.cli import main
from lab.diagnose.evidence import gather
from lab.diagnose.logs import symptoms
from lab.diagnose.symptoms.table import SYMPTOMS
from lab.diagnose.told.ends import ended
from lab.diagnose.verdict import findings
from lab.slurm.query import SlurmJob

LOGS = Path(__file__).parent / "failed_jobs"

# The log of a job that failed in this way -> the diagnosis, and what must be said.
REAL = {
    "device-assert.err": ("device-assert", "assertion in a CUDA kernel"),
    "device-index.err": ("device-index", "a GPU that this process cannot see"),
    "disk-full.err": ("disk-full", "(No space left on device): choose another --output-dir"),
    "gloo-timeout.err": ("gloo-timeout", "Rank 2 waited in vain for another rank, until the timeout of 6 s."),
    "job-without-srun.err": ("not-by-srun", "python was typed in a job, without srun"),
    "loss-not-finite.err": ("not-finite", "the loss became nan at epoch 1, step 2"),
    "nccl-interface.err": ("nccl-interface", "NCCL found no network interface"),
    "nccl-timeout.err": (
        "nccl-timeout",
        "Rank 0 waited in vain in ALLREDUCE, its collective number 48, until the",
    ),
    "no-launcher.err": ("no-launcher", "does not know its rank"),
    "node-failure.err": ("node-failure", "A node of the job failed."),
    "not-done-yet.err": ("not-done-yet", "Exercise 5.1b is not done yet"),
    "port-in-use.err": ("port-in-use", "port: 29777"),
    "rendezvous-ranks-missing.err": ("ranks-missing", "RendezvousTimeoutError"),
    "same-gpu.err": ("same-gpu", "Ranks 0 and 1 are both on the same GPU."),
    "run-id-taken.err": ("run-id-taken", "results/scaling-lab-4 already holds a finished run"),
    "sbatch-partition.err": ("sbatch-refused", "Invalid partition name specified"),
    "scancel.err": ("cancelled", "The job was cancelled."),
    "srun-a-rank-exited.err": ("exited", "Rank 1 ended with exit code 3."),
    "srun-a-rank-killed.err": ("killed", "Rank 1 was ended by SIGKILL."),
    "srun-a-rank-raised.err": ("raised", "Rank 1 raised AssertionError: expected images [B, 3, 32, 32]"),
    "srun-a-rank-refused.err": ("program-said", "ended with the words: images have the wrong shape."),
    "srun-no-meeting-point.err": ("no-meeting-point", "MASTER_ADDR is not set"),
    "srun-out-of-memory.err": ("out-of-memory", "The job used more memory than it was given"),
    "store-ranks-missing.err": ("ranks-missing", "1/2 clients joined"),
    "time-limit.err": ("time-limit", "The job came to its time limit"),
    "torchrun-a-rank-killed.err": ("killed", "Rank 1 was ended by SIGKILL."),
    "torchrun-a-rank-raised.err": ("raised", "at model.py, line 35, in forward."),
    "uneven-batch.err": ("uneven-batch", "A global batch of 256 images cannot be divided evenly among 3 ranks"),
    "warned-before-it-began.err": ("ended-by-signal", "Rank 0 was ended by SIGUSR1."),
    "warned-then-raised.err": ("raised", "Rank 1 raised KeyError: 'rate', at train.py, line 4, in train."),
    "wrong-folder.err": ("not-submitted-right", "submit from the folder that holds run.sh"),
}


def test_every_log_has_its_diagnosis():
    assert {file.name for file in LOGS.iterdir()} == REAL.keys()


@pytest.mark.parametrize("name", REAL)
def test_a_real_log_is_understood(name):
    first, *_ = findings(gather(LOGS / name))
    assert first.name == REAL[name][0]
    assert REAL[name][1] in first.saw
    assert first.do
    assert not any("{" in command for command in first.do), first.do


def test_the_cause_comes_before_what_follows_from_it():
    names = [finding.name for finding in findings(gather(LOGS / "srun-a-rank-raised.err"))]
    assert names[0] == "raised"
    assert "cancelled" not in names  # the step was: because of the rank that raised


def test_a_warning_is_told_only_where_nothing_else_is():
    log = LOGS / "warned-then-raised.err"
    assert [finding.name for finding in findings(gather(log))] == ["raised"]
    warnings = "".join(line for line in log.read_text(encoding="utf-8").splitlines(True) if "[W1128" in line)
    assert "host-not-found" in [finding.name for finding in symptoms(warnings)]


@pytest.mark.parametrize(
    ("report", "who"),
    [("", "Local rank 1"), ("  rank      : 3 (local_rank: 1)\n  exitcode  : -9 (pid: 7)\n", "Rank 3")],
)
def test_the_rank_on_its_node_is_not_called_the_rank(report, who):
    log = (
        f"E1128 01:57:35.105000 7 api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 7) of binary: x\n{report}"
    )
    assert ended(log).saw == f"{who} was ended by SIGKILL."


SAVED = "srun: error: node1: tasks 0-1: Exited with exit code 85\n"


@pytest.mark.parametrize(
    ("log", "name"),
    [
        (SAVED, "interrupted"),
        ("srun: error: node1: task 1: Terminated\n" + SAVED, "interrupted"),
        ("srun: error: node1: task 1: Killed\n" + SAVED, "killed"),
        (SAVED + (LOGS / "srun-a-rank-raised.err").read_text(encoding="utf-8"), "raised"),
        ("srun: error: node1: task 1: Exited with exit code 3\n" + SAVED, "exited"),
        ("srun: error: node1: task 1: Terminated\n", "ended-by-signal"),
        (SAVED.replace("85", "1"), None),
        (SAVED.replace("85", "2"), None),
    ],
)
def test_only_an_exit_that_says_something_is_a_cause(tmp_path, log, name):
    (tmp_path / "train-6.err").write_text(log, encoding="utf-8")
    found = findings(gather(tmp_path / "train-6.err"))
    assert [finding.name for finding in found] == ([name] if name else [])
    if name == "interrupted":
        assert found[0].do == ("sbatch run.sh --run-id NAME --resume auto",)


def test_names_are_unique():
    names = [symptom.name for symptom in SYMPTOMS]
    assert len(set(names)) == len(names)


# Run folders ----------------------------------------------------------------------------------------------------


def run_folder(tmp_path: Path, *, status: str = "failed", log: str = "", **config: object) -> Path:
    folder = tmp_path / "a-run"
    folder.mkdir()
    (folder / "status.json").write_text(json.dumps({"status": status, "reason": "it broke"}), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "train.err").write_text(log, encoding="utf-8")
    return folder


def test_the_commands_are_those_of_this_run(tmp_path):
    log = (LOGS / "torchrun-a-rank-killed.err").read_text(encoding="utf-8")
    folder = run_folder(tmp_path, log=log, strategy="fsdp", per_device_batch_size=96, jobid="77")
    first, *_ = findings(gather(folder))
    assert any(
        command.startswith("sbatch run.sh --strategy fsdp --num-workers 2 --per-device-batch-size 48")
        for command in first.do
    )
    assert any(command.startswith("sacct -j 77 ") for command in first.do)


def test_a_run_that_was_told_to_stop_goes_on(tmp_path):
    first, *_ = findings(gather(run_folder(tmp_path, status="interrupted")))
    assert first.name == "interrupted"
    assert "--run-id a-run --resume auto" in first.do[0]


def test_a_run_that_is_done_is_not_accused(tmp_path):
    folder = run_folder(
        tmp_path, status="done", log="a warning about CUDA out of memory. Tried to allocate 1 GiB\n"
    )
    assert findings(gather(folder)) == []


def test_what_slurm_says_of_the_end_counts_most(tmp_path):
    folder = run_folder(tmp_path, log=(LOGS / "srun-a-rank-killed.err").read_text(encoding="utf-8"))
    records = folder / "slurm-12"
    records.mkdir()
    steps = "12.batch|batch|FAILED\n12.0|python|CANCELLED\n"
    (records / "sacct.txt").write_text(f"JobID|JobName|State\n12|a|OUT_OF_MEMORY\n{steps}", encoding="utf-8")
    assert [finding.name for finding in findings(gather(folder))] == ["out-of-memory"]
    # A step is cancelled because a rank has failed: nobody has cancelled the job.
    (records / "sacct.txt").write_text(f"JobID|JobName|State\n12|a|RUNNING\n{steps}", encoding="utf-8")
    assert [finding.name for finding in findings(gather(folder))] == ["killed"]


def test_what_slurm_says_now_counts_more_than_its_records(tmp_path, monkeypatch):
    folder = run_folder(tmp_path, log="", jobid="12")
    said = {"12": SlurmJob("TIMEOUT")}
    monkeypatch.setattr("lab.slurm.query.jobs", lambda ids: {one: said[one] for one in ids})
    monkeypatch.setattr("shutil.which", lambda program: f"/usr/bin/{program}")
    assert findings(gather(folder))[0].name == "time-limit"


def test_a_run_that_failed_in_an_unknown_way_says_its_own_reason(tmp_path):
    only = findings(gather(run_folder(tmp_path)))
    assert [finding.name for finding in only] == ["failed"]
    assert "it broke" in only[0].saw


# The command ----------------------------------------------------------------------------------------------------


def test_the_command_says_it_in_lines(capsys):
    assert main(["diagnose", str(LOGS / "scancel.err")]) == 0
    out = capsys.readouterr().out
    assert "saw    The job was cancelled." in out
    assert "try    sbatch run.sh" in out


def test_without_a_name_it_takes_the_latest_log(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["diagnose"]) == 1
    assert "there is no train.err here" in capsys.readouterr().err
    (tmp_path / "train.err").write_text((LOGS / "port-in-use.err").read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["diagnose"]) == 0
    assert "29777" in capsys.readouterr().out


def test_an_unknown_failure_is_called_unknown(tmp_path, capsys):
    log = tmp_path / "train.err"
    log.write_bytes(b"\xff\xfe\x00 something odd \x1b[31m\nthe last line\x07\n")
    assert main(["diagnose", str(log)]) == 1
    out = capsys.readouterr().out
    assert "Nothing here that the lab knows." in out
    assert "the last line" in out
    assert "\x1b[31m" not in out
    assert "\x07" not in out


def test_nothing_to_read_is_one_sentence(tmp_path, capsys):
    assert main(["diagnose", str(tmp_path / "nothing")]) == 1
    assert main(["diagnose", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "is not there: name a run's folder" in said
    assert "holds no log" in said
    with pytest.raises(UserError):
        gather(tmp_path)


def test_a_long_log_is_read_at_both_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.diagnose.evidence.HEAD", 400)
    monkeypatch.setattr("lab.diagnose.evidence.TAIL", 400)
    log = tmp_path / "train.err"
    middle = "step\n" * 1000
    log.write_text(f"srun: error: Node failure on node2\n{middle}", encoding="utf-8")
    assert findings(gather(log))[0].name == "node-failure"
    log.write_text(f"{middle}srun: error: Node failure on node2\n", encoding="utf-8")
    assert findings(gather(log))[0].name == "node-failure"
