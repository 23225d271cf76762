"""In which state a job is, in the words of results.csv, and what Slurm calls the same."""

import re
from collections.abc import Mapping

DONE, RUNNING, PENDING, INTERRUPTED = "done", "running", "pending", "interrupted"
FAILED, OUT_OF_MEMORY, TIMED_OUT = "failed", "out of memory", "timed out"
CANCELLED, NODE_FAILURE = "cancelled", "node failure"

BAD_ENDS = (FAILED, OUT_OF_MEMORY, TIMED_OUT, CANCELLED, NODE_FAILURE)  # no result will come of these
UNFINISHED = (PENDING, RUNNING, INTERRUPTED)  # interrupted: told to stop and saved; it can be resumed
STATES = (DONE, *UNFINISHED, *BAD_ENDS)

_OUT_OF_MEMORY = re.compile(
    r"(?<!often: )out of memory|OutOfMemoryError"
    r"|can(?:'t|not) allocate memory|CPUAllocator: not enough|\bMemoryError\b",
    re.I,
)

# https://slurm.schedmd.com/squeue.html, "JOB STATE CODES"
_OF_SLURM: Mapping[str, str] = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SUSPENDED"), PENDING),
    **dict.fromkeys(("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "RESIZING", "STOPPED"), RUNNING),
    **dict.fromkeys(("FAILED", "REVOKED", "SPECIAL_EXIT"), FAILED),
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), TIMED_OUT),
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL"), NODE_FAILURE),
    "OUT_OF_MEMORY": OUT_OF_MEMORY,
    "CANCELLED": CANCELLED,
    "PREEMPTED": INTERRUPTED,
    "COMPLETED": DONE,
}


def of_slurm(word: str) -> str:
    """The state for Slurm's word, such as TIMEOUT or "CANCELLED by 1000"; empty for an unknown one."""
    first = word.split()[0].rstrip("+") if word.split() else ""
    return _OF_SLURM.get(first, "")


def of_failure(reason: str) -> str:
    """failed, or out of memory where the reason says so."""
    return OUT_OF_MEMORY if _OUT_OF_MEMORY.search(reason) else FAILED
