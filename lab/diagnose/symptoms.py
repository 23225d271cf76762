"""What logs say when something goes wrong, and what it means: one table.

Each pattern was taken from what a job that failed in this way had written. In `saw` stand the pattern's groups,
`{rank}` for who said it ("rank 3 " or nothing) and `{line}` for the whole line; a group called ms is there as
{seconds} too. A cause has a low order, what follows from it a high one: when one rank dies of its memory, the
others lose their connection, and it is the memory that has to be said.
"""

import re
from dataclasses import dataclass

from lab.slurm import messages


@dataclass(frozen=True)
class Symptom:
    name: str
    order: int
    pattern: re.Pattern[str]
    saw: str
    means: str
    do: tuple[str, ...]


def _symptom(name: str, order: int, pattern: str, saw: str, means: str, *do: str) -> Symptom:
    return Symptom(name, order, re.compile(pattern, re.M), saw, means, do)


SYMPTOMS = (
    # Before anything ran --------------------------------------------------------------------------------------
    _symptom(
        "sbatch-refused",
        0,
        rf"{messages.NOT_TAKEN}: (?P<why>.+)$",
        "Slurm did not take the job: {why}.",
        "The request does not fit this cluster: partition, account, nodes, GPUs, memory or time.",
        "sinfo --format='%P %l %D %c %m %G'   # partition, time limit, nodes, cores, memory, GPUs",
        "sbatch --partition=NAME --account=NAME --time=00:10:00 run.sh",
    ),
    _symptom(
        "no-torch",
        0,
        r"ModuleNotFoundError: No module named '(?P<module>torch|torchvision|lab|numpy)'"
        r"|run\.sh: no Python with torch",
        "Python did not find PyTorch or the lab: {line}",
        "The job ran with another Python than the one in which the lab is installed.",
        "source .venv/bin/activate, then submit again: run.sh takes the active Python",
    ),
    _symptom(
        "not-done-yet",
        0,
        r"(?P<todo>Exercise \d\.\d\w? is not done yet: .+)$",
        "{rank}{todo}.",
        "The program has come to a TODO that is still open.",
        "lab check",
    ),
    _symptom(
        "no-launcher",
        0,
        r"(?P<why>environment variable (?:RANK|WORLD_SIZE) expected, but not set"
        r"|this process was started by no launcher|\S.* not set: start this program with torchrun or srun)",
        "The program does not know its rank: {why}.",
        "The program was started with python alone: no launcher told it its rank and the number of ranks.",
        "torchrun --standalone --nproc-per-node 2 exercises/main.py",
        "sbatch run.sh   # on a cluster",
    ),
    _symptom(
        "not-by-srun",
        0,
        r"this process is in a Slurm job, but srun did not start it",
        "The program does not know its rank: python was typed in a job, without srun.",
        "A job's script runs once, on its first node. srun in it starts the ranks, and numbers them.",
        "sbatch run.sh   # has srun in it, and tells the ranks where they meet",
    ),
    _symptom(
        "no-meeting-point",
        0,
        r"environment variable (?P<what>MASTER_ADDR|MASTER_PORT) expected, but not set",
        "The ranks do not know where they meet: {what} is not set.",
        "srun numbers the ranks, but names no place to meet: a job script exports MASTER_ADDR and MASTER_PORT.",
        "sbatch run.sh   # exports both; so does torchrun",
    ),
    _symptom(
        "not-submitted-right",
        0,
        rf"{messages.REFUSED_BY_RUN_SH}(?!no Python with torch)(?P<why>.+)$",
        "No rank was started: {why}.",
        "It looks at what it was given before it starts anything.",
        "sbatch run.sh   # from the folder that holds it, once that is mended",
    ),
    _symptom(
        "run-id-taken",
        0,
        r"main\.py: (?P<folder>\S+) already holds a finished run",
        "The job did not train: {folder} already holds a finished run.",
        "Its --run-id is that of an older run, which was left as it is.",
        "{rerun}   # without --run-id: the folder is then named after the job",
    ),
    _symptom(
        "port-in-use",
        1,
        r"EADDRINUSE|[Aa]ddress already in use",
        "The port where the ranks meet is taken: {line}",
        "Another job on the same node meets there, or one that was left over from before.",
        "torchrun --standalone ...                     # on one node: chooses a free port by itself",
        "MASTER_PORT=$((10000 + RANDOM % 20000)) ...   # by hand; run.sh makes one of the job's number",
        "ps -u $USER -o pid,etime,args | grep main.py  # on that node: is an old one still there?",
    ),
    _symptom(
        "wrong-world-size",
        1,
        r"main\.py: .*(?:contradict each other: rank|trains on one device, but there are)",
        "The number of ranks does not fit: {line}",
        "The number of ranks that were started is not the one that the program was told of.",
        "echo $SLURM_NTASKS $WORLD_SIZE     # inside the job: which launcher has spoken?",
        "sbatch --nodes=N --ntasks-per-node=M run.sh   # N x M ranks",
    ),
    _symptom(
        "uneven-batch",
        1,
        r"main\.py: .*cannot be divided evenly among.*",
        "{line}.",
        "Every rank computes an equal share of the global batch.",
        "{rerun} --per-device-batch-size 64    # any number of ranks",
    ),
    # Memory ---------------------------------------------------------------------------------------------------
    _symptom(
        "out-of-gpu-memory",
        1,
        r"CUDA out of memory\. Tried to allocate (?P<size>[\d.]+ \wiB).*?total capacity of (?P<total>[\d.]+ \wiB)",
        "{rank}ran out of GPU memory: it asked for {size} more, of {total} in all.",
        "Weights, gradients, optimizer and activations of one device's batch do not fit.",
        "{rerun} --per-device-batch-size {half} --accumulate 2   # the same global batch, half the activations",
        "{rerun} --checkpoint-activations",
        "{rerun} --strategy fsdp                       # shards weights, gradients and optimizer",
    ),
    _symptom(
        "out-of-memory",
        1,
        rf"{messages.MEMORY}|DefaultCPUAllocator: (?:can't|not enough)",
        "The job used more memory than it was given (the node's, not the GPU's).",
        "Slurm or the kernel ends a job at its limit, in the midst of anything. Loader processes count too.",
        "sacct -j {job} --format=JobID,State,ReqMem,MaxRSS,ExitCode",
        "sbatch --mem=64G run.sh ...    # ask for more",
        "{rerun} --num-workers 2        # or need less",
    ),
    _symptom(
        "shared-memory",
        1,
        r"DataLoader worker \(pid\(?s?\)? ?[\d, ]+\).*(?:Bus error|exited unexpectedly)"
        r"|unable to (?:open|mmap|write).*shared memory"
        r"|insufficient shared memory",
        "A loader process died.",
        "Batches travel through shared memory (/dev/shm), which is small in containers; or memory ran out.",
        "df -h /dev/shm     # inside the job or the container",
        "{rerun} --num-workers 0   # loads in the rank itself: needs no shared memory",
    ),
    # Devices --------------------------------------------------------------------------------------------------
    _symptom(
        "device-index",
        1,
        r"invalid device ordinal",
        "{rank}asked for a GPU that this process cannot see.",
        "The rank was used as the index of the device, or local_rank where each process sees one GPU only.",
        "lab check 2.2",
        "srun bash -c 'echo $SLURM_PROCID: $CUDA_VISIBLE_DEVICES'   # in the job: who sees which",
    ),
    _symptom(
        "same-gpu",
        1,
        r"Duplicate GPU detected ?: rank (?P<one>\d+) and rank (?P<two>\d+) both on CUDA device",
        "Ranks {one} and {two} are both on the same GPU.",
        "Each rank needs a GPU of its own: torch.cuda.set_device(local_rank) comes before the process group.",
        "lab check 2.2",
        "sbatch --ntasks-per-node=4 --gpus-per-node=4 run.sh   # as many GPUs as tasks",
    ),
    _symptom(
        "no-gpu",
        1,
        r"No CUDA GPUs are available|Torch not compiled with CUDA enabled|Found no NVIDIA driver"
        r"|driver version is insufficient|no kernel image is available",
        "{rank}cannot use a GPU: {line}",
        "The job got no GPU, or this build of PyTorch does not fit the driver or the card.",
        "srun --gpus=1 nvidia-smi",
        "lab doctor     # inside the job",
    ),
    _symptom(
        "device-assert",
        2,
        r"device-side assert triggered",
        "{rank}hit an assertion in a CUDA kernel.",
        "Mostly a label outside 0 .. classes - 1. CUDA tells of it later, at a line that is not to blame.",
        "CUDA_LAUNCH_BLOCKING=1 {rerun}    # slow, but the traceback then names the right line",
        "the same on the CPU: the error is a plain one there",
    ),
    # Files ----------------------------------------------------------------------------------------------------
    _symptom(
        "disk-full",
        1,
        r"No space left on device|Disk quota exceeded",
        "A file could not be written: {line}",
        "The disk is full, or your quota on it is used up.",
        "df -h . ; quota -s ; du -sh results/*",
        "{rerun} --save-frequency 10    # fewer checkpoints; or --output-dir on another disk",
    ),
    _symptom(
        "too-many-files",
        1,
        r"Too many open files",
        "{rank}had too many files open at once.",
        "Loader processes hand batches over through file descriptors.",
        "ulimit -n 65536     # before the run, in run.sh",
        "{rerun} --num-workers 2",
    ),
    # The network ----------------------------------------------------------------------------------------------
    _symptom(
        "nccl-interface",
        1,
        r"Bootstrap ?: no socket interface found|no socket interfaces found",
        "NCCL found no network interface.",
        "NCCL_SOCKET_IFNAME names one that this node does not have, or all were left out.",
        "srun --nodes=2 --ntasks-per-node=1 ip -brief address    # which are there?",
        "NCCL_SOCKET_IFNAME=^lo,docker sbatch run.sh             # all but these",
    ),
    _symptom(
        "host-not-found",
        1,
        r"Name or service not known|Temporary failure in name resolution|nodename nor servname|gai error: -?\d+",
        "A host's name could not be looked up.",
        "The node does not know the address of the first node, or its own name.",
        "srun getent hosts $(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)",
        "torchrun --standalone --local-addr 127.0.0.1 ...    # on one machine",
    ),
    _symptom(
        "ranks-missing",
        2,
        r"Timed out after \d+ seconds waiting for clients|api\.Rendezvous(?:Timeout|Connection)Error"
        r"|client socket has (?:timed out|failed to connect)",
        "Not all ranks have come to where they meet: {line}",
        "Some were not started, were told another address or port, or a firewall keeps them out.",
        "grep -c 'rank' {log}                   # how many ranks have said anything?",
        "srun hostname                          # does each node start?",
        "GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0 ...   # the interface that joins the nodes",
    ),
    _symptom(
        "nccl-network",
        3,
        r"ncclSystemError|ncclRemoteError|NET/IB ?: .*(?:error|Got completion.*status)|unhandled system error",
        "{rank}NCCL could not talk over the network: {line}",
        "An InfiniBand or Ethernet link failed, or GPUDirect is set up in another way than NCCL believes.",
        "NCCL_DEBUG=INFO {rerun}                # the lines before the error name the link",
        "NCCL_IB_DISABLE=1 {rerun}              # slower: if it runs, InfiniBand is the trouble",
        "NCCL_NET_GDR_LEVEL=LOC {rerun}         # without GPUDirect",
    ),
    # Collectives ----------------------------------------------------------------------------------------------
    _symptom(
        "nccl-timeout",
        4,
        r"[Rr]ank (?P<who>\d+)\]?.*Watchdog caught collective operation timeout: "
        r"WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<call>\w+),.*?Timeout\(ms\)=(?P<ms>\d+)",
        "rank {who} waited in vain in {call}, its collective number {number}, until the timeout of {seconds} s.",
        "Another rank did not come to it: it failed, hangs elsewhere, or called another collective.",
        "FLIGHT_RECORDER=1 {rerun}, then lab diagnose {run}   # names the ranks and the lines",
    ),
    _symptom(
        "gloo-timeout",
        4,
        r"Timed out waiting (?P<ms>\d+)ms for \w+ operation to complete",
        "{rank}waited in vain for another rank, until the timeout of {seconds} s.",
        "Another rank did not come to the same collective: it failed, hangs elsewhere, or called another one.",
        "FLIGHT_RECORDER=1 {rerun}, then lab diagnose {run}   # names the ranks and the lines",
    ),
    _symptom(
        "unused-parameters",
        1,
        r"Expected to have finished reduction in the prior iteration",
        "{rank}DDP still waits for gradients of the step before.",
        "Some parameters had no part in the loss, or a backward pass was left out.",
        "lab check 4.1 6.1",
    ),
    _symptom(
        "program-said",
        3,
        r"^(?:\[rank\d+\]: ?|\d+: )?main\.py: (?!another rank has ended)(?P<why>.+)$",
        "The program ended with the words: {why}.",
        "One rank's error ends the job: the others cannot go on without it.",
        "lab check    # finds most mistakes on this machine, within seconds",
    ),
    # Numbers --------------------------------------------------------------------------------------------------
    _symptom(
        "not-finite",
        1,
        r"main\.py: .*(?:the loss (?:is|was|became)|no finite number)",
        "Training has run away: {line}",
        "The rate is too high for this batch, or numbers are too small or too large for fp16.",
        "{rerun} --warmup-epochs 1 --clip-norm 1",
        "{rerun} --precision bf16    # where it was fp16",
    ),
)
