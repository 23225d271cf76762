"""Why a checkpoint that could not be read was not whole: there was no room for it, or its writer was ended."""

import re

from lab.base.words import one_line
from lab.diagnose.told import exceptions
from lab.diagnose.told.finding import Finding

_UNREADABLE = re.compile(
    r"PytorchStreamReader failed|failed finding central directory|invalid header or archive is corrupted"
    r"|unpickling stack underflow|pickle data was truncated|EOFError: Ran out of input"
    r"|UnpicklingError: invalid load key|SafetensorError|MetadataIncompleteBuffer|BadZipFile"
)
_FULL = re.compile(
    r"No space left on device|Errno 28\b|ENOSPC|[Qq]uota exceeded|Errno 122\b|EDQUOT"
    r"|PytorchStreamWriter failed writing"
)
_QUOTA = re.compile(r"[Qq]uota|Errno 122\b|EDQUOT")
_OF_NO_DISK = re.compile(r"/dev/shm|shared memory|cgroup|inotify|unsquashfs|container")
_WHAT = r"(?:checkpoint|ckpt|snapshot|state_dict|weights|model|\.(?:pth?|ckpt|bin|safetensors|distcp)\b)"
_SAVES = re.compile(rf"\b(?:saving|writing|dumping)\b.{{0,120}}?{_WHAT}|\bcheckpointing\b", re.I)
_SAVED = re.compile(
    rf"\b(?:saved|wrote|written|stored)\b.{{0,120}}?{_WHAT}|{_WHAT}.{{0,120}}?\b(?:saved|written|stored)\b", re.I
)
_NOT = re.compile(r"\bnot\b|n't\b|\b(?:fail\w*|error|without|last (?:saved|written))\b", re.I)
_ENDED = re.compile(
    r"CANCELLED AT .*DUE TO (?P<why>PREEMPTION|TIME LIMIT|NODE \w*\s?FAILURE|JOB REQUEUE)|CANCELLED AT"
    r"|[Nn]ode failure|oom[-_]kill|Out [Oo]f [Mm]emory|: Killed\b|^Killed$|SIGKILL|SIGTERM|exitcode: -\d"
    r"|[Ss]ignal (?:9|15)\b|Terminated$"
)
_RANK = re.compile(r"^(?:\[rank ?\d+\]:?|\d{1,5}:)\s?")
_OF_SLURM = re.compile(r"^(?:slurmstepd|srun|sbatch)\S*: ")
_READS = re.compile(r"\b(?:resum|restor|load|found|read)\w*", re.I)
_PATH = re.compile(r"(?<![\w/])/[\w.@+-]+(?:/[\w.@+-]+)+")
_FEW = 3  # lines that may stand between a save and the end of its run
_WHOLE = (
    "ls -l results/*/checkpoints    # is it smaller than the others? best.pth and epoch_*.pth are older ones",
    "{rerun} --run-id {run_id} --resume best",
    "grep -n 'torch.save' *.py exercises/*.py    # another name first, then os.replace(): whole, or not there",
)


def checkpoint(log: str, earlier: str) -> Finding | None:
    """A full disk, or an end in the midst of a save, before a checkpoint that could not be read.

    Args:
        earlier: what the runs of the same job wrote before this one
    """
    raised, line = exceptions.first_of(log) or (None, "")
    if raised is None:
        line = next((one for one in log.splitlines() if _UNREADABLE.search(one)), "")
    if not _UNREADABLE.search(line):
        return None
    before = (earlier + log[: log.find(line)]).splitlines()
    return _no_room(before) or _ended_while_it_wrote(before, line)


def _no_room(before: list[str]) -> Finding | None:
    full = [at for at, line in enumerate(before) if _FULL.search(line) and not _OF_NO_DISK.search(line)]
    if not full or any(_has_saved(line) for line in before[full[-1] + 1 :]):
        return None
    said = before[full[-1]]
    read = [path for line in before[full[-1] + 1 :] if _READS.search(line) for path in _PATH.findall(line)]
    if (
        (written := _PATH.findall(said))
        and read
        and not {_disk(one) for one in written} & {_disk(one) for one in read}
    ):
        return None
    what = "your quota was used up" if _QUOTA.search(said) else "the disk was full"
    return Finding(
        "disk-full",
        f"A checkpoint was not written whole, for {what}: {one_line(_RANK.sub('', said), 200)}",
        "What there was room for is a file all the same, under the checkpoint's name: who reads it later finds it "
        "cut off. Neither the reading nor PyTorch is to blame.",
        ("df -h . ; df -i . ; quota -s ; du -sh results/*    # make room first", *_WHOLE),
        order=0,
    )


def _ended_while_it_wrote(before: list[str], line: str) -> Finding | None:
    saves = [at for at, one in enumerate(before) if _SAVES.search(one) and not _NOT.search(one)]
    if not saves:
        return None
    after = [one for one in before[saves[-1] + 1 :] if one.strip()]
    end = next((at for at, one in enumerate(after) if _ENDED.search(one)), None)
    if end is None or any(_has_saved(one) for one in after[: end + 1]):
        return None
    if sum(not _OF_SLURM.match(one) for one in after[:end]) > _FEW:
        return None
    why = _ENDED.search(after[end])
    how = f"ended ({why['why'].lower()})" if why and why["why"] else "ended"
    rank = exceptions.RANK.match(line)
    who = f"Rank {rank[1] or rank[2]}" if rank else "A rank"
    said = one_line(_RANK.sub("", line), 160)
    return Finding(
        "broken-checkpoint",
        f"{who} could not read a checkpoint: {said}. The run before was {how} while it wrote one: "
        f"{one_line(_RANK.sub('', before[saves[-1]]), 120)}",
        "What had been written by then is a file all the same, under the checkpoint's name, and not whole.",
        _WHOLE,
        order=0,
    )


def _has_saved(line: str) -> bool:
    return bool(_SAVED.search(line)) and not _NOT.search(line)


def _disk(path: str) -> str:
    """The first two folders of a path, which are mostly those of one disk."""
    return "/".join(path.split("/")[:3])
