"""What PyTorch and NCCL say of themselves when they are asked to: TORCH_DISTRIBUTED_DEBUG, NCCL_DEBUG."""

import pytest

from lab.cli import main
from lab.diagnose.evidence import gather
from lab.diagnose.nccl_log import explained
from lab.diagnose.verdict import findings

# Of torch 2.11 on two ranks (gloo), TORCH_DISTRIBUTED_DEBUG=DETAIL and =INFO.
TENSOR = "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu)"
FINGERPRINTS = (
    "[rank1]: RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
    f"CollectiveFingerPrint(SequenceNumber=4, OpType=BROADCAST, TensorShape=[3, 2], {TENSOR}), but Rank 0 is "
    f"running collective: CollectiveFingerPrint(SequenceNumber=4, OpType=ALLREDUCE, TensorShape=[3], {TENSOR})."
    "Collectives differ in the following aspects: \tOp type: BROADCASTvs ALLREDUCE\n"
)
BARRIER = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/u/train.py", line 9, in main
[rank0]:     dist.monitored_barrier(timeout=timedelta(seconds=2))
[rank0]: RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 2000 ms
"""
UNUSED = """[rank1]: RuntimeError: Expected to have finished reduction in the prior iteration.
[rank1]: Parameters which did not receive grad for rank 1: head.bias, head.weight
[rank1]: Parameter indices which did not receive grad for rank 1: 2 3
"""
RAISED = """[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/u/data.py", line 8, in load
[rank1]:     return table["train"]
[rank1]: KeyError: 'train'
"""


@pytest.mark.parametrize(
    ("log", "name", "saw"),
    [
        (
            FINGERPRINTS,
            "fingerprints-differ",
            "As collective number 4 rank 1 called BROADCAST with a tensor of [3, 2], rank 0 ALLREDUCE with [3].",
        ),
        (
            BARRIER,
            "barrier-missed",
            "Rank 0 waited in monitored_barrier() for 2 s, and rank 1 did not come to it.",
        ),
        (BARRIER + RAISED, "raised", "Rank 1 raised KeyError: 'train', at data.py, line 8, in load."),
        (UNUSED, "unused-parameters-named", "those of head.bias, head.weight."),
    ],
)
def test_what_pytorch_says_of_collectives_is_put_into_words(tmp_path, log, name, saw):
    (tmp_path / "a.err").write_text(log, encoding="utf-8")
    (first, *_) = findings(gather(tmp_path / "a.err"))
    assert first.name == name
    assert saw in first.saw


HEAD = """NCCL version 2.21.5+cuda12.4
n1:1:9 [0] NCCL INFO comm 0x55 rank 0 nRanks 4 nNodes {nodes} localRanks 2 localRank 0 MNNVL 0
n1:1:9 [0] NCCL INFO Channel 00/02 :    0   1   2   3
n1:1:9 [0] NCCL INFO Channel 01/02 :    0   1   2   3
"""
P2P = "n1:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
SHM = "n1:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n"
GDR = "n1:1:9 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA\n"
RDMA = (
    "n1:1:9 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_1' (no module)\n"
    "n1:1:9 [0] NCCL INFO Channel 00 : 1[1a000] -> 2[1a000] [receive] via NET/IB/0\n"
)
SOCKET = (
    "n1:1:1 [0] NCCL INFO NET/IB : No device found.\nn1:1:1 [0] NCCL INFO Using network Socket\n"
    "n1:1:9 [0] NCCL INFO Channel 00/0 : 3[1] -> 0[0] [receive] via NET/Socket/0\n"
)
SWITCH = "n1:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n"
OFF = "n1:1:9 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message with X.\n"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            HEAD + P2P + GDR,
            ["NCCL 2.21.5, 4 ranks on 2 nodes, 2 rings.", "(GDRDMA, 1 link)", "(P2P, 1 link)"],
        ),
        (
            HEAD + SHM + RDMA,
            ["4 ranks", "without GPUDirect", "host's memory (SHM", "RDMA is off (no module)"],
        ),
        (HEAD + P2P + SOCKET, ["network Socket", "(P2P", "Between nodes they use TCP", "found no InfiniBand"]),
        (
            HEAD.replace("{nodes}", "1") + SOCKET,
            ["4 ranks on 1 node,", "Within the node they use TCP", "no Infini"],
        ),
        (HEAD + OFF + SWITCH, ["4 ranks", "between GPUs 1 and 0 is disabled", "environment: NCCL_P2P_DISABLE=1."]),
        ("epoch 1\n", []),
    ],
)
def test_the_ways_between_the_gpus_are_explained(log, said):
    sentences = explained(log.replace("{nodes}", "2"))
    assert len(sentences) == len(said), sentences
    for part in said:
        assert sum(part in sentence for sentence in sentences) == 1, (part, sentences)


def test_the_log_that_nccl_left_in_a_runs_folder_is_explained_beside_the_verdict(tmp_path, capsys):
    (tmp_path / "status.json").write_text('{"status": "done"}', encoding="utf-8")
    (tmp_path / "nccl-n1-7.log").write_text(HEAD.replace("{nodes}", "2") + P2P + GDR, encoding="utf-8")
    assert main(["diagnose", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "nccl   NCCL 2.21.5, 4 ranks on 2 nodes, 2 rings." in out
    assert out.index("nccl   ") < out.index("The run is done")
