"""A run's figures and its folder, on a process group of one."""

import csv
import json
import math
import sys

import pytest
import torch
from one_process import make_loader, make_run, one_epoch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset

from lab.base.errors import NotFinite, UsageError, UserError
from lab.runs import options
from lab.runs.records.folder import METRICS_COLUMNS, RUN_COLUMNS
from lab.training.checkpoints import checkpoint_file
from lab.training.data.datasets import load_datasets
from lab.training.networks import build_network
from lab.training.watching.watcher import Watcher, telling_of_the_end

pytestmark = pytest.mark.usefixtures("world_of_one")


def rows(path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_finished_run_leaves_all_its_records(tmp_path, capsys):
    model, loader = nn.Linear(4, 2), make_loader()
    with make_run(tmp_path, "--epochs", "2", "--global-batch-size", "8", "--scaling", "weak") as run:
        run.begin(model, torch.optim.SGD(model.parameters()), loader)
        records = []
        for epoch in run.epochs():
            records.append(one_epoch(run, model, loader, epoch))
    folder = tmp_path / "results" / "r"

    assert [record.epoch for record in records] == [1, 2]
    status = json.loads((folder / "status.json").read_text())
    assert status["status"] == "done"
    assert status["ended"] >= status["started"]
    config = json.loads((folder / "config.json").read_text())
    assert config["global_batch_size"] == 8
    assert config["parameters"] == 10
    assert config["dropped_samples"] == 0

    table = rows(folder / "run.csv")
    assert tuple(table[0]) == RUN_COLUMNS
    assert [row["epoch"] for row in table] == ["1", "2", "summary"]
    assert {row["scaling"] for row in table} == {"weak"}
    how = {"captured": "no", "compiled": "no", "memory_format": "contiguous"}
    assert {name: config[name] for name in how} == {name: table[-1][name] for name in how} == how
    assert table[-1]["status"] == "done"
    assert float(table[0]["val_top1"]) == 0.75
    assert float(table[0]["images_per_sec"]) == pytest.approx(records[0].images_per_second, rel=1e-4)
    metrics = rows(folder / "metrics.csv")
    assert tuple(metrics[0]) == METRICS_COLUMNS
    assert [(row["epoch"], row["phase"]) for row in metrics] == [
        ("1", "train"),
        ("1", "val"),
        ("2", "train"),
        ("2", "val"),
    ]

    assert all(float(row["throughput"]) > 0 for row in metrics)

    printed = capsys.readouterr().out
    assert printed.count("[METRIC] epoch=") == 2
    assert (folder / "train.log").read_text() == printed
    assert "8 in all, 8 on each rank; 5 steps an epoch, 0 samples dropped" in printed


def test_the_best_epoch_has_columns_that_a_resume_keeps(tmp_path):
    model, loader = nn.Linear(4, 2), make_loader()

    def train(accuracies, *argv):
        with make_run(tmp_path, *argv) as run:
            run.begin(model, torch.optim.SGD(model.parameters()), loader)
            for epoch, accuracy in zip(run.epochs(), accuracies, strict=True):
                list(run.batches(loader))
                model.eval()(loader.dataset[:2][0])
                run.record(epoch, 0.5, 0.25, accuracy)

    train([0.25, 0.75, 0.5], "--epochs", "3")
    train([0.75, 0.5], "--epochs", "5", "--resume", "latest")
    table = rows(tmp_path / "results" / "r" / "run.csv")
    assert [row["epoch"] for row in table] == ["1", "2", "3", "4", "5", "summary"]
    best = [(float(row["best_top1"]), row["best_epoch"]) for row in table]
    assert best == [(0.25, "1"), (0.75, "2"), (0.75, "2"), (0.75, "2"), (0.75, "2"), (0.75, "2")]
    assert table[-1]["val_top1"] == "0.5"


def test_the_training_accuracy_is_that_of_the_forward_passes(tmp_path):
    class SaysOne(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.tensor([0.0, 1.0]))

        def forward(self, x):
            return self.bias.expand(len(x), 2)

    model, loader = SaysOne(), make_loader(samples=30, batch=4)  # half the labels are 1; a last batch of two
    with make_run(tmp_path, "--epochs", "1") as run:
        run.begin(model, torch.optim.SGD(model.parameters()), loader)
        for epoch in run.epochs():
            record = one_epoch(run, model, loader, epoch)
    assert record.train_accuracy == 0.5


def test_the_test_images_have_a_line_and_a_row_of_their_own(tmp_path, capsys):
    model, loader = nn.Linear(4, 2), make_loader()
    with make_run(tmp_path, "--epochs", "1") as run:
        run.begin(model, torch.optim.SGD(model.parameters()), loader)
        for epoch in run.epochs():
            one_epoch(run, model, loader, epoch)
        model.eval()
        model(torch.randn(40, 4))
        run.record_test(0.5, 0.125)
    assert "[METRIC] test_loss=0.5000 test_acc=0.1250" in capsys.readouterr().out
    row = rows(tmp_path / "results" / "r" / "metrics.csv")[-1]
    assert [row[name] for name in METRICS_COLUMNS[:4]] == ["1", "test", "0.5", "0.125"]
    assert float(row["throughput"]) > 0


def test_options_that_do_not_come_through_are_named(tmp_path, capsys):
    model = nn.Linear(4, 2)
    argv = ["--num-workers", "1", "--prefetch", "5", "--pin-memory", "--model", "vit", "--augment"]
    argv += ["--epochs", "2", "--save-every-steps", "11"]  # of 5 steps each
    with make_run(tmp_path, *argv) as run:
        run.begin(model, torch.optim.SGD(model.parameters()), make_loader())  # knows of no workers
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    assert warnings == [
        "warning: --pin-memory has no effect without a GPU",
        "warning: --save-every-steps has no effect: the whole run has only 10 steps",
        "warning: --prefetch has no effect: get_dataloaders() did not pass prefetch_factor=5 on to the DataLoader",
        "warning: --augment has no effect: load_datasets() was not given **options.input_options(args)",
        "warning: --width and --depth have no effect: build_model() was not given **options.model_options(args)",
    ]


def test_a_warm_up_of_no_step_and_lines_that_never_come_are_named(tmp_path, capsys):
    model = nn.Linear(4, 2)
    with make_run(tmp_path, "--warmup-epochs", "0.05", "--print-every", "5") as run:  # of five steps
        run.begin(model, torch.optim.SGD(model.parameters()), make_loader())
    said = capsys.readouterr().out
    assert "warning: --warmup-epochs has no effect: that is 0.25 steps, which rounds to none" in said
    assert "warning: --print-every prints no line: an epoch has only 5 steps" in said


def test_options_that_come_through_are_not_named(tmp_path, capsys):
    argv = ["--model", "vit", "--width", "64", "--depth", "1", "--augment", "--global-batch-size", "512"]
    with make_run(tmp_path, *argv) as run:
        model = build_network("vit", **options.model_options(run.args))
        data = load_datasets("shapes", None, cache_dir=tmp_path, **options.input_options(run.args))
        loader = DataLoader(Subset(data.train, range(512)), 512, **options.loader_options(run.args, "cpu"))
        run.begin(DistributedDataParallel(model), torch.optim.SGD(model.parameters()), loader)
    assert "warning" not in capsys.readouterr().out


def test_activations_are_checkpointed_when_asked_for(tmp_path):
    model = build_network("vit", width=64, depth=1)
    with make_run(tmp_path, "--model", "vit", "--width", "64", "--depth", "1", "--checkpoint-activations") as run:
        run.begin(model, torch.optim.SGD(model.parameters()), make_loader())
    calls = []
    model.blocks[0].mlp.register_forward_pre_hook(lambda *args: calls.append(1))
    model(torch.randn(2, 3, 32, 32)).sum().backward()
    assert len(calls) == 2


def test_a_failed_run_says_why_and_keeps_its_epochs(tmp_path):
    model, loader = nn.Linear(4, 2), make_loader()

    def fail_after_one_epoch():
        with make_run(tmp_path, "--epochs", "2") as run:
            run.begin(model, torch.optim.SGD(model.parameters()), loader)
            one_epoch(run, model, loader, 1)
            raise RuntimeError("the disk caught fire\nand more")

    with pytest.raises(RuntimeError):
        fail_after_one_epoch()
    folder = tmp_path / "results" / "r"
    status = json.loads((folder / "status.json").read_text())
    assert (status["status"], status["reason"]) == ("failed", "RuntimeError: the disk caught fire")
    assert [row["epoch"] for row in rows(folder / "run.csv")] == ["1", "summary"]
    assert "the disk caught fire" in (folder / "train.err").read_text()


def test_a_finished_run_is_not_overwritten_but_a_failed_one_is_tried_again(tmp_path):
    with pytest.raises(RuntimeError), make_run(tmp_path):
        raise RuntimeError
    with make_run(tmp_path):
        pass
    assert not (tmp_path / "results" / "r" / "train.err").exists()
    for argv in ((), ("--resume", "auto")):  # without a checkpoint, that would be from the beginning
        with pytest.raises(UsageError, match="already holds a finished run"):
            make_run(tmp_path, *argv)


@pytest.mark.parametrize(("error", "told"), [(NotFinite("nan"), True), (UserError("a full disk"), False)])
def test_watchers_are_told_of_an_end_that_all_ranks_come_to(error, told):
    """Only then: what they do at the end may be a collective."""

    class Notes(Watcher):
        stopped = False

        def stop(self):
            self.stopped = True

    watcher = Notes()
    with pytest.raises(type(error)), telling_of_the_end([watcher]):
        raise error
    assert watcher.stopped == told


def test_the_best_epoch_is_kept_in_this_runs_folder(tmp_path, monkeypatch, capsys):
    """Also when a write failed, when that file is damaged, and when the run goes on from a file of another run."""
    model, loader = nn.Linear(4, 2), make_loader()

    def train(*argv):
        with make_run(tmp_path, *argv) as run:
            run.begin(model, torch.optim.SGD(model.parameters()), loader)
            for epoch in run.epochs():
                one_epoch(run, model, loader, epoch)  # as good as the one before

    written, failures = checkpoint_file.write, [OSError("full")]

    def write(state, path):
        if failures:
            raise failures.pop()
        written(state, path)

    monkeypatch.setattr(checkpoint_file, "write", write)
    train("--epochs", "2")
    folder = tmp_path / "results" / "r" / "checkpoints"
    assert checkpoint_file.read(folder / "best.pth")["epochs_done"] == 2
    train("--epochs", "3", "--resume", str(folder / "latest.pth"), "--run-id", "other")
    assert (tmp_path / "results" / "other" / "checkpoints" / "best.pth").exists()
    older = checkpoint_file.read(folder / "best.pth") | {"best_accuracy": 0.5}
    written(older, folder / "best.pth")  # latest.pth has the better epoch, this one had no room any more
    train("--epochs", "3", "--resume", "latest")
    assert checkpoint_file.read(folder / "best.pth")["epochs_done"] == 3
    train("--epochs", "4", "--resume", "latest")
    assert checkpoint_file.read(folder / "best.pth")["epochs_done"] == 3  # the fourth was no better
    (folder / "best.pth").write_bytes(b"damaged")
    train("--epochs", "5", "--resume", "latest")
    assert checkpoint_file.read(folder / "best.pth")["epochs_done"] == 5
    assert "warning: the best epoch so far cannot be told" in capsys.readouterr().out


def test_the_optimizer_is_given_back_where_a_checkpoint_does_not_fit(tmp_path):
    model, loader = nn.Linear(4, 2), make_loader()
    with make_run(tmp_path, "--epochs", "1") as run:
        run.begin(model, torch.optim.SGD(model.parameters()), loader)
        for epoch in run.epochs():
            one_epoch(run, model, loader, epoch)
    other = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(other.parameters())
    with pytest.raises(UserError), make_run(tmp_path, "--epochs", "2", "--resume", "latest") as run:
        run.begin(other, optimizer, loader)
    assert optimizer.step.__self__ is optimizer


def test_a_checkpoint_every_so_many_steps_can_be_rarer_than_epochs(tmp_path):
    model, loader, saved = nn.Linear(4, 2), make_loader(), []
    with make_run(tmp_path, "--epochs", "3", "--save-every-steps", "7") as run:
        run.begin(model, torch.optim.SGD(model.parameters()), loader)
        for epoch in run.epochs():
            for step, (images, labels) in enumerate(run.batches(loader)):
                run.backward(nn.functional.cross_entropy(model(images), labels))
                file = tmp_path / "results" / "r" / "checkpoints" / "latest.pth"
                if step == 4 and file.exists():
                    state = checkpoint_file.read(file)
                    saved.append((state["epochs_done"], state["step_in_epoch"]))
            model.eval()
            model(images)
            model.train()
            run.record(epoch, 0.5, 0.25, 0.75)
    assert saved == [(1, 2), (2, 4)]


def test_an_output_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "results").write_text("a file, not a folder")
    with pytest.raises(UserError, match=r"cannot write the run's records to .*results"):
        make_run(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_disk_that_takes_no_records_is_named(tmp_path):
    full = pytest.raises(UserError, match=r"records to .*/r \(No space left on device\): make room there")
    with full, make_run(tmp_path) as run:
        run.folder._log = open("/dev/full", "w")  # noqa: SIM115
        run.print("a line")


def test_a_dry_run_writes_nothing(tmp_path, capsys):
    with make_run(tmp_path, "--dry-run") as run:
        model = nn.Linear(4, 2)
        run.begin(model, torch.optim.SGD(model.parameters()), make_loader())
    assert not (tmp_path / "results").exists()
    assert "dry run" in capsys.readouterr().out


def test_epochs_without_run_batches_are_reported_without_figures(tmp_path, capsys):
    with make_run(tmp_path, "--epochs", "1") as run:
        record = run.record(1, 0.5, 0.25, 0.75)
    assert math.isnan(record.images_per_second)
    assert "run.batches(loader) was not used" in capsys.readouterr().out


def test_bf16_without_fsdp_is_autocast(tmp_path):
    with make_run(tmp_path, "--precision", "bf16") as run, run.autocast():
        assert nn.Linear(4, 2)(torch.randn(1, 4)).dtype == torch.bfloat16


def test_progress_lines_come_every_so_many_steps(tmp_path, capsys):
    model, loader = nn.Linear(4, 2), make_loader()
    with make_run(tmp_path, "--epochs", "1", "--print-every", "2") as run:
        run.begin(model, torch.optim.SGD(model.parameters()), loader)
        for epoch in run.epochs():
            one_epoch(run, model, loader, epoch)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch 1/1, step")]
    assert [line.split(",")[1] for line in lines] == [" step 2/5", " step 4/5"]
