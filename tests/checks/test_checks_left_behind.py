"""What a function leaves behind is seen: state, files, errors that it keeps to itself; and nothing else is."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

from lab.checks.common.judge_left import CHANGES, judge_left, judge_swallowed
from lab.checks.common.left_behind import no_memory, swallowed, swallowed_where, watched
from lab.checks.common.look import Look
from lab.grading.diagnosis import Diagnosis

CHANGERS: dict[str, Callable[[nn.Module, SGD], object]] = {
    "requires_grad": lambda model, optimizer: model.requires_grad_(False),
    "types": lambda model, optimizer: model.double(),
    "weights": lambda model, optimizer: model.weight.data.add_(1),
    "hooks": lambda model, optimizer: model.register_forward_hook(lambda *_: None),
    "options": lambda model, optimizer: optimizer.param_groups[0].update(lr=0.5),
    "gradients": lambda model, optimizer: torch.set_grad_enabled(False),
    "autocast": lambda model, optimizer: torch.set_autocast_enabled("cpu", True),
    "default type": lambda model, optimizer: torch.set_default_dtype(torch.float64),
    "default device": lambda model, optimizer: torch.set_default_device("meta"),
    "seed": lambda model, optimizer: torch.manual_seed(12345),
}


@pytest.fixture
def own() -> Iterator[tuple[nn.Module, SGD]]:
    model = nn.Linear(2, 2)
    yield model, SGD(model.parameters(), lr=0.1)
    torch.set_grad_enabled(True)
    torch.set_autocast_enabled("cpu", False)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


def observer(code: Path) -> Any:
    return SimpleNamespace(code=code)


def test_every_change_has_words():
    assert CHANGERS.keys() == CHANGES.keys()


@pytest.mark.parametrize("key", CHANGERS)
def test_what_is_changed_is_seen(key: str, own: tuple[nn.Module, SGD], tmp_path: Path):
    with watched(observer(tmp_path), *own) as left:
        CHANGERS[key](*own)
    assert left == {"changed": [key], "files": []}
    with pytest.raises(Diagnosis, match="left-changed"):
        judge_left(Look(tmp_path, "train.py", "evaluate"), [left])


def test_what_is_put_back_is_not(own: tuple[nn.Module, SGD], tmp_path: Path):
    model, optimizer = own
    with watched(observer(tmp_path), model, optimizer) as left:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            model(torch.zeros(1, 2))
        model.register_forward_hook(lambda *_: None).remove()
        model.eval()
        torch.rand(3)
    assert left == {"changed": [], "files": []}


def test_files_are_those_that_the_students_own_lines_write(own: tuple[nn.Module, SGD], tmp_path: Path):
    student = tmp_path / "train.py"
    source = (
        "import pathlib, torch\n"
        "def write(folder):\n"
        "    torch.save({}, folder / 'a.pth')\n"
        "    open(folder / 'b.txt', 'w').close()\n"
        "    pathlib.Path(folder / 'c.txt').write_text('')\n"
        "    open(folder / 'c.txt').close()\n"
    )
    names: dict[str, Any] = {}
    exec(compile(source, str(student), "exec"), names)
    with watched(observer(tmp_path), *own) as left:
        names["write"](tmp_path)
        (tmp_path / "ours.txt").write_text("")
    written = {file["name"]: file["line"] for file in left["files"]}
    assert written == {"a.pth": 3, "b.txt": 4, "c.txt": 5}
    look = Look(tmp_path, "train.py", "write")
    judge_left(look, [left, {"changed": [], "files": []}])  # one rank alone may
    with pytest.raises(Diagnosis, match="written-by-every-rank"):
        judge_left(look, [left, left])


@pytest.mark.parametrize("kind", [RuntimeError, ValueError, OSError, torch.OutOfMemoryError, Exception])
def test_whoever_catches_an_error_is_seen(kind: type[Exception], tmp_path: Path):
    def catching() -> float:
        try:
            return no_memory()
        except kind:
            return 0.5

    assert swallowed(catching) == "float"
    assert swallowed(no_memory) == ""
    with pytest.raises(Diagnosis, match="error-swallowed"):
        judge_swallowed(Look(tmp_path, "train.py", "evaluate"), "float", "a step")


def test_an_error_is_kept_only_where_something_raised():
    model = nn.Linear(2, 2)

    def hides(call: Callable[[], object]) -> bool:
        with suppress(RuntimeError):
            call()
        return True

    targets = [(model, "train"), (model, "eval")]
    assert swallowed_where(targets, lambda: hides(lambda: model.eval())) == "bool"
    assert swallowed_where(targets, lambda: hides(lambda: model.half())) == "", "nothing has raised"
    assert swallowed_where(targets, lambda: model.train()) == "", "it came out"
    assert model.train() is model
