"""The `lab` command as a person types it."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import cli
from lab.base.errors import UsageError
from lab.cli import main
from lab.grading import suite
from lab.grading.check import Check, Group
from lab.grading.diagnosis import CheckEnded, Diagnosis, LabError
from lab.student import outcomes
from lab.syllabus.paths import find_code
from lab.syllabus.syllabus import MODULES, Exercise, syllabus


def make_package(folder: Path) -> Path:
    """A student's package with seven empty modules."""
    (folder / "exercises").mkdir(parents=True)
    for name in MODULES:
        (folder / "exercises" / f"{name}.py").write_text("")
    return folder


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(make_package(tmp_path / "my-lab"))
    monkeypatch.setenv("COLUMNS", "60")
    return tmp_path / "my-lab"


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception]:
    """Without ranks: exercise id -> what its one check raises; nothing for those that pass."""
    found: dict[str, Exception] = {}

    def checks_of(exercise: Exercise) -> list[Check]:
        def judge(group: Group) -> None:
            if exercise.id in found:
                raise found[exercise.id]

        return [Check(exercise.id, f"the check of {exercise.id}", judge)]

    monkeypatch.setattr(suite, "checks_of", checks_of)
    return found


# Usage ------------------------------------------------------------------------------------------------------


def test_help_keeps_names_as_they_are_written(capsys):
    for command, name in (("jupyter", "Open the guided notebooks in JupyterLab."), ("system", "SYSTEM.md")):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert name in capsys.readouterr().out


def test_help_is_instant_and_loads_neither_torch_nor_pandas():
    program = """
import sys
from lab.cli import main
try:
    main(["--help"])
finally:
    assert not {"torch", "pandas"} & {*sys.modules}
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for command in ("check", "hint", "start", "reset", "fetch", "stubs"):
        assert command in result.stdout


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["check", "--nonsense"], ["start"]])
def test_usage_errors_end_with_2(arguments: list[str], capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: lab" in capsys.readouterr().err


def test_an_unknown_exercise_is_one_sentence_with_the_ids(lab: Path, capsys):
    assert main(["check", "3.2", "7.7"]) == 2
    ids = ", ".join(exercise.id for exercise in syllabus().every)
    assert capsys.readouterr().err == (f"lab check: there is no exercise 7.7; choose from {ids}, or a section\n")


# Which folder -----------------------------------------------------------------------------------------------


def test_the_code_is_found_here_in_exercises_or_above(lab: Path):
    exercises = lab / "exercises"
    (lab / "notebooks" / "deep").mkdir(parents=True)
    for folder in (lab, exercises, lab / "notebooks", lab / "notebooks" / "deep"):
        assert find_code(None, folder) == exercises
    for name in (".", "exercises", "exercises/"):
        assert find_code(name, lab) == exercises
    assert find_code(str(lab), Path("/")) == exercises


def test_modules_in_the_current_folder_count_and_a_missing_one_is_no_obstacle(lab: Path):
    (lab / "exercises" / "data.py").unlink()
    flat = lab / "exercises"
    flat = flat.rename(lab / "flat")
    assert find_code(None, flat) == flat


def test_the_labs_own_code_by_name_from_anywhere(tmp_path: Path, root: Path):
    assert find_code("solutions", tmp_path) == root / "solutions"
    assert find_code("exercises", tmp_path) == root / "exercises"
    assert find_code(None, root) == root / "exercises"


def test_no_code_is_one_sentence(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) == 2
    assert capsys.readouterr().err.startswith(
        "lab check: no exercises here: go to the folder that `lab start` made"
    )
    assert main(["check", "--code", "nowhere"]) == 2
    assert "lab check: --code nowhere: is no folder" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"--code empty: does not hold model.py, data.py"):
        find_code("empty", tmp_path)


def test_a_current_folder_that_is_gone_is_one_sentence(tmp_path: Path, monkeypatch, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["check"]) == 2
    assert capsys.readouterr().err == "lab check: the current folder has been deleted: go to another one (cd)\n"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such a name")
def test_a_folder_whose_name_is_no_text_is_one_sentence(tmp_path: Path, monkeypatch, capsys):
    folder = make_package(tmp_path / os.fsdecode(b"caf\xe9"))
    monkeypatch.chdir(folder)
    assert main(["check", "1.1"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"lab check: the name of {tmp_path}/caf")
    assert said.endswith("rename the folder, or try export LC_ALL=C.UTF-8\n")


# lab check --------------------------------------------------------------------------------------------------


def wrong() -> Diagnosis:
    return Diagnosis("wrong", saw="one thing", means="another", look="data.py:3")


def test_the_ladder_shows_every_exercise_and_what_is_next(lab: Path, verdicts, capsys):
    verdicts["3.2"] = wrong()
    verdicts["3.3"] = wrong()
    assert main(["check"]) == 1
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:14]] == list(syllabus().ids)
    assert [line for line in lines[:14] if "passed" not in line] == [
        " 3.2  Every rank its own samples       ✗ failed        0.0 s",
        " 3.3  Validate every sample just once  ○ blocked: 3.2  0.0 s",
    ]
    assert "  ✗ failed: the check of 3.2\n    saw    one thing\n    means  another\n    look   data.py:3\n" in out
    assert "failed: the check of 3.3" not in out
    assert "12 of 14 passed, 82 of 100 points.\nNext: 3.2 Every rank its own samples\n" in out


def test_all_passed_ends_with_0(lab: Path, verdicts, capsys):
    assert main(["check"]) == 0
    assert "All 14 exercises passed: 100 of 100 points." in capsys.readouterr().out


def test_a_lab_error_ends_with_3(lab: Path, verdicts, capsys):
    verdicts["3.2"] = wrong()
    verdicts["4.1"] = CheckEnded(LabError("no ranks"))
    assert main(["check"]) == 3
    assert "the lab's fault, not yours" in capsys.readouterr().out


def test_ids_and_sections_show_their_details_only(lab: Path, verdicts, capsys):
    verdicts["3.3"] = wrong()
    assert main(["check", "2", "3.3"]) == 1
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if line[:2] in (" 2", " 3")] == [
        "2.1",
        "2.2",
        "2.3",
        "3.3",
    ]
    assert "  ✓ the check of 2.1\n" in out
    assert "Next:" not in out
    assert out.endswith("\n\nStuck? lab hint 3.3\n")
    del verdicts["3.3"]
    assert main(["check", "2.1", "3"]) == 0
    assert capsys.readouterr().out.endswith(
        "\nNext: 1.1 A network for any batch size\n"
        "      open exercises/model.py\n"
        "      look for TODO 1.1\n"
        "      then type: lab check 1.1\n"
        "      stuck? lab hint 1.1\n"
    )


def test_who_writes_on_is_not_sent_back_to_what_has_passed_in_the_same_file(
    lab: Path, verdicts, capsys, root: Path
):
    file = lab / "exercises" / "distributed_utils.py"
    shutil.copy(root / "solutions" / "distributed_utils.py", file)
    shutil.copy(root / "solutions" / "model.py", file.parent)
    assert main(["check", "1.1", "2.1", "2.2"]) == 0
    file.write_text(file.read_text() + "import sys\n\nTORCHRUN = (*TORCHRUN,)\n")  # 2.1 uses it, and 2.2 uses 2.1
    verdicts["2.1"] = CheckEnded(LabError("no ranks"))
    capsys.readouterr()
    assert main(["check", "2.3"]) == 0
    assert "\nNext: 3.1 Download once\n" in capsys.readouterr().out  # not 2.1, which has passed before
    assert main(["check", "1.1", "3", "4", "5", "6"]) == 0
    assert capsys.readouterr().out.endswith(
        "\nNext: 2.1 Who am I? Rank and world size\n"
        "      distributed_utils.py has changed since it passed\n"
        "      type: lab check 2.1\n"
    )
    del verdicts["2.1"]
    assert main(["check", "1.1"]) == 0
    assert "Next:" not in capsys.readouterr().out, "2.1 was checked again by itself"
    shutil.copy(root / "exercises" / "distributed_utils.py", file)  # begun anew: nothing of it has passed
    assert main(["check", "3"]) == 0
    assert "\nNext: 2.1 Who am I? Rank and world size\n      open exercises/" in capsys.readouterr().out


def test_what_another_exercise_has_broken_is_said(lab: Path, verdicts, capsys, root: Path):
    file = lab / "exercises" / "data.py"
    shutil.copy(root / "solutions" / "data.py", file)
    assert main(["check", "3.1", "3.2"]) == 0
    file.write_text(file.read_text() + "\n\nclass ValidationShard:\n    pass\n")
    verdicts["3.2"] = wrong()
    capsys.readouterr()
    assert main(["check", "3.3"]) == 0
    out = capsys.readouterr().out
    assert "\n3.2 had passed. As its code is now, it does not:\n 3.2  Every rank its own samples" in out
    assert "    saw    one thing\n" in out
    assert "3.1" not in out


def test_each_line_is_out_before_the_next_check_begins(lab: Path, verdicts, monkeypatch, capsys):
    seen = []

    def checks_of(exercise: Exercise) -> list[Check]:
        return [Check(exercise.id, "", lambda group: seen.append(capsys.readouterr().out))]

    monkeypatch.setattr(suite, "checks_of", checks_of)
    main(["check", "2"])
    assert "2.1" in seen[1]
    assert "2.2" in seen[2]


def test_ctrl_c_is_one_sentence_and_130(lab: Path, verdicts, capsys):
    verdicts["2.1"] = KeyboardInterrupt()
    before = signal.getsignal(signal.SIGINT)
    try:
        assert main(["check"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)  # main() ignores it at its end, and so would all that is started here
    captured = capsys.readouterr()
    assert "1.1" in captured.out
    assert captured.err == "\nStopped. Nothing was left running.\n"


def test_a_reader_that_has_gone_is_no_traceback(lab: Path):
    command = [sys.executable, "-m", "lab.cli", "check", "9.9"]
    result = subprocess.run(f"{' '.join(command)} 2>&1 | head -c 0", shell=True, capture_output=True, cwd=lab)
    assert b"Traceback" not in result.stdout + result.stderr
    program = (
        "import sys; from lab import cli; from lab.commands import check\n"
        "def run(args):\n"
        "    for _ in range(100000): print('line')\n"
        "check.run = run\n"
        "sys.exit(cli.main(['check']))\n"
    )
    result = subprocess.run(
        f"{sys.executable} -c \"$PROGRAM\" | head -n 1", shell=True, capture_output=True, cwd=lab,
        env={**os.environ, "PROGRAM": program},
    )  # fmt: skip
    assert result.stdout == b"line\n"
    assert result.stderr == b""


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&-", "<&- >&- 2>&-", ">/dev/full", ">/dev/full 2>&1"])
@pytest.mark.parametrize(("arguments", "code"), [("check 1.1", 0), ("hint 7.7", 2), ("--help", 0)])
def test_streams_that_are_closed_or_full_are_no_traceback(lab: Path, redirection: str, arguments: str, code: int):
    """What cannot be written is lost; the exit code, and what can be written, are as ever."""
    program = (
        "import sys; from lab import cli; from lab.commands import check\n"
        "def run(args):\n"
        "    import socket\n"
        "    assert min(s.fileno() for s in socket.socketpair()) > 2, 'a socket has the number of a stream'\n"
        "    print('checked')\n"
        "    return 0\n"
        "check.run = run\n"
        f"sys.exit(cli.main({arguments.split()!r}))\n"
    )
    if not Path("/dev/full").exists() and "full" in redirection:
        pytest.skip("this system has no /dev/full")
    (lab / "program.py").write_text(program)
    command = f"{sys.executable} program.py {redirection}"
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=lab, stdin=subprocess.DEVNULL
    )
    said = result.stdout + result.stderr
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    if "full" not in redirection:
        assert result.returncode == code, said
    if redirection == ">/dev/full" and arguments == "check 1.1":
        assert result.returncode == 1
        assert result.stderr == "lab: cannot go on: No space left on device. `lab doctor` looks for the cause\n"


# With ranks -------------------------------------------------------------------------------------------------


def test_ctrl_c_while_ranks_run_leaves_none_of_them(lab: Path):
    """A real SIGINT while a rank hangs: 130, one sentence, and the rank is gone."""
    (lab / "exercises" / "model.py").write_text(
        "import os, pathlib, time\n"
        "part = pathlib.Path('ranks') / f'.{os.getpid()}'\n"
        "part.parent.mkdir(exist_ok=True)\n"
        "part.touch()\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.cli", "check", "1.1"],
        cwd=lab, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    pids: list[int] = []
    while not pids and time.monotonic() < deadline and process.poll() is None:
        pids = [int(path.name[1:]) for path in (lab / "exercises").glob("ranks/.*")]
        time.sleep(0.02)
    assert pids, process.communicate(timeout=10)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "\nStopped. Nothing was left running.\n"
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_student_fills_3_2_and_reads_what_is_right_and_wrong(tmp_path: Path, root: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["start", "my-lab"]) == 0
    monkeypatch.chdir(tmp_path / "my-lab" / "exercises")
    capsys.readouterr()
    assert main(["check", "3.2"]) == 1
    assert "  · not started: see TODO 3.2 in data.py\n" in capsys.readouterr().out
    solution = (root / "solutions" / "data.py").read_text()
    Path("data.py").write_text(solution.replace("DistributedSampler(", "sampler_of(", 1))
    assert main(["check", "3.2"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "raised NameError: name 'sampler_of' is not defined" in out
    assert "look data.py:" in out
    Path("data.py").write_text(solution)
    assert main(["check", "3.2"]) == 0
    assert "passed" in capsys.readouterr().out


# Progress ---------------------------------------------------------------------------------------------------


def test_progress_is_kept_for_the_module_as_it_was(lab: Path, verdicts):
    verdicts["3.2"] = wrong()
    main(["check", "3"])
    code = lab / "exercises"
    assert outcomes.passed(code, syllabus()) == {"3.1", "3.3"}
    assert json.loads((lab / ".lab" / "progress.json").read_text())["exercises"]["3.2"]["outcome"] == "failed"
    main(["check", "2.1"])
    assert outcomes.passed(code, syllabus()) == {"2.1", "3.1", "3.3"}
    (code / "data.py").write_text("# edited\n")
    assert outcomes.passed(code, syllabus()) == {"2.1"}


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe", b"[]", b'{"exercises": 1}', b'{"exercises": {"3.1": 1}}'])
def test_garbage_in_the_cache_is_no_error(lab: Path, verdicts, garbage: bytes):
    (lab / ".lab").mkdir()
    (lab / ".lab" / "progress.json").write_bytes(garbage)
    assert outcomes.read(lab / "exercises") == {}
    assert main(["check", "3.1"]) == 0
    assert outcomes.passed(lab / "exercises", syllabus()) == {"3.1"}
    assert [path.name for path in (lab / ".lab").iterdir()] == ["progress.json"]


def test_a_cache_that_cannot_be_written_is_no_error(lab: Path, verdicts):
    (lab / ".lab").write_text("a file where the folder should be")
    assert main(["check", "3.1"]) == 0


def test_checking_the_labs_own_code_leaves_no_trace(root: Path, verdicts):
    before = outcomes.read(root / "exercises")
    assert main(["check", "3.1", "--code", "solutions"]) == 0
    assert outcomes.read(root / "exercises") == before


def test_the_entry_point_is_executable():
    assert os.stat(Path(sys.executable).with_name("lab")).st_mode & stat.S_IXUSR
    assert cli.main is main
