"""Attacks that would hurt the machine, or somebody else, if they were not locked in: only in the sandbox."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attack_observers as observers
import pytest
from attack_helpers import PERFECT, Grader, in_answer, sandboxed, why_no_sandbox, write

from lab.base.words import as_html
from lab.grading.diagnosis import Failed
from lab.ranks import sandbox
from lab.ranks.sandbox import MAX_FILES, SandboxError, copied, pack
from lab.ranks.server import RankServer

NO_SANDBOX = why_no_sandbox()
needs_sandbox = pytest.mark.skipif(bool(NO_SANDBOX), reason=NO_SANDBOX)


@pytest.fixture(scope="module")
def locked() -> Iterator[RankServer]:
    with sandboxed() as own:
        yield own


@pytest.fixture
def grader(locked: RankServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grader:
    write(tmp_path / "perfect", {"data.py": PERFECT})
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return Grader(locked, tmp_path)


# {secret} is a file of the grader's, {victims} are files and folders that would be deleted.
ATTACKS = {
    "allocates without end": in_answer("kept = []\nwhile True: kept.append(bytearray(50_000_000))"),
    "allocates in memory that is shared": in_answer(
        "import mmap\nkept = []\nwhile True:\n    kept.append(mmap.mmap(-1, 50_000_000))\n"
        "    kept[-1].write(b'x' * 50_000_000)"
    ),
    "allocates in many processes": in_answer(
        "for _ in range(3): os.fork()\nkept = [bytearray(b'x') * 300_000_000]\ntime.sleep(60)"
    ),
    "allocates tensors": in_answer("kept = []\nwhile True: kept.append(torch.ones(20_000_000))"),
    "forks without end": in_answer(
        "while True:\n    try: os.fork()\n    except OSError: time.sleep(0.1)"
    ),
    "fills its folder": in_answer("file = open('big', 'wb')\nwhile True: file.write(b'x' * 1_000_000)"),
    "fills /dev/shm": in_answer(
        "for n in range(1000): open(f'/dev/shm/{n}', 'wb').write(b'x' * 10_000_000)"
    ),
    "makes files without end": in_answer("for n in range(10**8): open(f'/tmp/{n}', 'w').close()"),
    "leaves a trap of folders": in_answer(
        "os.chdir('/tmp')\nfor _ in range(2000):\n    os.mkdir('d')\n    os.chdir('d')\n"
        "os.chmod('.', 0)\nreturn numbers"
    ),
    "kills everybody": in_answer("os.kill(-1, signal.SIGKILL)\ntime.sleep(60)"),
    "stops everybody": in_answer("os.kill(-1, signal.SIGSTOP)\ntime.sleep(60)"),
    "kills and stops the nursery": in_answer(
        "os.kill(1, signal.SIGKILL)\nos.kill(1, signal.SIGSTOP)\nos.kill(1, signal.SIGTERM)\nreturn numbers"
    ),
    "deletes everything": in_answer(
        "import shutil\nfor top in ('/', os.path.expanduser('~'), '/tmp', {secret!r}, os.getcwd()):\n"
        "    shutil.rmtree(top, ignore_errors=True)\nreturn numbers"
    ),
    "edits files next to it": in_answer(
        "open('data.py', 'w').write('x')\nopen('../model.py', 'w').write('x')\n"
        "os.rename('data.py', 'gone')\nreturn numbers"
    ),
    "edits the lab": in_answer(
        "import lab.ranks.wire as wire\nopen(wire.__file__, 'a').write('# mine')\nreturn numbers"
    ),
    "reads solutions": in_answer(
        "import glob, lab\nroot = os.path.dirname(os.path.dirname(lab.__file__))\n"
        "found = glob.glob(root + '/solutions/*') + glob.glob(root + '/tests/answers/*') + glob.glob({secret!r})\n"
        "assert not found, 'FOUND'\nraise SystemExit('nothing')"
    ),
    "reads the grader": in_answer(
        "for pid in (1, os.getppid()):\n"
        "    for name in ('mem', 'environ', 'fd', 'maps'):\n"
        "        try: open(f'/proc/{{pid}}/{{name}}').close()\n"
        "        except (PermissionError, IsADirectoryError): continue\n"
        "        raise RuntimeError('FOUND')\n"
        "return numbers"
    ),
    "opens the network": in_answer(
        "found = []\nfor address in (('10.0.0.1', 80), ('1.1.1.1', 53), ('192.0.2.1', 80)):\n"
        "    try: socket.create_connection(address, timeout=1)\n"
        "    except OSError as error: found.append(error.errno)\n"
        "assert found == [101] * 3, 'FOUND'\nraise SystemExit(str(found))"
    ),
    "listens on every interface": in_answer(
        "names = [name for _, name in socket.if_nameindex()]\nassert names == ['lo'], 'FOUND'\nraise SystemExit"
    ),
    "becomes root": in_answer(
        "libc = ctypes.CDLL(None)\nassert libc.unshare(0x10000000) != 0, 'FOUND'\n"
        "for call in (os.setuid, os.setgid):\n    try: call(0)\n    except OSError: continue\n"
        "    raise RuntimeError('FOUND')\n"
        "assert os.getuid() != 0, 'FOUND'\nraise SystemExit"
    ),
    "keeps memory that belongs to nobody": in_answer(
        "assert ctypes.CDLL(None).memfd_create(b'x', 0) < 0, 'FOUND'\n"
        "assert ctypes.CDLL(None).shmget(7, 1 << 20, 0o1600) < 0, 'FOUND'\nraise SystemExit"
    ),
}  # fmt: skip


@needs_sandbox
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_stays_in_the_sandbox(grader: Grader, name: str) -> None:
    secret = grader.place / "somebody" / "answers.txt"
    secret.parent.mkdir()
    secret.write_text("42")
    code = ATTACKS[name].replace("{secret!r}", repr(str(secret))).replace("{{", "{").replace("}}", "}")
    outcome = grader.attacked_by(write(grader.place / "attack", {"data.py": code, "model.py": "x = 1\n"}))
    assert isinstance(outcome, Failed), outcome
    assert "FOUND" not in outcome.diagnosis.saw


@needs_sandbox
def test_a_group_finds_nothing_of_the_group_before(grader: Grader) -> None:
    leave = """
        for place in ("/tmp", "/dev/shm", "/submission", "/submission/exercises"):
            os.makedirs(f"{place}/.left/deep")
            os.symlink("/etc/passwd", f"{place}/link")
            open(f"{place}/answers", "w").write("42")
        if os.fork() == 0:
            os.setsid()
            time.sleep(1e6)
        return numbers
    """
    grader.outcome(write(grader.place / "attack", {"data.py": in_answer(leave)}))
    result = grader.server.run(observers.surroundings, 1, code=grader.place / "perfect")
    # A clone in /tmp is shown in the sandbox's /tmp.
    shown = [str(path) for path in Path(__file__).resolve().parents if path.parent == Path("/tmp")]
    assert result.values == [{"files": [*shown, "/submission/exercises"], "processes": 3}]  # nursery, leader, rank
    assert grader.server.run(observers.surroundings, 1, code=None).values[0]["files"] == shown


@needs_sandbox
def test_the_reports_name_the_students_own_files(grader: Grader) -> None:
    code = write(grader.place / "attack", {"data.py": in_answer("raise ValueError('mine')")})
    report = grader.server.run(observers.answer, 1, code=code, inputs={"numbers": [0]}).reports[0]
    assert report.error is not None
    assert report.student_frame is not None
    assert report.student_frame.file == str(code / "data.py")
    assert report.error.frames[-1].file == str(code / "data.py")


def test_only_what_is_really_in_the_folder_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("42")
    folder = write(tmp_path / "code", {"model.py": "x = 1\n"})
    (folder / "data.py").symlink_to(tmp_path / "secret" / "key")
    (folder / "inside").symlink_to(tmp_path / "secret")
    (folder / "loop").symlink_to(".")
    os.mkfifo(folder / "pipe")
    (folder / "large").write_bytes(bytes(2_000_000))
    (folder / "sub").mkdir()
    (folder / "sub" / "help.py").write_text("y = 2\n")
    assert pack(folder) == {"large": 2_000_000, "model.py": b"x = 1\n", "sub": None, "sub/help.py": b"y = 2\n"}
    with copied(folder) as copy:
        assert sorted(path.name for path in copy.rglob("*")) == ["help.py", "large", "model.py", "sub"]
        assert (copy / "large").stat().st_size == 2_000_000
    assert not list((tmp_path / "tmp").iterdir())


def test_too_many_or_too_deep_is_refused(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 1):
        (tmp_path / str(number)).touch()
    with pytest.raises(SandboxError, match="more than 500 files"):
        pack(tmp_path)
    deep = tmp_path / "deep" / "/".join("d" * 12)
    deep.mkdir(parents=True)
    with pytest.raises(SandboxError, match="10 folders deep"):
        pack(tmp_path / "deep")


def test_without_bubblewrap_there_is_a_sentence_and_no_check(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    from lab.cli import main
    from lab.grading import suite

    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    monkeypatch.setattr(suite, "run_exercise", lambda *args, **kwargs: pytest.fail("ran without a sandbox"))
    assert main(["check", "1.1", "--sandbox", "--code", "solutions"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("lab check: the sandbox needs bubblewrap")
    assert len(said.splitlines()) == 1


@pytest.mark.skipif(os.name != "posix", reason="false(1)")
def test_nor_where_bubblewrap_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: "/bin/false")
    with pytest.raises(SandboxError, match="bubblewrap"):
        sandboxed()


def test_what_code_prints_does_nothing_in_html() -> None:
    evil = "<script>alert(1)</script>\n\x1b]0;title\x07\x1b[2J'\"&\u202etxt.exe\n"
    shown = as_html(evil)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\n" in shown
    assert not set("<>'\"\x1b\x07\u202e") & set(shown)


@needs_sandbox
def test_files_below_tmp_are_shown_and_only_what_a_group_leaves_there_is_removed(tmp_path: Path) -> None:
    """A clone, and its virtual environment, may be in /tmp, where the sandbox has a folder of its own."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "below_tmp.py").write_text(
            "import os\n"
            "def look(rank):\n"
            "    found = sorted(os.listdir('/tmp'))\n"
            "    open('/tmp/left', 'w').close()\n"
            "    return found, __file__\n"
        )
        box = sandbox.Sandbox(sandbox.Limits(), readable=[Path(folder)])
        with pytest.MonkeyPatch.context() as patch, RankServer(sandbox=box, preload=["json"]) as server:
            patch.syspath_prepend(folder)
            for _ in range(2):
                result = server.run("below_tmp:look", 1, code=None, set_up_process_group=False)
                found, file = result.values[0]
                assert file == str(Path(folder).resolve() / "below_tmp.py")
                assert Path(folder).resolve().relative_to("/tmp").parts[0] in found
                assert "left" not in found
