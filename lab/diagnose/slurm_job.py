"""What Slurm says of a job: that it waits, for what, and how it was submitted."""

import re
import shlex
from pathlib import Path

from lab.diagnose.told.finding import Finding
from lab.slurm import query
from lab.slurm.query import SlurmJob

# In run.sh.
ASKS = {
    "--nodes": "1",
    "--ntasks-per-node": "4",
    "--gpus-per-node": "4",
    "--cpus-per-task": "4",
    "--time": "00:30:00",
}
# Options of main.py of which only one can be given.
_ONE_OF = (
    {"--global-batch-size", "--per-device-batch-size"},
    {"--epochs", "--measure-steps"},
    {"--no-checkpoints", "--save-every-steps"},
    {"--precision", "--no-amp"},
)
_AGAIN = ("--run-id", "--resume")  # what names a run that is there already

# Reasons for which a job waits for ever, in Slurm's words (man squeue, JOB REASON CODES).
_MEANS = {
    "PartitionConfig": "it asks for more nodes, or more of one node, than the partition has",
    "PartitionNodeLimit": "it asks for more nodes than one job of the partition may have",
    "PartitionTimeLimit": "it asks for more time than the partition allows",
    "BadConstraints": "no node is as it asks for",
    "DependencyNeverSatisfied": "the job that it waits for did not end as it should have",
    "InvalidAccount": "its account is none of yours, or may not use this partition",
    "InvalidQOS": "its QOS is none of yours, or may not be used with this partition",
}
_DEPENDS = (
    "scancel {job}   # it would wait for ever; or let it go without the other job:",
    "scontrol update JobId={job} Dependency=",
)
_SIZES = (
    "sinfo --format='%P %l %D %c %m %G'   # partition, time limit, nodes, and of each: cores, memory, GPUs",
    "scancel {job}   # it would wait for ever; then submit it with less",
)


def never_starts(reason: str) -> bool:
    return reason in _MEANS or bool(re.match(r"(?:Assoc|QOS)\w*(?:Max|Limit)\w*PerJob", reason))


def waiting(number: str, job: SlurmJob, stopped: str = "") -> Finding | None:
    """What there is to say of a job that has not begun, or begins again; None of any other.

    Args:
        stopped: why it was to begin again, a sentence.
    """
    state = job.state.partition(" ")[0]
    if state == "PENDING" and never_starts(job.reason):
        why = _MEANS.get(job.reason, "it asks for more than one job of yours may have")
        return Finding(
            "never-starts",
            f"Job {number} is in the queue and cannot start: {job.reason}.",
            f"{why[:1].upper()}{why[1:]}. Slurm keeps it all the same.",
            _DEPENDS if job.reason == "DependencyNeverSatisfied" else _SIZES,
            order=0,
        )
    if stopped and state in ("PENDING", "RUNNING", "CONFIGURING"):
        where = "in the queue again" if state == "PENDING" else "running again"
        return Finding(
            "goes-on",
            f"{stopped} The job, {number}, is {where}.",
            "It goes on from its last checkpoint by itself: do not submit it a second time.",
            ("squeue --me", "tail -f {log}"),
            order=-1,
        )
    if state == "PENDING":
        return Finding(
            "in-queue",
            f"Job {number} is in the queue{f' ({job.reason})' if job.reason else ''}, and has not begun.",
            "Slurm starts it when what it asks for is free.",
            ("squeue --me --start   # when Slurm expects that",),
            order=0,
        )
    return None


def stuck() -> list[str]:
    """The numbers of your jobs that will never start, where Slurm answers."""
    done = query.ask("squeue", "--me", "--noheader", "--states=PENDING", "--format=%i|%r")
    if isinstance(done, str):
        return []  # no Slurm here
    lines = [line.split("|") for line in done.stdout.splitlines() if line.count("|") == 1]
    return [job for job, reason in lines if job.isdecimal() and never_starts(reason)]


def submitted(scontrol: str) -> str:
    """The command that submits a job again, from what `scontrol show job` said of it; "" if that is incomplete.

    The options that named an older run are left out. run.sh adds to the record what stood before sbatch.
    """
    fields = dict(re.findall(r"^\s*(?:.*? )?(Command|WorkDir|TresPerNode|TresPerTask)=(.*)$", scontrol, re.M))
    before = dict(re.findall(r"^\s*(CODE|LAUNCHER|LAB_ENV)=(?!exercises$)(.*)$", scontrol, re.M))
    words = dict(re.findall(r"\b(TimeLimit|Partition|Account)=(\S+)", scontrol.partition("Command=")[0]))
    numbers = dict(re.findall(r"(NumNodes|NtasksPerN:B:S:C|CPUs/Task|ArrayTaskId)=(\d+)", scontrol))
    script, *flags = fields.get("Command", "").split() or [""]
    if not script.startswith("/") or numbers.get("NtasksPerN:B:S:C", "0") == "0" or "NumNodes" not in numbers:
        return ""
    folder = fields.get("WorkDir", "")
    here = Path(script).is_relative_to(folder) if folder else False
    asked = {
        "--array": numbers.get("ArrayTaskId", ""),
        "--partition": words.get("Partition", ""),
        "--account": words.get("Account", ""),
        "--time": words.get("TimeLimit", ""),
        "--nodes": numbers["NumNodes"],
        "--ntasks-per-node": numbers["NtasksPerN:B:S:C"],
        "--gpus-per-node": _gpus(fields.get("TresPerNode", "")) or "0",
        "--gpus-per-task": _gpus(fields.get("TresPerTask", "")),
        "--cpus-per-task": numbers.get("CPUs/Task", "1"),
    }
    options = [f"{name}={value}" for name, value in asked.items() if value not in ("", "(null)", ASKS.get(name))]
    name = str(Path(script).relative_to(folder)) if here else script
    variables = [f"{variable}={shlex.quote(value)}" for variable, value in before.items()]
    return " ".join([*variables, shlex.join(["sbatch", *options, name, *_without(flags)])])


def _gpus(tres: str) -> str:
    """Number of GPUs, with their type if one was asked for: a100:4 of gres:gpu:a100:4 and of gres/gpu:a100=4.

    Empty where there are none.
    """
    found = re.search(r"gpu[:=]((?:[^:=,()\s]+[:=])?\d+)(?![^,(\s])", tres)
    return found[1].replace("=", ":") if found else ""


def longer(command: str) -> str:
    """The command that submits a job, with twice its time limit."""
    usual = f" --time={ASKS['--time']}"
    if " --time=" not in command:
        command = re.sub(r"(?<!\S)sbatch(?!\S)", f"sbatch{usual}", command, count=1)
    return re.sub(r"(?<= --time=)(?:(\d+)-)?(\d+):(\d+):(\d+)(?= )", _twice, command, count=1)


def _twice(time: re.Match[str]) -> str:
    days, hours, minutes, seconds = (int(part or 0) for part in time.groups())
    minutes, seconds = divmod(2 * (((days * 24 + hours) * 60 + minutes) * 60 + seconds), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"


def changed(command: str, more: str) -> str:
    """The command with more options of main.py, which replace those that it has or that they do not go with."""
    added = {word.partition("=")[0] for word in more.split() if word.startswith("--")}
    gone = added.union(*(group for group in _ONE_OF if group & added))
    words, kept = shlex.split(command), []
    script = next((number for number, word in enumerate(words) if word.endswith(".sh")), len(words))
    dropping = False
    for word in words[script + 1 :]:
        if word.startswith("--"):
            dropping = word.partition("=")[0] in gone
        if not dropping:
            kept.append(word)
    head = command if script >= len(words) else " ".join(map(_quoted, words[: script + 1]))
    return " ".join([head, *map(shlex.quote, kept)]) if kept or script < len(words) else head


def _quoted(word: str) -> str:
    """As a shell reads it; a variable before a command keeps its name bare."""
    name, is_set, value = word.partition("=")
    return f"{name}={shlex.quote(value)}" if is_set and name.isidentifier() else shlex.quote(word)


def _without(words: list[str]) -> list[str]:
    kept, left_out = [], False
    for word in words:
        if left_out:
            left_out = False
        elif word in _AGAIN:
            left_out = True
        elif not word.startswith(tuple(f"{name}=" for name in _AGAIN)):
            kept.append(word)
    return kept
