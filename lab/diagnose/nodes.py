"""What the lines of a log say together of a job and its nodes: what they have, and when it fell silent."""

import re
from datetime import datetime, timedelta
from itertools import pairwise

from lab.diagnose import overcome
from lab.diagnose.told.finding import Finding

_REFUSED = re.compile(r"^(?:sbatch|srun|salloc): error: .*Requested node configuration is not available", re.M)
_OPTION = re.compile(
    r"(?:--(?P<name>cpus-per-task|ntasks-per-node|mem|gres|gpus-per-node)[= ]|(?<= )-(?P<short>c) ?)(?P<value>\S+)"
)
_ASKS = re.compile(r"^(?:#SBATCH\s+|.*\b(?:sbatch|srun|salloc) )(?P<options>.*)$", re.M)
_HEADER = re.compile(r"^(?P<header>(?=.*\bCPUS\b)[A-Z_:()/ ]{8,})\n(?P<rows>(?:\S.*\n?){1,40})", re.M)
_NODE = re.compile(r"\bCPUTot=(?P<cpus>\d+)|\bRealMemory=(?P<memory>\d+)|\bGres=gpu:(?:\w[\w.-]*:)?(?P<gpus>\d+)")
_UNITS = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}

_TIME = r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)"
_STAMP = re.compile(rf"^.{{0,60}}?{_TIME}")
_LIMIT = re.compile(rf"^slurmstepd\S*: error: .*CANCELLED AT {_TIME}.*DUE TO TIME LIMIT", re.M)
_OF_SLURM = re.compile(r"^(?:slurmstepd|srun|sbatch)\S*: ")
_UNTIMED = 8  # lines without a time at the end, after which it is not known when the last one was written
_LONG, _LONG_AT_START = timedelta(minutes=15), timedelta(minutes=45)


def asked_too_much(log: str) -> Finding | None:
    """A request of a job that no node can meet, where the log shows both: CPUs, memory or GPUs of a node."""
    if _REFUSED.search(log) is None:
        return None
    asked = {
        one["name"] or "cpus-per-task": one["value"]
        for line in _ASKS.finditer(log)
        for one in _OPTION.finditer(f" {line['options']}")
    }
    has = _largest(log)
    wants = {
        "CPUs": _number(asked.get("cpus-per-task")) * max(_number(asked.get("ntasks-per-node")), 1),
        "MB of memory": _megabytes(asked.get("mem", "")),
        "GPUs": _number((asked.get("gres") or asked.get("gpus-per-node") or "").rpartition(":")[2]),
    }
    beyond = {what: number for what, number in wants.items() if 0 < has.get(what, 0) < number}
    if not beyond:
        return None
    saw = ", ".join(
        f"{number} {what} on a node, of which the largest has {has[what]}" for what, number in beyond.items()
    )
    return Finding(
        "sbatch-refused",
        f"Slurm did not take the job: it asks for {saw}.",
        "No node can meet that, whether it is free or not: what is drained or down has no part in it.",
        (
            "grep -n -E '#SBATCH' *.sh    # cpus-per-task times tasks, mem and gres: of one node",
            "sinfo --format='%P %l %D %c %m %G'   # partition, time limit, nodes, cores, memory, GPUs",
        ),
        order=0,
    )


def _largest(log: str) -> dict[str, int]:
    """The most that any node has, as sinfo's table or scontrol show node say."""
    most: dict[str, int] = {}

    def add(what: str, number: int) -> None:
        most[what] = max(number, most.get(what, 0))

    for table in _HEADER.finditer(log):
        columns = table["header"].split()
        for row in table["rows"].splitlines():
            cells = dict(zip(columns, row.split(), strict=False))
            add("CPUs", _number(cells.get("CPUS")))
            add("MB of memory", _number(cells.get("MEMORY", "").rstrip("+")))
            add("GPUs", _number(cells.get("GRES", "").partition("(")[0].rpartition(":")[2]))
    for one in _NODE.finditer(log):
        add("CPUs", _number(one["cpus"]))
        add("MB of memory", _number(one["memory"]))
        add("GPUs", _number(one["gpus"]))
    return most


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _megabytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", text)
    return int(int(found[1]) * _UNITS[found[2] or "M"]) if found else 0


def silent_before_limit(log: str) -> Finding | None:
    """A job that came to its time limit long after it had last said anything: it stood still."""
    limit = _LIMIT.search(log)
    if limit is None:
        return None
    before = [line for line in log[: limit.start()].splitlines() if line.strip() and not _OF_SLURM.match(line)]
    stamps = [(at, _when(*found.groups())) for at, line in enumerate(before) if (found := _STAMP.match(line))]
    times = [when for _, when in stamps if when is not None]
    end = _when(limit[1], limit[2])
    if len(times) < 2 or end is None or len(before) - stamps[-1][0] > _UNTIMED:
        return None
    silent = end - times[-1]
    usual = max((later - earlier for earlier, later in pairwise(times)), default=timedelta())
    trained = overcome.since(log, limit.start()) > 0
    other_zone = silent % timedelta(hours=1) < timedelta(minutes=2)  # a container's clock may be of another
    if other_zone or silent < max(_LONG if trained else _LONG_AT_START, 4 * usual):
        return None
    hours, minutes = divmod(int(silent.total_seconds()) // 60, 60)
    return Finding(
        "time-limit",
        f"The job came to its time limit, but the last line of its log is {hours} h {minutes:02d} min older.",
        "It stood still, or was at work without a word: no longer time would help a job that hangs. What was it "
        "at when it fell silent, and which rank said nothing more?",
        (
            "tail -n 5 {log}",
            "py-spy dump --pid PID    # of each rank, the next time, while it hangs: in which line?",
            "FLIGHT_RECORDER=1 {rerun}    # then lab diagnose {run} names the ranks and the lines",
        ),
        order=-1,
    )


def _when(day: str, time: str) -> datetime | None:
    try:
        return datetime.fromisoformat(f"{day}T{time}")
    except ValueError:
        return None
