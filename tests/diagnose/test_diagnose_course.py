"""A run that is done may have gone wrong, as its loss and accuracy say. A good one is never accused."""

import pytest

from lab.cli import main
from lab.diagnose.evidence import Evidence
from lab.diagnose.verdict import findings

HEAD = "  data       50,000 training, 10,000 validation images of 10 classes, 32x32\n"
LINE = "[METRIC] epoch={} time=9.9 train_loss={} val_loss={} acc={} images_per_sec=5049.1 peak_mem=1734MB\n"


def log(*epochs: tuple[object, object, object]) -> str:
    return HEAD + "".join(LINE.format(number, *epoch) for number, epoch in enumerate(epochs, 1))


def names(text: str, status: str = "done") -> list[str]:
    return [one.name for one in findings(Evidence(name="x", log=text, status=status))]


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (log((4.88, 9.1, 0.12), ("nan", "nan", 0.1), ("nan", "nan", 0.1)), "not-finite", "since epoch 2"),
        (log((2.3, "inf", 0.12), (2.2, "inf", 0.1)), "not-finite", "since epoch 1"),
        (log((1.9, 1.8, 0.38), (2.1, 2.0, 0.2), (6.5, 7.1, 0.1)), "loss-grows", "1.9 at best, 6.5 in epoch 3"),
        (log(*[(2.303, 2.303, 0.1)] * 3), "learned-nothing", "among 10 classes"),
        ("epoch 1 loss: 2.1\nepoch 2 loss: nan\nepoch 3 loss: nan\n", "not-finite", "since the 2nd"),
    ],
)
def test_what_went_wrong_in_a_run_that_is_done_is_said(text, name, words):
    (found,) = findings(Evidence(name="x", log=text, status="done"))
    assert (found.name, words in found.saw) == (name, True), found.saw


@pytest.mark.parametrize(
    "text",
    [
        log((1.9, 1.8, 0.38), (1.25, 1.22, 0.56), (0.98, 0.98, 0.64)),
        log((1.9, 1.8, 0.38), (0.9, 1.2, 0.56), (0.3, 2.8, 0.55), (0.05, 4.1, 0.54)),  # overfits
        log((0.31, 0.30, 0.91), (0.35, 0.33, 0.90), (0.32, 0.31, 0.91)),  # went on from a good checkpoint
        log((2.303, 2.303, 0.1)),  # one epoch says little
        log((2.3, 2.29, 0.1), (2.1, 2.0, 0.11), (1.9, 1.8, 0.14)),  # begins slowly
        log(("nan", 1.8, 0.38), (1.25, 1.22, 0.56), (0.98, 0.98, 0.64)),  # came back
        "epoch 1 loss: nan\nepoch 2 loss: 1.9\n",
        "step 1 loss: 2.1 grad_norm: inf\nstep 2 loss: 1.9 grad_norm: 3.1\n",  # fp16 looks for its scale
        "loss: 0.5\nno loss: information is lost\n",
        HEAD,
        "",
    ],
)
def test_a_good_run_is_not_accused(text):
    assert names(text) == []


def test_what_ended_a_run_comes_before_how_it_trained():
    text = log((4.88, 9.1, 0.12), ("nan", "nan", 0.1))
    text += "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026 DUE TO TIME LIMIT ***\n"
    assert names(text, status="running") == ["time-limit", "not-finite"]


def test_the_command_does_not_say_that_nothing_went_wrong(tmp_path, capsys):
    (tmp_path / "status.json").write_text('{"status": "done"}', encoding="utf-8")
    (tmp_path / "train.log").write_text(log((4.88, 9.1, 0.12), ("nan", "nan", 0.1)), encoding="utf-8")
    assert main(["diagnose", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "nothing went wrong" not in said
    assert "no finite number since epoch 2" in said
