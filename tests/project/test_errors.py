"""Which errors become a sentence, and which keep their traceback."""

from pathlib import Path

import pytest
import torch

from lab.training.errors import UsageError, UserError, explain, one_sentence_errors

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
    monkeypatch.setattr("lab.training.flight_recorder.dump", lambda: asked.append(True))
    with pytest.raises(ZeroDivisionError), one_sentence_errors(HERE):
        raise ZeroDivisionError
    assert asked
