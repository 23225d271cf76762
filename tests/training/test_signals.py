"""SIGTERM and SIGUSR1: all ranks save together at the end of a step and exit with a code of their own."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from lab.training.checkpoints import checkpoint_file
from lab.training.stepping.signals import EXIT_PREEMPTED, SIGNALS, SignalWatch, Vote


def status(tmp_path: Path) -> dict[str, str]:
    return json.loads((tmp_path / "results" / "r" / "status.json").read_text())


@pytest.mark.parametrize(
    ("strategy", "number", "only"),
    [("none", signal.SIGTERM, 0), ("ddp", signal.SIGUSR1, 1), ("fsdp", signal.SIGTERM, 1)],
)
def test_told_to_stop_a_run_saves_exits_and_can_go_on(tiny, tmp_path, strategy, number, only):
    argv = (
        "--strategy",
        strategy,
        "--epochs",
        "3",
        "--accumulate",
        "2",
        "--output-dir",
        str(tmp_path / "results"),
    )
    world_size = 1 if strategy == "none" else 2
    whole = tiny(*argv, "--run-id", "whole", world_size=world_size, workers=1).values[0]
    first = tiny(*argv, world_size=world_size, workers=1, signal=[2, 2, int(number)], only=only)
    assert [value["ended"] for value in first.values] == [f"exit code {EXIT_PREEMPTED}"] * world_size
    state = checkpoint_file.read(tmp_path / "results" / "r" / "checkpoints" / "latest.pth")
    assert (state["epochs_done"], state["step_in_epoch"]) == (1, 3)  # the step after the one that was going on
    assert status(tmp_path)["status"] == "interrupted"
    assert "saved at epoch 2, step 3; --resume latest goes on from there" in status(tmp_path)["reason"]
    assert status(tmp_path)["reason"] in first.reports[0].output
    second = tiny(*argv, "--resume", "auto", world_size=world_size, workers=1).values[0]
    assert second["records"] == whole["records"][1:]
    assert status(tmp_path)["status"] == "done"
    with (tmp_path / "results" / "r" / "run.csv").open(newline="") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2", "3", "summary"]


def test_without_checkpoints_a_run_says_that_nothing_was_saved(tiny, tmp_path):
    group = tiny("--strategy", "ddp", "--epochs", "2", "--no-checkpoints", signal=[1, 1, int(signal.SIGTERM)])
    assert group.values[0]["ended"] == f"exit code {EXIT_PREEMPTED}"
    assert "no checkpoint at epoch 1, step 2" in status(tmp_path)["reason"]
    assert not (tmp_path / "results" / "r" / "checkpoints").exists()


@pytest.mark.parametrize(("epochs", "ended"), [(1, "done"), (2, f"exit code {EXIT_PREEMPTED}")])
def test_only_a_signal_during_the_last_evaluation_changes_nothing(tiny, tmp_path, epochs, ended):
    argv = ("--strategy", "none", "--epochs", str(epochs))
    result = tiny(*argv, world_size=1, signal=[1, 0, int(signal.SIGTERM)])
    assert result.values[0]["ended"] == ended
    assert status(tmp_path)["status"] == ("done" if epochs == 1 else "interrupted")
    if epochs == 2:
        assert "saved at the end of epoch 1" in status(tmp_path)["reason"]


def test_a_signal_in_the_last_step_is_seen_before_the_evaluation(tiny, tmp_path):
    result = tiny("--strategy", "none", "--epochs", "1", world_size=1, signal=[1, 4, int(signal.SIGTERM)])
    # At the end of the last step it comes too late for that step's vote; the vote before the evaluation sees it.
    assert result.values[0]["ended"] == f"exit code {EXIT_PREEMPTED}"
    again = tiny("--strategy", "none", "--epochs", "1", "--resume", "latest", world_size=1)
    assert [record[0] for record in again.values[0]["records"]] == [1]


def test_the_handlers_are_there_only_while_a_run_goes_on():
    before = [signal.getsignal(number) for number in SIGNALS]
    with SignalWatch() as watch:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert watch.received == signal.SIGUSR1
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_loader_worker_outlives_the_signal_that_its_whole_group_gets():
    with SignalWatch():
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as torch does in its loader workers
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_vote_is_heard_by_every_rank(tiny):
    assert tiny(observe=vote, world_size=3).values == [[[False, False], [True, False], [False, True]]] * 3


def vote(rank):
    ask, fine, bad = Vote(torch.device("cpu")), torch.tensor(1.0), torch.tensor(float("nan"))
    assert dist.get_world_size() == 3
    return [
        list(ask(False, fine)),
        list(ask(rank.rank == 2, fine)),
        list(ask(False, bad if rank.rank == 1 else fine)),
    ]


def test_through_torchrun_sigterm_saves(tmp_path, root):
    """The launcher signals the ranks' whole process groups, loader workers included; its own exit code is 1."""
    argv = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *(
            str(root / "solutions" / "main.py"),
            "--strategy",
            "fsdp",
            "--global-batch-size",
            "32",
            "--num-workers",
            "1",
        ),
        *("--epochs", "2", "--output-dir", str(tmp_path / "results"), "--run-id", "r", "--print-every", "1"),
    ]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root), "GLOO_SOCKET_IFNAME": "lo"}
    log = tmp_path / "results" / "r" / "train.log"
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        deadline = time.monotonic() + 200
        while not (log.exists() and "step 2/" in log.read_text()):
            assert job.poll() is None, job.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        job.terminate()
        said = job.communicate(timeout=80)[0]
    assert status(tmp_path)["status"] == "interrupted", said
    assert job.returncode == 1
    assert "stopped by SIGTERM: saved at epoch 1, step" in log.read_text()
    saved = checkpoint_file.read(tmp_path / "results" / "r" / "checkpoints" / "latest.pth")
    assert saved["step_in_epoch"] >= 2
