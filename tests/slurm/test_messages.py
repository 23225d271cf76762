"""The same log, read for results.csv and by lab diagnose: both say the same of how the job has ended."""

import pytest

from lab.diagnose.evidence import gather
from lab.diagnose.verdict import findings
from lab.slurm import reasons, states

JOB = "slurmstepd-node1: error: *** JOB 12 ON node1 CANCELLED AT 2026-01-05T10:00:00{} ***\n"
STEP = JOB.replace("JOB 12", "STEP 12.0")
PREEMPTED = JOB.format(" DUE TO PREEMPTION")
TIME_LIMIT = JOB.format(" DUE TO TIME LIMIT")
REQUEUED = JOB.format(" DUE TO JOB REQUEUE")
OOM_KILL = (
    "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.0. Some of your processes may have been killed"
)
RAISED = 'Traceback (most recent call last):\n  File "/home/ada/train.py", line 3, in train\n    x\nKeyError: 1\n'
SRUN = "srun: error: node1: task 0: "
AGAIN = "run.sh: here begins job 12\n"

# name -> the log, the state in results.csv, the first finding of lab diagnose
ENDS = {
    "time limit": (TIME_LIMIT, states.TIMED_OUT, "time-limit"),
    "a step's time limit": (STEP.format(" DUE TO TIME LIMIT"), states.TIMED_OUT, "time-limit"),
    "time limit after an exception": (
        RAISED + TIME_LIMIT,
        states.TIMED_OUT,
        "raised",
    ),  # what held the job up until then
    "node failure": (
        JOB.format(" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"),
        *(states.NODE_FAILURE, "node-failure"),
    ),
    "node failure in older words": (
        "slurmstepd: error: *** JOB 12 CANCELLED AT 2026-01-05T10:00:00 DUE TO NODE node1 FAILURE ***\n",
        *(states.NODE_FAILURE, "node-failure"),
    ),
    "node failure by srun": ("srun: error: Node failure on node2\n", states.NODE_FAILURE, "node-failure"),
    "preemption": (PREEMPTED, states.INTERRUPTED, "preempted"),
    "a step's preemption": (STEP.format(" DUE TO PREEMPTION"), states.INTERRUPTED, "preempted"),
    "requeue": (REQUEUED + STEP.format(""), states.PENDING, "requeued"),
    "an exception after a requeue": (REQUEUED + RAISED, states.FAILED, "raised"),
    "scancel": (JOB.format("") + STEP.format(""), states.CANCELLED, "cancelled"),
    "scancel after a requeue": (REQUEUED + JOB.format(""), states.CANCELLED, "cancelled"),
    "oom-kill": (OOM_KILL, states.OUT_OF_MEMORY, "out-of-memory"),
    "oom_kill": (OOM_KILL.replace("oom-kill", "oom_kill"), states.OUT_OF_MEMORY, "out-of-memory"),
    "oom-kill, then scancel": (f"{OOM_KILL}\n{JOB.format('')}", states.OUT_OF_MEMORY, "out-of-memory"),
    "a step's memory limit": (
        "slurmstepd: error: StepId=14.0 exceeded memory limit (699105280 > 314572800), being killed\n",
        *(states.OUT_OF_MEMORY, "out-of-memory"),
    ),
    "a job's memory limit": (
        f"slurmstepd: error: Exceeded job memory limit\n{STEP.format('')}{SRUN}Killed\n",
        *(states.OUT_OF_MEMORY, "out-of-memory"),
    ),
    "out of memory by srun": (f"{SRUN}Out Of Memory\n", states.OUT_OF_MEMORY, "out-of-memory"),
    "no memory for a tensor": (
        f"{RAISED.replace('KeyError: 1', 'RuntimeError: DefaultCPUAllocator: not enough memory')}"
        f"{SRUN}Exited with exit code 1\n",
        *(states.OUT_OF_MEMORY, "out-of-memory"),
    ),
    "warned too early": (f"{SRUN}User defined signal 1\n", states.TIMED_OUT, "ended-by-signal"),
    "told to stop": (f"{SRUN}Terminated\n{SRUN}Exited with exit code 85\n", states.INTERRUPTED, "interrupted"),
    "one killed, one told to stop": (f"{SRUN}Killed\n{SRUN}Exited with exit code 85\n", states.FAILED, "killed"),
    "bus error": (f"{SRUN}Bus error (core dumped)\n", states.FAILED, "ended-by-signal"),
    "a rank that raised": (f"{RAISED}{SRUN}Exited with exit code 1\n", states.FAILED, "raised"),
    "not begun": (
        "srun: error: Unable to create step for job 9: Requested nodes are busy\n",
        *(states.FAILED, "sbatch-refused"),
    ),
    "refused by sbatch": (
        "sbatch: error: Batch job submission failed: Invalid account specified\n",
        *(states.FAILED, "sbatch-refused"),
    ),
    "refused by run.sh": (
        "run.sh: scontrol named no node for this job\n",
        *(states.FAILED, "not-submitted-right"),
    ),
    "goes on": (f"{PREEMPTED}{AGAIN}", "", None),
    "goes on, and comes to its end": (f"{PREEMPTED}{AGAIN}{TIME_LIMIT}", states.TIMED_OUT, "time-limit"),
    "goes on, and is cancelled": (f"{PREEMPTED}{AGAIN}{JOB.format('')}", states.CANCELLED, "cancelled"),
    "a note of run.sh": ("run.sh: the job could not be queued again: submit it again with --resume\n", "", None),
}


@pytest.mark.parametrize("name", ENDS)
def test_results_and_diagnosis_agree_on_how_a_job_has_ended(tmp_path, name):
    log, state, finding = ENDS[name]
    (tmp_path / "train-12.err").write_text(log, encoding="utf-8")
    assert reasons.slurm_end(reasons.tail(tmp_path / "train-12.err"))[0] == state
    assert [found.name for found in findings(gather(tmp_path / "train-12.err"))][:1] == (
        [finding] if finding else []
    )


def test_that_another_rank_has_ended_is_no_reason():
    lost = "main.py: another rank has ended, and this one cannot go on without it: see what that one said\n"
    log = f"{lost}{RAISED}{SRUN}Exited with exit code 1\n"
    assert reasons.slurm_end(log) == (states.FAILED, "KeyError: 1")
    assert reasons.from_exit(1, f"{lost}exitcode : -9\n") == "killed by SIGKILL (often: out of memory)"
