"""Lines that complain, or look like it, in logs of jobs that something else has ended."""

import re
from itertools import islice
from pathlib import Path

import pytest

from lab.diagnose import overcome
from lab.diagnose.evidence import Evidence
from lab.diagnose.logs import first_error
from lab.diagnose.verdict import findings

CORPUS = Path(__file__).parent / "corpus"
# What other software writes into many logs, of jobs that go well too.
NOISE = """\
bash: cannot set terminal process group (-1): Inappropriate ioctl for device
/bin/sh: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8): No such file or directory
/etc/profile: line 33: ulimit: open files: cannot modify limit: Operation not permitted
fatal: not a git repository (or any of the parent directories): .git
ldconfig: Can't create temporary cache file /etc/ld.so.cache~: Permission denied
slurmstepd: error: task_g_set_affinity: Operation not permitted
srun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1
ERROR: pip's dependency resolver does not currently take into account all the packages that are installed.
WARNING: Skipping mount /etc/localtime [binds]: /etc/localtime doesn't exist in container
[n1:1] mca_base_component_repository_open: unable to open mca_op_avx: a.so: undefined symbol: ompi_op_avx (ignored)
2024-01-01 00:00:00.1: W tensorflow/dso_loader.cc:64] Could not load dynamic library 'libnvinfer.so.7'; \
dlerror: libnvinfer.so.7: cannot open shared object file: No such file or directory
2024-01-01 00:00:00.1: E external/xla/cuda_dnn.cc:9261] Unable to register cuDNN factory: one is registered already
n1:1:1 [0] NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory
n1:1:1 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]
wandb: Network error (ConnectionError), entering retry loop.
mkdir -p failed for path /home/user/.config/matplotlib: [Errno 13] Permission denied: '/home/user/.config'
Warning:  apex was installed without --cpp_ext. Original error: ModuleNotFoundError("No module named 'amp_C'")
/home/user/a.py:33: FutureWarning: You are using `torch.load` with `weights_only=False` (the default value).
If you get "CUDA out of memory" errors, lower --per_device_train_batch_size or use gradient checkpointing.
"""
WENT_ON = "epoch 1 step 100 loss 2.31\n"
RAISED = """\
Traceback (most recent call last):
  File "/home/user/x/train.py", line 98, in validate
    score = metrics["psnr"]
KeyError: 'psnr'
"""
MODULE = "/etc/profile.d/modules.sh: line 12: module: command not found\n"
CHDIR = (
    "slurmstepd: error: couldn't chdir to `/home/user/burst': No such file or directory: going to /tmp instead\n"
)
NUMPY = "A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.0.0 as it may crash.\n"
RETRIED = "wandb: HTTPSConnectionPool(host='api.wandb.ai', port=443): Max retries exceeded with url: /graphql\n"
PLUGIN = "n1:1:1 [1] nccl_net_ofi_create_plugin:259 NCCL WARN NET/OFI aws-ofi-nccl initialization failed\n"
OLD_DRIVER = (
    "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 10010).\n"
)
GPU_FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 is full.\n"
SYSTEM = "n1: Test NCCL failure common.cu:1005 'unhandled system error'\n"
KILLED = "E0 a.py:1] failed (exitcode: -9) local_rank: 1 (pid: 7) of binary: x\n"


def first(log: str) -> str:
    return next((finding.name for finding in findings(Evidence(name="train.err", log=log))), "")


def logs() -> list[str]:
    texts = [file.read_text(encoding="utf-8") for file in sorted(CORPUS.glob("*.txt"))]
    return [case.partition("\n")[2] for text in texts for case in re.split(r"^=== ", text, flags=re.M)[1:]]


@pytest.mark.parametrize("begun", ["", WENT_ON])
def test_what_is_in_many_logs_changes_no_finding(begun):
    assert first_error(NOISE) is None
    changed = [log for log in islice(logs(), 0, None, 6) if first(NOISE + begun + log) != first(log)]
    assert not changed


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (MODULE + WENT_ON + RAISED, "raised"),
        (MODULE + RAISED, "raised"),  # Python ran, and came as far as the user's own line
        (MODULE + WENT_ON, "module-unknown"),  # nothing else is known
        (MODULE + "ModuleNotFoundError: No module named 'torch'\n", "module-unknown"),
        (CHDIR + WENT_ON + "slurmstepd: error: Detected 3 oom_kill events in StepId=7.0.\n", "out-of-memory"),
        (CHDIR + "FileNotFoundError: [Errno 2] No such file or directory: 'data/a.h5'\n", "folder-not-on-node"),
        (CHDIR + SYSTEM, "unknown"),  # of the latter it is not known whether it needs that folder
        (NUMPY + WENT_ON + RAISED, "raised"),
        (NUMPY + WENT_ON + KILLED, "killed"),
        (RETRIED + WENT_ON + RAISED, "raised"),
        (RETRIED + RAISED, "unknown"),  # without a step of training either may have come first
        (RETRIED, "no-internet"),
        (PLUGIN + WENT_ON + RAISED, "raised"),
        (OLD_DRIVER + WENT_ON + RAISED, "raised"),
        (OLD_DRIVER + WENT_ON, "driver-too-old"),
        (GPU_FULL + WENT_ON + KILLED, "gpu-memory-full"),  # an exception is none: the step was printed late
        (NUMPY + WENT_ON + NUMPY + RAISED.replace("psnr", "numpy"), "mixed-versions"),  # it came again
    ],
)
def test_what_the_program_lived_through_is_not_the_cause(log, cause):
    assert first(log) == cause


LOST = "[rank7]: RuntimeError: [/a/pair.cc:534] Connection closed by peer [10.0.0.2]:35230\n"
IB = "n1:1:1 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : Got completion from peer n2 with error 12, opcode 0\n"
LATE = "[rank7]: torch.distributed.DistNetworkError: The client socket has timed out after 600s\n"
STRANGE = "solver: error: the mesh is not closed\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (STRANGE + LOST, "unknown"),
        (LOST + STRANGE, "rank-lost"),
        (LOST + LATE, "rank-lost"),
        (LATE, "ranks-missing"),
        (RAISED + IB, "raised"),
        (STRANGE + "srun: error: n1: task 0: Terminated\n", "unknown"),
        ("RendezvousConnectionError: The connection to the C10d store has failed.\n", "unknown"),
        ("n1:1:1 [2] misc/nvmlwrap.cc:187 NCCL WARN nvmlDeviceGetHandleByPciBusId() failed\n" + SYSTEM, "unknown"),
        ("Exception ignored in: <function a.__del__ at 0x7f>\n" + RAISED + LOST, "rank-lost"),
    ],
)
def test_what_follows_hides_no_earlier_error(log, cause):
    assert first(log) == cause


def test_a_program_that_subprocess_did_not_find_is_no_file_of_the_users():
    ran = '  File "/usr/lib/python3.11/subprocess.py", line 1955, in _execute_child\n    raise child\n'
    missing = RAISED.replace("KeyError: 'psnr'", f"{ran}FileNotFoundError: [Errno 2] No such file: 'nvidia-smi'")
    assert first(missing) == "program-not-found"


def test_training_is_seen_in_what_programs_print_of_it():
    lines = (
        "Epoch: [0][479/1736]	 Loss 0.6319 MAE 0.5976",
        "{'loss': 1.0421, 'learning_rate': 1.9e-05, 'epoch': 0.31}",
        "Epoch 0:  16%|#    | 7395/45743 [13:13:43<68:36:00,  6.44s/it]",
        "step 100 loss 8.113",
    )
    assert all(overcome.since(f"a\n{line}\nb\n", 1 << 10) or pytest.fail(line) for line in lines)
    assert not overcome.since("  0%|     | 0/800 [00:22<?, ?it/s]\nloss_fn(output).backward()\nepoch\n", 1 << 10)
