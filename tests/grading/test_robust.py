"""`lab check` on a machine that is full, read-only, nameless or crowded, on a poor terminal, and interrupted."""

import os
import pty
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_helpers import wait_for

from lab.cli import main
from lab.syllabus.package import start

LAB = [sys.executable, "-m", "lab.cli"]
LIMIT = 280  # seconds until a command must have ended
STOPPED = "\nStopped. Nothing was left running.\n"

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def lab(tmp_path: Path, root: Path) -> Path:
    """A student's package in which 2.3 is right and 3.2 is not."""
    folder = tmp_path / "home" / "my-lab"
    folder.parent.mkdir()
    start(folder)
    for name in ("distributed_utils.py", "data.py"):
        shutil.copyfile(root / "solutions" / name, folder / "exercises" / name)
    data = folder / "exercises" / "data.py"
    data.write_text(data.read_text().replace("shuffle=True", "shuffle=False"))
    return folder


@pytest.fixture
def mark() -> Iterator[dict[str, str]]:
    """A variable that everything a command starts inherits; at the end of the test nothing has it any more."""
    variable = {"LAB_TEST_MARK": uuid.uuid4().hex}
    yield variable
    wait_for(lambda: not marked(variable), "the end of all processes")


def marked(variable: dict[str, str]) -> list[int]:
    """The processes with this variable, without zombies."""
    (item,) = (f"{name}={value}".encode() for name, value in variable.items())
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and item in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:  # it has ended, or is not ours
            continue
    return found


def run(command: list[str | Path], cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        command, cwd=cwd, env=env or {**os.environ, "COLUMNS": "60"}, capture_output=True, text=True, timeout=LIMIT
    )


# Machines ---------------------------------------------------------------------------------------------------


def in_namespace(option: str, script: str) -> list[str]:
    """A command that runs a bash script in a namespace of its own; skips the test where that cannot be."""
    namespace = ["unshare", option]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], capture_output=True).returncode != 0:
        pytest.skip(f"needs root and `unshare {option}`")
    return [*namespace, "bash", "-ec", script]


def covered_tmp(options: str, *, visible: list[Path]) -> str:
    """Script: put another /tmp in place of the real one; what is in there and needed stays visible."""
    needed = {path.resolve() for path in visible}
    # Held open while it is covered; -c, or mount would look for it by its name, in the new /tmp.
    inside = [path for path in sorted(needed) if path.is_relative_to("/tmp")]
    opened = [f"exec {number}<{shlex.quote(str(path))}" for number, path in enumerate(inside, start=20)]
    bound = [
        f"mkdir -p {shlex.quote(str(path))}; mount -c --bind /proc/self/fd/{number} {shlex.quote(str(path))}"
        for number, path in enumerate(inside, start=20)
    ]
    closed = [f"exec {number}<&-" for number in range(20, 20 + len(inside))]
    return "\n".join([*opened, f"mount -t tmpfs -o {options} tmpfs /tmp", *bound, *closed, ""])


def everything(root: Path, tmp_path: Path) -> list[Path]:
    """What a command needs to see."""
    return [root, tmp_path, Path(sys.prefix), Path(sys.base_prefix)]


def check(*exercises: str) -> str:
    return shlex.join([*LAB, "check", *exercises])


def is_the_usual_answer(result: subprocess.CompletedProcess) -> None:
    assert result.returncode == 1, result.stdout + result.stderr
    assert " 2.3  Leave in good order              ✓ passed" in result.stdout
    assert " 3.2  Every rank its own samples       ✗ failed" in result.stdout
    assert "    saw    " in result.stdout
    assert result.stderr == ""


@needs_proc
def test_a_full_tmp(lab: Path, tmp_path: Path, root: Path, mark: dict[str, str]):
    script = covered_tmp("size=64k", visible=everything(root, tmp_path))
    script += f"cd {lab}\ncat /dev/zero > /tmp/full 2>/dev/null || true\nls -A /tmp > before\n"
    script += f"{check('2.3', '3.2')} && code=0 || code=$?\nls -A /tmp > after\nexit $code"
    env = (
        {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "TORCHINDUCTOR_CACHE_DIR")}
        | mark
        | {"COLUMNS": "60"}
    )
    is_the_usual_answer(run(in_namespace("--mount", script), lab, env))
    assert (lab / "after").read_text() == (lab / "before").read_text()


@needs_proc
def test_a_home_that_is_read_only(lab: Path, mark: dict[str, str]):
    home = lab.parent
    script = f"mount --bind {home} {home}\nmount -o remount,bind,ro {home}\ncd {lab}\n"
    env = {**os.environ, "HOME": str(home), "COLUMNS": "60", **mark}
    is_the_usual_answer(run(in_namespace("--mount", script + check("2.3", "3.2")), lab, env))
    assert not (lab / ".lab").exists()

    commands = [["hint", "3.2"], ["reset", "3.2"], ["reset", "--file", "data.py"], ["start", "new"]]
    tried = "".join(f"{shlex.join([*LAB, *arguments])} || true\n" for arguments in commands)
    result = run(in_namespace("--mount", script + tried), lab, env)
    assert "hint 1 of 4" in result.stdout
    lines = result.stderr.splitlines()
    assert len(lines) == 3
    for line, name in zip(lines, ("reset", "reset", "start"), strict=True):
        assert re.fullmatch(rf"lab {name}: cannot write .*: Read-only file system", line)


@needs_proc
def test_a_disk_that_is_full_keeps_the_students_work(lab: Path):
    script = (
        f"mount -t tmpfs -o size=512k tmpfs {lab.parent}\ncp -r {{kept}} {lab}\ncd {lab}\n"
        "cat /dev/zero > full 2>/dev/null || true\n"
        f"{shlex.join([*LAB, 'reset', '3.2'])} || true\n{shlex.join([*LAB, 'hint', '3.2'])}\n"
        "cmp exercises/data.py {kept}/exercises/data.py\necho the exercises: && ls -A exercises\n"
    )
    kept = shutil.copytree(lab, lab.parents[1] / "kept")
    result = run(in_namespace("--mount", script.replace("{kept}", str(kept))), lab)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.fullmatch(r"lab reset: cannot write .*: No space left on device\n", result.stderr)
    names = result.stdout.partition("the exercises:")[2].split()
    assert names == sorted(path.name for path in (kept / "exercises").iterdir())


def test_a_reset_that_fails_at_the_last_moment_leaves_nothing_half_done(lab: Path, monkeypatch, capsys):
    before = (lab / "exercises" / "data.py").read_text()

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device", "data.py")

    monkeypatch.chdir(lab)
    monkeypatch.setattr(os, "replace", fails)
    files = sorted((lab / "exercises").iterdir())
    assert main(["reset", "3.2"]) == 1
    assert capsys.readouterr().err == "lab reset: cannot write data.py: No space left on device\n"
    assert sorted((lab / "exercises").iterdir()) == files
    assert (lab / "exercises" / "data.py").read_text() == before


@needs_proc
def test_a_host_name_that_does_not_resolve(lab: Path, mark: dict[str, str]):
    name = "no-such-host-of-the-lab"
    script = f"hostname {name}\n{check('2.3', '3.2')}"
    is_the_usual_answer(run(in_namespace("--uts", script), lab, {**os.environ, "COLUMNS": "60", **mark}))
    program = "from lab.doctor import needed; print(needed.host_name())"
    probe = shlex.join([sys.executable, "-c", program])
    result = run(in_namespace("--uts", f"hostname {name}\n{probe}"), lab)
    assert f"{name} has no address" in result.stdout, result.stderr


# Terminals --------------------------------------------------------------------------------------------------


def test_sixty_columns_of_ascii_on_a_dumb_terminal_and_a_bare_environment(lab: Path, mark: dict[str, str]):
    """The answer has an umlaut, OMP_NUM_THREADS is not set, nor is much else."""
    data = lab / "exercises" / "data.py"
    data.write_text("def load_once(load, is_first):\n    raise ValueError('für \\x1b[31m immer')\n")
    env = {"PATH": os.environ["PATH"], "TERM": "dumb", "LC_ALL": "C", "PYTHONUTF8": "0", **mark}
    env |= {"PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    ours, theirs = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 60, 0, 0))
    process = subprocess.Popen([*LAB, "check", "2.3", "3.1"], cwd=lab, env=env, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    try:
        while data := os.read(ours, 1 << 16):
            said += data
    except OSError:  # the command has ended
        pass
    os.close(ours)
    assert process.wait(timeout=LIMIT) == 1
    lines = said.decode("ascii").split("\r\n")
    assert "\x1b" not in "".join(lines)
    assert any(line.startswith(" 2.3  Leave in good order              + passed") for line in lines)
    assert any(line.startswith(" 3.1  Download once                    x failed") for line in lines)
    assert re.search(r"rank \d raised ValueError: f\\xfcr", " ".join(" ".join(lines).split()))
    assert "Traceback" not in said.decode()
    assert max(map(len, lines)) <= 60 + len("\\ufffd")  # an escaped character takes more room


@needs_proc
def test_a_reader_that_wants_one_line_only(lab: Path, mark: dict[str, str]):
    command = f"{check()} | head -n 1"
    result = run(["bash", "-c", command], lab, {**os.environ, "COLUMNS": "60", **mark})
    assert result.stdout.startswith(" 1.1  A network for any batch size     · not started")
    assert result.stdout.count("\n") == 1
    assert result.stderr == ""


# Crowds and interruptions -----------------------------------------------------------------------------------


@needs_proc
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_many_checks_at_once(lab: Path, tmp_path: Path, mark: dict[str, str], number: int):
    """Of one student's folder, which they also share to remember their progress."""
    (tmp_path / "tmp").mkdir()
    env = {**os.environ, "COLUMNS": "60", "TMPDIR": str(tmp_path / "tmp"), **mark}
    processes = [
        subprocess.Popen(
            [*LAB, "check", "2.3", "3.2"],
            cwd=lab,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(number)
    ]
    try:
        for process in processes:
            out, err = process.communicate(timeout=1000)
            is_the_usual_answer(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert not list((tmp_path / "tmp").iterdir())
    assert [path.name for path in (lab / ".lab").iterdir()] == ["progress.json"]


@needs_proc
def test_ctrl_c_at_any_moment_leaves_nothing(lab: Path, tmp_path: Path, mark: dict[str, str]):
    """At moments spread over the whole of a check, twice in quick succession as impatient people do."""
    (tmp_path / "tmp").mkdir()
    env = {**os.environ, "COLUMNS": "60", "TMPDIR": str(tmp_path / "tmp"), **mark}
    begin = time.monotonic()
    assert run([*LAB, "check", "2.3", "3.2"], lab, env).returncode == 1
    whole = time.monotonic() - begin
    moments = 6
    for number in range(moments):
        process = subprocess.Popen(
            [*LAB, "check", "2.3", "3.2"],
            cwd=lab,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        moment = whole * (number + random.random()) / moments
        time.sleep(moment)
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
        said = f"after {moment:.2f} of {whole:.2f} s: code {process.returncode}\n{out}{err}"
        if "Traceback" in err:  # Python itself was interrupted, before it came to the lab or while it wound up
            assert "in _run" not in err, said
        elif process.returncode == 1:  # it was over already
            assert err == "", said
        else:
            assert process.returncode in (130, -signal.SIGINT), said
            assert err in (STOPPED, ""), said
        wait_for(lambda: not marked(mark), f"the end of all processes {said}")
        assert not list((tmp_path / "tmp").iterdir()), said
        assert not list(lab.rglob("*.tmp")), said
