"""At an epoch's end a thread writes the checkpoint: of that moment, whole, and no error of it is lost."""

import json
import multiprocessing.process
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from one_process import make_loader, make_run
from tiny_run import Stop
from torch import nn

from lab.training.checkpoints import checkpoint_file
from lab.training.checkpoints.saving import Saver

pytestmark = pytest.mark.usefixtures("world_of_one")

LONG = 60  # seconds; nothing takes so long but a deadlock


class Gate:
    """Stands in the way of every checkpoint until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.write = checkpoint_file.write
        self.begun, self.opened = threading.Event(), threading.Event()
        monkeypatch.setattr(checkpoint_file, "write", self._wait_and_write)

    def _wait_and_write(self, state: dict[str, Any], path: Path) -> None:
        self.begun.set()
        assert self.opened.wait(LONG)
        self.write(state, path)


@pytest.fixture
def gate(monkeypatch):
    return Gate(monkeypatch)


class Training:
    """A run of a few epochs, step by step."""

    def __init__(self, run: Any, *, workers: int = 0) -> None:
        self.run, self.loader, self.model = run, make_loader(workers=workers), nn.Linear(4, 2)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        run.begin(self.model, self.optimizer, self.loader)

    def steps(self) -> None:
        for images, labels in self.run.batches(self.loader):
            self.optimizer.zero_grad()
            self.run.backward(nn.functional.cross_entropy(self.model(images), labels))
            self.optimizer.step()

    def record(self, epoch: int) -> None:
        self.model.eval()
        self.model(torch.zeros(4, 4))
        self.model.train()
        self.run.record(epoch, 0.5, 0.5, 0.5)

    def state(self) -> list[torch.Tensor]:
        """Copies of the weights and of what the optimizer keeps."""
        kept = [value for state in self.optimizer.state.values() for value in state.values()]
        return [tensor.detach().clone() for tensor in (*self.model.parameters(), *kept)]


def saved(path: Path) -> list[torch.Tensor]:
    """The same from a checkpoint."""
    state = checkpoint_file.read(path)
    kept = [value for one in state["optimizer"]["state"].values() for value in one.values()]
    return [*state["model"].values(), *kept]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def folder(tmp_path: Path) -> Path:
    return tmp_path / "results" / "r" / "checkpoints"


def test_training_goes_on_meanwhile_and_what_is_written_is_of_the_epochs_end(tmp_path, gate):
    at_the_end_of_1: list[torch.Tensor] = []
    with make_run(tmp_path, "--epochs", "2", "--save-frequency", "1") as run:
        training = Training(run)
        for epoch in run.epochs():
            training.steps()
            if epoch == 2:
                assert gate.begun.is_set()
                assert not list(folder(tmp_path).glob("*.pth"))
                assert not same(training.state(), at_the_end_of_1)
                gate.opened.set()  # the next save waits for this one
            training.record(epoch)
            if epoch == 1:
                assert gate.begun.wait(LONG)
                at_the_end_of_1 = training.state()
    names = sorted(path.name for path in folder(tmp_path).iterdir())
    assert names == ["best.pth", "epoch_001.pth", "epoch_002.pth", "latest.pth"]
    assert same(saved(folder(tmp_path) / "epoch_001.pth"), at_the_end_of_1)
    assert same(saved(folder(tmp_path) / "latest.pth"), training.state())


def test_no_loader_worker_is_forked_while_the_first_checkpoint_is_written(tmp_path, monkeypatch):
    """A lock that the writing thread holds at that moment would stay taken in the worker."""
    write, forks, saw_fork = checkpoint_file.write, [], threading.Event()

    def write_when_a_fork_had_its_chance(state, path):
        before = len(forks)
        saw_fork.clear()
        if not during:  # the first
            saw_fork.wait(2)
        during.append(len(forks) - before)
        write(state, path)

    during: list[int] = []
    monkeypatch.setattr(checkpoint_file, "write", write_when_a_fork_had_its_chance)
    start = multiprocessing.process.BaseProcess.start
    monkeypatch.setattr(
        multiprocessing.process.BaseProcess,
        "start",
        lambda process: (forks.append(process), saw_fork.set(), start(process))[-1],
    )
    with make_run(tmp_path, "--epochs", "2") as run:
        training = Training(run, workers=1)
        for epoch in run.epochs():
            training.steps()
            training.record(epoch)
    assert len(forks) == 2  # one in each epoch
    assert during == [0, 0]


def test_a_disk_that_was_full_is_told_at_the_next_save(tmp_path, monkeypatch, capsys):
    write, failed = checkpoint_file.write, []

    def write_the_second_time(state, path):
        if not failed:
            failed.append(path)
            raise OSError(28, "No space left on device")
        write(state, path)

    monkeypatch.setattr(checkpoint_file, "write", write_the_second_time)
    with make_run(tmp_path, "--epochs", "2") as run:
        training = Training(run)
        for epoch in run.epochs():
            training.steps()
            training.record(epoch)
    out = capsys.readouterr().out
    said = "warning: the checkpoint of the end of epoch 1 could not be written (No space left on device); there is"
    assert out.index(said) > out.index("[METRIC] epoch=2")
    assert checkpoint_file.read(folder(tmp_path) / "latest.pth")["epochs_done"] == 2
    assert checkpoint_file.read(folder(tmp_path) / "best.pth")["epochs_done"] == 2


def test_an_error_that_nobody_expected_ends_the_run_at_the_next_save(tmp_path, monkeypatch):
    def fail(state, path):
        raise RuntimeError("the writer is broken")

    monkeypatch.setattr(checkpoint_file, "write", fail)
    recorded = []

    def train():
        with make_run(tmp_path, "--epochs", "3") as run:
            training = Training(run)
            for epoch in run.epochs():
                recorded.append(epoch)
                training.steps()
                training.record(epoch)

    with pytest.raises(RuntimeError, match="the writer is broken"):
        train()
    assert recorded == [1, 2]
    status = json.loads((folder(tmp_path).parent / "status.json").read_text())
    assert (status["status"], status["reason"]) == ("failed", "RuntimeError: the writer is broken")


@pytest.mark.parametrize("full", [False, True])
def test_a_run_that_fails_ends_when_its_checkpoint_is_written(tmp_path, monkeypatch, gate, capsys, full):
    close = Saver.close

    def open_and_close(self):
        gate.opened.set()
        close(self)

    def fail(state, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Saver, "close", open_and_close)
    if full:
        gate.write = fail

    def train():
        with make_run(tmp_path, "--epochs", "2") as run:
            training = Training(run)
            for epoch in run.epochs():
                if epoch == 2:
                    raise Stop
                training.steps()
                training.record(epoch)

    with pytest.raises(Stop):
        train()
    assert (folder(tmp_path) / "latest.pth").exists() is not full
    warned = "the checkpoint of the end of epoch 1 could not be written (No space left on device)"
    assert (warned in capsys.readouterr().out) is full
    assert json.loads((folder(tmp_path).parent / "status.json").read_text())["status"] == "failed"
