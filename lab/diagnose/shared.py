"""What ranks or nodes have in common and ought not to: a card, a core, the number of a node, a lock, a file."""

import re

from lab.diagnose import overcome
from lab.diagnose.told import exceptions
from lab.diagnose.told.finding import Finding

_FULL = re.compile(r"^.*CUDA out of memory\..*\bGPU (?P<gpu>\d+)\b.*$", re.M)
_IN_USE = re.compile(
    r"^\| +(?P<gpu>\d+) +(?:N/A +N/A +|\d+ +\d+ +)?(?P<pid>\d+) +[CGM+]{1,3} +\S.*? (?P<size>\d+)MiB *\|", re.M
)

_COMMAND = re.compile(
    r"^(?P<prompt>.{0,200}?)\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch)\s(?P<options>.*)$",
    re.M,
)
_NODE_RANK = re.compile(r"--(?:node|machine)[-_]rank[= ](\d{1,4})\b")
_NODES = re.compile(r"--(?:nnodes|num[-_]machines)[= ](?:\d+:)?(\d{1,4})\b")
_HOST = re.compile(r"@(?P<at>[A-Za-z][\w.-]*)|^\[?(?P<first>[A-Za-z][\w.-]*\d)\]?[:$#> ]")
_SET_ON = re.compile(r"^\[?(?P<host>[A-Za-z][\w.-]*\d)\]?:? .{0,80}?\bNODE_RANK ?= ?(?P<rank>\d{1,4})\b", re.M)

_BUILDS = re.compile(r"torch_extensions|PyTorch extensions root", re.M)
_WAITS_FOR_LOCK = re.compile(r"file_baton\.py|FileBaton\b|acquire \(filelock/")
_LEFT = re.compile(r"torch_extensions/\S+/?:?\s*\n(?:.*\n){0,12}?.*[ /]lock$|torch_extensions/\S*/lock\b", re.M)
_AT_A_BUILD = re.compile(
    r"(?:Using \S+ as PyTorch extensions root|Emitting ninja build file|Building extension module"
    r"|Loading extension module|Allowing ninja to set).*\n"
    r"(?:.*(?:slurmstepd|srun: ).*TIME LIMIT|.*(?:\n.*){0,3}?Watchdog caught)"
)

_ASKED = re.compile(
    r"(?:--cpus-per-task|(?<= )-c)[= ]?(?P<number>\d{1,3})\b|\bSLURM_CPUS_PER_TASK\W{1,2}(?P<set>\d{1,3})\b"
)
_HAS = re.compile(
    r"suggested max number of worker in current system is (?P<number>\d{1,3})\b|affinity\S* ?\W{1,5}(?P<of>\d+)\}"
)
_PASSED_ON = re.compile(r"SRUN_CPUS_PER_TASK|\bsrun\b.*(?:--cpus-per-task| -c ?\d)")
_NOT_WHOLE = re.compile(
    r"Dataset not found or corrupted|BadZipFile|BadGzipFile|tarfile\.ReadError|CorruptedError"
    r"|File not found or corr"
)
_FETCHED = re.compile(r"100%\|[^|\n]{0,40}\| ?(?P<size>[\d.]+[kMG])/(?P=size) ")


def one_core(log: str) -> Finding | None:
    """Tasks that got fewer cores than the job had asked for each of them."""
    asked = max((int(one["number"] or one["set"]) for one in _ASKED.finditer(log)), default=0)
    has = [int(one["number"] or 1) for one in _HAS.finditer(log)]
    if not has or asked < 2 or min(has) * 2 > asked or "srun" not in log or _PASSED_ON.search(log):
        return None
    return Finding(
        "few-cores",
        f"The job asked for {asked} cores for each task, and a task got {min(has)}: all its loader processes "
        f"share that.",
        "Since Slurm 22.05 srun does not take --cpus-per-task over from sbatch: without its own it gives each "
        "task one "
        "core. GPUs that wait for data are the consequence; the disk and the number of loaders are not to blame.",
        (
            "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK    # in the script, before srun; or srun "
            "--cpus-per-task=...",
            "srun bash -c 'echo $SLURM_PROCID: $(nproc)'    # in the job: how many has each?",
        ),
        order=8,
    )


def fetched_by_all(log: str) -> Finding | None:
    """A data set that is not whole after several ranks have fetched it at the same time."""
    raised, line = exceptions.first_of(log) or (None, "")
    sizes = [one["size"] for one in _FETCHED.finditer(log[: log.find(line)])] if raised else []
    twice = [size for size in dict.fromkeys(sizes) if sizes.count(size) > 1]
    ranks = {who[1] or who[2] for one in log.splitlines() if (who := exceptions.RANK.match(one))}
    if not _NOT_WHOLE.search(line) or not twice or len(ranks) < 2:
        return None
    return Finding(
        "broken-data",
        f"{sizes.count(twice[0])} ranks fetched the same file ({twice[0]}) at the same time, and then found it "
        f"damaged: "
        f"{exceptions.RANK.sub('', line)[:160]}",
        "They wrote and unpacked it in one folder, each over what the others had. A question for the rank before "
        "init_process_group() is answered with 0 on all of them. The server, the network and the disk are in "
        "order.",
        (
            "grep -n -E 'download=|init_process_group' *.py exercises/*.py    # the group first, then rank 0 "
            "alone, the others "
            "behind a barrier",
            "rm -r data ; lab fetch cifar10 --data-dir data    # or once, before the job",
        ),
        order=0,
    )


def card_of_all(log: str) -> Finding | None:
    """A full GPU on which nvidia-smi, in the log, shows processes that have a GPU of their own besides."""
    full = _FULL.search(log)
    rows = [(one["gpu"], one["pid"], int(one["size"])) for one in _IN_USE.finditer(log)] if full else []
    if full is None or not rows:
        return None
    own: dict[str, int] = {}  # what a process holds elsewhere
    for gpu, pid, size in rows:
        if gpu != full["gpu"]:
            own[pid] = max(size, own.get(pid, 0))
    strays = {pid: size for gpu, pid, size in rows if gpu == full["gpu"] and own.get(pid, 0) > size}
    if not strays:
        return None
    return Finding(
        "same-gpu",
        f"GPU {full['gpu']} is full, and nvidia-smi shows on it, besides its own rank, {len(strays)} that have a "
        f"GPU of their own: they hold {sum(strays.values()) / 1024:.1f} GiB there (processes "
        f"{', '.join(list(strays)[:8])}).",
        "torch.load() without map_location puts tensors back on the GPU that they were saved from, mostly 0, on "
        "every rank; so does what comes before torch.cuda.set_device(local_rank). A smaller batch only hides it.",
        (
            "grep -n -E 'torch.load|set_device|cuda\\(' *.py exercises/*.py    # torch.load(..., "
            "map_location='cpu'); set_device(local_rank) first",
            "lab check 2.2    # does each rank use a GPU of its own?",
        ),
        order=0,
    )


def node_rank(log: str) -> Finding | None:
    """Two nodes that were started under one number."""
    started: dict[str, set[str]] = {}  # node rank -> hosts
    for command in _COMMAND.finditer(log.replace("\\\n", " ")):
        said, nodes = _NODE_RANK.search(command["options"]), _NODES.search(command["options"])
        host = _HOST.search(command["prompt"])
        if said and host and (nodes is None or int(nodes[1]) > 1):
            started.setdefault(said[1], set()).add(host["at"] or host["first"])
    for one in _SET_ON.finditer(log):
        started.setdefault(one["rank"], set()).add(one["host"])
    hosts = [host for named in started.values() for host in named]
    twice = [(number, sorted(named)) for number, named in started.items() if len(named) > 1]
    if not twice or len(set(hosts)) < len(hosts):  # a host that was started again, with another number
        return None
    number, named = twice[0]
    return Finding(
        "rank-twice",
        f"Nodes {' and '.join(named[:4])} were both started as node {number} (--node_rank={number}).",
        "Each node needs a number of its own, from 0: two that say the same take each other's place where all "
        "meet, and the ranks of the missing number never come. The network is not to blame.",
        (
            "torchrun --node_rank=1 ...    # on the second node; 0 only on the one of --master_addr",
            "srun bash -c 'echo $(hostname) $SLURM_NODEID'    # or run.sh, which numbers the nodes by this",
        ),
        order=0,
    )


def raised(log: str) -> Finding | None:
    """The first exception, but for that of a thread whose process trained on without it."""
    found = exceptions.first_of(log)
    while found is not None:
        at = log.find(found[1])
        before, after = log[:at], log[at + len(found[1]) :]
        thread = before.rfind("Exception in thread")
        in_thread = thread >= 0 and before.count("Traceback (most recent call last)", thread) == 1
        if not in_thread or not any(map(overcome.trains, after.splitlines())):
            return found[0]
        log = after
        found = exceptions.first_of(log)
    return None


def build_lock(log: str) -> Finding | None:
    """Ranks that wait for the build of an extension, or for a lock that a process which was ended has left."""
    begun = _BUILDS.search(log)
    waits, left = _WAITS_FOR_LOCK.search(log), _LEFT.search(log)
    at = _AT_A_BUILD.search(log)
    if exceptions.exception(log) is not None:
        return None
    if begun is None or not (waits or left or at) or overcome.since(log[begun.start() :], len(log)):
        return None
    lock = "the lock is still there" if left else "their call waits for a lock" if waits else "it says no more"
    return Finding(
        "build-lock",
        f"The ranks stood still where a C++ extension is built or loaded (torch_extensions): {lock}.",
        "One process builds it, and the others wait while a file called lock lies in its folder, without an end. "
        "A job that was cancelled or killed in the midst of it leaves that file behind: every later one waits.",
        (
            "find ~/.cache/torch_extensions -name lock    # with no job of yours running: rm these, or the folder",
            "TORCH_EXTENSIONS_DIR=/tmp/$USER-extensions {rerun}    # or built anew, on the node's own disk",
        ),
        order=-1,
    )
