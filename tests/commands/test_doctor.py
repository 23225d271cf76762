"""lab doctor: each probe with what it may find, none that can hang, and the whole on this machine."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rank_helpers import living, wait_for

from lab.cli import main
from lab.commands import doctor as command
from lab.doctor import needed, optional
from lab.doctor import probes as doctor
from lab.doctor.probes import Probe, Reading, ask, examine
from lab.ranks.sandbox import Sandbox, SandboxError


@pytest.fixture(autouse=True)
def programs():
    """Probes are called here without an examination around them."""
    doctor._programs.open()


# The examination ---------------------------------------------------------------------------------------------


def test_findings_come_in_order_and_a_probe_that_hangs_is_a_finding():
    never = threading.Event()
    probes = [
        Probe("first", lambda: Reading("good", "one"), 60),
        Probe("hangs", lambda: never.wait() and Reading("good", "x"), 0.2),
        Probe("needed", lambda: never.wait() and Reading("good", "x"), 0.2, needed=True),
        Probe("last", lambda: Reading("absent", "none"), 60),
    ]
    found = [(probe.name, finding.state, finding.what) for probe, finding in examine(probes)]
    never.set()
    assert found == [
        ("first", "good", "one"),
        ("hangs", "note", "no answer within 0.2 s"),
        ("needed", "bad", "no answer within 0.2 s"),
        ("last", "absent", "none"),
    ]


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (PermissionError(13, "Permission denied", "/proc/nowhere"), "/proc/nowhere: Permission denied"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
    ],
)
def test_a_probe_that_fails_is_a_finding(error: Exception, what: str):
    def fails() -> Reading:
        raise error

    (found,) = [finding for _, finding in examine([Probe("fails", fails, 60)])]
    assert (found.state, found.what) == ("note", what)


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path):
    script = f"sleep 600 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/own; sleep 600"
    answer = ask(["bash", "-c", script], 0.5)
    assert (answer.code, answer.ok, answer.said) == (None, False, "no answer within 0.5 s")
    pids = [int((tmp_path / name).read_text()) for name in ("child", "own")]
    wait_for(lambda: not living(pids), "the end of the program")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo one; echo two", "two"),
        ("echo out; echo 'what is wrong' >&2; exit 3", "what is wrong"),
        ("exit 3", "ended with exit code 3"),
        ("kill -SEGV $$", "was ended by SIGSEGV"),
        ("printf '\\xff'", "\ufffd"),
    ],
)
def test_how_a_program_ended(script: str, said: str):
    assert ask(["bash", "-c", script], 60).said == said


def test_a_program_that_is_not_there():
    assert ask(["/nowhere/program"], 60).said == "No such file or directory"


def test_programs_end_when_the_examination_is_broken_off(tmp_path: Path):
    """As Ctrl-C does it."""
    script = f"echo $$ > {tmp_path}/pid; exec sleep 600"
    late = Probe("late", lambda: Reading("good", ask(["bash", "-c", script], 600).said), 600)
    steps = examine([Probe("first", lambda: Reading("good", "one"), 60), late])
    next(steps)
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip() != "", "its start")
    steps.close()
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not living([pid]), "the end of the program")


@pytest.mark.parametrize(("state", "code"), [("good", 0), ("absent", 0), ("note", 0), ("bad", 1)])
def test_only_what_is_needed_and_missing_is_a_failure(monkeypatch, capsys, state: str, code: int):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(command, "examine", lambda probes: [(probes[0], Reading(state, "is so " * 12, "do this"))])
    assert main(["doctor"]) == code
    out = capsys.readouterr().out
    sign = {"good": "✓", "absent": "·", "note": "○", "bad": "✗"}[state]
    assert out == (
        f"{sign} Python      is so is so is so is so is so is so is so is\n"
        "              so is so is so is so is so\n"
        "              do: do this\n\n"
        + ("To repair: Python.\n" if code else "All that the lab needs is there.\n")
    )


# The probes -------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def program(path: Path, name: str, body: str) -> None:
    (path / name).write_text(f"#!{shutil.which('bash', path='/bin:/usr/bin:/usr/local/bin')}\n{body}\n")
    (path / name).chmod(0o755)


def test_python_is_the_one_in_the_terminal_or_not(path: Path, monkeypatch):
    assert "but there is no `python`" in needed.python().what
    program(path, "python", "echo /somewhere/else")
    found = needed.python()
    assert found.state == "note"
    assert f"but `python` is {path / 'python'}" in found.what
    assert "activate" in found.do
    program(path, "python", f"echo {sys.prefix}")
    assert needed.python().state == "good"
    monkeypatch.setattr(sys, "version_info", (3, 10, 9))
    assert needed.python() == Reading(
        "bad", "3.10.9; the lab needs 3.11", "make an environment with a newer Python"
    )


TORCH = {"torch": "2.14.1+cpu", "torchvision": "0.29.1", "gloo": True}


@pytest.mark.parametrize(
    ("body", "state", "said"),
    [
        (f"echo a warning; echo '{json.dumps(TORCH)}'", "good", "2.14.1+cpu, torchvision 0.29.1"),
        (f"echo '{json.dumps(TORCH | {'torch': '2.8.0'})}'", "bad", "2.8.0; the lab needs 2.9"),
        (f"echo '{json.dumps(TORCH | {'gloo': False})}'", "bad", "2.14.1+cpu was built without gloo"),
        ("kill -SEGV $$", "bad", "cannot be imported: was ended by SIGSEGV"),
        ("echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1", "bad", "No module named 'torch'"),
    ],
)
def test_torch_is_new_enough_and_whole(path: Path, monkeypatch, body: str, state: str, said: str):
    program(path, "python", body)
    monkeypatch.setattr(sys, "executable", str(path / "python"))
    found = needed.torch()
    assert (found.state, said in found.what) == (state, True), found
    assert bool(found.do) == (state == "bad")


def test_ranks_that_cannot_be_started_are_one_sentence(path: Path, monkeypatch):
    program(path, "python", "echo a; echo 'ImportError: no torch' >&2; exit 1")
    monkeypatch.setattr(sys, "executable", str(path / "python"))
    found = needed.ranks()
    assert found.state == "bad"
    assert found.what.startswith("cannot be started: ")
    assert found.what.endswith("ImportError: no torch")
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: socket.create_server(("no such host", 0)))
    assert needed.ranks().what == "this machine cannot connect to itself (127.0.0.1)"


def test_a_host_name_without_an_address_or_with_anothers(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "lab7")

    def resolved(*addresses: str):
        def getaddrinfo(*_: object, **__: object) -> list[tuple]:
            if not addresses:
                raise socket.gaierror(-2, "Name or service not known")
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

        return getaddrinfo

    monkeypatch.setattr(socket, "getaddrinfo", resolved())
    found = needed.host_name()
    assert (found.state, found.what) == ("note", "lab7 has no address: torchrun --standalone would hang")
    assert found.do.endswith("add this line to /etc/hosts: 127.0.0.1 lab7")
    monkeypatch.setattr(socket, "getaddrinfo", resolved("192.0.2.1"))  # an address for documentation
    assert needed.host_name().what == "lab7 is said to be at 192.0.2.1, which is not here: torchrun would hang"
    monkeypatch.setattr(socket, "getaddrinfo", resolved("192.0.2.1", "127.0.0.1"))
    assert needed.host_name() == Reading("good", "lab7 leads to this machine")
    monkeypatch.undo()
    monkeypatch.setattr(socket, "gethostname", lambda: "l" * 64)  # Linux allows it, the name system does not
    assert needed.host_name().what == f"{'l' * 64} has no address: torchrun --standalone would hang"


def test_space(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=3 << 30))
    assert needed.space_here() == Reading("good", "3.0 GiB free in this folder")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=7 << 20))
    found = needed.space_here()
    assert (found.state, found.what) == (
        "note",
        "only 7 MiB free in this folder; data sets and results need about 1 GB",
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    found = needed.space_for_temporary_files()
    assert found.state == "note"
    assert found.what.startswith("gone cannot be written to: No such file or directory; Python uses ")
    assert "export TMPDIR=" in found.do
    assert not list(tmp_path.iterdir())


KERNEL = {"spec": {"language": "python", "argv": ["python", "-m", "ipykernel_launcher"]}}


def kernels(path: Path, **argv: str) -> None:
    """A jupyter that lists these kernels: name -> interpreter."""
    specs = {
        name: {"spec": {"language": "python", "argv": [interpreter, "-m", "x"]}}
        for name, interpreter in argv.items()
    }
    program(path, "jupyter", f"echo '{json.dumps({'kernelspecs': specs})}'")


def test_the_kernel_of_a_notebook_is_this_python_or_not(path: Path, monkeypatch):
    assert optional.jupyter().state == "absent"
    program(path, "python-other", "echo /somewhere/else")
    kernels(path, python3=str(path / "python-other"), old="/nowhere/python")
    found = optional.jupyter()
    assert (found.state, found.what) == (
        "note",
        "no kernel is this Python (python3 is /somewhere/else, old is broken)",
    )
    assert "ipykernel install --user" in found.do
    kernels(path, python3=str(path / "python-other"), mine=sys.executable)
    monkeypatch.setattr(optional.importlib.util, "find_spec", lambda name: object())
    assert optional.jupyter() == Reading("good", "the kernel mine is this Python; choose it in every notebook")
    kernels(path, python3=sys.executable)
    assert optional.jupyter() == Reading("good", "the kernel python3 is this Python")
    monkeypatch.setattr(optional.importlib.util, "find_spec", lambda name: None)
    assert optional.jupyter().do == "python -m pip install ipykernel"
    program(path, "jupyter", "echo 'Traceback'; exit 1")
    assert optional.jupyter().what == f"{path / 'jupyter'} cannot list its kernels: Traceback"


@pytest.mark.parametrize("shebang", ["#!{python}\n", "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"])
def test_a_bare_python_in_a_kernelspec_is_that_of_jupyter(path: Path, shebang: str):
    answer = json.dumps({"kernelspecs": {"python3": KERNEL}})
    (path / "jupyter").write_text(shebang.format(python=sys.executable) + f"print({answer!r})\n")
    (path / "jupyter").chmod(0o755)
    assert optional.jupyter().what.startswith("the kernel python3 is this Python")


@pytest.mark.parametrize(
    ("body", "state", "said"),
    [
        ("printf 'debug* up\\nlong up\\nold down\\n'", "good", "partitions debug, long; this is inside job 7"),
        ("printf 'old down\\n'", "note", "no partition is up; this is inside job 7"),
        (
            "echo 'slurm_load_partitions: Unable to contact' >&2; exit 1",
            "note",
            "sbatch is here, but sinfo says: slurm_l",
        ),
    ],
)
def test_slurm_answers_or_not(path: Path, monkeypatch, body: str, state: str, said: str):
    assert optional.slurm().state == "absent"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    program(path, "sbatch", "exit 1")
    program(path, "sinfo", body)
    found = optional.slurm()
    assert (found.state, found.what[: len(said)]) == (state, said)
    assert ("--launcher local" in found.do) == (state == "note")


GPU = {"build": "13.0", "count": 2, "name": "NVIDIA H100", "nccl": "2.27.5", "sum": 1.0}


@pytest.mark.parametrize(
    ("listed", "found", "state", "said"),
    [
        (2, GPU, "good", "2 x NVIDIA H100, NCCL 2.27.5"),
        (2, GPU | {"sum": None}, "note", "2 x NVIDIA H100, but without NCCL"),
        (2, GPU | {"count": 0}, "note", "2 here, but torch sees none"),
        (2, GPU | {"count": 0, "build": None}, "note", "2 here, but this torch is a build for the CPU"),
        (0, GPU | {"count": 0}, "absent", "none; the checks need none"),
        (2, None, "note", "torch fails on it: was ended by SIGSEGV"),
        (0, None, "absent", "none that torch can use; the checks need none"),
    ],
)
def test_gpus_that_the_driver_and_torch_see(path: Path, monkeypatch, listed: int, found, state: str, said: str):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if listed:
        program(path, "nvidia-smi", "".join(f"echo 'GPU {i}: NVIDIA H100 (UUID: x)';" for i in range(listed)))
    program(path, "python", f"echo '{json.dumps(found)}'" if found else "kill -SEGV $$")
    monkeypatch.setattr(sys, "executable", str(path / "python"))
    finding = optional.gpu()
    assert (finding.state, finding.what) == (state, said)
    assert bool(finding.do) == (state == "note")


def test_a_gpu_that_is_hidden_on_purpose(path: Path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    program(path, "nvidia-smi", "echo 'GPU 0: NVIDIA H100 (UUID: x)'")
    program(path, "python", f"echo '{json.dumps(GPU | {'count': 0})}'")
    monkeypatch.setattr(sys, "executable", str(path / "python"))
    assert optional.gpu().what == "1 here, hidden by CUDA_VISIBLE_DEVICES=''"


def test_the_sandbox_works_or_says_why_not(path: Path, monkeypatch):
    assert optional.sandbox().state == "absent"
    program(path, "bwrap", "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")

    def refuses(self: Sandbox) -> None:
        raise SandboxError("bubblewrap does not work here: No permissions")

    monkeypatch.setattr(Sandbox, "require", refuses)
    assert optional.sandbox().what == "bubblewrap does not work here: No permissions"
    monkeypatch.setattr(Sandbox, "require", lambda self: None)
    assert optional.sandbox().state == "good"


# The whole --------------------------------------------------------------------------------------------------


def test_this_machine(tmp_path: Path):
    """In 60 columns without colour, in a folder where a json.py of the student's is in nobody's way."""
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')\n")
    env = {**os.environ, "COLUMNS": "60", "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run(
        [Path(sys.executable).with_name("lab"), "doctor"], capture_output=True, text=True, cwd=tmp_path, env=env,
        timeout=280,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 60
    names = [line[2:12].strip() for line in lines if line[:1] in "✓·○✗" and line[:1]]
    assert names == [
        "Python", "PyTorch", "ranks", "host name", "disk", "temporary", "shared mem", "GPU", "Slurm", "Jupyter",
        "sandbox",
    ]  # fmt: skip
    assert "✓ ranks       two met through gloo on loopback" in result.stdout
    assert lines[-1] == "All that the lab needs is there."


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_leaves_nothing(tmp_path: Path):
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.cli", "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )
    tasks = Path(f"/proc/{process.pid}/task")

    def started() -> list[int]:
        pids = []
        for task in tasks.iterdir():
            with contextlib.suppress(OSError):  # the thread has ended meanwhile
                pids += map(int, (task / "children").read_text().split())
        return pids

    wait_for(lambda: len(started()) >= 2, "the start of its programs")
    pids = started()
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - begin < 30
    assert process.returncode in (130, -signal.SIGINT)
    assert err.decode() == "\nStopped. Nothing was left running.\n"
    wait_for(lambda: not living(pids), "the end of its programs")
    assert not list(tmp_path.iterdir())
