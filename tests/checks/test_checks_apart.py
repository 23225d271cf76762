"""What the bank of answers cannot hold: changes outside of the regions, half an answer, forged reports.

All other right and wrong answers are in tests/answers; tests/checks runs the solutions.
"""

from pathlib import Path

import pytest
from answers.bank import outcome_of, verdict, with_answer

from lab.grading.diagnosis import TAMPERED, Failed
from lab.grading.suite import run_exercise
from lab.syllabus.syllabus import syllabus


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("rows-depend-on-batch", "nn.ReLU(),", "nn.ReLU(), nn.BatchNorm2d(out_channels),"),
        ("random-forward", "nn.ReLU(),", "nn.ReLU(), nn.Dropout(0.1),"),
        ("no-blocks", "self.blocks = nn.ModuleList(", "self.blocks = list("),
        ("passed", "nn.ReLU(),", "nn.GELU(), nn.GroupNorm(1, out_channels),"),
    ],
)
def test_changes_outside_the_region(tmp_path: Path, name: str, old: str, new: str):
    folder = with_answer(
        tmp_path,
        "1.1",
        """
        assert x.shape[1:] == (3, 32, 32)
        for block in self.blocks:
            x = block(x)
        return self.classifier(x.flatten(1))
        """,
    )
    file = folder / "model.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    assert verdict("1.1", folder) == name


def test_half_of_an_exercise_is_not_started(tmp_path: Path):
    stub = 'raise NotImplementedError("Exercise 2.3a is not done yet: cleanup() in distributed_utils.py")'
    assert verdict("2.3", with_answer(tmp_path, "2.3a", stub)) == "not started"


def test_the_look_line_has_the_number_of_the_line(tmp_path: Path):
    code = "for p in model.parameters():\n    if p.grad is not None:\n        dist.all_reduce(p.grad)"
    folder = with_answer(tmp_path, "4.0", code)
    outcome = outcome_of("4.0", folder)
    assert isinstance(outcome, Failed)
    number = (folder / "ddp_utils.py").read_text().splitlines().index("            dist.all_reduce(p.grad)") + 1
    assert outcome.diagnosis.look == f"ddp_utils.py:{number}  dist.all_reduce(p.grad)"


def test_what_a_rank_forges_is_a_diagnosis_not_a_crash(tmp_path: Path):
    code = """
        import lab.checks.ddp_utils.observe
        lab.checks.ddp_utils.observe.weights_of = lambda model: {"weights": 3}
        """
    assert verdict("4.0", with_answer(tmp_path, "4.0", code)) == TAMPERED


def test_an_epoch_is_checked_apart_from_the_step(tmp_path: Path):
    folder = with_answer(tmp_path, "6.1a", "return F.cross_entropy(model(images), labels).item()")
    checked = run_exercise(syllabus()["6.1"], folder).checks
    assert [check.outcome.word for check in checked] == ["failed", "passed"]
