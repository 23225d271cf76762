"""A crash in compiled code is told with the frame in which it happened."""

import pytest

from lab.diagnose.evidence import gather
from lab.diagnose.verdict import findings

UCX = """[n9:332629:0:332629] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x10)
==== backtrace (tid: 332629) ====
 0 0x0000000000042520 __sigaction()  ???:0
 1 0x000000000006a2f1 uct_cuda_ipc_get_device_handle()  ???:0
=================================
"""
OPEN_MPI = """[n1:04411] *** Process received signal ***
[n1:04411] Signal: Segmentation fault (11)
[n1:04411] Signal code: Address not mapped (1)
[n1:04411] [ 0] /lib64/libpthread.so.0(+0x12cf0)[0x7f01]
[n1:04411] [ 1] /opt/nccl/lib/libnccl.so.2(ncclGroupEnd+0x1a)[0x7f02]
"""
ABSL = """*** SIGSEGV received at time=1764355200 on cpu 3 ***
PC: @     0x7f1200000000  (unknown)  cuMemcpyAsync
    @     0x7f1200001000  1234  c10::cuda::copy
"""
DEBUGGER = """Thread 1 "python" received signal SIGSEGV, Segmentation fault.
#0  0x00007f3300 in ibv_reg_mr_iova2 (pd=0x0) from /lib64/libibverbs.so.1
"""
FAULT_HANDLER = """[rank1]: Fatal Python error: Segmentation fault
[rank1]:
[rank1]: Current thread 0x0000148 (most recent call first):
[rank1]:   File "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3938 in barrier
[rank1]:   File "/home/u/train.py", line 11 in main
"""
REPORT = "E1 api.py:874] failed (exitcode: -11) local_rank: 1 (pid: 7) of binary: x\n"


@pytest.mark.parametrize(
    ("log", "saw", "means"),
    [
        (UCX, "A rank crashed (Segmentation fault), in uct_cuda_ipc_get_device_handle.", "UCX"),
        (OPEN_MPI, "A rank crashed (Segmentation fault), in ncclGroupEnd in libnccl.so.2.", "NCCL"),
        (ABSL, "A rank crashed (SIGSEGV), in cuMemcpyAsync.", "driver"),
        (DEBUGGER, "A rank crashed (SIGSEGV), in ibv_reg_mr_iova2 in libibverbs.so.1.", "InfiniBand"),
        (
            FAULT_HANDLER,
            "Rank 1 crashed (Segmentation fault), in barrier, line 3938 of distributed_c10d.py.",
            "Compiled code touched memory",
        ),
        (ABSL + REPORT, "Local rank 1 crashed (SIGSEGV), in cuMemcpyAsync.", "driver"),
        (REPORT, "Local rank 1 was ended by SIGSEGV.", "Compiled code touched memory"),
    ],
)
def test_the_frame_of_a_crash_is_named(tmp_path, log, saw, means):
    (tmp_path / "a.err").write_text(log, encoding="utf-8")
    first = findings(gather(tmp_path / "a.err"))[0]
    assert (first.name, first.saw) == ("ended-by-signal", saw)
    assert means in first.means


def test_no_frame_is_made_up_of_lines_that_are_none(tmp_path):
    (tmp_path / "a.err").write_text(f"{UCX.splitlines()[0]}\nepoch 3 0x10 done()\n", encoding="utf-8")
    assert findings(gather(tmp_path / "a.err"))[0].saw == "A rank crashed (Segmentation fault)."
