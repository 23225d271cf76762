"""Which errors become a sentence, and which keep their traceback."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lab.base.errors import UsageError, UserError
from lab.runs.records.reasons import PEER_GONE, reason_of
from lab.training.program import explain, one_sentence_errors

HERE = Path(__file__).parent


def raised(function) -> BaseException:
    try:
        function()
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def refuse():
    raise ValueError("a global batch of 7")


def test_an_error_for_the_user_is_its_own_sentence():
    assert explain(UserError("no such folder"), HERE) == ("no such folder", 1)
    assert explain(UsageError("no such option"), HERE) == ("no such option", 2)


def test_a_value_error_of_a_students_module_is_a_sentence():
    assert explain(raised(refuse), HERE) == ("a global batch of 7", 2)


def unpack():
    first, second = (1, 2, 3)
    return first, second


@pytest.mark.parametrize("mistake", [unpack, lambda: int("seven"), lambda: [].index(1)])
def test_a_value_error_that_nobody_raised_on_purpose_is_a_bug(mistake):
    assert explain(raised(mistake), HERE) is None


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("[../third_party/gloo/pair.cc:534] Connection closed by peer [::1]:8"), PEER_GONE),
        (RuntimeError("NCCL error: remote process exited or there was a network error"), PEER_GONE),
        (RuntimeError("the disk caught fire\nand more"), "RuntimeError: the disk caught fire"),
        (UserError("no such folder"), "no such folder"),
        (KeyError("a"), "KeyError: 'a'"),
    ],
)
def test_status_json_has_one_line_for_people(error, line):
    assert reason_of(error) == line


def test_a_bug_in_the_students_code_is_shown_with_its_line(tmp_path, root):
    """Python itself prints it, so that it is in the train.err that run.sh keeps."""
    program = """
from pathlib import Path
from lab.runs.records.reasons import PEER_GONE, reason_of
from lab.training.program import one_sentence_errors
with one_sentence_errors(code=Path(__file__).parent):
    first, second = (1, 2, 3)
"""
    (tmp_path / "main.py").write_text(program)
    command = [sys.executable, tmp_path / "main.py"]
    done = subprocess.run(command, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "first, second = (1, 2, 3)\n" in done.stderr


def test_a_value_error_raised_elsewhere_is_a_bug(tmp_path):
    assert explain(raised(lambda: torch.nn.Module().register_parameter("p", torch.ones(1))), HERE) is None
    assert explain(raised(lambda: int("seven")), tmp_path) is None
    assert explain(raised(refuse), tmp_path) is None


def test_only_the_stubs_not_implemented_error_is_a_sentence():
    stub = NotImplementedError("Exercise 3.1a is not done yet: f() in data.py")
    assert explain(stub, HERE) == (str(stub), 1)
    assert explain(NotImplementedError("later"), HERE) is None


def test_a_rank_that_is_left_alone_points_to_the_one_that_ended():
    gone = RuntimeError("[pair.cc:561] Connection closed by peer [127.0.0.1]:31445")
    assert "another rank has ended" in explain(gone, HERE)[0]
    assert explain(RuntimeError("shape mismatch"), HERE) is None


def test_a_rank_that_fails_leaves_its_collectives_behind(monkeypatch):
    asked = []
    monkeypatch.setattr("lab.training.stepping.flight_recorder.dump", lambda: asked.append(True))
    with pytest.raises(ZeroDivisionError), one_sentence_errors(HERE):
        raise ZeroDivisionError
    assert asked


@pytest.mark.parametrize(("ending", "code"), [("pass", 0), ("raise SystemExit(85)", 85)])
def test_a_run_on_the_cpu_ends_before_python_is_taken_apart(tmp_path, root, ending, code):
    """Where gloo's threads would still let go of tensors: "terminate called without an active exception"."""
    program = f"""
import atexit, os, torch
from pathlib import Path
from lab.runs.records.reasons import PEER_GONE, reason_of
from lab.training.program import one_sentence_errors
atexit.register(os._exit, 9)  # the first thing that Python does at its end
with one_sentence_errors(code=Path(__file__).parent):
    print("trained")
    {ending}
"""
    for name, expected in (("main.py", code), ("notebook.py", 9)):
        (tmp_path / name).write_text(program)
        command = [sys.executable, tmp_path / name]
        done = subprocess.run(command, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (expected, "trained\n"), done.stderr
