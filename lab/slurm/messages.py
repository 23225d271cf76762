"""What Slurm, srun and run.sh write into a log about the end of a job: one table, for every room that reads logs.

Slurm's own are in the sources of slurmstepd (req.c) and of srun; they differ a little between versions.
"""

import re
import signal

# The memory of the node, not of the GPU. Some clusters let Slurm look at its use, others the kernel.
MEMORY = r"(?i:oom[_-]kill)|OUT_OF_MEMORY|Out Of Memory|[Ee]xceeded (?:(?:job|step) )?memory limit"

# Slurm's word for a job's state -> what in the log says that the job has come to it. The first one counts that the
# log holds. A step alone, without its job, is also cancelled when one of its ranks has failed: that is no cause.
_ENDS = {
    "TIMEOUT": r"CANCELLED .*DUE TO TIME LIMIT",
    "NODE_FAIL": r"CANCELLED .*DUE TO NODE (?:\S+ )?FAILURE|^srun: error: Node failure on ",
    "PREEMPTED": r"CANCELLED .*DUE TO PREEMPTION",
    "OUT_OF_MEMORY": MEMORY,
    "CANCELLED": r"JOB \S+ ON \S+ CANCELLED AT (?!.*DUE TO JOB REQUEUE)",
    "REQUEUED": r"CANCELLED .*DUE TO JOB REQUEUE",
}
# No job, or no step of it, was begun. What follows in the line says why, as it does after run.sh's own complaint.
NOT_TAKEN = (
    r"^(?:sbatch|srun|salloc): (?:error|fatal): (?:Batch job submission failed|Job submit/allocate failed"
    r"|Unable to (?:allocate resources|create step|confirm allocation|contact slurm controller)[^:\n]*)"
)
# Not its own notes, nor what a log shows of the script itself.
REFUSED_BY_RUN_SH = (
    r"^run\.sh: (?!the job could not be queued|here begins job"
    r"|(?:export|source|module|srun|torchrun|python\d?|cd|set|ulimit|unset|conda)\b"
    r"|[A-Z_]+=\S* (?:srun|python|torchrun)\b)"
)
TASK_ENDED = re.compile(
    r"srun: error: \S+: (?P<who>task)s? (?P<rank>\d+)\S*: (?P<how>Exited with exit code (?P<code>\d+)|\w.*)"
)
_BEGINS = re.compile(r"^(?:job \d+(?:_\d+)?: \d+ ranks? on|run\.sh: here begins job) ", re.M)  # by run.sh
# Slurm ends a job that it starts again, and scripts say that it has.
_PUT_BACK = re.compile(r"^.*CANCELLED .*DUE TO (?:PREEMPTION|JOB REQUEUE|NODE (?:\S+ )?FAILURE).*$", re.M)
_BEGINS_AGAIN = re.compile(
    r"^.{0,80}(?:\b[Jj]ob \d+(?:_\d+)? (?:was |has been )?(?:restarted|requeued and started)\b"
    r"|\b(?:SLURM_RESTART_COUNT|[Rr]estart count)\W{1,3}[1-9]\d?\b)",
    re.M,
)

# A job is ended, or begun, in a log that may be of several.
_NAMES_JOB = re.compile(
    r"^(?:slurmstepd\S*: error: \*\*\* (?:JOB|STEP) (?P<ended>\d+)\b.*CANCELLED"
    r"|\W{0,4}[Jj]ob (?:ID )?(?P<begun>\d{3,})\b).*\n?",
    re.M,
)
_OF_SLURM = re.compile(r"^(?:slurmstepd|srun)\S*: ", re.M)

SAVED = 85  # the exit code of a rank that was told to stop, and has saved
SAYS_NOTHING = (0, 1, 2)  # an error that the log tells of, a rank that has lost another, torchrun after either
NO_CAUSE = (*SAYS_NOTHING, SAVED, -signal.SIGTERM)
_SIGNALS = {
    "Killed": 9,
    "Terminated": 15,
    "Aborted": 6,
    "Segmentation fault": 11,
    "Bus error": 7,
    "User defined signal 1": 10,
    **{number.name: int(number) for number in signal.Signals},  # torch.multiprocessing.spawn's words
}


def end_in(log: str) -> str:
    """What Slurm says in its log of the end of a job, as the state that squeue has for it; "" if nothing."""
    return next((state for state, pattern in _ENDS.items() if re.search(pattern, log, re.M)), "")


def latest(log: str) -> str:
    """What the last of the jobs that have gone on in a log wrote there; all of it where only one has."""
    begun = [found.start() for found in _BEGINS.finditer(log)]
    if (ends := [found.end() for found in _PUT_BACK.finditer(log)]) and (not begun or begun[-1] < ends[-1]):
        again = _BEGINS_AGAIN.search(log, ends[-1])
        return log[again.start() :] if again else log
    if not begun or (len(begun) == 1 and not _OF_SLURM.search(log[: begun[0]])):
        return log  # what its own script has printed before
    return log[begun[-1] :]


def of_job(log: str, number: str = "") -> str:
    """A log without what it has copied or kept of another job, up to the line in which Slurm ended that one.

    Args:
        number: of the job that is meant; else the last one that the log names
    """
    named = list(_NAMES_JOB.finditer(log))
    mine = number or next((one["begun"] or one["ended"] for one in reversed(named)), "")
    others = [one for one in named if one["ended"] not in (None, mine)]
    rest = log[others[-1].end() :] if others else log
    own = any(line.strip() and not _OF_SLURM.match(line) for line in rest.splitlines())
    return rest if own else log  # of an array's task Slurm gives another number than its log's name


def exit_code(ended: re.Match[str]) -> int:
    """How a process ended, as subprocess has it: its exit code, or -9 for SIGKILL; 0 where that is not known.

    Args:
        ended: with the group `code`, or without it `how`, in srun's words.
    """
    code = ended["code"]
    if code is None:
        return -next((number for word, number in _SIGNALS.items() if ended["how"].startswith(word)), 0)
    value = int(code)
    return 128 - value if 128 < value <= 128 + signal.SIGRTMAX else value
