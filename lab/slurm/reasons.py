"""Why a job failed, in one line, from its exit code and the end of its log."""

import re
import signal
from pathlib import Path

from lab.base import words
from lab.slurm import messages, states

TAIL = 1 << 20  # bytes of a log that are read; what killed a job is at its end
LONGEST = 240  # characters of a reason

# torchrun repeats the failure of a rank as its own; SystemExit and the like say nothing.
_NOT_THE_CAUSE = re.compile(r"ChildFailedError|SignalException|SystemExit")
_EXCEPTION = re.compile(r"^(?:\[?rank\d+\]?:\s*)?((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Warning)\b.*)$")
_SENTENCE = re.compile(
    rf"^main\.py: (?!another rank has ended).+$|{messages.REFUSED_BY_RUN_SH}.+$|.*main\.py: error: .+$"
)
_LED_TO_ANOTHER = ("During handling of the above", "The above exception was the direct cause")
_RANK_SIGNAL = re.compile(r"Signal (\d+) \((SIG\w+)\) received by PID|exitcode\s*:\s*-(\d+)")
_REFUSED = re.compile(f"(?:{messages.NOT_TAKEN}|{messages.REFUSED_BY_RUN_SH}).*$", re.M)
# What messages.end_in() finds.
TIME_LIMIT, NODE = "ended by Slurm at its time limit", "a node failed"
_MEANING = {
    "TIMEOUT": TIME_LIMIT,
    "NODE_FAIL": NODE,
    "PREEMPTED": "Slurm took its nodes for another job",
    "OUT_OF_MEMORY": "out of memory (Slurm's limit)",
    "CANCELLED": "cancelled",
    "REQUEUED": "put back into the queue",
}
_TOO_EARLY = "ended by Slurm's warning (SIGUSR1) before its time limit, which came too early for it to save"


def tail(path: Path) -> str:
    """What the last job wrote to the end of a log, whatever bytes are in it; empty when it cannot be read."""
    if not path.is_file():  # a pipe would never end
        return ""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            return messages.latest(file.read().decode("utf-8", errors="replace"))
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
        if not any(said in following for said in _LED_TO_ANOTHER):
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
    """In which state a Slurm job has ended and why, from train.err; ("", "") if nothing says that it has."""
    end, said = messages.end_in(log), from_log(log)
    if end and not (said and end in ("CANCELLED", "REQUEUED")):
        return states.of_slurm(end), _MEANING[end]
    tasks = list(messages.TASK_ENDED.finditer(log))
    codes = {messages.exit_code(task) for task in tasks}
    if -signal.SIGUSR1 in codes:
        return states.TIMED_OUT, _TOO_EARLY
    signs = sorted([*tasks, *_REFUSED.finditer(log)], key=re.Match.start)
    if said and (end or signs):
        return states.of_failure(said), said
    if messages.SAVED in codes and codes <= {*messages.NO_CAUSE}:
        return states.INTERRUPTED, "told to stop, and has saved"
    return (states.FAILED, one_line(signs[0][0])) if signs else ("", "")
