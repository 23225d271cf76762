"""What decides in a log is said: which library, which node, which task, which of two causes came first."""

import re
from pathlib import Path

import pytest

from lab.diagnose.evidence import Evidence, gather
from lab.diagnose.nccl_log import explained
from lab.diagnose.symptoms.code import CODE
from lab.diagnose.told.finding import Finding
from lab.diagnose.verdict import findings

TWO_NODES = "job 7: 8 ranks on n1 n2; they meet at n1:1\n"
LIMIT = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-21T05:30:23 DUE TO TIME LIMIT ***\n"
TRAINS = "epoch 1 step 40 loss 2.0712\nepoch 9 step 40 loss 1.0712\n"
RAISED = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 40, in step\n    x()\n'
SYMBOL = "ImportError: /v/torch/lib/libtorch_cpu.so: undefined symbol: {}\n"
XID = "1: NVRM: Xid (PCI:0000:9b:00): 119, pid=3, name=python, GSP\n"
MIG = "CUDA_VISIBLE_DEVICES=MIG-89c850dc-38e3,MIG-f2b5fbbd-850e\n"


def of(log: str) -> list[Finding]:
    return findings(Evidence(name="x", log=log))


def text(one: Finding) -> str:
    return " ".join((one.saw, one.means, *one.do))


@pytest.mark.parametrize(
    ("symbol", "library"),
    [
        ("iJIT_NotifyEvent", "MKL"),
        ("ncclCommRegister", "NCCL"),
        ("cudnnGetLibConfig", "cuDNN"),
        ("__nvJitLinkComplete_12_4", "CUDA's libraries"),
        ("cublasLtGetVersion", "CUDA's libraries"),
        ("cudaGraphInstantiateWithFlags", "CUDA, or an older driver"),
        ("cuMemCreate", "CUDA, or an older driver"),
        ("_ZN3c104cuda9SetDeviceEi", "PyTorch's own"),
        ("_ZNK2at10TensorBase8data_ptrIfEEPT_v", "PyTorch's own"),
        ("GOMP_parallel", "OpenMP"),
        ("__kmpc_fork_call", "OpenMP"),
        ("ucp_worker_create", "UCX"),
        ("ompi_mpi_comm_world", "MPI"),
        ("PyUnicode_AsUTF8", "Python's"),
        ("something_else", "Another NCCL, CUDA or cuDNN"),
    ],
)
def test_a_missing_symbol_names_its_library(symbol, library):
    found = of(SYMBOL.format(symbol))[0]
    assert found.name == "mixed-libraries"
    assert library in found.means


@pytest.mark.parametrize(
    ("log", "said", "unsaid"),
    [
        # A link goes down on the node that says so.
        (
            TWO_NODES + "n2:1:2 [2] net_ib.cc:108 NCCL WARN NET/IB : mlx5_2:1 Got async event : port error\n",
            "--exclude=n2 ",
            "IB_DISABLE",
        ),
        # srun's label is a task of its step, not a rank, where ranks name themselves.
        (
            TWO_NODES + "[rank1]: x\n0: NVRM: loading\n" + XID,
            "Task 1 has met a GPU or a link that is failing",
            "Rank 1",
        ),
        (
            TWO_NODES + "[rank1]: x\n0: NVRM: loading\n" + XID,
            "--exclude=n2 ",
            "NODE",
        ),
        (XID, "Rank 1 has met", "Task"),
        # The node of a rank is the one on which srun saw it end.
        (
            TWO_NODES + "[rank6]: OSError: [Errno 107] Transport endpoint is not connected: "
            "'/mnt/bucket/a/b.jpg'\n"
            "srun: error: n1: tasks 0-3: Exited with exit code 1\nsrun: error: n2: tasks 4,6-7: Terminated\n",
            "--nodelist=n2 ls /mnt/bucket",
            "ls .",
        ),
        ("OSError: [Errno 116] Stale file handle: '/home/u/data/x.bin'\n", "ls /home/u/data", "FUSE"),
        # Slices of a card.
        (MIG + "[rank1]: RuntimeError: CUDA error: invalid device ordinal\n", "(MIG)", "lab check 2.2"),
        (MIG + "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4b000\n", "(MIG)", "lab check 2.2"),
        ("[rank1]: RuntimeError: CUDA error: invalid device ordinal\n", "lab check 2.2", "MIG"),
        # Whose semaphores, sockets, headers and architecture.
        (
            "sl = self._semlock = _multiprocessing.SemLock(\nOSError: [Errno 28] No space left on device\n",
            "/dev/shm",
            "quota",
        ),
        ("n5:1:2 [1] socket.cc:443 NCCL WARN Call to accept failed : Too many open files\n", "NCCL's", "oader"),
        ("OSError: [Errno 24] Too many open files\n", "Loader processes", "NCCL"),
        ("/tmp/x.c:6:10: fatal error: Python.h: No such file or directory\n", "headers", "module load gcc"),
        ("RuntimeError: Failed to find C compiler. Please specify via CC\n", "module load gcc", "Python.h"),
        ("slurmstepd: error: execve(): /v/bin/python: Exec format error\n", "file -L", "chmod"),
        ("slurmstepd: error: execve(): /home/u/run.sh: Permission denied\n", "chmod +x", "file -L"),
        # What would break more.
        ("n1:1:2 [0] graph/search.cc:703 NCCL WARN XML Import Channel : dev 1 not found.\n", "env -u", "FILE= "),
        # HDF5 only where there is HDF5.
        ("OSError: [Errno 37] No locks available\n", "HF_HOME", "HDF5"),
        ("OSError: Unable to open file (unable to lock file, errno = 37, error message = 'No locks available')\n",
         "HDF5_USE_FILE_LOCKING", "HF_HOME"),
        # Names that only a wrapper has changed.
        (
            'RuntimeError: Error(s) in loading state_dict for A:\nUnexpected key(s) in state_dict: "module.a".\n',
            "module. is DDP's",
            "--model",
        ),
        ("RuntimeError: Error(s) in loading state_dict for ResNet:\n", "--model", "DDP"),
        # NCCL, not PyTorch, has no code for the card.
        ("n1:1:2 [0] x.cc:58 NCCL WARN Cuda failure 'named symbol not found'\n", "NCCL has no code", "arch_list"),
        # A crash whose cause nobody can know.
        ("srun: error: n1: task 1: Segmentation fault (core dumped)\n", "PYTHONFAULTHANDLER=1 sbatch", "broken"),
    ],
)  # fmt: skip
def test_what_decides_is_said_and_what_cannot_help_is_not(log, said, unsaid):
    found = of(log)[0]
    assert said in text(found)
    assert unsaid not in text(found)


@pytest.mark.parametrize(
    ("log", "names"),
    [
        (RAISED + "OSError: AF_UNIX path too long\n" + LIMIT, ["socket-path", "time-limit"]),
        (RAISED + "KeyError: 'rate'\n" + LIMIT, ["raised", "time-limit"]),
        (LIMIT + RAISED + "KeyError: 'rate'\n", ["time-limit"]),  # what comes after it follows from it
        (TRAINS + LIMIT, ["time-limit"]),
        (RAISED + "KeyError: 'rate'\n" + TRAINS + LIMIT, ["time-limit"]),  # was lived through
        ("Exception in thread Thread-3 (watch):\n" + RAISED + "KeyError: 'rate'\n" + LIMIT, ["time-limit"]),
        ("No space left on device, trying elsewhere\n" + TRAINS + LIMIT, ["time-limit"]),
    ],
)
def test_an_error_before_the_time_limit_is_the_cause(log, names):
    assert [one.name for one in of(log)][: len(names)] == names


def test_lines_of_another_job_do_not_count(tmp_path):
    ended = LIMIT.replace("JOB 7", "JOB 71002")
    log = tmp_path / "slurm-71009.out"
    log.write_text(ended + RAISED + "KeyError: 'rate'\n", encoding="utf-8")
    found = gather(log)
    assert found.jobid == "71009"
    assert [one.name for one in findings(found)] == ["raised"]
    log.write_text(ended + TRAINS + LIMIT.replace("JOB 7", "JOB 71009"), encoding="utf-8")
    assert [one.name for one in findings(gather(log))] == ["time-limit"]
    log.write_text(TRAINS + ended, encoding="utf-8")  # the task of an array, whose own number is another
    assert [one.name for one in findings(gather(log))] == ["time-limit"]


@pytest.mark.parametrize("symptom", CODE, ids=lambda one: one.name)
def test_an_error_of_the_code_with_a_known_meaning_is_still_placed(symptom):
    corpus = Path(__file__).parent / "corpus" / "eleventh_try.txt"
    cases = re.split(r"^=== ", corpus.read_text(encoding="utf-8"), flags=re.M)[1:]
    logs = [case.partition("\n")[2] for case in cases if case.split(" | ")[1] == symptom.name]
    logs += {
        "backward-twice": [RAISED + "RuntimeError: Trying to backward through the graph a second time\n"],
        "state-of-compiled": [RAISED + "AssertionError: FSDP assumes a._orig_mod.b is in the state_dict\n"],
        "cudagraph-overwritten": [
            RAISED + "RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten by a "
            "subsequent run.\n"
        ],
        "no-graph": [RAISED + "RuntimeError: grad can be implicitly created only for scalar outputs\n"],
        "shapes-differ": [RAISED + "RuntimeError: The size of tensor a (3) must match the size of tensor b (4)\n"],
    }.get(symptom.name, [])
    assert logs
    for log in logs:
        found = of(log)[0]
        assert (found.name, found.do[0].startswith("look at ")) == (symptom.name, True)
        assert re.search(r", at \w+\.py, line \d+, in \w+\.$", found.saw)


def test_of_an_error_without_a_known_meaning_the_lab_says_so():
    assert "the lab knows no more about it" in of(RAISED + "KeyError: 'rate'\n")[0].means


def test_a_way_that_failed_is_not_said_to_be_as_it_should():
    link = "n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    assert "as it should be" in explained(link)[-1]
    failed = explained(
        link + "n1:1:2 [0] transport/p2p.cc:275 NCCL WARN Cuda failure 101 'invalid device ordinal'\n"
    )
    assert "and failed" in failed[-1]
    assert "as it should be" not in failed[-1]
    link = "n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA\n"
    assert "as it should be" in explained(link)[-1]
    failed = explained(link + "n1:1:2 [0] NCCL WARN NET/IB : Got completion from peer x with error 4, opcode 0\n")
    assert "as it should be" not in failed[-1]
