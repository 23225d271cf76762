"""Curves for TensorBoard: over all ranks, each step once, and nothing that a run would die or wait of."""

import csv
import itertools
import math
import re
import signal
import sys
from pathlib import Path

import pytest
import torch
from one_process import make_loader, make_run, one_epoch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lab.base.errors import UsageError
from lab.runs.records.progress import Progress
from lab.training.watching import tensorboard
from lab.training.watching.event_file import EventFile
from lab.training.watching.watcher import StepReport

STEPS = 4  # an epoch of tiny_run: 32 images in global batches of 8


def curves(folder: Path) -> dict[str, dict[int, float]]:
    """Tag -> step -> value, as TensorBoard shows them; fails where it would show a step twice."""
    shown = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    found = {}
    for tag in shown.Tags()["scalars"]:
        points = [(event.step, event.value) for event in shown.Scalars(tag)]
        found[tag] = dict(points)
        assert [step for step, _ in points] == sorted(found[tag]), tag
    return found


def metrics(folder: Path, phase: str, column: str) -> list[float]:
    with (folder / "metrics.csv").open(newline="") as file:
        return [float(row[column]) for row in csv.DictReader(file) if row["phase"] == phase]


@pytest.mark.parametrize("argv", [("ddp",), ("fsdp", "--accumulate", "2")], ids=lambda argv: argv[0])
def test_the_curves_are_means_over_all_ranks(tiny, tmp_path, argv):
    group = tiny("--epochs", "2", "--schedule", "cosine", "--print-every", "1", "--strategy", *argv)
    folder = tmp_path / "results" / "r"
    shown = curves(folder)
    losses = shown["step/loss"]
    assert list(losses) == list(shown["step/learning rate"]) == list(range(1, 2 * STEPS + 1))
    whole = metrics(folder, "train", "loss")
    for epoch, mean in enumerate(whole):
        own = [losses[step] for step in range(epoch * STEPS + 1, (epoch + 1) * STEPS + 1)]
        assert sum(own) / STEPS == pytest.approx(mean, rel=1e-5)
    lines = re.findall(r"epoch (.)/2, step (.)/4, loss (.+?),", group.reports[0].output)
    assert lines == [(str(i // 4 + 1), str(i % 4 + 1), f"{losses[i + 1]:.4f}") for i in (0, 1, 2, 4, 5, 6)]
    assert shown["step/learning rate"][1] > shown["step/learning rate"][8] > 0
    assert shown["loss/train"] == pytest.approx({STEPS: whole[0], 2 * STEPS: whole[1]}, rel=1e-5)
    for tag, phase, column in (
        ("loss/validation", "val", "loss"),
        ("accuracy/train", "train", "accuracy"),
        ("accuracy/validation", "val", "accuracy"),
        ("images per second/train", "train", "throughput"),
        ("images per second/validation", "val", "throughput"),
    ):
        assert list(shown[tag].values()) == pytest.approx(metrics(folder, phase, column), rel=1e-5)
    assert all(0 < value < 100 for value in shown["epoch/peak memory in GiB"].values())


def test_a_resumed_run_draws_every_step_once(tiny, tmp_path):
    argv = ("--strategy", "ddp", "--epochs", "3", "--base-lr", "2")
    tiny(*argv, "--run-id", "whole")
    tiny(*argv, "--save-every-steps", "2", stop=[1, 3])  # saved after step 2
    tiny(*argv, "--resume", "latest", signal=[2, 2, int(signal.SIGTERM)])
    tiny(*argv, "--resume", "latest")
    tiny(*argv, "--resume", "latest")  # nothing left to do, and nothing to be taken away
    whole, resumed = (curves(tmp_path / "results" / name) for name in ("whole", "r"))
    crashed = (1, 2)  # the only steps whose losses are rank 0's own: the others were not asked for theirs any more
    losses = [
        [loss for step, loss in shown["step/loss"].items() if step not in crashed] for shown in (whole, resumed)
    ]
    assert losses[0] == losses[1]
    for tag in ("step/learning rate", "loss/train", "loss/validation", "accuracy/validation"):
        assert resumed[tag] == whole[tag]


def test_a_run_that_is_tried_again_starts_its_curves_anew(tiny, tmp_path):
    tiny("--strategy", "none", "--epochs", "2", world_size=1, stop=[2, 3])
    assert len(curves(tmp_path / "results" / "r")["step/loss"]) == STEPS + 3  # up to the last step before the end
    tiny("--strategy", "none", "--epochs", "1", world_size=1)
    shown = curves(tmp_path / "results" / "r")
    assert list(shown["step/loss"]) == [1, 2, 3, 4]
    assert list(shown["loss/train"]) == [4]


def test_the_step_at_which_a_run_goes_astray_is_drawn(tiny, tmp_path):
    ended = tiny("--strategy", "ddp", "--epochs", "2", bad_image=5).values[0]["ended"]
    assert "the loss became nan" in ended
    losses = curves(tmp_path / "results" / "r")["step/loss"]
    assert math.isnan(losses[max(losses)])


@pytest.mark.usefixtures("world_of_one")
class TestOneProcess:
    def test_configuration_and_test_figures_are_there(self, tmp_path):
        model, loader = torch.nn.Linear(4, 2), make_loader()
        with make_run(tmp_path, "--epochs", "1") as run:
            run.begin(model, torch.optim.SGD(model.parameters()), loader)
            for epoch in run.epochs():
                one_epoch(run, model, loader, epoch)
            model(torch.randn(40, 4))
            run.record_test(0.5, 0.125)
        folder = tmp_path / "results" / "r"
        assert curves(folder)["accuracy/test"] == {5: 0.125}
        assert curves(folder)["images per second/test"][5] == pytest.approx(
            metrics(folder, "test", "throughput")[0]
        )
        shown = EventAccumulator(str(folder / "tensorboard")).Reload()
        (text,) = shown.Tensors("configuration/text_summary")[0].tensor_proto.string_val
        assert "| strategy | none |" in text.decode()
        assert "| parameters | 10 |" in text.decode()

    def test_without_tensorboard_a_run_says_so_and_goes_on(self, tmp_path, capsys, monkeypatch):
        monkeypatch.delitem(sys.modules, "lab.training.watching.event_file")
        monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)  # importing it fails
        model = torch.nn.Linear(4, 2)
        with make_run(tmp_path) as run:
            run.begin(model, torch.optim.SGD(model.parameters()), make_loader())
            one_epoch(run, model, make_loader(), 1)
        assert "warning: no curves for TensorBoard, which is not here: pip install tensorboard" in (
            capsys.readouterr().out
        )
        assert not (tmp_path / "results" / "r" / "tensorboard").exists()
        with pytest.raises(UsageError, match=r"--tensorboard needs TensorBoard .*pip install tensorboard"):
            make_run(tmp_path, "--tensorboard", "--run-id", "other")
        assert not (tmp_path / "results" / "other").exists()

    def test_curves_can_be_left_out(self, tmp_path):
        with make_run(tmp_path, "--no-tensorboard") as run:
            model = torch.nn.Linear(4, 2)
            run.begin(model, torch.optim.SGD(model.parameters()), make_loader())
            one_epoch(run, model, make_loader(), 1)
        assert not (tmp_path / "results" / "r" / "tensorboard").exists()

    def test_a_full_disk_ends_the_curves_and_not_the_run(self, tmp_path, capsys, monkeypatch):
        def write(self, event):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(EventFile, "_write", write)
        model = torch.nn.Linear(4, 2)
        with make_run(tmp_path) as run:
            run.begin(model, torch.optim.SGD(model.parameters()), make_loader())
            one_epoch(run, model, make_loader(), 1)
            one_epoch(run, model, make_loader(), 2)
        assert capsys.readouterr().out.count("warning: no more curves for TensorBoard") == 1

    @pytest.mark.parametrize(
        ("seconds", "gatherings", "points"),
        [(10.0, 600, 600), (0.5, 62, 600), (0.001, 3, 202)],
        ids=["slow steps", "usual steps", "fast steps"],
    )
    def test_losses_are_read_every_few_seconds(self, tmp_path, monkeypatch, seconds, gatherings, points):
        """However fast the steps are: no waiting for the device, and not many points, in every step."""
        clock = itertools.count()
        monkeypatch.setattr(tensorboard.time, "time", lambda: next(clock) * seconds)
        gathered, written = [], []
        summed = tensorboard.sum_over_ranks
        monkeypatch.setattr(tensorboard, "sum_over_ranks", lambda it: gathered.append(it) or summed(it))
        board = tensorboard.TensorBoard(tmp_path, torch.device("cpu"), Progress(), print)
        monkeypatch.setattr(board, "_write", written.extend)
        count = 600 if seconds > 0.1 else 4000
        for step in range(1, count + 1):
            board.step(StepReport(1, step, count, step, torch.tensor(float(step)), 0.1, 1.0))
        board.close()
        assert len(gathered) == pytest.approx(gatherings, abs=2)
        assert len(written) == pytest.approx(points, abs=2)
        steps = [step for _, step, _ in written]
        assert steps == sorted(set(steps))
        assert steps[-1] == count
