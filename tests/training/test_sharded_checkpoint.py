"""--checkpoint-format sharded: all ranks write shards, whole or not there, for any number of ranks to read."""

import json
import os
import pickle
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import tiny_run
import torch
from one_process import make_loader, make_run, one_epoch
from torch import nn

from lab.base.errors import UsageError, UserError
from lab.ranks.rank import Rank
from lab.runs import options
from lab.training.checkpoints import checkpoint_file, saving, shard_folder, shards

SHARDED = ("--strategy", "fsdp", "--checkpoint-format", "sharded")
HYBRID = ("--shard", "hybrid", "--shard-ranks", "2")
PLAIN = {"net": {"dropout": 0.0}, "noise": 0.0, "double": True}


def checkpoints(tmp_path: Path) -> Path:
    return tmp_path / "results" / "r" / "checkpoints"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def folder_of(folder: Path, name: str = "latest.json") -> Path:
    return folder / json.loads((folder / name).read_text())["folder"]


# What is written ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--strategy", "ddp", *SHARDED[2:]), "is for --strategy fsdp: with ddp every rank has the whole model"),
        ((*SHARDED, "--no-checkpoints"), "--no-checkpoints and --checkpoint-format contradict each other"),
        ((*SHARDED, "--measure-steps", "3"), "leave out --checkpoint-format"),
        (("--strategy", "fsdp1", *SHARDED[2:]), "fsdp1 has no checkpoints, so no --checkpoint-format"),
    ],
)
def test_where_there_are_no_shards_to_write_it_is_refused(argv, said):
    with pytest.raises(UsageError, match=said):
        options.resolve(options.parse(argv), 2)


def test_older_folders_are_removed_and_what_is_named_stays(tiny, tmp_path):
    result = tiny(*SHARDED, "--epochs", "4", "--save-frequency", "2").values[0]
    folder = checkpoints(tmp_path)
    pointers = [name for name in names(folder) if name.endswith(".json")]
    assert pointers == ["best.json", "epoch_002.json", "epoch_004.json", "latest.json"]
    assert {folder_of(folder, name).name for name in pointers} == set(names(folder)) - set(pointers)
    assert folder_of(folder) == folder_of(folder, "epoch_004.json")
    accuracies = [record[4] for record in result["records"]]
    best = checkpoint_file.read(folder_of(folder, "best.json"))
    assert best["epochs_done"] == accuracies.index(max(accuracies)) + 1
    assert names(folder_of(folder)) == [".metadata", "__0_0.distcp", "__1_0.distcp", "files.json", "run.pth"]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((2, SHARDED), (4, (*SHARDED, *HYBRID))),
        pytest.param((4, (*SHARDED, *HYBRID)), (2, (*SHARDED, "--shard", "grad")), marks=pytest.mark.slow),
        ((4, (*SHARDED, *HYBRID)), (1, ("--strategy", "none"))),
        pytest.param((2, SHARDED), (2, ("--strategy", "ddp")), marks=pytest.mark.slow),
        ((2, ("--strategy", "ddp")), (3, SHARDED)),
    ],
    ids=["2-hybrid", "hybrid-grad", "hybrid-none", "2-ddp", "ddp-3"],
)
def test_it_goes_on_at_another_number_of_ranks_and_sharded_in_another_way(tiny, tmp_path, first, then):
    """Weights and momenta come along: the next epoch has the losses of a run that went on."""
    argv = ("--optimizer", "adamw", "--base-lr", "0.01", "--global-batch-size", "24", "--epochs", "3")
    data = {**PLAIN, "images": 72}
    whole = tiny("--strategy", "none", *argv, "--run-id", "whole", world_size=1, **data).values[0]
    tiny(*first[1], *argv, world_size=first[0], stop=[3, 1], **data)
    group = tiny(*then[1], *argv, "--resume", "latest", world_size=then[0], **data)
    assert group.values[0]["records"][0] == pytest.approx(whole["records"][2], rel=0, abs=1e-12)
    formats = [name for name in names(checkpoints(tmp_path)) if name.startswith("latest")]
    assert formats == ["latest.json" if "sharded" in then[1] else "latest.pth"]


def test_running_statistics_are_rank_0s(tiny, tmp_path):
    """In mid-epoch each rank of FSDP has its own; the lightest one to write them would be another rank."""
    argv = ("--epochs", "2", "--save-every-steps", "1")
    kept = {}
    for kind, more in (("single", SHARDED[:2]), ("sharded", SHARDED)):
        tiny(*more, *argv, "--run-id", kind, net={"norm": True}, stop=[1, 3])
        folder = tmp_path / "results" / kind / "checkpoints"
        again = (
            "--strategy",
            "none",
            "--epochs",
            "2",
            "--resume",
            str(shard_folder.newest(folder / "latest.pth")),
        )
        evaluated = tiny(
            *again, "--run-id", f"{kind}-again", net={"norm": True}, world_size=1, evaluate_first=True
        )
        kept[kind] = evaluated.values[0]["evaluation"]
    assert kept["single"] == kept["sharded"]


# Whole or not there ------------------------------------------------------------------------------------------

LONG = 60  # seconds; nothing takes so long but a deadlock


def train(tmp_path: Path, *argv: str, epochs: int = 2) -> None:
    """A run in this process: with one rank, whose linear model is not even sharded, the format is the same."""
    model, loader = nn.Linear(4, 2), make_loader()
    with make_run(tmp_path, *SHARDED, "--epochs", str(epochs), *argv) as run:
        run.begin(model, torch.optim.Adam(model.parameters()), loader)
        for epoch in run.epochs():
            with torch.no_grad():
                model.weight.add_(1)  # as an optimizer does
            one_epoch(run, model, loader, epoch)


class Killed(BaseException):
    """What a kill leaves on the disk, without the kill."""


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.parametrize("moment", ["shards", "run", "files", "pointer", "clean"])
def test_a_run_that_is_killed_while_it_saves_goes_on_from_the_last_complete_one(tmp_path, monkeypatch, moment):
    train(tmp_path, epochs=1)
    folder, place = checkpoints(tmp_path), {"shards": shards, "run": checkpoint_file}.get(moment, shard_folder)
    name = {"shards": "write", "run": "write", "files": "finish", "pointer": "point", "clean": "clean"}[moment]

    def die(*args: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(place, name, die)
        with pytest.raises(Killed):
            train(tmp_path, "--resume", "latest")
    found = checkpoint_file.locate("latest", folder)
    assert shard_folder.check(found, 0, 1) == ""
    assert checkpoint_file.read(found)["epochs_done"] == (2 if moment == "clean" else 1)
    train(tmp_path, "--resume", "auto", epochs=3)
    assert checkpoint_file.read(folder_of(folder))["epochs_done"] == 3
    assert len(list(folder.glob("sharded-*"))) <= 2  # what was left is gone: latest's and best's


@pytest.mark.usefixtures("world_of_one")
def test_training_goes_on_meanwhile(tmp_path, monkeypatch):
    write, begun, opened = shards.write, threading.Event(), threading.Event()

    def wait_and_write(*args: Any) -> Any:
        begun.set()
        assert opened.wait(LONG)
        return write(*args)

    monkeypatch.setattr(shards, "write", wait_and_write)
    model, loader = nn.Linear(4, 2), make_loader()
    with make_run(tmp_path, *SHARDED, "--epochs", "2") as run:
        run.begin(model, torch.optim.SGD(model.parameters()), loader)
        for epoch in run.epochs():
            if epoch == 2:
                assert begun.wait(LONG)
                weight = model.weight.detach().clone()
                with torch.no_grad():
                    model.weight.add_(1)  # as a step does
                assert not (checkpoints(tmp_path) / "latest.json").exists()
                opened.set()
                run._loop._guard._saver.finish()
                read = {"model/weight": torch.zeros(2, 4)}
                shards.Shards(folder_of(checkpoints(tmp_path))).fill(read)
                assert torch.equal(read["model/weight"], weight)
            one_epoch(run, model, loader, epoch)


def train_on_a_full_disk(rank: Rank) -> dict[str, Any]:
    """The second checkpoint does not fit where one of the ranks writes."""
    full, saves = rank.receive()["full"], []
    write, save = shards._Summed.write, saving.Saver.save

    def fail(self: Any, data: Any) -> int:
        if rank.rank == full and len(saves) == 2:
            self._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115 - as long as the file
        return write(self, data)

    def count(self: Any, *args: Any, **named: Any) -> bool:
        saves.append(1)
        return save(self, *args, **named)

    shards._Summed.write, saving.Saver.save = fail, count  # type: ignore[method-assign]
    try:
        return tiny_run.train(rank)
    finally:
        shards._Summed.write, saving.Saver.save = write, save  # type: ignore[method-assign]


@pytest.mark.parametrize("full", [0, 1])
def test_a_full_disk_of_any_rank_is_said_and_the_run_goes_on(tiny, tmp_path, full):
    group = tiny(*SHARDED, "--epochs", "2", observe=train_on_a_full_disk, full=full)
    assert [value["ended"] for value in group.values] == ["done", "done"]
    said = "warning: the checkpoint of the end of epoch 2 could not be written (No space left on device, rank "
    folder = checkpoints(tmp_path)
    good = f"; the last good one is {folder / 'latest.json'} (the end of epoch 1)"
    assert f"{said}{full}){good}" in group.reports[0].output
    assert checkpoint_file.read(folder_of(folder))["epochs_done"] == 1
    assert names(folder) == ["best.json", "latest.json", folder_of(folder).name]  # and nothing of the other


# Going on ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("world_of_one")
def test_what_resume_may_name(tmp_path):
    train(tmp_path, "--save-frequency", "1")
    folder = checkpoints(tmp_path)
    whole = folder_of(folder)
    assert checkpoint_file.locate("latest", folder) == whole
    assert checkpoint_file.locate("best", folder) == folder_of(folder, "best.json")
    for path in (
        whole,
        whole / "run.pth",
        whole / "files.json",
        folder / "latest.json",
        folder / "epoch_002.json",
    ):
        assert checkpoint_file.locate(str(path), None) == whole
    for named in (folder, folder.parent):
        with pytest.raises(UserError) as error:
            checkpoint_file.locate(str(named), None)
        assert str(error.value).endswith(f"is a folder: name a file in it, such as {folder / 'latest.json'}")


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.parametrize("which", ["auto", "latest", "latest.json"])
def test_a_folder_that_is_gone_is_named_and_nothing_starts_anew(tmp_path, which):
    train(tmp_path, epochs=1)
    folder = checkpoints(tmp_path)
    gone = folder_of(folder)
    shutil.rmtree(gone)
    with pytest.raises(UserError, match=f"{gone} is named as a checkpoint, but gone"):
        checkpoint_file.locate(str(folder / which) if "." in which else which, folder)


@pytest.mark.usefixtures("world_of_one")
def test_of_both_formats_the_later_one_counts(tmp_path):
    """As a run that went on in the other format leaves them if it is killed at the wrong moment."""
    train(tmp_path, epochs=1)
    folder = checkpoints(tmp_path)
    (folder / "latest.pth").write_bytes(b"")
    for seconds, found in ((-10, folder_of(folder)), (10, folder / "latest.pth")):
        when = (folder / "latest.json").stat().st_mtime + seconds
        os.utime(folder / "latest.pth", (when, when))
        assert checkpoint_file.locate("auto", folder) == found


def damages(whole: Path, other: Path) -> dict[str, Any]:
    """What can happen to a folder, and what is said of it."""
    shard = whole / "__0_0.distcp"

    def flip() -> None:
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 1
        shard.write_bytes(content)

    return {
        "a bit": (flip, f"{shard} is damaged, or of another checkpoint"),
        "cut off": (
            lambda: os.truncate(shard, 100),
            f"{shard} is truncated, or of another checkpoint: it has 100 ",
        ),
        "lost": (shard.unlink, f"{shard} cannot be read (No such file or directory)"),
        "mixed": (lambda: shutil.copy(other / shard.name, shard), f"{shard} is damaged, or of another checkpoint"),
        "unfinished": (
            (whole / "files.json").unlink,
            f"{whole} is a checkpoint that was not finished, or has lost its files.json",
        ),
        "no list": (
            lambda: (whole / "files.json").write_text("{}"),
            f"{whole / 'files.json'} is not of this program",
        ),
    }


@pytest.mark.usefixtures("world_of_one")
def test_a_folder_in_parts_says_which_part_is_missing(tmp_path):
    train(tmp_path)
    whole = folder_of(checkpoints(tmp_path))
    copied = tmp_path / "copied"
    shutil.copytree(whole, copied)
    assert checkpoint_file.locate(str(copied), None) == copied
    (copied / "run.pth").unlink()
    again = "copy the whole folder again, or name another checkpoint"
    with pytest.raises(UserError) as caught:
        checkpoint_file.locate(str(copied / "run.pth"), None)
    said = str(caught.value)
    assert said == (
        f"--resume {copied / 'run.pth'}: there is no such file in the sharded checkpoint {copied}: name "
        f"the folder if it is whole; else {again}"
    )
    with pytest.raises(UserError) as caught:
        checkpoint_file.read(copied)
    assert str(caught.value) == f"{copied} has lost its run.pth: {again}"
    (copied / "files.json").unlink()
    with pytest.raises(UserError) as caught:
        checkpoint_file.locate(str(copied), None)
    assert str(caught.value) == (
        f"--resume {copied} has shards, but no files.json: it was not finished, or not copied whole; {again}"
    )


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.parametrize("damage", ["a bit", "cut off", "lost", "mixed", "unfinished", "no list"])
def test_a_damaged_one_is_refused_and_a_whole_one_named(tmp_path, damage):
    train(tmp_path, "--save-frequency", "1")
    folder = checkpoints(tmp_path)
    whole, other = folder_of(folder), folder_of(folder, "best.json")
    assert whole != other  # made-up accuracies that do not grow: the first epoch is the best
    act, said = damages(whole, other)[damage]
    act()
    with pytest.raises(UserError) as error:
        train(tmp_path, "--resume", "latest", epochs=3)
    assert str(error.value).startswith(said)
    assert str(error.value).endswith(f"is whole (the end of epoch 1): --resume best, or --resume {other}")


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.parametrize("content", [b"", b'{"format": 1, "folder": "../../elsewhere"}', b"{", b"[]"])
def test_a_damaged_pointer_is_named(tmp_path, content):
    train(tmp_path, epochs=1)
    file = checkpoints(tmp_path) / "latest.json"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"latest\.json (is damaged|names no checkpoint|is not of this program)"):
        train(tmp_path, "--resume", "latest")


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("exploded",))


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pickle.dumps(Bomb()), "posix.mkdir.*which could run any code"),
        (pickle.dumps({"a": 1}), "is damaged"),
        (b"\x80\x04", "is damaged"),
    ],
)
def test_no_code_in_it_is_run(tmp_path, monkeypatch, content, said):
    """Also where size and checksum are right."""
    train(tmp_path, epochs=1)
    folder = folder_of(checkpoints(tmp_path))
    (folder / ".metadata").write_bytes(content)
    record = json.loads((folder / "files.json").read_text())
    record["files"][".metadata"] = shard_folder.sums_of(folder / ".metadata")
    (folder / "files.json").write_text(json.dumps(record))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=said):
        train(tmp_path, "--resume", "latest")
    assert not (tmp_path / "exploded").exists()


def test_another_model_is_refused_on_all_ranks(tiny):
    tiny(*SHARDED, "--epochs", "1")
    group = tiny(*SHARDED, "--epochs", "2", "--resume", "latest", net={"width": 7})
    for value in group.values:
        assert value["ended"].startswith("UserError: ")
        assert (
            "is of another model: its blocks.0.0.weight is [6, 3, 3, 3], but this model's is [7, 3"
            in value["ended"]
        )


@pytest.mark.parametrize(("strategy", "ranks"), [("none", 1), ("fsdp", 3), ("fsdp1", 2)])
def test_it_is_evaluated_by_any_strategy(tiny, tmp_path, strategy, ranks):
    tiny(*SHARDED, "--epochs", "1", "--run-id", "trained")
    folder = folder_of(tmp_path / "results" / "trained" / "checkpoints")
    only = ("--strategy", strategy, "--evaluate-only", "--resume", str(folder), "--global-batch-size", "6")
    ended = tiny(*only, world_size=ranks).values[0]["ended"]
    assert ended == "done"
    recorded, evaluated = (
        [row.split(",") for row in (tmp_path / "results" / run / "metrics.csv").read_text().splitlines()]
        for run in ("trained", "r")
    )
    assert recorded[-1][:2] == evaluated[1][:2] == ["1", "val"]
    assert float(recorded[-1][2]) == pytest.approx(float(evaluated[1][2]), rel=1e-5)
