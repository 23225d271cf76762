"""How a job was launched, told by several of its lines together: torchrun in each task, a container, one GPU."""

import re

from lab.base.words import one_line, rank_list
from lab.diagnose.told.exceptions import RANK
from lab.diagnose.told.finding import Finding

_TAKEN = re.compile(r"^.*(?:EADDRINUSE|[Aa]ddress already in use).*$", re.M)
_TORCHRUN = r"(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch)\b"
_SRUN = re.compile(rf"^(?![ \t]*#).*\bsrun\b(?P<options>[^\n;|&]{{0,600}}?)\s\S{{0,200}}?{_TORCHRUN}", re.M)
_RUNS = re.compile(r"/bin/torchrun\"|torch/distributed/run\.py")
_PER_NODE = re.compile(r"--ntasks-per-node[= ](\d{1,4})\b|\bSLURM_NTASKS_PER_NODE=(\d{1,4})\b")
_TASKS_IN_ALL = re.compile(r"(?:--ntasks|-n)[= ]?\d")
_FAILED = re.compile(r"^srun: error: [\w.-]+: tasks? ([\d,-]+): Exited with exit code", re.M)
_BANNER = re.compile(r"^W\d{4} [\d:.]+ (\d+) torch/distributed/run\.py:\d+\]", re.M)
_ONE_NODE = re.compile(
    r"(?:--nodes=|-N ?|SLURM_(?:JOB_NUM_NODES|NNODES)=)1\b|SLURM_(?:JOB_)?NODELIST=[\w.-]+(?![\w\[,.-])"
)

_NO_DRIVER = re.compile(
    r"^.*(?:Found no NVIDIA driver|libcuda\.so\.1: cannot open shared object|NVIDIA Driver was not detected).*$",
    re.M,
)
_CONTAINER = re.compile(
    r"^(?![ \t]*#)(?:.*[ \t/])?(?:(?P<tool>apptainer|singularity|docker|podman)\s+(?:-\S+\s+)*(?:exec|run"
    r"|shell)\s"
    r"|srun\s.*--container-image).*$",
    re.M,
)
_WITH_GPUS = re.compile(r"\s--(?:nv|nvccli|rocm)\b|--gpus\b|--runtime[= ]nvidia|--device[= ]\S*nvidia")
_NV_IS_SET = re.compile(r"\b(?:APPTAINER|SINGULARITY)_NV(?:CCLI)?=")

_NO_SUCH_GPU = re.compile(r"^.*(?:invalid device ordinal|device >= 0 && device < num_gpus).*$", re.M)
_OF_NCCL = re.compile(r"NCCL WARN|Cuda failure")
_MIG = re.compile(r"\bMIG-[0-9a-f]|\bMIG \d+\w\.\d+gb")
_GPUS = re.compile(
    r"(?:--gres[= ]|--gpus-per-node[= ]|TresPerNode=)(?:gres:"
    r"|gres/)?(?:gpu[:=])?(?:[A-Za-z][\w.-]*:)?(?P<number>\d{1,2})\b"
    r"|SLURM_GPUS_ON_NODE ?= ?(?P<all>\d{1,2})\b"
    r"|(?:CUDA_VISIBLE_DEVICES|SLURM_JOB_GPUS) ?[=:] ?(?P<names>\d{1,2}(?:,\d{1,2})*)\b"
)
_PROCESSES = re.compile(
    r"--nproc[-_]per[-_]node[= ](\d{1,3})\b|--ntasks-per-node[= ](\d{1,3})\b"
    r"|\bSLURM_NTASKS_PER_NODE ?= ?(\d{1,3})\b"
    r"|\bLOCAL_WORLD_SIZE ?= ?(\d{1,3})\b"
)
_RANK_AND_LOCAL = re.compile(r"^\s+rank\s+: (\d+) \(local_rank: (\d+)\)\n\s+exitcode\s+: 1 ", re.M)
_LOCAL_RANK = re.compile(r"failed \(exitcode: 1\) local_rank: (\d+)")
_TOO_FEW = (
    "Each process needs a GPU of its own: more were started than the job has GPUs on this node. The local "
    "ranks that "
    "have one are not to blame."
)
_BY_RANK = (
    "The rank was used as the index of the device. On the first node it is the local rank too; on the "
    "others it is "
    "larger than the number of their GPUs."
)
_ONE_EACH = (
    "Each process sees one GPU only, and there it is number 0; or more processes were started than the "
    "job has GPUs."
)
_EITHER = (
    "Either more processes were started than there are GPUs, or each sees one GPU only, which is number 0 "
    "to it: "
    "which of both, CUDA_VISIBLE_DEVICES in the job says. On one node rank and local rank are the same."
)

_BYTES = r"\d+(?:\.\d+)? (?:bytes|[KMGT]iB)"
_FULL = re.compile(rf"^.*CUDA out of memory\. Tried to allocate (?P<asked>{_BYTES}).*$", re.M)
_FREE = re.compile(rf"of which ({_BYTES}) is free")
_HOLDS = re.compile(rf"\bProcess (\d+) has ({_BYTES}) memory in use")
_OF_THE_JOB = re.compile(r"Sending process (\d+) closing signal|\(pid: (\d+)\)|received by PID (\d+)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def in_each_task(log: str) -> Finding | None:
    """Several torchruns on one node, all but the first of which find their port taken."""
    taken = _TAKEN.search(log)
    number = _torchruns(log) if taken and (_RUNS.search(log) or _SRUN.search(log)) else 0
    if taken is None or number < 2:
        return None
    return Finding(
        "launched-twice",
        f"{number} torchruns were started on one node, and all want one port: {one_line(taken[0], 200)}",
        "srun starts what it is given in each task, and each torchrun starts the ranks of its whole node: the "
        "first one has the port, the others find it taken.",
        (
            "sbatch --ntasks-per-node=1 run.sh    # one torchrun for each node, with all its GPUs and CPUs",
            "grep -n -E 'ntasks|torchrun' *.sh    # or a task for each GPU, and srun python without torchrun",
        ),
        order=0,
    )


def _torchruns(log: str) -> int:
    """How many there were on one node, as the script, srun's report or torchrun's own lines show; 0 if "
    "none do."""
    asked = [int(one or other) for one, other in _PER_NODE.findall(log)]
    if (by_srun := _SRUN.search(log)) is not None:
        if (own := _PER_NODE.search(by_srun["options"])) is not None:
            return int(own[1] or own[2])
        if not _TASKS_IN_ALL.search(by_srun["options"]) and asked:
            return asked[-1]
    failed = max((_count(tasks) for tasks in _FAILED.findall(log)), default=0) if _RUNS.search(log) else 0
    return max(failed, len(set(_BANNER.findall(log)))) if _ONE_NODE.search(log) else failed


def _count(tasks: str) -> int:
    """Of "0,2-3" three."""
    ranges = [part.strip("-").partition("-") for part in tasks.split(",") if part.strip("-")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)


def beyond_the_gpus(log: str) -> Finding | None:
    """A rank that asked for a GPU that is not there: for want of GPUs, or by its rank instead of its "
    "local rank."""
    refused = _NO_SUCH_GPU.search(log)
    if refused is None or _OF_NCCL.search(refused[0]) or _MIG.search(log):
        return None
    gpus = min((_gpus_in(found) for found in _GPUS.finditer(log)), default=0)
    processes = max(
        (int(number) for numbers in _PROCESSES.findall(log) for number in numbers if number), default=0
    )
    places = {int(local): int(rank) for rank, local in _RANK_AND_LOCAL.findall(log)}
    local_ranks = {int(number) for number in _LOCAL_RANK.findall(log)} | set(places)
    by_rank = [rank for local, rank in places.items() if rank != local and (not gpus or local < gpus <= rank)]
    if gpus and processes > gpus:
        saw = f"{processes} processes were started on a node, and {gpus} GPU{'s' * (gpus > 1)} given to it"
        return _of_devices(saw, _TOO_FEW, gpus)
    if gpus and local_ranks and min(local_ranks) >= gpus:
        ranks = rank_list(sorted(local_ranks)).replace("rank", "local rank", 1)
        saw = f"{ranks.capitalize()} found no GPU of that number: the job has {gpus} on the node"
        return _of_devices(saw, _ONE_EACH if gpus == 1 else _TOO_FEW, gpus)
    if by_rank and len(by_rank) == len(places):
        ranks = rank_list(sorted(by_rank))
        return _of_devices(
            f"{ranks.capitalize()} asked for a GPU of that number: on its node it has another", _BY_RANK
        )
    if local_ranks and not by_rank and 0 not in local_ranks:
        ranks = rank_list(sorted(local_ranks)).replace("rank", "local rank", 1)
        return _of_devices(
            f"{ranks.capitalize()} asked for a GPU that this process cannot see, local rank 0 did not", _EITHER
        )
    return None


def _of_devices(saw: str, means: str, gpus: int = 0) -> Finding:
    there = gpus or "$SLURM_GPUS_ON_NODE"
    first = f"torchrun --nproc-per-node {there} exercises/main.py    # as many as there are GPUs"
    more = "sbatch --ntasks-per-node=4 --gpus-per-node=4 run.sh    # or more GPUs: as many as processes"
    code = "grep -n -E 'set_device|cuda:|device_ids' *.py exercises/*.py    # LOCAL_RANK, not RANK"
    who = "srun bash -c 'echo $SLURM_PROCID: $CUDA_VISIBLE_DEVICES'   # in the job: who sees which"
    do = {
        _TOO_FEW: (first, more, who),
        _BY_RANK: (code, "lab check 2.2", who),
        _ONE_EACH: (
            "sbatch --gpus-per-node=4 run.sh    # instead of --gpus-per-task or --gpu-bind: each takes its own",
            code,
            who,
        ),
        _EITHER: (who, first, code),
    }[means]
    return Finding("device-index", f"{saw} (invalid device ordinal).", means, do, order=1)


def _gpus_in(found: re.Match[str]) -> int:
    """How many GPUs of a node a line tells of: a number, or a list as CUDA_VISIBLE_DEVICES has it."""
    number, names = found["number"] or found["all"], found["names"]
    return int(number) if number else names.count(",") + 1


def without_gpus(log: str) -> Finding | None:
    """A container whose command does not bring the node's driver in, and a program that finds none."""
    missed = _NO_DRIVER.search(log)
    started = list(_CONTAINER.finditer(log.replace("\\\n", " "))) if missed else []
    if (
        missed is None
        or not started
        or any(_WITH_GPUS.search(one[0]) for one in started)
        or _NV_IS_SET.search(log)
    ):
        return None
    tool = started[-1]["tool"]
    if tool in ("apptainer", "singularity"):
        means = f"{tool} brings the node's driver in only with --nv, and the command has none."
        do = f"{tool} exec --nv $LAB_ENV nvidia-smi    # in the job: with --nv it sees the GPUs"
    elif tool:
        means = f"{tool} gives a container GPUs, and their driver, only where it is told to."
        do = f"{tool} run --rm --gpus all IMAGE nvidia-smi    # podman: --device nvidia.com/gpu=all"
    else:
        means = (
            "pyxis brings the node's driver in only where NVIDIA_VISIBLE_DEVICES is set, by the image or the job."
        )
        do = "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility {rerun}"
    return Finding(
        "container-without-driver",
        f"The container got no GPU driver: {one_line(RANK.sub('', missed[0]), 200)}",
        f"{means} If it still finds none then, the job did not ask for GPUs.",
        (do, "srun --gpus=1 nvidia-smi    # outside of the container: does a job that asks for a GPU get one?"),
        order=1,
    )


def on_one_gpu(log: str) -> Finding | None:
    """A GPU that would have had room, if other ranks of the same job did not hold a part of it."""
    of_the_job = {next(filter(None, pids)) for pids in _OF_THE_JOB.findall(log)}
    full = _FULL.search(log)
    ranks = [(pid, size) for pid, size in _HOLDS.findall(full[0]) if pid in of_the_job] if full else []
    if full is None or not ranks:
        return None
    free = _FREE.search(full[0])
    held = sum(map(_size, (size for _, size in ranks)))
    if held + (_size(free[1]) if free else 0) < _size(full["asked"]):
        return None
    who = RANK.match(full[0])
    rank = f"Rank {who[1] or who[2]}" if who else "A rank"
    others = "another rank" if len(ranks) == 1 else f"{len(ranks)} other ranks"
    return Finding(
        "same-gpu",
        f"{rank} found no room on its GPU, of which {others} of this job hold {held / (1 << 30):.1f} GiB: "
        f"processes {', '.join(pid for pid, _ in ranks[:8])}.",
        "Each rank needs a GPU of its own. torch.load() without map_location puts tensors back on the GPU that "
        "they were saved from, mostly 0; so does what comes before torch.cuda.set_device(local_rank).",
        (
            "grep -n -E 'torch.load|set_device|cuda\\(' *.py exercises/*.py    # torch.load(..., "
            "map_location='cpu'); set_device(local_rank) first",
            "lab check 2.2    # does each rank use a GPU of its own?",
        ),
        order=0,
    )


def _size(text: str) -> float:
    number, unit = text.split()
    return float(number) * _UNITS[unit]
