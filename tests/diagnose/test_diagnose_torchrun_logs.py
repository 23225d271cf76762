"""lab diagnose on the folder that torchrun --log-dir fills."""

import os
from pathlib import Path

from lab.diagnose.evidence import gather
from lab.diagnose.verdict import findings

RAISED = """Traceback (most recent call last):
  File "/home/u/data.py", line 8, in load
    return table["train"]
KeyError: 'train'
"""
LOST = "[rank0]: torch.distributed.DistBackendError: Connection closed by peer\n"


def write(log: Path, text: str, at: int) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text, encoding="utf-8")
    os.utime(log, (at, at))


def test_the_rank_that_failed_first_in_the_last_attempt_is_named(tmp_path):
    old, new = tmp_path / "none_a1" / "attempt_0", tmp_path / "none_b2" / "attempt_1"
    write(old / "0" / "stderr.log", RAISED.replace("train", "old"), at=5)
    write(new / "0" / "stdout.log", "epoch 1\n", at=20)
    write(new / "0" / "stderr.log", LOST, at=30)
    write(new / "1" / "stderr.log", RAISED, at=20)
    for attempt, at in ((old, 10), (new, 40)):
        os.utime(attempt, (at, at))
    for folder in (tmp_path, new.parent, new):
        evidence = gather(folder)
        first = findings(evidence)[0]
        assert (first.name, "Rank 1 raised KeyError: 'train', at data.py, line 8" in first.saw) == ("raised", True)
        assert "0: epoch 1\n" in evidence.log
        assert LOST in evidence.log  # it names its rank itself
