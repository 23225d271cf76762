"""How a job was launched, told by several of its lines together: torchrun in each task, a container, one GPU."""

import re

from lab.base.words import one_line
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
    r"^(?![ \t]*#)(?:.*[ \t/])?(?:(?P<tool>apptainer|singularity|docker|podman)\s+(?:-\S+\s+)*(?:exec|run|shell)\s"
    r"|srun\s.*--container-image).*$",
    re.M,
)
_WITH_GPUS = re.compile(r"\s--(?:nv|nvccli|rocm)\b|--gpus\b|--runtime[= ]nvidia|--device[= ]\S*nvidia")
_NV_IS_SET = re.compile(r"\b(?:APPTAINER|SINGULARITY)_NV(?:CCLI)?=")

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
    """How many there were on one node, as the script, srun's report or torchrun's own lines show; 0 if none do."""
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
