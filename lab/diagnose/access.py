"""Whether a run was refused where it had read or written before: its rights went while it ran."""

import re
from pathlib import Path

from lab.base.words import one_line
from lab.diagnose import overcome
from lab.diagnose.symptoms.downloads import TICKETS, TO_DO
from lab.diagnose.told import exceptions
from lab.diagnose.told.finding import Finding

_DENIED = re.compile(r"[Pp]ermission denied|\bPermissionError\b|\[Errno 13\]|EACCES")
_PATH = re.compile(r"[Pp]ermission denied:? b?['\"](/[^'\"\n]+)['\"]")
_LOADS = re.compile(r"DataLoader worker|/utils/data/|, in __getitem__")
_EPOCH = re.compile(r"\bepochs?\b\W{0,4}(\d+)", re.I)
_DONE_THERE = re.compile(r"(?<!be )\b(?:saved|wrote|written|loaded|resumed)\b", re.I)
_DEEP = 3  # "/home/me" and the like say nothing of who may write below
_GIVEN_FOR_HOURS = re.compile(r"/afs/|\bkrb|\b[Kk]erberos|\bklist\b|\baklog\b|^tokens:|\bkinit\b|\bauks\b", re.M)
_MOUNTED = (
    "It had the right, and lost it while it ran: a ticket or token of that disk expired (Kerberos, AFS, mostly "
    "after 8 to 25 hours), the disk was mounted anew, or somebody changed its rights."
)


def lost(log: str) -> Finding | None:
    """A refusal that ended a run after it had trained, of a file or a folder that it had used until then."""
    raised, line = exceptions.first_of(log) or (None, "")
    if raised is None or not _DENIED.search(line):
        return None
    at = log.find(line)
    began = overcome.since(log, at)
    if not began or not (_loaded(log, began, at) or _was_there(line, log[:began])):
        return None
    who = f"Rank {rank[1] or rank[2]}" if (rank := exceptions.RANK.match(line)) else "A rank"
    said = one_line(exceptions.RANK.sub("", line), 300)
    tickets = _GIVEN_FOR_HOURS.search(log) is not None
    return Finding(
        "access-lost",
        f"{who} was refused in the middle of the run what it had been allowed until then: {said}",
        TICKETS if tickets else _MOUNTED,
        TO_DO,
        order=1,
    )


def _loaded(log: str, began: int, at: int) -> bool:
    """Whether it was a loader that was refused, of data that had been read: all once, or several files now."""
    if not _LOADS.search(log[began : at + 1]):
        return False
    epochs = {
        found[1] for row in log[:began].splitlines() if overcome.trains(row) for found in _EPOCH.finditer(row)
    }
    return len(epochs) > 1 or len(set(_PATH.findall(log[began:]))) > 1


def _was_there(line: str, before: str) -> bool:
    """Whether a line tells that something was read or written in the same folder."""
    if (path := _PATH.search(line)) is None:
        return False
    folders = [f"{one}/" for one in Path(path[1]).parents[:2] if len(one.parts) > _DEEP]
    return any(_DONE_THERE.search(row) and any(one in row for one in folders) for row in before.splitlines())
