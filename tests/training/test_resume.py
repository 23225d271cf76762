"""A run that was stopped and resumed gives the same losses and weights as one that was not, to the last digit."""

import csv
import itertools
import json
from pathlib import Path

import pytest
import torch
from one_process import make_loader, make_run, one_epoch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

EPOCHS = 3
STEPS = 4  # an epoch: 32 images in global batches of 8

OPTIMIZERS = {
    "sgd": ("--optimizer", "sgd", "--base-lr", "2"),
    "adamw": ("--optimizer", "adamw", "--base-lr", "0.01"),
}
SCHEDULES = {"cosine": ("--schedule", "cosine", "--warmup-epochs", "0.5"), "step": ("--schedule", "step")}
ACCUMULATION = {"whole": (), "accumulated": ("--accumulate", "2")}
# Where the first part ends, and with how many loader workers.
PLACES = {"epoch's end": ((2, STEPS), 0), "mid-epoch": ((2, 2), 2)}

# How the model is spread, what is saved of it, and on how many ranks.
SPREAD = {
    "none": (("--strategy", "none"), 1),
    "ddp": (("--strategy", "ddp"), 2),
    "fsdp": (("--strategy", "fsdp"), 2),
    "grad": (("--strategy", "fsdp", "--shard", "grad"), 2),
    "hybrid": (("--strategy", "fsdp", "--shard", "hybrid", "--shard-ranks", "2"), 4),
    "sharded": (("--strategy", "fsdp", "--checkpoint-format", "sharded"), 2),
    "hybrid sharded": (
        ("--strategy", "fsdp", "--shard", "hybrid", "--shard-ranks", "2", "--checkpoint-format", "sharded"),
        4,
    ),
}

AXES = (SPREAD, OPTIMIZERS, SCHEDULES, ("fp32", "bf16"), ACCUMULATION, PLACES)
GRID = list(itertools.product(*AXES))


def covering(grid: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """A few cases in which every two values that are together somewhere in the grid are together (greedy)."""
    open_pairs = {pair for case in grid for pair in pairs(case)}
    chosen = []
    while open_pairs:
        best = max(grid, key=lambda case: len(open_pairs & pairs(case)))
        chosen.append(best)
        open_pairs -= pairs(best)
    return chosen


def pairs(case: tuple[str, ...]) -> set[tuple[object, ...]]:
    return set(itertools.combinations(enumerate(case), 2))


COVERING = covering(GRID)


def check_same_trajectory(tiny, case, tmp_path):
    how, optimizer, schedule, precision, accumulation, place = case
    (epoch, step), workers = PLACES[place]
    spread, world_size = SPREAD[how]
    argv = (
        *("--epochs", str(EPOCHS), *spread, "--precision", precision, "--print-every", "1"),
        *(*OPTIMIZERS[optimizer], *SCHEDULES[schedule], *ACCUMULATION[accumulation]),
        *("--output-dir", str(tmp_path / "results")),
    )
    whole = tiny(*argv, "--run-id", "whole", world_size=world_size, workers=workers).values[0]
    assert whole["ended"] == "done"
    saving = ("--save-every-steps", "1") if place == "mid-epoch" else ()
    stop = [epoch + 1, 1] if place == "epoch's end" else [epoch, step]
    first = tiny(*argv, *saving, world_size=world_size, workers=workers, stop=stop).values[0]
    assert first["ended"].startswith("Stop")
    second = tiny(*argv, *saving, "--resume", "latest", world_size=world_size, workers=workers).values[0]
    assert second["ended"] == "done"
    redone = 2 if place == "mid-epoch" else 3
    assert [record[0] for record in second["records"]] == list(range(redone, EPOCHS + 1))
    assert second["records"] == whole["records"][redone - 1 :]
    assert all(torch.equal(tensor, second["weights"][name]) for name, tensor in whole["weights"].items())
    check_tables(tmp_path / "results")


def check_tables(results: Path) -> None:
    """The two runs' tables hold the same losses and accuracies, each epoch once."""
    for table, columns in (
        ("metrics.csv", ("epoch", "phase", "loss", "accuracy")),
        ("run.csv", ("epoch", "val_top1")),
    ):
        whole, resumed = (
            [
                [row[column] for column in columns]
                for row in csv.DictReader((results / name / table).open(newline=""))
            ]
            for name in ("whole", "r")
        )
        assert resumed == whole


# Half of the covering cases with four ranks: the other half shards its checkpoints too.
LONG = [case for case in COVERING if case[0] == "hybrid"]


@pytest.mark.parametrize("case", [case for case in COVERING if case not in LONG], ids="-".join)
def test_a_resumed_run_takes_the_same_way(tiny, case, tmp_path):
    check_same_trajectory(tiny, case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in GRID if case not in COVERING or case in LONG], ids="-".join)
def test_a_resumed_run_takes_the_same_way_in_the_whole_grid(tiny, case, tmp_path):
    check_same_trajectory(tiny, case, tmp_path)


def test_the_covering_cases_cover_every_pair_of_values():
    assert {pair for case in COVERING for pair in pairs(case)} == {pair for case in GRID for pair in pairs(case)}
    assert len(COVERING) <= 2 * len(SPREAD)  # no case more than this longest axis needs


# Details ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [((2, 1), (4, 1)), ((2, 1), (1, 2)), ((1, 2), (2, 1))],
    ids=["2x1-4x1", "2x1-1x2", "1x2-2x1"],
)
def test_the_middle_of_an_epoch_goes_on_with_another_number_of_ranks(tiny, before, after):
    """Without noise and dropout the losses are the same but for rounding; nothing is counted twice or left out.

    Args:
        before, after: the number of ranks and --accumulate.
    """
    argv = ("--strategy", "ddp", "--epochs", "2", "--save-every-steps", "1")
    plain = {"net": {"dropout": 0.0}, "noise": 0.0, "double": True}

    def train(shape, *more, **inputs):
        return tiny(*argv, *more, "--accumulate", str(shape[1]), world_size=shape[0], **plain, **inputs)

    whole = train(before, "--run-id", "whole").values[0]
    train(before, stop=[2, 3])
    group = train(after, "--resume", "latest")
    assert group.values[0]["records"][0] == pytest.approx(whole["records"][1], rel=0, abs=1e-12)
    assert f"warning: resumed on {after[0]} ranks, before it was {before[0]}" in group.reports[0].output


def test_images_on_the_device_are_taken_from_there_after_a_resume_too(tiny):
    """They have kept the noise of their first reading; the loader's would be new."""
    argv = ("--strategy", "none", "--epochs", "2", "--save-every-steps", "1", "--input", "device")
    whole = tiny(*argv, "--run-id", "whole", world_size=1).values[0]
    tiny(*argv, world_size=1, stop=[2, 2])
    assert tiny(*argv, "--resume", "latest", world_size=1).values[0]["records"] == whole["records"][1:]


class Counted(TensorDataset):
    """Notes which samples were asked for."""

    def __init__(self, pure):
        super().__init__(torch.randn(40, 4), torch.arange(40) % 2)
        self.is_pure, self.read = pure, []

    def __getitem__(self, index):
        self.read.append(index)
        return super().__getitem__(index)


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.parametrize(("pure", "first"), [(True, 24), (False, 0)])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_resume_in_mid_epoch_reads_no_sample_before_where_samples_are_pure(tmp_path, pure, first, wrapped):
    model = nn.Linear(4, 2)
    data = Counted(pure)

    def train(*argv):
        loader = DataLoader(Subset(data, range(40)) if wrapped else data, batch_size=8)
        with make_run(
            tmp_path, "--epochs", "1", "--global-batch-size", "8", "--save-every-steps", "3", *argv
        ) as run:
            run.begin(model, torch.optim.SGD(model.parameters()), loader)
            for _ in run.epochs():
                for step, (images, labels) in enumerate(run.batches(loader)):
                    run.backward(nn.functional.cross_entropy(model(images), labels))
                    if argv == () and step == 3:  # of five; saved after the third
                        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        train()
    data.read.clear()
    train("--resume", "latest")
    assert data.read == list(range(first, 40))


def test_three_ddp_ranks_add_their_gradients_in_the_same_order_after_a_resume(tiny):
    """DDP rearranges its buckets after its first step; with two ranks a + b = b + a hides it."""
    argv = ("--strategy", "ddp", "--epochs", "3", "--global-batch-size", "6", "--base-lr", "2")
    net = {"norm": True}
    whole = tiny(*argv, "--run-id", "whole", world_size=3, net=net).values[0]
    tiny(*argv, "--save-every-steps", "1", world_size=3, net=net, stop=[2, 2])
    second = tiny(*argv, "--resume", "latest", world_size=3, net=net).values[0]
    assert second["records"] == whole["records"][1:]
    assert all(torch.equal(tensor, second["weights"][name]) for name, tensor in whole["weights"].items())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_in_another_memory_order_come_back_in_their_places(tiny, optimizer):
    """channels_last, as on GPUs: what rank 0 sends must be what the others expect."""
    argv = ("--strategy", "ddp", "--epochs", "2", *OPTIMIZERS[optimizer])
    whole = tiny(*argv, "--run-id", "whole", channels_last=True).values[0]
    tiny(*argv, channels_last=True, stop=[2, 1])
    second = tiny(*argv, "--resume", "latest", channels_last=True).values[0]
    assert second["records"] == whole["records"][1:]


def test_a_run_that_is_done_can_be_resumed_and_lengthened(tiny, tmp_path):
    argv = ("--strategy", "none", "--output-dir", str(tmp_path / "results"))
    tiny(*argv, "--epochs", "2", world_size=1)
    again = tiny(*argv, "--epochs", "2", "--resume", "auto", world_size=1)
    assert again.values[0]["records"] == []
    assert "nothing left to do: 2 of 2 epochs are done" in again.reports[0].output
    summary = list(csv.DictReader((tmp_path / "results" / "r" / "run.csv").open(newline="")))[-1]
    assert (summary["epoch"], summary["status"]) == ("summary", "done")
    assert float(summary["val_top1"]) >= 0  # the figures of the last epoch, though this part trained none
    longer = tiny(*argv, "--epochs", "3", "--resume", "latest", world_size=1).values[0]
    assert [record[0] for record in longer["records"]] == [3]


def test_a_finished_run_that_cannot_go_on_stays_finished(tiny, tmp_path):
    tiny("--strategy", "none", "--epochs", "2", world_size=1)
    tables = [tmp_path / "results" / "r" / name for name in ("status.json", "run.csv", "metrics.csv")]
    before = [table.read_text() for table in tables]
    again = ("--strategy", "none", "--epochs", "3", "--resume", "latest")
    assert tiny(*again, world_size=1, net={"width": 7}).values[0]["ended"].startswith("UserError")
    assert [table.read_text() for table in tables] == before


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.parametrize("steps", [0, 1])
def test_a_finished_run_stays_finished_until_it_has_done_a_step_more(tmp_path, steps):
    model, loader = nn.Linear(4, 2), make_loader()
    with make_run(tmp_path, "--epochs", "1") as run:
        run.begin(model, torch.optim.SGD(model.parameters()), loader)
        one_epoch(run, model, loader, 1)
        run.record_test(0.5, 0.75)
    folder = tmp_path / "results" / "r"
    before = {
        name: (folder / name).read_text() for name in ("status.json", "config.json", "run.csv", "metrics.csv")
    }

    def fail():
        with make_run(tmp_path, "--epochs", "3", "--resume", "latest") as run:
            run.begin(model, torch.optim.SGD(model.parameters()), loader)
            for _ in run.epochs():
                for done, (images, labels) in enumerate(run.batches(loader)):
                    if done == steps:
                        raise RuntimeError("out of memory")
                    run.backward(nn.functional.cross_entropy(model(images), labels))

    with pytest.raises(RuntimeError, match="out of memory"):
        fail()
    now = {name: (folder / name).read_text() for name in before}
    if steps == 0:
        assert now == before
        return
    assert json.loads(now["status.json"])["status"] == "failed"
    assert json.loads(now["config.json"])["epochs"] == 3
    epochs, phases = (
        [row[column] for row in csv.DictReader(now[table].splitlines())]
        for table, column in (("run.csv", "epoch"), ("metrics.csv", "phase"))
    )
    assert (epochs, phases) == (["1", "summary"], ["train", "val"])


def test_going_back_to_the_best_epoch_drops_the_rows_of_later_ones(tiny, tmp_path):
    argv = ("--strategy", "none", "--epochs", "3", "--output-dir", str(tmp_path / "results"))
    first = tiny(*argv, "--save-frequency", "1", world_size=1).values[0]
    folder = tmp_path / "results" / "r"
    (folder / "checkpoints" / "epoch_001.pth").replace(folder / "checkpoints" / "best.pth")
    second = tiny(*argv, "--resume", "best", world_size=1).values[0]
    assert second["records"] == first["records"][1:]
    metrics = list(csv.DictReader((folder / "metrics.csv").open(newline="")))
    assert [(row["epoch"], row["phase"]) for row in metrics] == [
        (epoch, phase) for epoch in "123" for phase in ("train", "val")
    ]
    log = (folder / "train.log").read_text()
    assert log.count("[METRIC] epoch=2 ") == 2  # the log keeps what happened
    assert f"resumed    from {folder / 'checkpoints' / 'best.pth'}, the end of epoch 1" in log


def test_auto_goes_on_after_a_start_without_a_checkpoint(tiny, tmp_path):
    """As a job that is requeued again and again with the same command line."""
    argv = ("--strategy", "ddp", "--epochs", "2", "--resume", "auto")
    tiny(*argv, stop=[1, 2])  # before the first checkpoint
    tiny(*argv, stop=[2, 2])
    last = tiny(*argv).values[0]
    assert [record[0] for record in last["records"]] == [2]
    rows = list(csv.DictReader((tmp_path / "results" / "r" / "run.csv").open(newline="")))
    assert [row["epoch"] for row in rows] == ["1", "2", "summary"]
