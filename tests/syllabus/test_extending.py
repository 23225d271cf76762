"""docs/extending.md: its ten lines run as they stand there; what is wrong with others' is said in a sentence."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from main_observers import run_main

from lab.ranks.server import server
from lab.runs.options.parser import parse

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "extending.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.+?)```", TEXT, re.DOTALL))
COMMANDS = re.findall(r"^torchrun .*solutions/main\.py (.+)$", TEXT, re.MULTILINE)


@pytest.fixture
def start(root, tmp_path):
    """start(files, command line, ranks): solutions/main.py with these files beside it; the group's result."""

    def run(files: dict[str, str], line: str, ranks: int = 2):
        code = tmp_path / "code"
        shutil.copytree(root / "solutions", code, ignore=shutil.ignore_patterns("__pycache__"))
        for name, text in files.items():
            (code / name).write_text(text)
        argv = [*line.split(), "--output-dir", str(tmp_path / "results"), "--run-id", "r", "--no-tensorboard"]
        return server().run(run_main, ranks, code=code, inputs=argv, timeout=240, set_up_process_group=False)

    return run


def test_there_are_three_and_none_is_longer_than_ten_lines():
    assert list(FILES) == ["mynet.py", "mydata.py", "myopt.py"]
    assert len(COMMANDS) == len(FILES)
    for name, text in FILES.items():
        assert len([line for line in text.splitlines() if line.strip()]) <= 10, name


@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: re.search(r"\w+:\w+", line)[0])
def test_each_runs_and_learns(start, tmp_path, line):
    result = start(FILES, line)
    assert result.ok, [str(report) for report in result.reports]
    assert "warning" not in result.reports[0].output
    row = list(csv.DictReader((tmp_path / "results" / "r" / "run.csv").open(newline="")))[-1]
    assert row["status"] == "done"
    assert float(row["val_top1"]) > (0.9 if "mydata" in line else 0.25)  # chance: 0.5, 0.1
    config = json.loads((tmp_path / "results" / "r" / "config.json").read_text())
    own = re.search(r"--(model|dataset|optimizer) (\S+)", line)
    assert config[own[1]] == own[2]


def test_own_model_and_optimizer_go_on_from_a_checkpoint_under_another_strategy(start, tmp_path):
    line = "--model mynet:MyNet --optimizer myopt:SignSGD --base-lr 0.001 --dataset mydata:load"
    line += " --global-batch-size 64"
    assert start(FILES, f"{line} --strategy fsdp --epochs 1").ok
    shutil.rmtree(tmp_path / "code")
    again = start(FILES, f"{line} --strategy none --epochs 2 --resume latest", ranks=1)
    assert again.ok, str(again.reports[0])
    assert "the end of epoch 1" in again.reports[0].output


@pytest.mark.parametrize(
    ("files", "line", "sentence"),
    [
        ({}, "--model mine:Net", "--model mine:Net: there is no mine.py beside main.py"),
        ({"mine.py": ""}, "--model mine:Net", "--model mine:Net: mine.py has no class or function Net"),
        (
            {"mine.py": "from torch import nn\nNet = lambda classes: nn.Linear(3, classes)\n"},
            "--model mine:Net",
            "--model mine:Net has no .blocks",
        ),
        (
            {"mine.py": "def load(folder):\n    return []\n"},
            "--dataset mine:load",
            "--dataset mine:load returned list",
        ),
        (FILES, "--dataset mydata:load --validation test", "has no test images: leave out --validation test"),
        ({}, "--dataset mine:load --augment", "--augment cannot change the images of mine:load"),
        ({}, "--optimizer mine:Opt", "--optimizer mine:Opt needs --base-lr"),
    ],
)
def test_what_is_wrong_is_said(start, files, line, sentence):
    result = start(files, f"{line} --strategy none", ranks=1)
    output = result.reports[0].output
    assert result.reports[0].exit_code in (1, 2)
    assert sentence in output.strip().splitlines()[-1]
    assert "Traceback" not in output


@pytest.mark.parametrize("name", ["unknown", "mine:", ":Net", "mine:3", "a/b:Net", "mine.py:Net:x"])
def test_a_name_that_cannot_be_one_is_refused_at_once(name, capsys):
    with pytest.raises(SystemExit):
        parse(["--model", name])
    assert "choose from cnn, resnet18, vgg19, mnist_cnn, vit, or name one of your own" in capsys.readouterr().err
