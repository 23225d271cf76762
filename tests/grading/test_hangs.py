"""Every kind of hang on real ranks: the group ends at once, and the three lines say who waits where."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import hang_observers as observers
import pytest
from answers.bank import solution, with_answer
from hang_cases import HANGS

from lab.grading.diagnosis import Diagnosis, Failed
from lab.grading.explain import explain
from lab.grading.suite import run_exercise
from lab.ranks.reports import GroupResult
from lab.ranks.server import server
from lab.syllabus.syllabus import syllabus

DEADLINE = 60.0  # seconds; a plain timeout
SOON = 10.0  # seconds, on a machine with other work too; 1.1 when it is idle


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    """The first group waits until torch is imported."""
    server().run(observers.nothing, 2, code=None)


def run(
    tmp_path: Path, observe: Any, code: str, *, world_size: int = 2, timeout: float = DEADLINE, **options: Any
) -> GroupResult:
    text = "import torch\nimport torch.distributed as dist\n\n" + dedent(code).lstrip("\n")
    (tmp_path / "train.py").write_text(text)
    return server().run(observe, world_size, code=tmp_path, timeout=timeout, **options)


def said(result: GroupResult, code: Path) -> Diagnosis:
    outcome = explain(result, exercise="6.2", code=code)
    assert isinstance(outcome, Failed), outcome
    return outcome.diagnosis


@pytest.mark.parametrize(("observe", "code", "name", "saw", "means", "look"), HANGS.values(), ids=HANGS)
def test_a_hang_ends_at_once_and_is_explained(
    tmp_path: Path, observe: object, code: str, name: str, saw: str, means: str, look: str
):
    result = run(tmp_path, observe, code)
    diagnosis = said(result, tmp_path)
    assert (diagnosis.name, *diagnosis.lines) == (name, saw, means, look)
    assert result.seconds < SOON


def test_the_ranks_that_wait_are_named_together(tmp_path: Path):
    code = "def evaluate(rank):\n    if rank != 1:\n        dist.all_reduce(torch.ones(3))\n"
    result = run(tmp_path, observers.call_evaluate, code, world_size=3)
    assert result.deadlock is not None
    assert (result.deadlock.kind, result.deadlock.number, list(result.deadlock.absent)) == ("missing", 1, [1])
    assert [report.status for report in result.reports] == ["timeout", "ok", "timeout"]
    assert result.reports[0].note == "waited for a collective that another rank will never call"
    assert said(result, tmp_path).saw == (
        "ranks 0 and 2 wait in all_reduce at train.py:6; rank 1 returned from evaluate() without calling it."
    )
    assert result.seconds < SOON


def test_a_rank_in_a_loop_is_shown_with_its_line_at_the_deadline(tmp_path: Path):
    code = """
    def evaluate(rank):
        while rank == 1:
            pass
        dist.all_reduce(torch.ones(3))
    """
    diagnosis = said(run(tmp_path, observers.call_evaluate, code, timeout=2.0), tmp_path)
    assert diagnosis.name == "stuck-rank"
    assert diagnosis.lines[0] in (
        f"after 2 s rank 1 was still at train.py:{line}. Rank 0 waits for it in all_reduce at train.py:7."
        for line in (5, 6)
    )
    assert diagnosis.lines[1:] == (
        "It is in no collective: in a loop that does not end, or in a call that does not come back.",
        *{"train.py:5  while rank == 1:", "train.py:6  pass"} & {diagnosis.look},
    )


def test_a_group_that_the_student_sets_up_is_watched_too(tmp_path: Path):
    code = """
    def evaluate(rank):
        dist.init_process_group("gloo")
        if rank == 0:
            dist.barrier()
    """
    result = run(tmp_path, observers.call_evaluate, code, set_up_process_group=False)
    assert said(result, tmp_path).name == "barrier-in-branch"
    assert result.seconds < SOON


def test_collectives_that_differ_but_come_to_their_end_are_no_hang(tmp_path: Path):
    """A root that sends more than it needs to, an asynchronous collective, one group for each rank."""
    code = """
    import time

    def evaluate(rank):
        alone = [dist.new_group([0]), dist.new_group([1])][rank]
        for _ in range(3 + rank):
            dist.all_reduce(torch.ones(3 + rank), group=alone)
        work = dist.all_reduce(torch.ones(3), async_op=True)
        time.sleep(1.2)
        work.wait()
        if rank == 1:
            time.sleep(0.6)
        dist.barrier()
        return rank
    """
    assert run(tmp_path, observers.call_evaluate, code).values == [0, 1]


def test_a_rank_that_comes_late_is_no_hang(tmp_path: Path):
    code = """
    import time

    def evaluate(rank):
        time.sleep(1.5 * rank)
        dist.all_reduce(torch.ones(3))
        return rank
    """
    assert run(tmp_path, observers.call_evaluate, code).values == [0, 1]


def test_where_nothing_is_recorded_the_deadline_holds(tmp_path: Path):
    code = "def evaluate(rank):\n    if rank == 0: dist.barrier()\n"
    result = run(tmp_path, observers.call_evaluate, code, timeout=2.0, env={"TORCH_FR_BUFFER_SIZE": "0"})
    assert [report.status for report in result.reports] == ["timeout", "ok"]
    assert result.reports[0].note == "did not finish within 2 s"
    assert said(result, tmp_path).saw == "after 2 s rank 0 had not finished, while rank 1 had."


@pytest.mark.parametrize("inputs", [b"no message", None, {"new": 3}, 1 << 21], ids=str)
def test_forged_records_are_the_ranks_failure(inputs: object):
    report = server().run(observers.forge_records, 1, code=None, inputs=inputs).reports[0]
    assert report.status == "exited"
    assert report.note.startswith("wrote garbage on the lab's own channel: no record of collectives")


def test_a_rank_cannot_have_a_file_quoted_that_is_not_the_students(tmp_path: Path):
    secret = tmp_path / "secret.py"
    secret.write_text("the secret\n")
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("def evaluate(rank): pass\n")
    (folder / "link.py").symlink_to(secret)
    for file in (f"{folder}/../secret.py", str(secret), str(folder / "link.py"), str(folder)):
        result = server().run(observers.forge_frames, 2, code=folder, inputs=file, timeout=DEADLINE)
        outcome = explain(result, exercise="6.2", code=folder)
        assert isinstance(outcome, Failed)
        assert "the secret" not in "".join(outcome.diagnosis.lines)
        assert result.seconds < SOON


# Through the checks of exercises ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exercise", "region", "line", "branch", "name", "saw"),
    [
        (
            "6.2",
            "6.2",
            "dist.all_reduce(sums)",
            "if dist.get_rank() == 0:",
            "collective-on-one-rank",
            "rank 0 waits in all_reduce at train.py:{}; rank 1 returned from evaluate() without calling it.",
        ),
        (
            "6.1",
            "6.1a",
            "run.backward(loss)",
            "if dist.get_rank() == 0:",
            "backward-skipped",
            "rank 0 waits in all_reduce (backward pass) at train.py:{}; rank 1 returned from train_step() without "
            "a backward pass.",
        ),
        (
            "4.2",
            "4.2",
            "dist.broadcast(tensor.detach(), src=0)",
            "if dist.get_rank() == 1:",
            "collective-on-one-rank",
            "rank 1 waits in broadcast at fsdp_utils.py:{}; rank 0 returned from get_fsdp_model() without "
            "calling it.",
        ),
    ],
)  # fmt: skip
def test_a_hang_in_an_exercise(
    tmp_path: Path, exercise: str, region: str, line: str, branch: str, name: str, saw: str
):
    code = solution(region)
    assert f"{line}\n" in code
    margin = code.partition(line)[0].rpartition("\n")[2]
    folder = with_answer(tmp_path, region, code.replace(line, f"{branch}\n{margin}    {line}"))
    result = run_exercise(syllabus()[exercise], folder)
    assert isinstance(result.outcome, Failed)
    source = (folder / syllabus()[exercise].file).read_text()
    number = source[: source.index(branch)].count("\n") + 2
    assert (result.outcome.diagnosis.name, result.outcome.diagnosis.saw) == (name, saw.format(number))
    assert result.outcome.diagnosis.look.endswith((f":{number - 1}  {branch}", f":{number}  {line}"))
    if exercise != "3.1":  # the condition parts the ranks, and without it nothing is wrong
        assert result.outcome.diagnosis.look.endswith(f":{number - 1}  {branch}")
    assert result.seconds < 3 * SOON
