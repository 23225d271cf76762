"""--evaluate-only: what a checkpoint does, class by class, over all ranks, and nothing else."""

import csv
import itertools
import json
import signal
from pathlib import Path

import pytest
import torch
from tiny_run import CLASSES, Images, TinyNet
from torch.nn import functional as F

from lab.base.errors import UsageError
from lab.runs.options import parse, resolve
from lab.sweep.collect.collect import collect
from lab.training.metrics.classes import ClassCounts, describe, write_tables
from lab.training.metrics.confusion import draw

NAMES = ("a", "b", "c $x", "d")
IMAGES = 11  # not a multiple of any number of ranks below: there is filler


def read(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def by_hand(weights: dict[str, torch.Tensor], seed: int) -> tuple[float, torch.Tensor]:
    """The mean loss and the confusion matrix, image by image."""
    network = TinyNet()
    network.load_state_dict(weights)
    network.eval()
    images, matrix, losses = (
        Images(IMAGES, noise=0, seed=seed),
        torch.zeros(CLASSES, CLASSES, dtype=torch.int64),
        [],
    )
    with torch.no_grad():
        for image, label in images:
            logits = network(image[None])
            losses.append(F.cross_entropy(logits, torch.tensor([label])).item())
            matrix[label, int(logits.argmax())] += 1
    return sum(losses) / len(losses), matrix


@pytest.fixture
def trained(tiny, tmp_path):
    """A checkpoint of a run on one rank, and its weights."""
    value = tiny("--strategy", "none", "--epochs", "2", "--run-id", "trained", world_size=1).values[0]
    path = tmp_path / "results" / "trained" / "checkpoints" / "latest.pth"
    return path, value["weights"]


@pytest.mark.parametrize(("strategy", "ranks"), [("none", 1), ("ddp", 2), ("fsdp", 2), ("fsdp1", 2), ("ddp", 4)])
def test_every_image_counts_once_whatever_the_strategy(tiny, tmp_path, trained, strategy, ranks):
    checkpoint, weights = trained
    before = checkpoint.read_bytes()
    ended = tiny(
        *("--strategy", strategy, "--evaluate-only", "--resume", str(checkpoint)),
        world_size=ranks,
        valid_images=IMAGES,
    ).values[0]
    assert ended == {
        "ended": "done",
        "records": [],
        **({"weights": ended["weights"]} if "weights" in ended else {}),
    }
    folder = tmp_path / "results" / "r"
    metrics = {row[1]: row for row in read(folder / "metrics.csv")[1:]}
    assert list(metrics) == ["val", "test"]
    for phase, seed in (("val", 1), ("test", 2)):
        loss, matrix = by_hand(weights, seed)
        table = read(folder / "evaluation" / f"{phase}_confusion.csv")
        assert table[0] == ["true \\ predicted", *NAMES]
        assert [row[0] for row in table[1:]] == list(NAMES)
        assert torch.equal(torch.tensor([[int(cell) for cell in row[1:]] for row in table[1:]]), matrix)
        correct = matrix.diagonal().sum().item()
        epoch, _, written_loss, accuracy, _ = metrics[phase]
        assert epoch == "2"
        assert float(written_loss) == pytest.approx(loss, rel=1e-5)
        assert float(accuracy) == pytest.approx(correct / IMAGES, rel=1e-5)
        classes = read(folder / "evaluation" / f"{phase}_classes.csv")
        assert classes[0] == ["class", "images", "correct", "accuracy"]
        for row, name, images, right in zip(
            classes[1:], NAMES, matrix.sum(1).tolist(), matrix.diagonal().tolist(), strict=True
        ):
            assert row[:3] == [name, str(images), str(right)]
            assert row[3] == "" if images == 0 else float(row[3]) == pytest.approx(right / images, rel=1e-5)
        assert (folder / "evaluation" / f"{phase}_confusion.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "status.json").read_text())["status"] == "done"
    (summary,) = csv.DictReader((folder / "run.csv").open(newline=""))
    assert (summary["epoch"], summary["status"]) == ("summary", "done")
    assert float(summary["val_top1"]) == pytest.approx(float(metrics["val"][3]))
    assert checkpoint.read_bytes() == before
    assert not (folder / "checkpoints").exists()


def test_it_is_what_the_training_run_has_recorded(tiny, tmp_path, trained):
    checkpoint, _ = trained
    tiny("--strategy", "fsdp", "--evaluate-only", "--resume", str(checkpoint))
    recorded = read(tmp_path / "results" / "trained" / "metrics.csv")[-1]
    evaluated = read(tmp_path / "results" / "r" / "metrics.csv")[1]
    assert recorded[:2] == evaluated[:2] == ["2", "val"]
    assert float(recorded[2]) == pytest.approx(float(evaluated[2]), rel=1e-5)
    assert recorded[3] == evaluated[3]
    log = (tmp_path / "results" / "r" / "train.log").read_text()
    assert "length     none: a checkpoint is evaluated, nothing is trained" in log
    assert f"[METRIC] val_loss={float(evaluated[2]):.4f} val_acc={float(evaluated[3]):.4f}" in log
    found = collect(tmp_path / "results")
    assert [row["run_id"] for row in found.rows] == ["trained"]
    assert found.ignored == ["r (an evaluation: it trained nothing)"]


def test_another_optimizer_wrote_it_and_another_precision_is_named(tiny, tmp_path):
    tiny("--strategy", "ddp", "--epochs", "1", "--run-id", "trained", "--optimizer", "adamw")
    checkpoint = tmp_path / "results" / "trained" / "checkpoints" / "latest.pth"
    group = tiny("--strategy", "ddp", "--evaluate-only", "--resume", str(checkpoint), "--precision", "bf16")
    assert group.values[0]["ended"] == "done"
    assert "warning: evaluated with another --precision: bf16, it was trained with fp32" in group.reports[0].output


def test_a_checkpoint_of_another_network_is_refused(tiny, tmp_path, trained):
    checkpoint, _ = trained
    ended = tiny(
        "--strategy", "none", "--evaluate-only", "--resume", str(checkpoint), world_size=1, net={"width": 8}
    ).values[0]["ended"]
    assert "is of another model: its blocks.0.0.weight is [6, 3, 3, 3], but this model's is [8, 3, 3, 3]" in ended


def test_it_can_be_told_to_stop(tiny, tmp_path, trained):
    checkpoint, _ = trained
    ended = tiny(
        "--strategy", "ddp", "--evaluate-only", "--resume", str(checkpoint), signal_now=int(signal.SIGTERM)
    ).values[0]["ended"]
    assert ended == "exit code 85"
    assert json.loads((tmp_path / "results" / "r" / "status.json").read_text())["status"] == "interrupted"


def test_a_main_that_would_train_is_stopped(tiny, trained):
    checkpoint, _ = trained
    ended = tiny(
        "--strategy", "none", "--evaluate-only", "--resume", str(checkpoint), world_size=1, old_main=True
    ).values[0]["ended"]
    assert ended.startswith("UserError: --evaluate-only: this main.py would train.")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ((), r"name the checkpoint by its path: --resume results/RUN/checkpoints/latest\.pth"),
        (("--resume", "best", "--run-id", "r"), r"by its path: --resume results/r/checkpoints/best\.pth"),
        (("--resume", "auto", "--run-id", "r"), r"by its path: --resume results/r/checkpoints/latest\.pth"),
        (
            ("--resume", "x.pth", "--epochs", "7", "--base-lr", "0.5", "--no-augment"),
            r"trains nothing: leave out --no-augment, --base-lr 0\.5, --epochs 7$",
        ),
        (("--resume", "x.pth", "--capture"), "leave out --capture"),
        (("--resume", "x.pth", "--dry-run"), "leave out --dry-run"),
        (("--resume", "x.pth", "--measure-steps", "3"), "leave out --measure-steps 3"),
        (("--resume", "x.pth", "--tensorboard"), "leave out --tensorboard"),
        (("--resume", "results/r/checkpoints/best.pth", "--run-id", "r"), "over those of the run in results/r"),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, tuple) else "",
)
def test_what_makes_no_sense_with_it_is_refused(argv, sentence):
    with pytest.raises(UsageError, match=sentence):
        resolve(parse(["--evaluate-only", *argv]), 2)


def test_the_checkpoint_that_is_named_is_the_one_that_is_there(tmp_path):
    sharded = tmp_path / "r" / "checkpoints" / "best.json"
    sharded.parent.mkdir(parents=True)
    sharded.touch()
    argv = ["--evaluate-only", "--output-dir", str(tmp_path), "--run-id", "r", "--resume", "best"]
    with pytest.raises(UsageError, match=f"--resume {sharded}, and no --run-id"):
        resolve(parse(argv), 2)


@pytest.mark.parametrize(("dataset", "ranks", "batch"), [("shapes", 3, 255), ("sample", 3, 6), ("sample", 16, 16)])
def test_the_usual_batch_is_one_that_any_number_of_ranks_can_share(dataset, ranks, batch):
    argv = ["--evaluate-only", "--resume", "x.pth", "--dataset", dataset]
    assert resolve(parse(argv), ranks)[0].global_batch_size == batch
    with pytest.raises(UsageError, match="cannot be divided evenly"):  # what was asked for stays
        resolve(parse([*argv, "--global-batch-size", "8"]), 3)


def test_very_many_classes_are_told_by_the_least_known(tmp_path):
    matrix = torch.diag(torch.arange(1, 31)) + torch.eye(30, dtype=torch.int64).roll(1, 1)
    counts, names = ClassCounts(0.5, matrix), [f"class\x1b {i}" for i in range(30)]
    lines = describe(counts, names)
    assert lines[-1] == "  ... the 20 least known of 30 classes"
    assert lines[1].split() == ["class�", "0", "2", "50.0%", "class�", "1", "(1)"]
    assert len(lines) == 22
    draw(counts, names, "val", tmp_path / "it.png")
    write_tables(counts, names, tmp_path / "tables", "val")
    assert len(read(tmp_path / "tables" / "val_classes.csv")) == 31


def test_the_figure_says_rows_and_columns_the_right_way_round(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    seen = {}
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: seen.update(axes=figure.axes[0]))
    draw(ClassCounts(0.5, torch.tensor([[3, 1], [0, 0]])), ("cat", "$dog"), "val", tmp_path / "it.png")
    axes = seen["axes"]
    assert axes.images[0].get_array().tolist() == [[0.75, 0.25], [0, 0]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "$dog"]
    assert {(text.get_position(), text.get_text()) for text in axes.texts} == {((0, 0), "3"), ((1, 0), "1")}
    assert dict(itertools.pairwise((axes.get_xlabel(), axes.get_ylabel()))) == {"taken for": "what it is"}
