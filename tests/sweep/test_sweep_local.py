"""The local launcher, with fake_main.py in the place of torchrun and main.py: states, reasons, logs, Ctrl-C."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lab.base.errors import UserError
from lab.slurm import reasons
from lab.sweep.launch import display, job_folder, launch, local
from lab.sweep.plan.plan import plan_jobs
from lab.sweep.plan.sweep import Sweep

FAKE = Path(__file__).parents[1] / "helpers" / "fake_main.py"
SWEEP = Sweep(devices=(1,), strategies=("none",), epochs=3, launcher="local")


@pytest.fixture
def sweep_of(tmp_path, monkeypatch):
    """Make run_sweep start fake_main.py, told how to behave for each strategy."""
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / "main.py").touch()
    monkeypatch.chdir(tmp_path)

    def prepare(*, none: str = "done", ddp: str | None = None) -> Sweep:
        behaviours = {"none": none, "ddp": ddp}
        monkeypatch.setattr(
            local, "command", lambda job: [sys.executable, str(FAKE), behaviours[job.strategy], *job.main_flags]
        )
        return SWEEP if ddp is None else replace(SWEEP, strategies=("none", "ddp"))

    return prepare


def status_of(sweep: Sweep, index: int = 0) -> dict[str, str]:
    return json.loads((plan_jobs(sweep)[index].folder / "status.json").read_text())


def alive(pid: int) -> bool:
    """A zombie is not alive: nobody may have waited for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_a_done_job_has_its_output_in_its_folder_and_pinned_threads(sweep_of, capsys):
    sweep = sweep_of()
    assert launch.run_sweep(sweep) == 0
    folder = plan_jobs(sweep)[0].folder
    assert "OMP_NUM_THREADS=1\n" in (folder / "train.log").read_text()
    job = json.loads((folder / "job.json").read_text())
    assert (job["strategy"], job["world_size"], job["model"], job["dataset"]) == ("none", 1, "cnn", "shapes")
    assert job["command"].startswith("OMP_NUM_THREADS=1 ")
    out = capsys.readouterr().out
    assert "[1/1] none  1 device" in out
    assert "done  epoch 1/3  3.21 s  validation loss 1.123  accuracy 56.8%  1,593 images/s" in out
    assert out.endswith("1 done, 0 failed; next: ./plot_results.sh\n")


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("failed", "told to fail"),
        ("raises", "ValueError: the batch is too large"),
        ("exits", "exit code 7; train.err does not say why"),
        ("killed", "killed by SIGKILL (often: out of memory)"),
        ("runs out of memory", "torch.OutOfMemoryError: CUDA out of memory."),
        ("says nothing", "did not train to the end"),
    ],
)
def test_a_failed_job_says_why_and_does_not_end_the_sweep(sweep_of, capsys, behaviour, reason):
    sweep = sweep_of(none=behaviour, ddp="done")
    assert launch.run_sweep(sweep) == 1
    out = capsys.readouterr().out
    state = "out of memory" if behaviour == "runs out of memory" else "failed"
    assert any("[1/2] none" in line and f"  {state}  " in line and reason in line for line in out.splitlines())
    assert "[2/2] ddp" in out
    assert "1 done, 1 failed; next: ./plot_results.sh" in out
    assert status_of(sweep, 0)["status"] == state
    assert reason in status_of(sweep, 0)["reason"]
    assert status_of(sweep, 1)["status"] == "done"


def test_an_earlier_try_leaves_nothing_behind(sweep_of, capsys):
    sweep = sweep_of()
    launch.run_sweep(sweep)
    assert (plan_jobs(sweep)[0].folder / "run.csv").exists()
    sweep_of(none="raises")
    assert launch.run_sweep(sweep, choices=launch.Choices(rerun=True)) == 1
    assert not (plan_jobs(sweep)[0].folder / "run.csv").exists()
    assert "replaces an earlier try" in capsys.readouterr().out


def test_a_folder_that_no_sweep_made_is_not_removed(sweep_of):
    sweep = sweep_of()
    precious = plan_jobs(sweep)[0].folder / "thesis.txt"
    precious.parent.mkdir(parents=True)
    precious.touch()
    with pytest.raises(UserError, match="was not made by a sweep"):
        launch.run_sweep(sweep)
    assert precious.exists()


def test_an_output_folder_that_cannot_be_made_is_one_sentence(sweep_of, tmp_path):
    (tmp_path / "results").touch()
    with pytest.raises(UserError, match=r"cannot write to .*results.*choose another --output-dir"):
        launch.run_sweep(sweep_of())


def test_a_quiet_job_is_never_silent_for_long(sweep_of, capsys, monkeypatch):
    monkeypatch.setattr(display, "HEARTBEAT", 0.3)
    launch.run_sweep(sweep_of(none="quiet"))
    beats = [line for line in capsys.readouterr().out.splitlines() if "[1/1] none" in line]
    assert len(beats) >= 5
    assert display.HEARTBEAT < 10


def test_the_default_heartbeat_is_under_ten_seconds():
    assert display.HEARTBEAT + local.POLL < 10


def test_a_terminal_gets_one_line_that_is_rewritten(sweep_of, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    launch.run_sweep(sweep_of(none="raises"))
    _, *jobs, _, _ = terminal.getvalue().split("\n")  # the greeting, the job, the end
    assert len(jobs) == 1  # however often it was rewritten
    assert jobs[0].count("\r") > 2
    assert "failed  ValueError" in jobs[0].rpartition("\r")[2]


def test_a_rank_that_lost_its_launcher_is_ended(sweep_of, tmp_path):
    assert launch.run_sweep(sweep_of(none="leaves its rank behind")) == 1
    _, rank = map(int, (tmp_path / "pids").read_text().split())
    wait_until(lambda: not alive(rank))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_the_whole_tree_and_says_what_is_left(tmp_path, number):
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / "main.py").touch()
    program = (
        "import sys; from lab.sweep.launch import launch, local; from lab.sweep.plan.sweep import Sweep\n"
        f"local.command = lambda job: [sys.executable, {str(FAKE)!r}, 'sleeps', *job.main_flags]\n"
        "sys.exit(launch.run_sweep(Sweep(devices=(1,), strategies=('ddp',), launcher='local')))"
    )
    sweep = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        wait_until(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2)
        pids = list(map(int, (tmp_path / "pids").read_text().split()))
        sweep.send_signal(number)
        out, _ = sweep.communicate(timeout=60)
    finally:
        sweep.kill()
    assert sweep.returncode == 130
    wait_until(lambda: not any(map(alive, pids)))
    none, ddp = (job.run_id for job in plan_jobs(Sweep(devices=(1,), strategies=("ddp",))))
    assert f"0 of 2 jobs ended before; left to do: {none}, {ddp}" in out
    status = json.loads((tmp_path / "results" / none / "status.json").read_text())
    assert status["status"] == "cancelled"
    assert status["reason"].startswith("interrupted after")
    assert "the same command goes on from here" in out


def test_again_does_what_failed_and_leaves_what_is_done(sweep_of, capsys):
    sweep = sweep_of(none="done", ddp="raises")
    assert launch.run_sweep(sweep) == 1
    first = (plan_jobs(sweep)[0].folder / "run.csv").stat().st_mtime_ns
    sweep_of(none="raises", ddp="done")  # the baseline would fail if it were run again
    capsys.readouterr()
    assert launch.run_sweep(sweep) == 0
    out = capsys.readouterr().out
    assert out.startswith("1 of 2 jobs are done already (--rerun does them again)\n")
    assert "[1/1] ddp   1 device" in out
    assert (plan_jobs(sweep)[0].folder / "run.csv").stat().st_mtime_ns == first
    assert launch.run_sweep(sweep) == 0
    assert capsys.readouterr().out.endswith("nothing left to do; next: ./plot_results.sh\n")


def test_a_measurement_is_one_epoch_to_its_end(sweep_of, capsys):
    launch.run_sweep(replace(sweep_of(), measure_steps=50))
    assert "epoch 1/1  3.21 s" in capsys.readouterr().out


def test_two_sweeps_do_not_write_into_one_folder(sweep_of):
    sweep = sweep_of()
    job = plan_jobs(sweep)[0]
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        job_folder.prepare(job, "local", "")
        record = json.loads((job.folder / "job.json").read_text())
        record["launched_by"]["pid"] = other.pid
        (job.folder / "job.json").write_text(json.dumps(record))
        with pytest.raises(UserError, match=f"is written by another sweep, process {other.pid}"):
            launch.run_sweep(sweep)
    finally:
        other.communicate(timeout=60)
    assert launch.run_sweep(sweep) == 0  # the other one is gone


def test_other_code_means_other_results(sweep_of, tmp_path, capsys):
    sweep = sweep_of()
    launch.run_sweep(sweep)
    (tmp_path / "exercises" / "model.py").write_text("WIDTH = 2\n")
    capsys.readouterr()
    assert launch.run_sweep(sweep) == 0
    assert "replaces an earlier try" in capsys.readouterr().out


def test_a_done_run_that_is_damaged_is_done_again(sweep_of, capsys):
    sweep = sweep_of()
    launch.run_sweep(sweep)
    (plan_jobs(sweep)[0].folder / "metrics.csv").unlink()
    assert launch.run_sweep(sweep) == 0
    assert "replaces an earlier try" in capsys.readouterr().out


def test_a_job_beyond_its_time_limit_is_ended_and_timed_out(sweep_of, capsys, tmp_path):
    sweep = replace(sweep_of(none="sleeps"), time_limit=1 / 60)
    assert launch.run_sweep(sweep) == 1
    assert status_of(sweep)["status"] == "timed out"
    assert "timed out  ended at --time-limit" in capsys.readouterr().out
    pids = list(map(int, (tmp_path / "pids").read_text().split()))
    wait_until(lambda: not any(map(alive, pids)))


def test_no_job_is_begun_that_would_end_too_late(sweep_of, capsys):
    sweep = sweep_of(ddp="done")
    assert launch.run_sweep(sweep, choices=launch.Choices(stop_after=0.01)) == 0
    out = capsys.readouterr().out
    none, ddp = (job.run_id for job in plan_jobs(sweep))
    assert f"no time for another job; left to do: {none}, {ddp}" in out


def test_the_cost_of_a_repeat_is_that_of_the_run_before(sweep_of, capsys):
    sweep = replace(sweep_of(), repeats=2)
    launch.run_sweep(replace(sweep, repeats=1))
    capsys.readouterr()
    launch.run_sweep(sweep, choices=launch.Choices(dry_run=True))
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "# [1/2] none  1 device   #1: done already"
    assert out[-1].startswith("# 2 jobs, 1 done already: about ")
    assert "guess" not in out[-1]


def test_more_ranks_than_cores_is_said(sweep_of, capsys, monkeypatch):
    monkeypatch.setattr(local, "available_devices", lambda cpu=False: (1, "CPU cores"))
    launch.run_sweep(replace(sweep_of(ddp="done"), devices=(2,)))
    assert "note: 2 ranks share 1 CPU cores here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (
            "main.py: no folder data: name it with --data-dir\nTraceback\nValueError: x\n",
            "no folder data: name it",
        ),
        ("usage: main.py [-h]\nmain.py: error: unrecognized arguments: --x\n", "unrecognized arguments: --x"),
        (
            "[rank1]: Traceback (most recent call last):\n[rank1]: torch.OutOfMemoryError: CUDA out of memory.\n"
            "[rank0]: RuntimeError: Connection closed by peer\n",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
        (
            "KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n"
            "Traceback (most recent call last):\nValueError: no such model\n",
            "ValueError: no such model",
        ),
        ("x.py:3: FutureWarning: old\nUserWarning: odd\n", ""),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n", ""),
        ("", ""),
    ],
)
def test_the_reason_is_the_line_that_says_what_went_wrong(log, reason):
    assert reasons.from_log(log).startswith(reason)
    assert bool(reasons.from_log(log)) == bool(reason)


def test_a_rank_killed_under_torchrun_is_named():
    log = "E1127 torch: failed (exitcode: -9)\n  traceback : Signal 9 (SIGKILL) received by PID 9"
    assert reasons.from_exit(1, log).startswith("killed by SIGKILL")


def test_a_reason_is_one_bounded_line():
    assert len(reasons.one_line("word " * 1000)) == reasons.LONGEST
    assert reasons.one_line("a\tb\x1b[31m\nc") == "a b [31m c"


def test_follower_gives_complete_lines_only(tmp_path):
    log = tmp_path / "log"
    follower = display.LogFollower(log)
    assert follower.new_lines() == []
    log.write_bytes(b"one\ntw")
    assert follower.new_lines() == ["one"]
    with log.open("ab") as file:
        file.write(b"o\n\xff\n")
    assert follower.new_lines() == ["two", "\ufffd"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "[METRIC] epoch=2 time=1.5 val_loss=nan acc=0.5",
            "epoch 2/3  1.50 s  validation loss nan  accuracy 50.0%",
        ),
        ("[METRIC] epoch=2 time=fast", "epoch 2/3"),
        ("[METRIC] ", None),
        ("a line with [METRIC] epoch=1", None),
    ],
)
def test_metric_lines_are_read_leniently(line, shown):
    fields = display.parse_metric(line)
    assert (display.describe_metric(fields, 3) if fields else None) == shown


def test_environment_makes_a_clone_importable(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert local.environment()["PYTHONPATH"] == "/elsewhere"
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").touch()
    assert local.environment()["PYTHONPATH"] == f"{tmp_path}{os.pathsep}/elsewhere"
