"""Of several errors in one log: which is the cause, which follows, and what is said where no rule is certain."""

import pytest

from lab.diagnose.evidence import gather
from lab.diagnose.verdict import findings

RAISED = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/u/data.py", line 8, in load
[rank0]:     return table["train"]
[rank0]: KeyError: 'train'
"""
STORE = "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.\n"
WAITED = (
    "[rank{rank}]:[E1119 13:21:12.5 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600013 "
    "milliseconds before timing out.\n"
)
FULL = "[rank{rank}]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.\n"
REPORT = "E0213 12:07:20.0 870572 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) "
ENDED = f"{REPORT}local_rank: 0 (pid: 876053) of binary: /home/u/env/bin/python\n"
CLOSED = "torch.distributed.elastic.rendezvous.api.RendezvousClosedError\n"
SPAWNED = "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGSEGV\n"
IMPORTED = """Traceback (most recent call last):
  File "/home/u/train.py", line 3, in <module>
    {code}
  File "/home/u/env/lib/python3.11/site-packages/timm/layers.py", line 9, in <module>
    from torch.nn import Unheard
RuntimeError: registered twice
"""
BELOW = """Traceback (most recent call last):
  File "/home/u/train.py", line 3, in step
    make(images)
  File "/home/u/env/lib/python3.11/site-packages/{library}", line 9, in make
    check(images)
RuntimeError: expected 3 channels
"""
CHILD = """Traceback (most recent call last):
  File "/home/u/main.py", line 3, in <module>
    mp.spawn(run, nprocs=2)
  File "/home/u/env/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 119, in join
    raise Exception(msg)
Exception:

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "/home/u/env/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 20, in _wrap
    fn(i, *args)
  File "/home/u/train.py", line 7, in run
    total = sums[0]
IndexError: list index out of range
"""
TYPED = """Traceback (most recent call last):
  File "/home/u/train.py", line 90, in epoch
    loss.backward()
KeyboardInterrupt
"""


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (RAISED + STORE, "raised"),  # the others wait for the rank that failed on its way to them
        (STORE + RAISED, "ranks-missing"),
        (WAITED.format(rank=1) + FULL.format(rank=1), "nccl-timeout"),  # after NCCL gave up
        (WAITED.format(rank=1) + FULL.format(rank=0), "gpu-memory-full"),
        (FULL.format(rank=1) + WAITED.format(rank=1), "gpu-memory-full"),
        (ENDED.format(code=1) + CLOSED, "exited"),
        (CLOSED + ENDED.format(code=1), "rank-lost"),
        (RAISED + ENDED.format(code=1) + CLOSED, "raised"),
        (SPAWNED, "ended-by-signal"),
        (SPAWNED.replace("signal SIGSEGV", "exit code 5"), "exited"),
        (IMPORTED.format(code="import timm"), "unknown"),  # the line that names a library is not to blame
        (BELOW.format(library="timm/layers.py"), "unknown"),  # deep in a library
        (BELOW.format(library="torch/nn/functional.py"), "raised"),  # which checks what it is given
        (CHILD, "raised"),  # the parent's exception only says that a child has one
        (TYPED, "keyboard"),
        (RAISED + TYPED, "raised"),
    ],
)
def test_a_consequence_is_never_the_cause(tmp_path, log, cause):
    (tmp_path / "a.err").write_text(log, encoding="utf-8")
    assert findings(gather(tmp_path / "a.err"))[0].name == cause


def test_where_no_rule_is_certain_the_first_line_that_speaks_of_an_error_is_shown(tmp_path):
    log = (
        "n1:77:190 [0] NCCL INFO error counters are clear\nepoch 1\nwidgetd: error: the widget is stuck\n"
        "widgetd: error: it is stuck again\nsrun: error: n1: task 0: Exited with exit code 1\n"
    )
    (tmp_path / "a.err").write_text(log, encoding="utf-8")
    (found,) = findings(gather(tmp_path / "a.err"))
    assert (found.name, found.saw) == (
        "unknown",
        "The first line that speaks of an error: widgetd: error: the widget is stuck",
    )


def test_of_a_run_that_goes_well_no_line_is_called_an_error(tmp_path):
    (tmp_path / "status.json").write_text('{"status": "running"}', encoding="utf-8")
    (tmp_path / "train.err").write_text("widgetd: error: the widget is stuck\n", encoding="utf-8")
    assert not findings(gather(tmp_path))


QUOTA = "[rank0]: OSError: [Errno 122] Disk quota exceeded: '/scratch/u/last.pth'\n"
ASSERTED = "[rank1]: RuntimeError: CUDA error: device-side assert triggered\n"
SHM = (
    "RuntimeError: DataLoader worker (pid 568) is killed by signal: Bus error. Insufficient shared memory (shm).\n"
)
NO_SPACE = "OSError: [Errno 28] No space left on device\n"
LATE = "[rank1]: torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n"
PACKAGED = """Traceback (most recent call last):
  File "/home/u/{file}", line 8, in read
    with self.env.begin() as txn:
{kind}: Environment maxreaders limit reached
"""
CGROUP = "slurmstepd: error: xcgroup_instantiate: unable to create cgroup '/sys/fs/x' : No space left on device\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            PACKAGED.format(file="data.py", kind="turbo.ReadersGoneError"),
            "unknown",
        ),  # compiled: it leaves no frame
        (PACKAGED.format(file="course/data.py", kind="course.data.EmptyError"), "raised"),
        (PACKAGED.format(file="data.py", kind="json.decoder.JSONDecodeError"), "raised"),
        (PACKAGED.format(file="data.py", kind="numpy.exceptions.AxisError"), "raised"),
        (
            PACKAGED.format(file="site-packages/x.py", kind="sqlite3.OperationalError") + WAITED.format(rank=3),
            "unknown",
        ),
        (
            PACKAGED.format(
                file="site-packages/y.py", kind="FileNotFoundError: '/tmp/torchinductor_u/a.tmp.pid_7'"
            ),
            "unknown",
        ),
        ("Net : Connect to 169.254.3.1<33323> failed : Connection refused\n", "nccl-connect"),
        (CGROUP, "node-trouble"),  # Slurm's own, not the user's disk
    ],
)
def test_what_a_package_or_slurm_itself_ran_out_of_is_not_blamed_on_the_user(tmp_path, log, cause):
    file = tmp_path / "train.err"
    file.write_text(log, encoding="utf-8")
    assert findings(gather(file))[0].name == cause


@pytest.mark.parametrize("log", [QUOTA + ASSERTED, ASSERTED + QUOTA])
def test_of_two_causes_that_do_not_explain_each_other_neither_is_chosen(tmp_path, log):
    file = tmp_path / "train.err"
    file.write_text(log, encoding="utf-8")
    first, *others = findings(gather(file))
    assert first.name == "unknown"
    assert "disk-full" in first.saw
    assert "device-assert" in first.saw
    assert log.splitlines()[0].removeprefix("[rank0]: ").removeprefix("[rank1]: ") in first.saw
    assert {one.name for one in others} == {"disk-full", "device-assert"}


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (NO_SPACE + SHM, "shared-memory"),  # what is full is named only later
        (SHM + NO_SPACE, "shared-memory"),
        (LATE + QUOTA, "disk-full"),  # one rank's disk explains another's waiting, not the other way round
        (QUOTA + LATE, "disk-full"),
    ],
)
def test_a_cause_that_is_known_to_bring_about_the_other_is_chosen(tmp_path, log, cause):
    file = tmp_path / "train.err"
    file.write_text(log, encoding="utf-8")
    assert findings(gather(file))[0].name == cause
