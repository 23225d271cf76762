"""Logs of runs that came to their end, whatever they complained of, and of those that only look like it.

In ends_of_runs.txt a line "=== what | right" is above each log: well, the name of the cause, or any.
"""

import re
from pathlib import Path

import pytest

from lab.cli import main
from lab.diagnose.evidence import Evidence
from lab.diagnose.verdict import came_through, findings

_CASES = re.split(r"^=== ", (Path(__file__).parent / "ends_of_runs.txt").read_text(encoding="utf-8"), flags=re.M)
ENDS = {
    head.split(" | ")[0]: (head.split(" | ")[1], log)
    for head, _, log in (one.partition("\n") for one in _CASES[1:])
}
WELL = {what: log for what, (right, log) in ENDS.items() if right == "well"}
BADLY = {what: (log, right) for what, (right, log) in ENDS.items() if right != "well"}
STEPS = "step 100 loss 2.31\nstep 200 loss 1.90\n"
UNCAUGHT = """\
Traceback (most recent call last):
  File "/home/u/train.py", line 71, in <module>
    main()
KeyError: 'caption'
"""
OF_A_RANK = "".join(f"[rank3]: {line}\n" for line in UNCAUGHT.splitlines())


def of(log: str) -> Evidence:
    return Evidence(name="train.log", log=log, files=("train.log",))


@pytest.mark.parametrize("case", WELL)
def test_a_run_that_came_to_its_end_has_no_finding(case):
    evidence = of(WELL[case])
    assert came_through(evidence) is not None
    assert findings(evidence) == []


@pytest.mark.parametrize("case", BADLY)
def test_what_looks_like_an_end_hides_no_failure(case):
    log, cause = BADLY[case]
    evidence = of(log)
    assert came_through(evidence) is None
    found = [one.name for one in findings(evidence)]
    assert (found or ["unknown"])[0] == cause or cause == "any"


@pytest.mark.parametrize("case", WELL)
def test_a_rank_that_failed_is_found_in_what_else_looks_well(case):
    for failed in (OF_A_RANK, "srun: error: n1: task 3: Exited with exit code 1\n"):
        assert came_through(of(WELL[case] + failed)) is None
        assert came_through(of(failed + WELL[case])) is None or "restart" in case or "requeue" in case


def test_there_are_many_of_both():
    assert len(WELL) >= 35
    assert len(BADLY) >= 35


def test_what_slurm_knows_counts_more_than_what_a_log_says():
    log = STEPS + "training finished\n"
    assert came_through(of(log)) is not None
    for state in ("FAILED", "TIMEOUT", "CANCELLED"):
        assert came_through(Evidence(name="x", log=log, state=state)) is None
    assert came_through(Evidence(name="x", log=STEPS, state="COMPLETED")) is not None
    assert came_through(Evidence(name="x", log=STEPS + UNCAUGHT, state="COMPLETED")) is None


def test_a_run_that_ended_well_may_have_learned_nothing():
    log = "step 1 loss 2.3\nstep 2 loss: nan\nstep 3 loss: nan\nTraining finished.\nexit code 0\n"
    assert [one.name for one in findings(of(log))] == ["not-finite"]


def test_the_line_that_says_so_is_shown_and_that_a_log_breaks_off(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text(WELL["own-words"], encoding="utf-8")
    assert main(["diagnose", str(log)]) == 0
    out = capsys.readouterr().out
    assert "came to its end" in out
    assert "training finished in 1:41:09" in out
    log.write_text(BADLY["cut-off"][0], encoding="utf-8")
    assert main(["diagnose", str(log)]) == 1
    out = capsys.readouterr().out
    assert [words for words in ("in the midst of training", "466/1250", "sacct") if words not in out] == []


@pytest.mark.parametrize(
    "complaint",
    [
        "trying batch size 128 ... CUDA out of memory. Tried to allocate 1.50 GiB. -> halving\n",
        "wandb: Network error (ConnectTimeout), entering retry loop.\n",
        "PIL.UnidentifiedImageError: cannot identify image file '/d/1.jpg': skipped\n",
        "OSError: [Errno 116] Stale file handle: '/d/2.jpg', trying again\n",
        UNCAUGHT.replace("<module>", "log_metrics"),
    ],
)
def test_what_training_went_on_after_for_a_good_while_is_no_finding_of_a_log_that_breaks_off(complaint):
    assert findings(of(complaint + STEPS)) != []
    assert findings(of(complaint + 3 * STEPS)) == []
    assert findings(of(3 * STEPS + complaint)) != []
    assert findings(of(complaint + 3 * STEPS + OF_A_RANK)) != []
    assert findings(Evidence(name="x", log=complaint + 3 * STEPS, state="FAILED")) != []


def test_what_ended_the_program_is_no_complaint_of_it():
    assert [one.name for one in findings(of(UNCAUGHT + 3 * STEPS))] == ["raised"]
    assert [one.name for one in findings(of(OF_A_RANK + 3 * STEPS))] == ["raised"]
