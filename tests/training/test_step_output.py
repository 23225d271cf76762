"""What is said about the epoch going on: lines in a log, a bar on a terminal of any width."""

import io
import re

import pytest
import torch
from one_process import make_loader, make_run, one_epoch

from lab.training.watching.progress_bar import bar
from lab.training.watching.watcher import StepReport


class Screen(io.StringIO):
    """A terminal that knows carriage returns. `lines` are what it shows, `drawn` every state of its last line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines, self.drawn, self.column = [""], [], 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for part in re.split(r"([\r\n])", text):
            if part == "\n":
                self.lines.append("")
            if part in ("\n", "\r"):
                self.column = 0
            elif part:
                line = self.lines[-1]
                self.lines[-1] = line[: self.column] + part + line[self.column + len(part) :]
                self.column += len(part)
                self.drawn.append(self.lines[-1].rstrip())
        return len(text)


def train(tmp_path, *argv: str) -> None:
    model, loader = torch.nn.Linear(4, 2), make_loader()
    with make_run(tmp_path, "--epochs", "2", "--global-batch-size", "8", "--print-every", "2", *argv) as run:
        run.begin(model, torch.optim.SGD(model.parameters()), loader)
        for epoch in run.epochs():
            one_epoch(run, model, loader, epoch)


@pytest.mark.usefixtures("world_of_one")
def test_a_terminal_gets_a_bar_and_the_log_gets_lines(tmp_path, monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("lab.training.watching.progress_bar.REDRAWN_EVERY", 0)
    train(tmp_path)
    log = (tmp_path / "results" / "r" / "train.log").read_text().splitlines()
    assert [line.split(", ")[:2] for line in log if line.startswith("epoch")] == [
        [f"epoch {epoch}/2", f"step {step}/5"] for epoch in (1, 2) for step in (2, 4)
    ]
    shown = [line.rstrip() for line in screen.lines]
    assert shown == [*(line for line in log if not line.startswith("epoch")), ""]  # nothing is left of the bar
    bars = [line for line in screen.drawn if "[" in line and line.startswith("epoch")]
    assert re.match(r"epoch 1/2 \[#+\.+\]  20%  loss \d\.\d{4}  (\d+ images/s  )?\d:\d\d left", bars[0])
    assert bars[-1].startswith("epoch 2/2 [##")
    assert "100%" in bars[-1]
    assert max(map(len, bars)) < 60


@pytest.mark.parametrize("term", ["dumb", None])
@pytest.mark.usefixtures("world_of_one")
def test_no_bar_where_a_line_cannot_be_drawn_anew(tmp_path, monkeypatch, capsys, term):
    screen = Screen()
    if term is None:
        monkeypatch.setattr(screen, "isatty", lambda: False)
    monkeypatch.setenv("TERM", term or "xterm")
    monkeypatch.setattr("sys.stdout", screen)
    train(tmp_path)
    assert "\n".join(screen.lines) == (tmp_path / "results" / "r" / "train.log").read_text()
    assert "epoch 1/2, step 2/5, loss" in screen.lines[-7]


def report(step: int, speed: float = 1000.0) -> StepReport:
    return StepReport(2, step, 80, step + 80, None, 0.1, speed)


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (100, "epoch 2/5 [#######.......................]  25%  loss 1.2500  1000 images/s  0:15 left"),
        (60, "epoch 2/5 [####...............]  25%  loss 1.2500  0:15 left"),
        (45, "epoch 2/5 [####.............]  25%  0:15 left"),
        (25, "epoch 2/5 [##......]  25%"),
        (12, "epoch 2/5 [#"),
    ],
)
def test_a_narrow_terminal_leaves_out_what_matters_least(width, line):
    assert bar(report(20), 1.25, epochs=5, global_batch=256, width=width) == line


def test_the_end_of_the_bar_says_what_goes_on():
    assert bar(report(80), None, epochs=5, global_batch=256, width=99).endswith(
        "] 100%  1000 images/s  evaluating"
    )


def test_long_epochs_are_counted_in_hours():
    assert bar(report(1, 2.0), None, epochs=5, global_batch=256, width=99).endswith("  2:48:32 left")
