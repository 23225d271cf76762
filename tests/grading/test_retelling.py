"""A diagnosis is told anew where the code's conduct shows the cause; a file that is not the exercise's blocks."""

from pathlib import Path

import pytest
from answers.bank import outcome_of, with_answer

from lab.grading.diagnosis import Blocked, Failed
from lab.grading.suite import run_exercise
from lab.syllabus.syllabus import syllabus


def failed(exercise: str, code: Path) -> Failed:
    outcome = outcome_of(exercise, code)
    assert isinstance(outcome, Failed)
    return outcome


def test_an_error_that_was_caught_is_what_is_told(tmp_path: Path):
    code = with_answer(tmp_path, "2.3a", "try:\n    dist.destroy_process_groups()\nexcept Exception:\n    pass")
    told = failed("2.3", code).diagnosis
    assert told.name == "error-swallowed"
    assert "AttributeError: module 'torch.distributed' has no attribute 'destroy_process_groups'" in told.saw
    assert told.look.endswith("  dist.destroy_process_groups()")


def test_a_condition_that_parts_the_ranks_is_found_by_undoing_it(tmp_path: Path):
    step = "chosen = dist.get_rank()\nif chosen == 1:\n    optimizer.step()"
    whole = "optimizer.zero_grad()\nwith run.autocast():\n    loss = F.cross_entropy(model(images), labels)\n"
    code = with_answer(tmp_path, "6.1a", f"{whole}run.backward(loss)\n{step}\nreturn loss.detach()")
    told = failed("6.1", code).diagnosis
    assert told.name == "not-on-every-rank"
    assert told.saw.startswith("on rank 0, where `chosen == 1` is false: one train_step() did: forward, backward;")
    assert told.look.endswith("  if chosen == 1:")


def test_a_harmless_condition_on_the_rank_is_not_blamed(tmp_path: Path):
    code = with_answer(tmp_path, "2.3a", "if dist.get_rank() == 0:\n    print('leaving')")
    assert failed("2.3", code).diagnosis.name == "group-not-destroyed"


@pytest.mark.parametrize("broken", ["import nothing_of_this_name\n", "def f(:\n"], ids=["import", "syntax"])
def test_a_neighbour_that_cannot_be_imported_blocks(tmp_path: Path, broken: str):
    code = with_answer(tmp_path, "2.3b", "return dist.get_rank() == 0")
    (code / "train.py").write_text(broken + (code / "train.py").read_text())
    assert run_exercise(syllabus()["5.1"], code).outcome == Blocked("6.1")
