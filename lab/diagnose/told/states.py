"""What Slurm itself says of the end of a job, in its records or in the log, each as a finding."""

from collections.abc import Mapping

from lab.diagnose.told.finding import GOES_ON, Finding

STATES: Mapping[str, Finding] = {
    "TIMEOUT": Finding(
        "time-limit",
        "The job came to its time limit, and Slurm ended it.",
        "It needed more time than was asked for. Or it hung: does the log grow until the end?",
        (
            "{longer} --run-id {run_id} --resume auto   # goes on from the last checkpoint",
            "tail -n 3 {log}",
        ),
        order=0,
    ),
    "NODE_FAIL": Finding(
        "node-failure",
        "A node of the job failed.",
        "Nothing that your program did. Slurm starts the job again, unless --no-requeue was given.",
        ("squeue --me   # is it there again? then leave it alone", "sinfo --list-reasons   # which node, and why"),
        order=0,
    ),
    "OUT_OF_MEMORY": Finding(
        "out-of-memory",
        "The job used more memory than it had asked for (the node's, not the GPU's), and Slurm ended it.",
        "Loader processes count too: each holds its batches, and a copy of what the data set holds.",
        (
            "sacct -j {job} --format=JobID,State,ReqMem,MaxRSS,ExitCode",
            "sbatch --mem=64G run.sh    # with its options: ask for more",
            "{rerun} --num-workers 2        # or need less",
        ),
        order=0,
    ),
    "CANCELLED": Finding(
        "cancelled",
        "The job was cancelled.",
        "By you or an administrator, with scancel; what it had saved is still there.",
        (GOES_ON, "sacct -j {job} --format=JobID,State   # by whom"),
        order=3,
    ),
    "PREEMPTED": Finding(
        "preempted",
        "Slurm took the job's nodes for another one.",
        "That is how a partition with preemption works: it can go on from its last checkpoint.",
        (GOES_ON,),
        order=0,
    ),
    "REQUEUED": Finding(
        "requeued",
        "The job was put back into the queue.",
        "Slurm starts it again by itself: do not submit it a second time.",
        ("squeue --me",),
        order=5,  # what was printed after it follows from it
    ),
}
