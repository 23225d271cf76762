"""Ranks that differ: in the versions of what they load, in the collective they wait in, in what they are at."""

import pytest

from lab.diagnose.evidence import Evidence
from lab.diagnose.verdict import findings

WAITED = (
    "[rank{rank}]:[E1119 13:21:12.5 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum={number}, OpType={call}, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) "
    "ran for 600013 milliseconds before timing out.\n"
)
WARNED = "n1:1:9 [0] NCCL WARN something\n"
FAILED = "[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1, NCCL version {version}\n"
RAISED = """[rank2]: Traceback (most recent call last):
[rank2]:   File "/home/u/data.py", line 8, in load
[rank2]:     return table["train"]
[rank2]: KeyError: 'train'
"""


def waited(*ranks: int, number: int = 7, call: str = "ALLREDUCE", size: int = 100) -> str:
    return "".join(WAITED.format(rank=rank, number=number, call=call, size=size) for rank in ranks)


def first(log: str) -> tuple[str, str]:
    found = findings(Evidence(name="x", log=log))
    return (found[0].name, found[0].saw) if found else ("", "")


def nccl(node: str, version: str) -> str:
    return f"{node}:1:1 [0] NCCL INFO NCCL version {version}\n"


@pytest.mark.parametrize(
    ("log", "differ"),
    [
        (nccl("n1", "2.21.5+cuda12.4") + nccl("n2", "2.27.3+cuda12.9") + WARNED, True),
        (FAILED.format(rank=0, version="2.18.6") + FAILED.format(rank=8, version="2.26.2"), True),
        (nccl("n1", "2.21.5+cuda12.4") + nccl("n2", "2.27.3+cuda12.9"), False),  # nothing failed
        (nccl("n1", "2.27.3+cuda12.4") + nccl("n2", "2.27.3+cuda12.9") + WARNED, False),
        (nccl("n1", "2.21.5") + nccl("n1", "2.27.3") + WARNED, False),  # one node, twice: another attempt
        ("NCCL version 2.21.5\n" + nccl("n2", "2.27.3") + WARNED, False),  # who said the first?
        (FAILED.format(rank=0, version="2.26.2") + FAILED.format(rank=8, version="2.26.2"), False),
    ],
)
def test_versions_that_differ_are_a_finding_where_ranks_could_not_talk(log, differ):
    name, saw = first(log)
    assert (name == "versions-differ") == differ
    assert not differ or "different versions of NCCL: 2." in saw


@pytest.mark.parametrize(
    ("log", "name"),
    [
        (waited(0, 1, 2) + waited(3, size=3), "collectives-differ"),
        (waited(0, 1) + waited(2, call="BROADCAST"), "collectives-differ"),
        (waited(0, 1, 2, 3), "unknown"),  # none was missing
        (waited(0, 1) + waited(2, number=8, size=3), "nccl-timeout"),
        (waited(0) + waited(1, call="SEND"), "nccl-timeout"),  # a message has two sides
        (waited(0, call="ALLTOALL") + waited(1, call="ALLTOALL", size=3), "nccl-timeout"),  # may be uneven
        (
            waited(0) + waited(1, size=3) + "[PG ID 1 PG GUID 3 Rank 0]\n[PG ID 2 PG GUID 4 Rank 1]\n",
            "nccl-timeout",
        ),  # groups count by themselves
        (RAISED + waited(0, 1) + waited(3, size=3), "raised"),
    ],
)
def test_ranks_that_waited_in_different_collectives_are_told_apart(log, name):
    assert first(log)[0] == name


def test_each_side_is_named():
    saw = first(waited(0, 1, 2, size=2359296) + waited(3, size=3))[1]
    assert "ranks 0, 1 and 2 called ALLREDUCE with 2,359,296 numbers; rank 3 called ALLREDUCE with 3" in saw


DECODES = "rank 0: decoding images to /s/cache.npy: {part}%\n"
METRIC = "[METRIC] epoch=1 time=9.9 train_loss=1.9 val_loss=1.8 acc=0.38 images_per_sec=5.1 peak_mem=1MB\n"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (DECODES.format(part=40) + waited(1, 2, 3), "Rank 0 was still at work when ranks 1, 2 and 3 gave up"),
        ("0: copying 40% of the files\n" + waited(1), "Rank 0 was still at work when rank 1 gave up"),
        ("Map:   8%|7 | 726/9672 [02:32<30:38]\n" + waited(1, 2), "Rank 0 was still"),  # the one that did not wait
        ("Map:   8%|7 | 726/9672 [02:32<30:38]\n" + waited(2, 3), "A rank was still"),
        (DECODES.format(part=100) + waited(1, 2, 3), ""),  # it was done
        (DECODES.format(part=40) + METRIC + waited(1, 2, 3), ""),  # training had begun
        (DECODES.format(part=40) + waited(0, 1, 2, 3), ""),  # it waited itself
        ("rank 0: accuracy 71.2 %\n" + waited(1, 2, 3), ""),
        ("Epoch 1:  40%|4 | 4/10 [02:32<30:38]\n" + waited(1, 2, 3), ""),
        (DECODES.format(part=40) + RAISED + waited(0, 1, 3), ""),
    ],
)
def test_who_was_busy_while_others_waited_is_said(log, words):
    name, saw = first(log)
    assert (name == "rank-busy") == bool(words)
    assert words in saw
