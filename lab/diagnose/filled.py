"""A finding's commands with the job's own names in them: its node, its logs, the command that submits it "
"again."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from lab.base.words import one_line
from lab.diagnose import slurm_job
from lab.diagnose.evidence import Evidence
from lab.diagnose.told.finding import Finding

_GLOO = re.compile(r"\[/\S+\.(?:cc|cpp|h):\d+\] ")  # where in gloo's sources: of no use to anyone here
_NODES = re.compile(r"^job \d+(?:_\d+)?: \d+ ranks? on ([^;\n]+);", re.M)
_ENDED_ON = re.compile(r"^srun: error: ([\w.-]+): tasks? \d", re.M)
_NAMES_NODE = re.compile(
    r"(?:failed on node |[Ff]ailure on |srun: error: (?=\S+: task))([\w.-]+)|(?:^"
    r"|\s)([A-Za-z][\w.-]*):\d+:\d+ \[\d+\] "
)
# Where a log tells of the one node that it is from.
_MENTIONS_NODE = re.compile(
    r"^\s+host\s+: ([\w.-]+)$|\b(?:running|started|starting|allocated)(?: on)?(?: host"
    r"| node)?:? ([a-z][\w.-]*\d)\b"
    r"|\b(?:nvidia-smi|dmesg|[ep]rolog|node|host) on ([a-z][\w.-]*\d)\b"
    r"|\bSLURM_(?:JOB_)?NODELIST ?= ?([a-z][\w.-]*\d)\s|\b[Hh]ost(?:name)?\s?[:=] ?([a-z][\w.-]*\d)\b"
    r"|slurmstepd: error: \*\*\* (?:JOB|STEP) \S+ ON ([\w.-]+) ",
    re.M | re.I,
)
_OURS = "exercises/main.py"
_LOGS_NAMED = 4  # in a command: of a job with a log for each rank, the last ones
_NODE_OPTION = re.compile(r"(--(?:exclude|nodelist)=)NODE ")
_OF_TASK = re.compile(r"^(?P<who>Rank|Task) (?P<number>\d+)\b")
_LABEL = re.compile(r"^(\d{1,5}): ", re.M)
_TASKS_ENDED = re.compile(r"^srun: error: ([\w.-]+): tasks? ([\d,-]+): ", re.M)
_REPORTED = re.compile(r"^\s+host\s+: ([\w.-]+)\n\s+rank\s+: (\d+) ", re.M)  # by torchrun
_PROGRAM = re.compile(r"^(\w[\w./-]*\.py) FAILED$|\btorchrun\b.*?\s([\w./][\w./-]*\.py)\b", re.M)
_BATCH = re.compile(r"^\s+batch\s+\d+ in all, (\d+) on each rank", re.M)
_BY_SLURM = re.compile(r"^(?:srun|slurmstepd|sbatch|salloc): ", re.M)


def filled(finding: Finding, evidence: Evidence) -> Finding:
    values = _values(evidence)
    lacks = [name for name in ("job", "log") if not values[name]]
    do = [_fill(command, values) for command in finding.do if not any(f"{{{one}}}" in command for one in lacks)]
    if node := _node(finding.saw, evidence.log):
        do = [_NODE_OPTION.sub(rf"\g<1>{node} ", command) for command in do]
    if (program := _program(evidence.log)) != _OURS:
        do = [command.replace(_OURS, program).replace("grep main.py", f"grep {program}") for command in do]
    saw = _GLOO.sub("", one_line(finding.saw, 400))
    return Finding(finding.name, saw, finding.means, tuple(do), finding.order)


def _program(log: str) -> str:
    """The script that torchrun names in the log; the lab's own where it names none."""
    named = [one or other for one, other in _PROGRAM.findall(log)]
    return named[-1] if named else _OURS


def _node(saw: str, log: str) -> str:
    """The node that a line names as its own, or on which all of the job ran; "" where that is not certain."""
    if (named := _NAMES_NODE.search(saw)) is not None:
        return next(name for name in named.groups() if name)
    ran_on = _NODES.findall(log)
    nodes = set(ran_on[-1].split()) if ran_on else set(_ENDED_ON.findall(log))
    if len(nodes) == 1:
        return nodes.pop()
    if (said := _OF_TASK.match(saw)) and (node := _of_task(said, log, ran_on[-1].split() if ran_on else [])):
        return node
    mentioned = set() if nodes else {next(filter(None, names)) for names in _MENTIONS_NODE.findall(log)}
    return mentioned.pop() if len(mentioned) == 1 else ""


def _of_task(said: re.Match[str], log: str, nodes: list[str]) -> str:
    """The node of a rank, as srun names it at the end; of a task of a step that has one on each node, by its "
    "number."""
    number = int(said["number"])
    if said["who"] == "Task":
        labels = {int(label) for label in _LABEL.findall(log)}
        return nodes[number] if labels == set(range(len(nodes))) and number in labels else ""
    hosts = {host for host, rank in _REPORTED.findall(log) if int(rank) == number}
    if len(hosts) == 1:
        return hosts.pop()
    for node, tasks in _TASKS_ENDED.findall(log):
        ranges = [part.strip("-").partition("-") for part in tasks.split(",") if part.strip("-")]
        if any(int(first) <= number <= int(last or first) for first, _, last in ranges):
            return str(node)
    return ""


def _fill(command: str, values: Mapping[str, str]) -> str:
    for again in ("rerun", "longer"):
        before, is_there, more = command.partition(f"{{{again}}} --")
        if is_there:
            more = f"--{more}"
            command = f"{before}{slurm_job.changed(values[again], more.partition('#')[0])} {more}"
    for name, value in values.items():
        command = command.replace(f"{{{name}}}", value)
    return command


def _values(evidence: Evidence) -> dict[str, str]:
    batch: Any = evidence.config.get("per_device_batch_size")
    if batch is None and (said := _BATCH.findall(evidence.log)):
        batch = int(said[-1])
    half = str(batch // 2) if isinstance(batch, int) and not isinstance(batch, bool) and batch > 1 else "32"
    folder = evidence.name if evidence.run_id else "results/RUN"
    launcher = "sbatch run.sh" if evidence.jobid or _BY_SLURM.search(evidence.log) else "./run.sh"
    strategy = evidence.config.get("strategy")
    known = f" --strategy {shlex.quote(strategy)}" if isinstance(strategy, str) else ""
    rerun = evidence.command or launcher + known
    return {
        "rerun": rerun,
        "longer": slurm_job.longer(rerun),
        "half": half,
        "job": evidence.jobid,
        "run": folder,
        "run_id": evidence.run_id or "NAME",
        "log": shlex.join(evidence.files[-_LOGS_NAMED:]),
    }
