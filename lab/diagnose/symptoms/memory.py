"""Memory of the GPU, of the node, shared memory, threads and files."""

import re

from lab.diagnose.symptoms.entry import case, symptom
from lab.slurm import messages

_LOCKED = r"ibv_\w+|max locked memory|memlock"

# The semaphore of a queue, between a traceback's frame and the exception.
_SEMAPHORE = (
    r"SemLock\W.*\n(?:.*\n){0,2}?(?:\[rank\d+\]: ?|\d+: )?(?:OSError|FileNotFoundError|PermissionError|"
    r"BlockingIOError): \[Errno (?:28|2|13|38|30)\]"
)

# Whose fault it was that a GPU was full, the numbers in PyTorch's message say: in its form before 2.1, and since.
_ASKED = r"CUDA out of memory\. Tried to allocate (?P<size>[\d.]+ \w+).{0,1200}"
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = r"(\d+(?:\.\d+)? (?:bytes|[KMGT]iB))"
_TOTAL = (rf"total capac\w+ of {_SIZE}", rf"{_SIZE} total capacity")
_FREE = (rf"of which {_SIZE} is free", rf"; {_SIZE} free")
_OWN = (rf"this process has {_SIZE} memory in use", rf"{_SIZE} reserved in total", rf"{_SIZE} already allocated")
_IN_PIECES = (rf"{_SIZE} is reserved by PyTorch but unallocated",)
_OVERHEAD = 2 << 30  # of CUDA and NCCL themselves, which the older form does not count as the process's own
_PART = 0.2  # of the card, from which on another's share, or what lies idle in pieces, is worth a word


def _held_by_others(found: re.Match[str]) -> bool:
    """Whether another process holds a good part of the card."""
    total, free, own = (_size(found[0], forms) for forms in (_TOTAL, _FREE, _OWN))
    if (
        total is None or free is None or own is None or own > total
    ):  # in some containers the driver says 17179869184 GiB
        return False
    return total - free - own > max(_OVERHEAD, _PART * total)


def _in_pieces(found: re.Match[str]) -> bool:
    """Whether PyTorch itself held enough that nothing used, in pieces that are too small."""
    total, idle, asked = (_size(found[0], forms) for forms in (_TOTAL, _IN_PIECES, (rf"allocate {_SIZE}",)))
    if total is None or idle is None or asked is None:
        return False
    return idle >= asked and idle > _PART / 2 * total


def _more_than_the_card(found: re.Match[str]) -> bool:
    """Whether one tensor was to be larger than the card."""
    total, asked = _size(found[0], _TOTAL), _size(found[0], (rf"allocate {_SIZE}",))
    return total is not None and asked is not None and asked > total


def _size(message: str, forms: tuple[str, ...]) -> float | None:
    """In bytes; None where the message does not have it."""
    for form in forms:
        if (found := re.search(form, message)) is not None:
            number, unit = found[1].split()
            return float(number) * _UNITS[unit]
    return None


MEMORY = (
    symptom(
        "gpu-memory-of-others",
        1,
        _ASKED,
        "{rank}found a GPU that another process has filled: {line}",
        "The numbers say it: what this process holds is far less than the card has. The rest is a left-over "
        "run's, "
        "another job's, or another rank's on the same card; a smaller batch does not help.",
        "nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv    # in the job, on that node: whose?",
        "ps -u $USER -o pid,etime,args | grep main.py  # on that node: is an old one of yours still there?",
        "lab check 2.2    # does each rank use a GPU of its own? torch.load() without map_location uses GPU 0",
        when=_held_by_others,
        source="docs.pytorch.org/docs/stable/notes/cuda.html",
    ),
    symptom(
        "gpu-memory-in-pieces",
        1,
        _ASKED,
        "{rank}had GPU memory left, but in pieces that are too small: {line}",
        "PyTorch keeps freed blocks, and cannot join them: more is reserved and unallocated than was asked for.",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True {rerun}    # blocks that can grow",
        "{rerun} --per-device-batch-size {half} --accumulate 2",
        when=_in_pieces,
        source="docs.pytorch.org/docs/stable/notes/cuda.html",
    ),
    symptom(
        "tensor-too-large",
        1,
        _ASKED,
        "{rank}asked for one tensor that is larger than the whole GPU: {line}",
        "Mostly its shape is not what was meant (a flattened image, one number for each pair): no batch is small "
        "enough for that.",
        "{rerun} --per-device-batch-size 1    # does it still ask for so much? then it is the shape",
        "lab check 1.1    # the shapes in the network",
        when=_more_than_the_card,
        source="docs.pytorch.org/docs/stable/notes/faq.html",
    ),
    symptom(
        "out-of-gpu-memory",
        1,
        r"CUDA out of memory\. Tried to allocate (?P<size>[\d.]+ \wiB).{0,200}?"
        r"(?:total capac\w+ of (?P<total>[\d.]+ \wiB)|GPU \d+; (?P<all>[\d.]+ \wiB) total)",
        "{rank}ran out of GPU memory: it asked for {size} more, of {total}{all} in all.",
        "Weights, gradients, optimizer and activations of one device's batch do not fit.",
        "{rerun} --per-device-batch-size {half} --accumulate 2   # less at a time; --accumulate makes up for it",
        "{rerun} --checkpoint-activations",
        "{rerun} --strategy fsdp                       # shards weights, gradients and optimizer",
        cases=(
            case(
                r"total capac\w+ of (?:\d|1[01])\.\d+ GiB|; (?:\d|1[01])\.\d+ GiB total",
                "The GPU is small, or a slice of one (MIG), which has a part of the card's memory only: weights, "
                "gradients, optimizer and activations do not fit into it.",
                "nvidia-smi -L    # in the job: does it say MIG? then ask Slurm for a whole card, or a larger one",
                "{rerun} --per-device-batch-size {half} --accumulate 2   # less at a time",
                "{rerun} --checkpoint-activations",
            ),
        ),
        source="docs.pytorch.org/docs/stable/notes/faq.html",
    ),
    symptom(
        "gpu-memory-full",
        2,
        r"CUDA error: out of memory|CUDA out of memory|Cuda failure (?:2 )?'out of memory'"
        r"|CUDA_ERROR_OUT_OF_MEMORY|HIP out of memory"
        r"|(?:CUBLAS_STATUS|CUSOLVER_STATUS|CUDNN_STATUS)_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED"
        r"|CUDNN_STATUS_NOT_INITIALIZED|Unable to find a valid cuDNN algorithm",
        "{rank}found no room on the GPU for a library's own memory: {line}",
        "The GPU is full: of this program's tensors, of another rank's or of another program that was left over.",
        "nvidia-smi    # in the job, on that node: who else holds memory?",
        "{rerun} --per-device-batch-size {half} --accumulate 2",
        "lab check 2.2    # does each rank use a GPU of its own?",
        source="github.com/QwenLM/Qwen3/issues/873",
    ),
    symptom(
        "locked-memory",
        1,
        r"ibv_(?:reg_mr|create_cq|create_qp)\w*(?:\(\))? failed.{0,80}(?:Cannot allocate memory|ENOMEM)"
        r"|max locked memory",
        "InfiniBand could not lock memory: {line}",
        "The limit of locked memory (ulimit -l) is too low in the job: the administrators raise it.",
        "srun --ntasks=1 bash -c 'ulimit -l'    # it should say unlimited",
        "NCCL_IB_DISABLE=1 {rerun}    # slower, until then",
        source="github.com/openucx/ucx/issues/8746",
    ),
    symptom(
        "too-many-threads",
        1,
        r"can't start new thread|pthread_create.{0,80}(?:Resource temporarily unavailable|Operation not permitted)"
        r"|libgomp: Thread creation failed|fork: (?:retry: )?(?:Resource temporarily unavailable|Cannot allocate)"
        r"|BlockingIOError: \[Errno 11\](?!.{0,80}lock)|OMP: Error #34"
        r"|what\(\):\s+Resource temporarily unavailable",
        "No more threads or processes could be started: {line}",
        "Ranks, loader processes and their threads together passed the limit of processes of the user or the "
        "container.",
        "ulimit -u    # in the job: how many are allowed?",
        "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 {rerun} --num-workers 1",
        source="github.com/MIC-DKFZ/nnUNet/issues/1343",
    ),
    symptom(
        "shared-memory",
        1,
        r"NCCL WARN .{0,80}(?:failed to (?:extend|open|mmap)|attaching to shared memory).{0,80}/dev/shm"
        r"|/dev/shm.{0,200}No space left on device|No space left on device.{0,200}/dev/shm"
        r"|insufficient shared memory"
        r"|Error while creating shared memory segment|unable to (?:open|mmap|write|resize"
        r"|allocate).{0,80}shared memory"
        r"|DataLoader worker .{0,80}Bus error|torch_shm_manager"
        rf"|{_SEMAPHORE}",
        "Shared memory (/dev/shm) was full or too small: {line}",
        "NCCL's ranks of one node and the loader processes talk through it; a container often gets only 64 MB of "
        "it.",
        "df -h /dev/shm     # inside the job or the container",
        "{rerun} --num-workers 0   # the loaders then need none; docker: --shm-size=16g or --ipc=host",
        cases=(
            case(
                r"/dev/shm/nccl|shm(?:utils)?\.cc",
                "NCCL's ranks of one node talk through it: a container often gets only 64 MB of it, or each rank "
                "one "
                "of its own.",
                "df -h /dev/shm     # inside the job or the container",
                "NCCL_SHM_DISABLE=1 {rerun}   # without it; docker: --shm-size=16g or --ipc=host",
            ),
            case(
                rf"(?:{_SEMAPHORE})(?P<why>.{{0,80}})",
                "Semaphores and queues of loader processes are files in /dev/shm: it is full (of files that dead "
                "runs "
                "have left: torch_*, sem.*, nccl-*), missing or closed there. No disk is meant.",
                "df -h /dev/shm ; ls -l /dev/shm | head    # on that node, inside the container: rm those of "
                "yours",
                "{rerun} --num-workers 0   # the loaders then need none; docker: --shm-size=16g or --ipc=host",
                saw="{rank}could not make a semaphore in shared memory (/dev/shm): {why}.",
            ),
        ),
        unless=r"directory for manager socket|Too many open files",
        source="docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    symptom(
        "no-temporary-folder",
        1,
        r"could not generate a random directory for manager socket|mktemp: failed to create .{0,120}"
        r"|No usable temporary directory found in.{0,120}|TMPDIR.{0,80}(?:does not exist|not a directory|No such)",
        "The folder for temporary files (TMPDIR) cannot be written to: {line}",
        "TMPDIR names a folder that this node does not have (that of another job, or of the login node), that is "
        "full "
        "or not yours. Shared memory is not meant.",
        "srun --ntasks-per-node=1 bash -c 'echo $TMPDIR; ls -ld $TMPDIR'    # on each node: is it there?",
        "TMPDIR=/tmp {rerun}    # or mkdir -p $TMPDIR in the job, on every node",
        source="github.com/cvg/nice-slam/issues/111",
    ),
    symptom(
        "socket-path",
        0,
        r"AF_UNIX path too long|(?:socket|unix).{0,60}path.{0,20}too long|sun_path.{0,40}too long",
        "{rank}could not make a socket, for the path of its file is too long: {line}",
        "TMPDIR is so long that the sockets of loader processes in it pass the limit of about 108 characters: "
        "their "
        "batches never come, and the job stands still until its time is up.",
        "TMPDIR=/tmp {rerun}    # a short one; if run.sh or env/site.sh sets it, change it there",
        source="github.com/riga/law/issues/184",
    ),
    symptom(
        "out-of-memory",
        1,
        rf"{messages.MEMORY}|DefaultCPUAllocator: (?:can't|not enough)|std::bad_alloc"
        r"|^(?:\[rank\d+\]: ?|\d+: )?(?:numpy\.\S{0,60})?(?:\w*ArrayMemoryError|MemoryError)\b"
        r"|OSError: \[Errno 12\]|Cannot allocate memory",
        "The job used more memory than it was given (the node's, not the GPU's): {line}",
        "Slurm or the kernel ends a job at its limit, in the midst of anything. Loader processes count too.",
        "sacct -j {job} --format=JobID,State,ReqMem,MaxRSS,ExitCode",
        "sbatch --mem=64G run.sh    # with its options: ask for more",
        "{rerun} --num-workers 2        # or need less",
        cases=(
            case(
                r"unable to mmap \d+ bytes from file </torch_\d+",
                "Loader processes hand batches over in files that are mapped. Either memory ran out, or the "
                "number of "
                "maps (65530 in a process): then tensors of old batches are kept, in a list, say.",
                "sacct -j {job} --format=JobID,State,ReqMem,MaxRSS    # far below what it had? then it was the "
                "maps",
                "{rerun} --num-workers 2",
            ),
        ),
        unless=_LOCKED + r"|fork: |NET/\w+ ",
        source="slurm.schedmd.com/faq.html",
    ),
    symptom(
        "loader-died",
        2,
        r"DataLoader worker \(pid\(?s?\)? ?[\d, ]{1,80}\).{0,80}(?:exited unexpectedly|killed by signal)"
        r"|Pin memory thread exited unexpectedly",
        "{rank}lost a loader process: {line}",
        "Most often the node's memory ran out, and the kernel ended the loader; or it crashed in a library.",
        "sacct -j {job} --format=JobID,State,ReqMem,MaxRSS,ExitCode",
        "{rerun} --num-workers 0   # loads in the rank itself, and shows the loader's own error",
        source="github.com/pytorch/pytorch/issues/5301",
    ),
    symptom(
        "too-many-files",
        1,
        r"Too many open files|received 0 items of ancdata|\[Errno 24\]",
        "{rank}had too many files open at once: {line}",
        "Loader processes hand batches over through file descriptors, one or more for each tensor that is still "
        "kept: of batches in a list, too.",
        "ulimit -n 65536     # before the run, in run.sh",
        "grep -n -E 'append|set_sharing_strategy' *.py exercises/*.py    # keep .item() or copies; or "
        "torch.multiprocessing.set_sharing_strategy('file_system')",
        "{rerun} --num-workers 2",
        cases=(
            case(
                r"(?:NCCL WARN|NET/\w+|[Cc]all to \w+ failed|socket).{0,120}Too many open files",
                "NCCL's connections are files too: with many ranks over TCP, and several sockets for each, the "
                "limit of "
                "a process (ulimit -n) is reached. What other ranks say of lost connections follows from it.",
                "ulimit -n 65536     # before the run, in run.sh; administrators set the highest value",
                "env -u NCCL_NSOCKS_PERTHREAD -u NCCL_SOCKET_NTHREADS {rerun}    # fewer sockets",
            ),
        ),
        source="docs.pytorch.org/docs/stable/multiprocessing.html",
    ),
)
