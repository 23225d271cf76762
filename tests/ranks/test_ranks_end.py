"""However a rank ends, and whatever it leaves: the report says it, and nothing of the group is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import rank_observers as observers
import torch
from rank_helpers import act, living, only, processes_in, wait_for

from lab.ranks import rank as rank_module
from lab.ranks import wire
from lab.ranks.server import server

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def student(tmp_path: Path) -> Path:
    folder = tmp_path / "exercises"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("body", "status", "code", "line"),
    [
        ("sys.exit(0)", "exited", 0, 5),
        ("sys.exit('no')", "exited", 1, 5),
        ("exit(3)", "exited", 3, 5),
        ("os._exit(0)", "exited", 0, None),
        ("os._exit(7)", "exited", 7, None),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed", -9, None),
        ("os.abort()", "killed", -6, None),
        ("raise KeyboardInterrupt", "raised", None, 5),
        ("class E(Exception):\n    def __str__(self): raise self\nraise E", "raised", None, 7),
        ("act(rank)", "raised", None, 5),
    ],
)
def test_however_a_rank_ends_it_is_said(
    student: Path, body: str, status: str, code: int | None, line: int
) -> None:
    report = only(act(student, body))
    assert (report.status, report.exit_code) == (status, code)
    assert (report.student_frame and report.student_frame.line) == line
    assert not list(student.glob("core*"))


def test_the_rank_that_ended_by_itself_failed_first(student: Path) -> None:
    result = act(student, "os._exit(0)", 2, first=True)
    assert result.first_failed is result.reports[0]
    assert (result.reports[1].status == "raised") != result.reports[
        1
    ].cut_off  # by the lost connection, or at last


@pytest.mark.parametrize(
    "body",
    [
        "while True:\n    time.sleep(0.1)",
        "sum(range(1 << 62))",
        "signal.signal(signal.SIGTERM, lambda *_: 0)\ninput = 0\nwhile 1: input",
    ],
    ids=["asleep", "holding the interpreter's lock", "busy, deaf to SIGTERM"],
)
def test_a_hang_ends_at_the_deadline_with_its_stack(student: Path, body: str) -> None:
    result = act(student, body, timeout=2)
    report = only(result)
    assert (report.status, report.note) == ("timeout", "did not finish within 2 s")
    assert report.student_frame is not None
    assert report.student_frame == [frame for frame in report.stack if frame.function == "act"][-1]
    assert report.student_frame.text in body
    assert result.seconds < 30


def test_output_is_bounded_and_readable(student: Path) -> None:
    body = "print('first')\nfor _ in range(100): sys.stdout.write('x' * 1_000_000)\nprint('last')"
    body += "\nos.write(2, b'\\xff\\xfe!')"
    report = only(act(student, body))
    assert report.status == "ok"
    assert report.output.startswith("first\nxxx")
    assert report.output.endswith("last\n\ufffd\ufffd!")
    assert "bytes left out" in report.output
    assert len(report.output) < 70_000
    assert only(act(student, "print('dying words')\nos.kill(os.getpid(), 9)")).output == "dying words\n"
    assert only(act(student, "print(input())")).error.type == "EOFError"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x80\x04garbage, and more than a header of it",
        wire.frame(b"?", b"unknown kind"),
        wire.frame(rank_module.RESULT, b"no message"),
        wire.frame(rank_module.RESULT)[:1] + b"\x7f" * 8,
        wire.frame(rank_module.EXITED, wire.encode({"exit_code": "x"})),
    ],
    ids=["bytes", "kind", "payload", "length", "fields"],
)
def test_garbage_on_the_channel_is_the_ranks_failure(garbage: bytes) -> None:
    report = only(server().run(observers.channel_garbage, 1, code=None, inputs=garbage))
    assert report.status == "exited"
    assert report.note.startswith("wrote garbage on the lab's own channel: ")


@pytest.mark.parametrize("content", [None, 3, {}, {"type": 1, "message": 2, "frames": [[1]], "todo": 3}])
def test_a_forged_failure_is_no_error_of_the_graders(content: object) -> None:
    report = only(server().run(observers.forged_failure, 1, code=None, inputs=content))
    assert report.status == "exited"
    assert "garbage" in report.note


def test_odd_uses_of_the_channel() -> None:
    report = only(server().run(observers.close_everything, 1, code=None, set_up_process_group=False))
    assert (report.status, report.note) == ("exited", "closed the lab's own channel")
    report = only(server().run(observers.greedy, 1, code=None, inputs=torch.zeros(1 << 22), timeout=1))
    assert report.status == "timeout"


@needs_proc
def test_nothing_is_left_of_a_group(student: Path) -> None:
    strays = server().run(observers.leave_strays, 2, code=student).values
    assert not living([pid for rank in strays for pid in rank])
    assert not processes_in(student)


@needs_proc
@pytest.mark.parametrize(
    ("victim", "number", "status"),
    [
        (0, signal.SIGKILL, "killed"),
        (0, signal.SIGSTOP, "killed"),
        (0, signal.SIGTERM, "killed"),
        (1, signal.SIGKILL, "timeout"),
    ],
    ids=["kill the leader", "stop the leader", "terminate the leader", "kill the nursery"],
)
def test_nor_when_a_rank_turns_on_the_lab(
    student: Path, monkeypatch: pytest.MonkeyPatch, victim: int, number: int, status: str
) -> None:
    monkeypatch.setattr("lab.ranks.server._LEADER_LIMIT", 3.0)
    result = server().run(observers.leave_strays_and, 1, code=student, inputs=(victim, number), timeout=3)
    assert only(result).status == status
    assert not processes_in(student)
    assert server().run(observers.place, 2, code=None).ok


GRADER = """
import os, sys, time
from pathlib import Path
from lab.ranks.server import server
server()
child = os.fork()  # such as a worker of a DataLoader: it must not keep anything alive
if child == 0:
    time.sleep(600)
Path("child").write_text(str(child))
server().run("rank_observers:leave_strays_and", 2, code=Path(sys.argv[1]), timeout=600)
"""


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nor_when_the_grader_goes(student: Path, tmp_path: Path, number: int) -> None:
    (tmp_path / "tmp").mkdir()
    env = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(Path(__file__).parents[1] / "helpers")}
    grader = subprocess.Popen(
        [sys.executable, "-c", GRADER, str(student)], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True
    )
    try:
        files = [student / f"pids.{rank}.done" for rank in range(2)]
        wait_for(
            lambda: grader.poll() is not None or all(file.exists() for file in files), "the start of the ranks"
        )
        pids = [int(pid) for file in files for pid in file.read_text().split()]
        assert living(pids)
        grader.send_signal(number)
        grader.wait(timeout=60)
        if number == signal.SIGINT:
            assert not living(pids), "Ctrl-C ends everything before the grader itself"
        wait_for(lambda: not living(pids) and not processes_in(student), "the end of the ranks")
        assert not list((tmp_path / "tmp").iterdir())
    finally:
        grader.kill()
        grader.wait()
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert grader.returncode == -number
