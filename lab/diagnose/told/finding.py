"""One thing that happened to a job, in words."""

from dataclasses import dataclass

GOES_ON = "{rerun} --run-id {run_id} --resume auto"
UNKNOWN = "unknown"  # the name of a finding that says that the lab cannot explain what it saw
LOOK_IT_UP = (
    "grep -n -m 5 -i -E 'error|warn' {log}    # the earliest lines",
    "NCCL_DEBUG=INFO TORCH_DISTRIBUTED_DEBUG=DETAIL {rerun}    # says more of itself",
)


@dataclass(frozen=True)
class Finding:
    """What is said about a job, in three parts.

    name   kebab-case id, e.g. "out-of-gpu-memory"
    saw    what its log or its records say, with rank, line and numbers
    means  why that happens
    do     commands to try next, or sentences, the likeliest first
    order  0: the cause for certain; 1, 2: a cause; 3: an exception of the user's code; 4: how a process ended;
           5, 6: what a cause may look like from afar, and an exception that the lab does not know; 7: an error
           that it does not know, or that a rank waited in vain; 8, 9: what follows when another rank has ended
    """

    name: str
    saw: str
    means: str
    do: tuple[str, ...]
    order: int = 5


def interrupted(reason: str = "", order: int = 0) -> Finding:
    """Of a run that was told to stop, and has saved; `reason` is what it says of that itself."""
    saw = "The run was told to stop, and has saved" + (f": {reason}" if reason else "")
    return Finding(
        "interrupted", f"{saw}.", "A warning of the scheduler, or kill. Nothing is lost.", (GOES_ON,), order
    )
