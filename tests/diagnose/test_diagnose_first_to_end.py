"""Which process ended first, in the words of all that start processes: the others were told to stop after it."""

import pytest

from lab.diagnose.evidence import Evidence
from lab.diagnose.told.finding import Finding
from lab.diagnose.verdict import findings

READY = "rank 0 ready\nrank 1 ready\nrank 3 ready\n"
TORN_DOWN = (
    "srun: Terminating StepId=88213.0\n"
    "slurmstepd: error: *** STEP 88213.0 ON g07 CANCELLED AT 2025-05-19T10:10:10 ***\n"
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
)
TERMINATED = "srun: error: g07: tasks 0-1,3: Terminated\n"
TORCHRUN = (
    "W0206 04:40:13.210000 60980 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 61011 "
    "closing signal SIGTERM\n"
    "E0206 04:40:14.302000 60980 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) "
    "local_rank: 2 (pid: 61014) of binary: /v/bin/python\n"
)
REPORT = """\
Failures:
[1]:
  time      : 2025-02-06_04:40:13
  host      : ga03
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 61012)
  traceback : Signal 15 (SIGTERM) received by PID 61012
Root Cause (first observed failure):
[0]:
  time      : 2025-02-06_04:40:13
  host      : ga03
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 61014)
"""
OPEN_MPI = """\
--------------------------------------------------------------------------
{} detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: {}
  Exit code:    1
--------------------------------------------------------------------------
"""
HYDRA = """\
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   RANK 2 PID 3431 RUNNING AT n02
=   {}
===================================================================================
"""
SACCT = "JobID         State      ExitCode\n88213         FAILED     1:0\n88213.0       FAILED     1:0\n"


def first(log: str) -> Finding | None:
    return next(iter(findings(Evidence(name="train.log", log=log, files=("train.log",)))), None)


@pytest.mark.parametrize(
    "log",
    [
        "srun: error: g07: task 2: Exited with exit code 1\n" + TORN_DOWN + TERMINATED,
        "srun: error: g07: task 2: Exited with exit code 2\n" + TORN_DOWN + TERMINATED,
        "srun: error: g07: task 2: Exited with exit code 1\n"
        + TORN_DOWN
        + TERMINATED.replace("Terminated", "Killed"),
        "srun: error: g07: tasks 2,5: Exited with exit code 1\n" + TORN_DOWN + TERMINATED,
        "srun: error: g07: task 2: Exited with exit code 1\nsrun: error: g07: task 0: Aborted (core dumped)\n",
        "srun: error: g07: task 2: Exited with exit code 1\nsrun: error: g08: task 4: Exited with exit code 1\n",
        TORCHRUN,
        TORCHRUN + REPORT,
        OPEN_MPI.format("mpirun", "[[3437,1],2]"),
        OPEN_MPI.format("prterun", "[prterun-n01-1234@1,2]"),
        OPEN_MPI.format("prun", "[prte-n01-1234@3,2]"),
        HYDRA.format("EXIT CODE: 1"),
        "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n",
        "x1000c0s0b0n0.hsn: rank 2 exited with code 1\nx1000c0s0b0n0.hsn: rank 0 died from signal 15\n",
        "Process 2 exit with status code 1.\nProcess 0 exit with status code 143.\n",
        "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with exit code 1\n",
    ],
)
def test_the_first_to_end_is_named_with_its_code(log):
    found = first(READY + log)
    assert found is not None
    assert found.name == "exited"
    assert "ank 2 " in found.saw
    assert "exit code " in found.saw
    assert "SIGTERM" not in found.saw
    assert "standard error went elsewhere" in found.means


@pytest.mark.parametrize(
    ("log", "signal"),
    [
        ("mpirun noticed that process rank 2 with PID 0 on node n02 exited on signal 9 (Killed).\n", "SIGKILL"),
        (
            "prterun noticed that process rank 2 with PID 71 on node n02 exited on signal 11 (Segfault).\n",
            "SIGSEGV",
        ),
        (HYDRA.format("KILLED BY SIGNAL: 9 (Killed)"), "SIGKILL"),
        ("x1000c0s0b0n0.hsn: rank 2 died from signal 9\n", "SIGKILL"),
        ("ERROR:  One or more process (first noticed rank 2) terminated with signal 11\n", "SIGSEGV"),
        ("srun: error: g07: task 2: Killed\nsrun: error: g07: task 0: Exited with exit code 1\n", "SIGKILL"),
        ("srun: error: g07: task 2: Terminated\n", "SIGTERM"),
    ],
)
def test_a_signal_that_came_first_is_the_finding(log, signal):
    found = first(READY + log)
    assert found is not None
    assert signal in found.saw
    assert "ank 2 " in found.saw


def test_a_step_that_failed_is_named_where_no_task_is():
    found = first(READY + SACCT)
    assert found is not None
    assert found.saw == "Step 88213.0 ended with exit code 1."


def test_its_own_words_and_those_of_a_cause_come_before_its_code():
    raised = 'Traceback (most recent call last):\n[rank2]:   File "/u/a.py", line 3, in f\n[rank2]: KeyError: 1\n'
    raised = f"[rank2]: {raised}"
    ended = "srun: error: g07: task 2: Exited with exit code 1\n" + TORN_DOWN + TERMINATED
    assert [one.name for one in findings(Evidence(name="x", log=raised + ended))][:1] == ["raised"]
    lost = "[rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited\n"
    assert [one.name for one in findings(Evidence(name="x", log=lost + ended))][:1] == ["exited"]
    cancelled = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-21T05:30:23 ***\n"
    assert [one.name for one in findings(Evidence(name="x", log=cancelled + TERMINATED))][:1] == ["cancelled"]
