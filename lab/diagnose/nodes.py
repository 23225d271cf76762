"""What the lines of a log say together of a job and its nodes: what they have, where they meet, its silence."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from lab.base.words import one_line
from lab.diagnose import overcome
from lab.diagnose.told import exceptions
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

_SOME_NODES = r"(?P<list>[A-Za-z][\w.-]*(?:\[[\d,-]+\]|\d+)(?:,[A-Za-z][\w.-]*(?:\[[\d,-]+\]|\d+))*)"
_NODE_LIST = re.compile(rf"(?:SLURM_(?:JOB_|STEP_)?NODELIST|\bnodes?(?:[ _]?list)?) ?[=:] ?{_SOME_NODES}", re.I)
_RAN_ON = re.compile(rf"\b[Oo]n (?:nodes? )?{_SOME_NODES}")
# Where a line tells of the node that it is from: Slurm's, NCCL's, PyTorch's and torchrun's.
_FROM = re.compile(
    r"^srun: error: ([\w.-]+): tasks? |\*\*\* (?:JOB|STEP) \S+ ON ([\w.-]+) "
    r"|^([A-Za-z][\w.-]{0,60}):\d+:\d+ \[\d+\]|\baddr=\[([A-Za-z][\w.-]*)\]:\d|^\s+host\s+: ([\w.-]+)$"
    r"|^\[(?!rank)([A-Za-z][\w.-]{0,60}\d)(?::\d+)?\] ",
    re.M,
)
_PLACE = r"(?P<host>[A-Za-z][\w.-]*|127\.\d+\.\d+\.\d+)"
_TOLD = re.compile(
    r"(?P<how>\bMASTER_ADDR\b['\"]? ?[=:]|--(?:rdzv[-_]endpoint|master[-_]addr)[= ]"
    rf"|\b(?:rdzv_endpoint|init_method)\b['\"]? *[=:]) ?['\"]?(?:tcp://)?{_PLACE}(?![\w$(]|:/)",
)
_TRIED = re.compile(
    rf"(?:failed to connect to|trying to connect to|connect/validate to host|remote=) ?[\[(]?{_PLACE}\]?[:,]"
)
_NOBODY = r"(?:client socket has|timed out|No route|refused|failed to connect).{0,120}(?<![\w.-])"
_NEVER_MET = re.compile(
    r"^.*(?:client socket has|waiting for clients|Rendezvous(?:Timeout|Connection)Error|Dist(?:Network|Store)Error"
    r"|errno: 111\b|Connection refused|Timed out initializing|DUE TO TIME LIMIT).*$",
    re.M,
)
_LOCAL = re.compile(r"localhost\b|127\.")
_NOT_FOR_JOBS = re.compile(r"log-?in|front-?end|submit", re.I)
_NOR_THESE = re.compile(r"head|master|admin|mgmt|gateway", re.I)  # but a job's own may be called so
_FIRST = re.compile(r"^(?:\[rank0\]:|0: |\[0\])")
_MEET_ON_THE_FIRST = (
    "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)    # in the job, each time",
    "grep -n -E 'MASTER_ADDR|endpoint' *.sh ~/.bashrc    # where does the other one come from?",
)
_ON_EACH = (
    "localhost and 127.0.0.1 are on each node that node itself: only the ranks beside rank 0 find it, the others "
    "knock at their own door."
)
_OF_LOGIN = (
    "It was set where the job was submitted: hostname names the login node there, on which no rank of the job "
    "runs. They meet on the job's first node."
)
_OF_BEFORE = (
    "It was kept from an earlier start: in a file, in the shell or in the script. A job that was put back into "
    "the queue, after preemption say, gets other nodes; rank 0 is on the first of these."
)
_OUTSIDE = "No rank of the job listens there, not even rank 0: the ranks meet on the job's first node."


def meets_elsewhere(log: str) -> Finding | None:
    """A meeting point on a machine that is none of the job's nodes, or on each of several."""
    listed = {host for one in _NODE_LIST.finditer(log) for host in _hosts(one["list"])}
    ran_on = {host for one in _RAN_ON.finditer(log) for host in _hosts(one["list"])}
    listed = listed or (ran_on if len(ran_on) > 1 else listed)
    nodes = listed or ran_on | {next(filter(None, names)).partition(".")[0] for names in _FROM.findall(log)}
    named = [one.start() for pattern in (_TOLD, _TRIED) for one in pattern.finditer(log)]
    if not nodes or not named or overcome.since(log, len(log)) > max(named):  # they had met
        return None
    for how, host in dict.fromkeys(_meeting_points(log)):
        missed = re.search(rf"^.*{_NOBODY}{re.escape(host)}\b.*$", log, re.M)
        name = host.partition(".")[0]
        if _LOCAL.match(host):
            missed = missed or (_NEVER_MET.search(log) if how else None)
            if missed and len(nodes) > 1:
                return _elsewhere(
                    f"{how or 'The meeting point'} is {host}, and the job has several nodes",
                    nodes,
                    missed,
                    _ON_EACH,
                )
            continue
        if any(_alike(name, node) for node in nodes):
            continue
        login = _NOT_FOR_JOBS.search(name) or (listed and _NOR_THESE.search(name))
        if how and listed and login and not missed:
            missed = _NEVER_MET.search(log)
        if missed is None or "gai error" in missed[0]:
            continue
        numbered = any(re.sub(r"\d+", "#", node) == re.sub(r"\d+", "#", name) for node in listed)
        first_too = any(_FIRST.match(line) and host in line and _TRIED.search(line) for line in log.splitlines())
        if login or numbered or first_too:
            said = f"{how or 'The meeting point'} is {host}, which is none of the job's nodes"
            return _elsewhere(said, nodes, missed, _OF_LOGIN if login else _OF_BEFORE if numbered else _OUTSIDE)
    return None


def _elsewhere(said: str, nodes: set[str], missed: re.Match[str], means: str) -> Finding:
    line = exceptions.RANK.sub("", missed[0])
    return Finding(
        "meeting-point-elsewhere",
        f"{said} ({', '.join(sorted(nodes)[:8])}): {one_line(line, 200)}",
        means,
        _MEET_ON_THE_FIRST,
        order=-1,
    )


def _meeting_points(log: str) -> Iterator[tuple[str, str]]:
    """Each place where the ranks were told to meet, with the option or variable that says so; then those tried."""
    for one in _TOLD.finditer(log):
        yield one["how"].strip(" =:'\""), one["host"]
    for line in log.splitlines():
        if "loo" not in line and (tried := _TRIED.search(line)) is not None:  # gloo's meet each other elsewhere
            yield "", tried["host"]


def _alike(one: str, other: str) -> bool:
    """Whether two names may be of one machine: n7, n7-ib0, hsn-n7."""
    one, other = sorted((one.lower(), other.lower()), key=len)
    return re.search(rf"(?<![a-z0-9]){re.escape(one)}(?![a-z0-9])", other) is not None


def _hosts(text: str) -> list[str]:
    """Of "n[01-03,7],m2" each host."""
    found = []
    for stem, ranges, plain in re.findall(r"([A-Za-z][\w.-]*)\[([\d,-]+)\]|([A-Za-z][\w.-]*)", text):
        if plain:
            found.append(plain.partition(".")[0])
        for part in filter(None, ranges.split(",")):
            first, _, last = part.partition("-")
            if first.isdecimal() and (not last or last.isdecimal()):
                numbers = range(int(first), min(int(last or first), int(first) + 4096) + 1)
                found += [f"{stem}{number:0{len(first)}d}" for number in numbers]
    return found


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
