"""One run in a folder at a time: the second is refused, and what a killed one left is taken over."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lab.base.errors import UserError
from lab.runs.records import lock as lock_module
from lab.runs.records.folder import RunFolder
from lab.runs.records.lock import LOCK_FILE, RunLock

HOLD = """
import sys, time
from pathlib import Path
from lab.runs.records import lock
lock.BEATS_EVERY = 0.05
held = lock.RunLock(Path(sys.argv[1]), job=sys.argv[2], restarts=int(sys.argv[3]), say=print)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def hold(tmp_path, root):
    """Start a process that holds the lock of tmp_path."""
    started = []

    def start(job: str = "", restarts: int = 0) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, str(tmp_path), job, str(restarts)]
        env = {**os.environ, "PYTHONPATH": str(root)}
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def take(folder: Path, job: str = "", restarts: int = 0, say=lambda line: None) -> RunLock:
    return RunLock(folder, job=job, restarts=restarts, say=say)


def from_elsewhere(folder: Path, **changes: object) -> None:
    """As if the lock that is there had been written on another machine."""
    found = json.loads((folder / LOCK_FILE).read_text())
    (folder / LOCK_FILE).write_text(json.dumps(found | {"host": "node7", "machine": "another"} | changes))


def test_a_second_run_is_refused_with_the_first_ones_host_process_and_job(tmp_path, hold):
    first = hold(job="77")
    host = os.uname().nodename
    with pytest.raises(
        UserError, match=rf"goes on \(process {first.pid} on {host}, Slurm job 77, since .*--run-id"
    ):
        take(tmp_path, job="78")
    first.kill()
    first.wait()
    take(tmp_path, job="78").release()  # a killed one blocks nobody
    assert not list(tmp_path.iterdir())


def test_a_run_whose_parent_has_not_waited_for_it_has_ended_too(tmp_path, hold):
    first = hold()
    os.kill(first.pid, signal.SIGKILL)
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
    take(tmp_path).release()


def test_the_number_of_an_ended_process_may_be_another_ones_now(tmp_path, hold):
    first = hold()
    found = json.loads((tmp_path / LOCK_FILE).read_text())
    (tmp_path / LOCK_FILE).write_text(json.dumps(found | {"process_started": "1"}))
    assert first.poll() is None  # it ends by itself once it sees that another one has taken its folder
    take(tmp_path).release()


def test_a_run_on_another_node_that_gives_signs_of_life_is_let_alone(tmp_path, hold, monkeypatch):
    hold(job="77")
    monkeypatch.setattr(lock_module, "_machine", lambda: "another")
    monkeypatch.setattr(lock_module, "SILENT_FOR", 30.0)
    said = []
    with pytest.raises(UserError, match="Slurm job 77"):
        take(tmp_path, job="78", say=said.append)
    assert "waiting 30 s for a sign of life" in said[0]


def test_a_run_on_another_node_that_is_silent_has_ended(tmp_path, monkeypatch):
    take(tmp_path, job="77")
    from_elsewhere(tmp_path)
    monkeypatch.setattr(lock_module, "SILENT_FOR", 0.2)
    take(tmp_path, job="78").release()


def test_a_requeued_job_takes_over_at_once_wherever_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(lock_module, "SILENT_FOR", 600.0)
    take(tmp_path, job="77", restarts=0)
    from_elsewhere(tmp_path)
    take(tmp_path, job="77", restarts=1).release()


def test_a_run_that_was_taken_for_dead_ends_when_it_wakes_up(tmp_path, monkeypatch):
    monkeypatch.setattr(lock_module, "BEATS_EVERY", 0.01)
    first = take(tmp_path, job="77")
    (tmp_path / LOCK_FILE).unlink()
    monkeypatch.setattr(lock_module, "BEATS_EVERY", 10)
    second = take(tmp_path, job="78")
    [beating] = [one for one in threading.enumerate() if one is first.thread]
    beating.join(30)
    with pytest.raises(UserError, match=r"now belongs to another run \(process .*, Slurm job 78"):
        first.check()
    first.release()
    assert json.loads((tmp_path / LOCK_FILE).read_text())["job"] == "78"  # its file is let alone
    second.check()
    second.release()


def test_of_many_that_come_at_once_one_gets_in(tmp_path, root):
    (tmp_path / LOCK_FILE).write_text("{}")  # half written, by one that is gone
    code = HOLD.replace("lock.BEATS_EVERY = 0.05", "lock.SILENT_FOR = 0.5").replace(
        'print("held", flush=True)', 'print("held", flush=True); sys.stdin.read()'
    )
    env = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", code, str(tmp_path), "", "0"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    all_of_them = [subprocess.Popen(command, env=env, text=True, **pipes) for _ in range(6)]
    refused = 0
    while refused < 5:  # the others end by themselves
        refused = sum(one.poll() is not None for one in all_of_them)
    [winner] = [one for one in all_of_them if one.poll() is None]
    for one in all_of_them:
        if one is winner:
            one.kill()
        said, errors = one.communicate()
        assert ("held" in said) == (one is winner)
        assert one is winner or "UserError" in errors


def test_without_links_the_lock_is_made_in_its_place(tmp_path, monkeypatch):
    def no_links(*_: object) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    first = take(tmp_path)
    assert json.loads((tmp_path / LOCK_FILE).read_text())["process"] == os.getpid()
    first.release()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("status", ["running", "done"])
def test_a_refused_run_leaves_the_records_of_the_first_alone(tmp_path, root, status):
    first = RunFolder(tmp_path, "r")
    first.log("the first one's line")
    if status == "done":
        first.close("done", "", {})
    code = "import sys; from pathlib import Path; from lab.runs.records.folder import RunFolder\n"
    code += f"RunFolder(Path({str(tmp_path)!r}), 'r')"
    before = {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir()}
    second = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True
    )
    assert ("belongs to a run that goes on" if status == "running" else "holds a finished run") in second.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir()} == before
    if status == "running":
        first.close("done", "", {})
    assert not (tmp_path / "r" / LOCK_FILE).exists()
