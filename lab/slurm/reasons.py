"""Why a job failed, in one line, from its exit code and what it wrote to train.err."""

import re
import signal
from pathlib import Path

from lab.base import words
from lab.slurm import states

TAIL = 1 << 20  # bytes of a log that are read; what killed a job is at its end
LONGEST = 240  # characters of a reason

# torchrun repeats the failure of a rank as its own; SystemExit and the like say nothing.
_NOT_THE_CAUSE = re.compile(r"ChildFailedError|SignalException|SystemExit")
_EXCEPTION = re.compile(r"^(?:\[?rank\d+\]?:\s*)?((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Warning)\b.*)$")
_SENTENCE = re.compile(r"^(?:(?:main\.py|run\.sh): .+|.*main\.py: error: .+)$")
_LED_TO_ANOTHER = ("During handling of the above", "The above exception was the direct cause")
_RANK_SIGNAL = re.compile(r"Signal (\d+) \((SIG\w+)\) received by PID|exitcode\s*:\s*-(\d+)")
# Slurm's own words for the end of a job. A step is also cancelled when one of its ranks has failed.
_SLURM_LIMITS = (
    (re.compile(r"CANCELLED AT \S+ DUE TO TIME LIMIT"), states.TIMED_OUT, "ended by Slurm at its time limit"),
    (
        re.compile(r"^srun: error: .*: User defined signal 1$", re.M),
        states.TIMED_OUT,
        "ended by Slurm's warning (SIGUSR1) before its time limit, which came too early for it to save",
    ),
    (re.compile(r"CANCELLED AT \S+ DUE TO NODE FAILURE"), states.NODE_FAILURE, "a node failed"),
    (
        re.compile(r"oom[_-]kill|OUT_OF_MEMORY|exceeded memory limit", re.I),
        states.OUT_OF_MEMORY,
        "out of memory (Slurm's limit)",
    ),
)
_SLURM_CANCELLED = re.compile(r"JOB \S+ ON \S+ CANCELLED AT")
_SLURM_ENDED = re.compile(
    r"^srun: error: .*(?:Exited with exit code|Killed|Terminated|Aborted|Segmentation).*$"
    r"|^srun: (?:fatal|error): Unable to .*$|^run\.sh: .*$",
    re.M,
)


def tail(path: Path) -> str:
    """The end of a text file, whatever bytes are in it; empty when it cannot be read."""
    if not path.is_file():  # a pipe would never end
        return ""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def one_line(text: str) -> str:
    """Text fit for a table cell."""
    return words.one_line(text, LONGEST)


def from_log(text: str) -> str:
    """The line of a log that says what went wrong; empty when none does.

    The lab's own sentences come first, then the first exception: later ones are mostly other ranks that lost
    their partner.
    """
    lines = [line.rstrip() for line in text.splitlines()]
    for line in lines:
        if _SENTENCE.match(line):
            return one_line(line.split(": ", 1)[1].removeprefix("error: "))
    fallback = ""
    for i, line in enumerate(lines):
        found = _EXCEPTION.match(line)
        if not found or _NOT_THE_CAUSE.search(line) or "Warning" in line.split(":")[0]:
            continue
        fallback = fallback or one_line(found[1])
        following = next((later for later in lines[i + 1 :] if later.strip()), "")
        if not any(words in following for words in _LED_TO_ANOTHER):
            return one_line(found[1])
    return fallback


def from_exit(code: int, log: str) -> str:
    """Why a local job failed.

    Args:
        code: the launcher's exit code; negative when a signal ended it.
        log: what it wrote to train.err.
    """
    said = from_log(log)
    if said:
        return said
    killed = _RANK_SIGNAL.search(log)
    number = int(killed[1] or killed[3]) if killed else -code
    if number > 0:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return f"killed by {name}" + (" (often: out of memory)" if name == "SIGKILL" else "")
    return f"exit code {code}; train.err does not say why"


def slurm_end(log: str) -> tuple[str, str]:
    """In which state a Slurm job has ended badly and why, from train.err; ("", "") if nothing says so."""
    for pattern, state, meaning in _SLURM_LIMITS:
        if pattern.search(log):
            return state, meaning
    cancelled, ended = _SLURM_CANCELLED.search(log), _SLURM_ENDED.search(log)
    said = from_log(log)
    if said and (cancelled or ended):
        return states.of_failure(said), said
    if cancelled:
        return states.CANCELLED, "cancelled"
    return (states.FAILED, one_line(ended[0])) if ended else ("", "")
