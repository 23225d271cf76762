"""The start report says the same of a model however it is spread over the ranks."""

import json

import pytest
from tiny_run import TinyNet


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "fsdp1"])
def test_all_parameters_are_counted(tiny, tmp_path, strategy):
    group = tiny("--strategy", strategy, "--epochs", "1", "--no-tensorboard")
    count = sum(parameter.numel() for parameter in TinyNet().parameters())
    assert f"({count:,} parameters)" in group.reports[0].output
    assert json.loads((tmp_path / "results" / "r" / "config.json").read_text())["parameters"] == count
