"""--measure-steps and --input device: what is timed and what is not, and that the training is the same."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.base.allocator import KEEPS
from lab.base.errors import UsageError
from lab.ranks.rank import Rank
from lab.runs import options
from lab.runs.records import provenance
from lab.training.stepping.measuring import StepWindow

ON_DEVICE = ("--input", "device", "--dataset", "imagefolder", "--data-dir", "x")  # augmented by default
STILL = {"noise": 0, "net": {"dropout": 0.0}}  # nothing random after the first weights


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "results" / "r" / "run.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def resolve(*argv: str) -> Any:
    return options.resolve(options.parse(argv), world_size=2)


@pytest.mark.parametrize("source", ["loader", "device"])
def test_a_measurement_is_one_epoch_of_as_many_steps_as_asked_for(tiny, tmp_path, source):
    measure = ("--measure-steps", "6", "--measure-warmup", "3", "--print-every", "1", "--input", source)
    result = tiny(*measure, images=24, **STILL)  # three steps a pass, so it goes through the data three times
    assert [rank["ended"] for rank in result.values] == ["done", "done"]
    epoch, summary = rows_of(tmp_path)
    assert (summary["measured_steps"], summary["steps_per_epoch"], summary["epochs"]) == ("6", "3", "1")
    step, images = float(epoch["step_time_s"]), float(epoch["images_per_sec"])
    assert float(epoch["time_epoch_s"]) == pytest.approx(3 * step, rel=1e-4)
    assert images == pytest.approx(8 / step, rel=1e-4)
    log = (tmp_path / "results" / "r" / "train.log").read_text()
    assert "length     6 measured steps, after 3 that are discarded" in log
    assert [f"step {n}/9" in log for n in (1, 2, 3, 4, 8)] == [True, True, False, False, False]
    assert not list((tmp_path / "results" / "r").glob("checkpoints/*"))


def test_images_on_the_device_train_as_those_of_a_loader(tiny, tmp_path):
    same = ("--epochs", "2", "--no-checkpoints")
    loaded, ready = (
        tiny(*same, "--run-id", source, "--input", source, **STILL).values[0]["records"]
        for source in ("loader", "device")
    )
    assert loaded == ready


def test_each_pass_of_a_measurement_has_an_order_of_its_own(tiny):
    """Nine steps over three passes are three epochs, to the last digit."""
    one = tiny("--epochs", "3", "--no-checkpoints", "--run-id", "a", images=24, **STILL).values[0]
    measure = ("--measure-steps", "6", "--measure-warmup", "3", "--run-id", "b")
    other = tiny(*measure, images=24, **STILL).values[0]
    assert other["records"][0][3:] == one["records"][-1][3:]  # validation loss and accuracy at the end


def watch_window(rank: Rank) -> dict[str, Any]:
    """A window of 3 steps after 2, with what is done between them noted."""
    inputs = rank.receive()
    window = StepWindow(torch.device("cpu"), 2, 3)
    noted: list[str] = []
    window._wait_for_device = lambda: noted.append("wait")  # type: ignore[method-assign]
    for _ in range(6):
        noted.append("open" if window.is_open else "closed")
        window.end_step()
    window._seconds = inputs["seconds"][rank.rank]
    return {"noted": noted, "step": window.result(8).step_seconds}


def test_the_device_is_waited_for_at_both_edges_only_and_the_slowest_rank_counts(rank_server, tmp_path):
    result = rank_server.run(watch_window, 2, code=tmp_path, inputs={"seconds": [3.0, 6.0]}, timeout=60)
    for rank in result.values:
        assert rank["step"] == 2.0
        assert rank["noted"] == [*("closed", "closed", "wait"), *["open"] * 3, "wait", "closed"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--measure-steps", "5", "--resume", "x.pth"), "leave out --resume"),
        (("--measure-steps", "5", "--save-every-steps", "2"), "leave out --save-every-steps"),
        (("--measure-steps", "5", "--save-frequency", "2"), "leave out --save-frequency"),
        (("--measure-steps", "5", "--warmup-epochs", "1"), "leaves nothing of --epochs 1"),
        (("--input", "device", "--randaugment"), "cannot make the changes of --randaugment"),
        ((*ON_DEVICE, "--model", "vgg19"), "needs images of one size"),
        ((*ON_DEVICE, "--model", "resnet18", "--image-size", "64"), "needs images of one size"),
    ],
)
def test_options_that_contradict_a_measurement_are_refused(argv, says):
    with pytest.raises(UsageError, match=says):
        resolve(*argv)


def test_measure_steps_and_epochs_exclude_each_other(capsys):
    with pytest.raises(SystemExit):
        options.parse(["--measure-steps", "5", "--epochs", "3"])
    assert "not allowed with argument" in capsys.readouterr().err


def test_options_without_effect_are_said():
    assert any("--measure-warmup" in warning for warning in resolve("--measure-warmup", "5")[1])
    assert any("--num-workers" in warning for warning in resolve("--input", "device", "--num-workers", "2")[1])


def test_variant_names_what_makes_the_work_another_one_and_nothing_else():
    defaults = options.parse([])
    same = options.parse(["--strategy", "fsdp", "--epochs", "9", "--run-id", "x", "--repeat", "2", "--seed", "4"])
    assert provenance.variant(same, defaults) == ""
    other = options.parse(["--num-workers", "4", "--no-augment", "--deterministic", "--optimizer", "adam"])
    assert provenance.variant(other, defaults) == "--no-augment --deterministic --num-workers 4 --optimizer adam"


def test_repeats_have_one_configuration_hash_and_other_work_another():
    def digest(*argv: str, world_size: int = 2) -> str:
        return provenance.config_hash(options.resolve(options.parse(argv), world_size)[0], world_size)

    assert digest("--repeat", "1", "--run-id", "a") == digest("--repeat", "2", "--run-id", "b")
    others = {digest(), digest("--epochs", "3"), digest("--bucket-cap-mb", "50"), digest(world_size=4)}
    assert len(others) == 4


def test_the_records_name_what_they_were_measured_on(tiny, tmp_path):
    tiny("--epochs", "1", "--accumulate", "2")
    summary = rows_of(tmp_path)[-1]
    assert (summary["device"], summary["input"], summary["bucket_cap_mb"]) == ("cpu", "loader", "25")
    assert summary["variant"] == "--accumulate 2"
    assert f"torch {torch.__version__}" in summary["versions"]
    assert summary["allocator"] in ("", KEEPS)  # "" without glibc
    assert len(summary["config_hash"]) == 12
    assert float(summary["step_time_s"]) > 0
