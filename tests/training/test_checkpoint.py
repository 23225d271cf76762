"""Checkpoint files: one format for every strategy, never half written, nothing in them is run."""

import copy
import errno
import os
import pickle
import random
import subprocess
from pathlib import Path

import pytest
import torch
from image_helpers import open_folder, without_privileges

from lab.base.errors import UserError
from lab.training.checkpoints import checkpoint_file

ADAMW = ("--optimizer", "adamw", "--base-lr", "0.01")


def latest(tmp_path: Path) -> Path:
    return tmp_path / "results" / "r" / "checkpoints" / "latest.pth"


# One format --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("net", [{}, {"norm": True}], ids=["plain", "BatchNorm"])
def test_a_checkpoint_of_two_fsdp_ranks_loads_everywhere(tiny, tmp_path, net):
    saved = tiny(*ADAMW, "--strategy", "fsdp", "--epochs", "2", net=net).values[0]
    _, _, _, loss, accuracy = saved["records"][-1]
    file = str(latest(tmp_path))
    again = ("--epochs", "3", *ADAMW, "--resume", file, "--run-id", "other", "--global-batch-size", "12")
    for strategy, world_size in (("fsdp", 3), ("ddp", 2), ("none", 1)):
        argv = (*again, "--strategy", strategy, "--output-dir", str(tmp_path / f"{strategy}{world_size}"))
        loaded = tiny(*argv, world_size=world_size, net=net, evaluate_first=True).values[0]
        assert loaded["ended"] == "done"
        assert loaded["evaluation"] == pytest.approx([loss, accuracy], abs=1e-6)
        assert [record[0] for record in loaded["records"]] == [3]


def test_the_optimizer_state_moves_with_the_weights(tiny, tmp_path):
    """One more epoch from the same checkpoint, without dropout and noise, comes out alike whoever trains it."""
    plain = {"net": {"dropout": 0.0}, "noise": 0.0, "double": True}
    tiny(*ADAMW, "--strategy", "fsdp", "--epochs", "1", **plain)
    again = ("--epochs", "2", *ADAMW, "--resume", str(latest(tmp_path)))
    weights = [
        tiny(*again, "--strategy", strategy, "--run-id", strategy, world_size=world_size, **plain).values[0][
            "weights"
        ]
        for strategy, world_size in (("fsdp", 2), ("none", 1), ("ddp", 2))
    ]
    for other in weights[1:]:
        for name, tensor in weights[0].items():
            torch.testing.assert_close(other[name], tensor, rtol=0, atol=1e-12)


def test_names_are_the_models_own_and_only_plain_values_are_inside(tiny, tmp_path):
    tiny("--strategy", "ddp", "--epochs", "1")
    state = torch.load(latest(tmp_path), weights_only=True)
    assert "blocks.0.0.weight" in state["model"]
    assert not [name for name in state["model"] if "module" in name]
    assert {type(tensor) for tensor in state["model"].values()} == {torch.Tensor}
    assert (state["epochs_done"], state["step_in_epoch"], len(state["ranks"])) == (1, 0, 2)


def test_best_and_every_so_many_epochs_are_kept(tiny, tmp_path):
    result = tiny("--strategy", "none", "--epochs", "5", "--save-frequency", "2", world_size=1).values[0]
    folder = latest(tmp_path).parent
    assert sorted(path.name for path in folder.iterdir()) == [
        *("best.pth", "epoch_002.pth", "epoch_004.pth", "latest.pth"),
    ]
    accuracies = [record[4] for record in result["records"]]
    best = checkpoint_file.read(folder / "best.pth")
    assert best["epochs_done"] == accuracies.index(max(accuracies)) + 1
    assert best["best_accuracy"] == max(accuracies)
    assert checkpoint_file.read(folder / "epoch_004.pth")["epochs_done"] == 4


# Written whole or not at all -----------------------------------------------------------------------------------


def kill_and_resume(tiny, tmp_path, strategy, kills):
    """Kill runs that save every step at random instants; each goes on from where the last one was killed."""
    note, done = tmp_path / "steps", 0
    draw = random.Random(len(strategy) + kills)
    argv = ("--strategy", strategy, "--epochs", "1000", "--save-every-steps", "1", "--resume", "auto")
    world_size = 1 if strategy == "none" else 2
    for number in range(kills):
        only, steps = draw.randrange(world_size), number % 3  # from the very start, or after a step or two
        killed = tiny(
            *argv, world_size=world_size, note=str(note), kill=[draw.uniform(0.0, 0.3), steps], only=only
        ).reports
        assert any(report.status == "killed" for report in killed), killed
        noted = int(note.read_text().split()[-1]) if note.exists() and note.read_text() else 0
        if not latest(tmp_path).exists():
            assert noted == 0
            continue
        state = checkpoint_file.read(latest(tmp_path))
        saved = state["epochs_done"] * state["steps_per_epoch"] + state["step_in_epoch"]
        assert saved >= noted  # nothing is lost but the step that was going on
        assert saved >= done
        done = saved
    assert done > 0  # the runs did go on
    resumed = tiny(*argv, world_size=world_size, stop=[done // 4 + 2, 1]).values[0]
    assert resumed["ended"].startswith("Stop")


@pytest.mark.parametrize("strategy", ["none", "fsdp"])
def test_killed_at_any_instant_a_run_goes_on(tiny, tmp_path, strategy):
    kill_and_resume(tiny, tmp_path, strategy, kills=4)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["none", "ddp", "fsdp"])
def test_killed_at_50_instants_a_run_goes_on(tiny, tmp_path, strategy):
    kill_and_resume(tiny, tmp_path, strategy, kills=50)


def test_a_full_disk_keeps_the_old_checkpoint_and_says_so(tmp_path, monkeypatch):
    path = tmp_path / "latest.pth"
    checkpoint_file.write({"format": 1, "model": {"w": torch.zeros(1000)}}, path)
    before = path.read_bytes()
    written = checkpoint_file._Writer.write

    def write(self, data):
        self._file = Full()
        return written(self, data)

    class Full:
        def write(self, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint_file._Writer, "write", write)
    with pytest.raises(OSError, match="No space left"):
        checkpoint_file.write({"format": 1, "model": {"w": torch.ones(1000)}}, path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["latest.pth"]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB, where this process may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_run_goes_on_when_its_disk_is_full(tiny, tmp_path, small_disk):
    argv = ("--strategy", "ddp", "--output-dir", str(small_disk), "--save-every-steps", "3")
    tiny(*argv, "--epochs", "1")
    file = small_disk / "r" / "checkpoints" / "latest.pth"
    before = file.read_bytes()
    room = os.statvfs(small_disk)  # of which a little is left for the log
    (small_disk / "filler").write_bytes(bytes(room.f_bavail * room.f_frsize - 16384))
    group = tiny(*argv, "--epochs", "2", "--resume", "latest")
    assert group.values[0]["ended"] == "done"
    warning = "could not be written (No space left on device); the last good one is"
    assert f"warning: the checkpoint of epoch 2, step 2 {warning} {file} (the end of epoch 1)" in (
        group.reports[0].output
    )
    assert file.read_bytes() == before
    (small_disk / "filler").unlink()
    assert tiny(*argv, "--epochs", "2", "--resume", "latest").values[0]["ended"] == "done"
    assert checkpoint_file.read(file)["epochs_done"] == 2


# Bad files -----------------------------------------------------------------------------------------------------


class Dangerous:
    def __reduce__(self):
        return (os.mkdir, ("was-run",))


WHOLE = {
    "format": 1,
    "model": {"w": torch.zeros(1000)},
    "optimizer": {"state": {}, "param_groups": []},
    "scaler": None,
    "ranks": [{"random": {}, "random_at_epoch_start": {}, "meter": {}}],
    "config": {"model": "cnn", "optimizer": "sgd", "global_batch_size": 8},
    "epochs_done": 3,
    "step_in_epoch": 0,
    "steps_per_epoch": 4,
    "best_accuracy": 0.5,
}
PARTS = ("optimizer", "ranks", "config", "epochs_done", "best_accuracy", "param_groups", "global_batch_size")


def damage(name: str, path: Path) -> None:
    whole = path.read_bytes()
    if name == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif name == "empty":
        path.write_bytes(b"")
    elif name == "pickled code":
        torch.save({"format": 1, "model": {}, "code": Dangerous()}, path)
    elif name == "old pickled code":
        path.write_bytes(pickle.dumps(Dangerous()))
    elif name == "plain weights":
        torch.save({"weight": torch.zeros(2)}, path)
    elif name.startswith("flipped"):
        index = whole.rindex(b"PK\x01\x02")
        where = {"weights": (len(whole) // 3, 0xFF), "index": (index, 0xFF), "method": (index + 10, 0x08)}
        place, bits = where[name.split()[-1]]
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bits]) + whole[place + 1 :])
    elif name == "newer format":
        torch.save({"format": 99, "model": {}}, path)
    elif name == "missing":
        path.unlink()
    elif name.startswith("without "):
        part = name.split()[-1]
        state = copy.deepcopy(WHOLE)
        for parts in (state, state["config"], state["optimizer"], state["ranks"][0]):
            parts.pop(part, None)
        torch.save(state, path)
    elif name == "no number":
        torch.save(WHOLE | {"epochs_done": "three"}, path)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("truncated", "is not a whole checkpoint"),
        ("empty", "is not a whole checkpoint"),
        ("flipped in the weights", r"is damaged \(in archive/data/0\)"),
        ("flipped in the index", "is damaged"),
        ("flipped in the compression method", "is damaged"),
        ("pickled code", "holds pickled Python objects, which could run any code"),
        ("old pickled code", "is not a whole checkpoint"),
        ("plain weights", "is not a checkpoint of this program"),
        ("newer format", "has checkpoint format 99, but this version reads 1"),
        ("missing", "No such file or directory"),
        *((f"without {part}", f"lacks '{part}', which every checkpoint of this program has") for part in PARTS),
        ("without meter", "lacks the random states or the sums of rank 0"),
        ("no number", "lacks 'epochs_done'"),
    ],
)
def test_a_bad_file_is_refused_with_a_sentence(tmp_path, monkeypatch, name, sentence):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "latest.pth"
    checkpoint_file.write(WHOLE, path)
    assert checkpoint_file.read(path)["epochs_done"] == 3
    damage(name, path)
    with pytest.raises(UserError, match=sentence) as caught:
        checkpoint_file.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    ("which", "sentence"),
    [
        ("missing.pth", "--resume missing.pth: there is no such file"),
        (".", "is a folder: name a file in it"),
        ("latest", "leave --resume out to start anew, or use --resume auto"),
        ("best", "there is no .*best.pth"),
    ],
)
def test_resuming_from_nothing_is_refused(tmp_path, monkeypatch, which, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=sentence):
        checkpoint_file.locate(which, tmp_path)


def test_the_words_for_a_path_say_what_is_there(tmp_path):
    def said(path):
        with pytest.raises(UserError) as caught:
            checkpoint_file.locate(str(path), None)
        return str(caught.value)

    here, gone = tmp_path / "checkpoints", tmp_path / "gone"
    here.mkdir()
    assert said(gone / "latest.pth") == f"--resume {gone}/latest.pth: there is no such file, and no folder {gone}"
    nothing = f"--resume {here}/x.pth: there is no such file, and no other checkpoint in {here}"
    assert said(here / "x.pth") == nothing
    empty = f"--resume {here} is a folder: name a file in it; this one has no checkpoint of this program"
    assert said(here) == empty
    for name in ("epoch_002.pth", "best.json", "latest.pth", "notes.json"):
        (here / name).touch()
    there = f"--resume {here}/x.pth: there is no such file; {here} has latest.pth, best.json, epoch_002.pth"
    assert said(here / "x.pth") == there
    for folder in (here, tmp_path):
        assert said(folder) == f"--resume {folder} is a folder: name a file in it, such as {here}/latest.pth"


def test_a_file_below_a_closed_folder_is_refused():
    with open_folder() as folder:
        folder.chmod(0)
        with without_privileges():
            for which in (str(folder / "x.pth"), "auto"):
                with pytest.raises(UserError, match=r"cannot look for .*\(Permission denied\)"):
                    checkpoint_file.locate(which, folder)
        folder.chmod(0o755)


@pytest.mark.parametrize("which", ["auto", "latest"])
def test_a_damaged_latest_names_the_best_where_that_is_whole(tiny, tmp_path, which):
    tiny("--strategy", "none", "--epochs", "1", world_size=1)
    whole = latest(tmp_path).read_bytes()
    latest(tmp_path).unlink()  # best.pth is the same file
    latest(tmp_path).write_bytes(whole[:1000])
    again = ("--strategy", "none", "--epochs", "2", "--resume", which)
    best = latest(tmp_path).with_name("best.pth")
    ended = tiny(*again, world_size=1).values[0]["ended"]
    assert ended.endswith(f"; best.pth beside it is whole (the end of epoch 1): --resume best, or --resume {best}")
    damage("truncated", best)
    assert "best.pth" not in tiny(*again, world_size=1).values[0]["ended"]


def test_auto_starts_anew_where_there_is_no_checkpoint(tmp_path):
    assert checkpoint_file.locate("auto", tmp_path) is None
    (tmp_path / "latest.pth").touch()
    assert checkpoint_file.locate("auto", tmp_path) == tmp_path / "latest.pth"


@pytest.mark.parametrize(
    ("argv", "net", "sentence"),
    [
        (
            (),
            {"width": 7},
            "is of another model: its blocks.0.0.weight is [6, 3, 3, 3], but this model's is [7, 3,",
        ),
        ((), {"norm": True}, "is of another model: it has no blocks.0.1.weight, which this model has"),
        (ADAMW, {}, "was written with --optimizer sgd, so it cannot go on with adamw"),
        (("--global-batch-size", "16"), {}, "use --global-batch-size 8 and the same data"),
        (("--seed", "7"), {}, "with --seed 0; with 7 the rest of the epoch would be other images: use --seed 0"),
        (("--validation", "test"), {}, "with --validation split; with test the rest of the epoch"),
        (
            ("--epochs", "1"),
            {},
            "from epoch 2, step 2, which is past the end of --epochs 1: use --epochs 2 or more",
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_and_the_records_stay(tiny, tmp_path, argv, net, sentence):
    tiny("--strategy", "fsdp", "--epochs", "2", "--save-every-steps", "3", stop=[2, 4])
    folder = tmp_path / "results" / "r"
    before = (folder / "metrics.csv").read_text()
    again = ("--strategy", "fsdp", "--epochs", "2", "--resume", "latest", *argv)
    for value in tiny(*again, net=net).values:
        assert value["ended"].startswith("UserError: ")
        assert sentence in value["ended"]
    assert (folder / "metrics.csv").read_text() == before


@pytest.mark.parametrize(
    ("optimizer", "option", "warning"),
    [
        ((), ("--momentum", "0.5"), "--momentum: 0.5, before it was 0.9"),
        (ADAMW, ("--scale-lr",), "--scale-lr: True, before it was False"),
        ((), ("--scale-lr",), None),  # SGD's rate is scaled anyway
    ],
)
def test_changed_options_are_named_when_resuming(tiny, optimizer, option, warning):
    tiny("--strategy", "none", "--epochs", "1", *optimizer, world_size=1)
    again = ("--strategy", "none", "--epochs", "2", "--resume", "latest", "--seed", "7", *optimizer, *option)
    said = tiny(*again, world_size=1).reports[0].output
    assert "warning: resumed with another --seed: 7, before it was 0" in said
    assert said.count("warning: resumed with another") == (1 if warning is None else 2)
    assert warning is None or f"warning: resumed with another {warning}" in said
