"""GPUs: which one, whether it works, whether driver, card and build of PyTorch fit each other."""

from lab.diagnose.symptoms.code import PRECISION_NOT_HERE
from lab.diagnose.symptoms.containers import GPU_CLOSED
from lab.diagnose.symptoms.entry import case, symptom

_TOO_LARGE = (
    "A kernel of Triton, torch.compile or CUDA was made for a card whose multiprocessors have more memory or "
    "registers on the chip; another model of card may well run it. Neither the GPU's memory nor a disk is meant."
)
_SMALLER = (
    "grep -n -E 'max-autotune|num_stages|BLOCK|compile' *.py    # smaller blocks, fewer stages, no autotune",
    "TORCHDYNAMO_DISABLE=1 {rerun}    # without torch.compile",
    "python -m pip install --upgrade torch    # brings a Triton that may know this card",
)

DEVICES = (
    symptom(
        "driver-too-old",
        1,
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient"
        r"|not supported in the installed CUDA driver"
        r"|PTX was compiled with an unsupported toolchain|UNSUPPORTED_PTX_VERSION|[Uu]nsupported PTX version"
        r"|cudaErrorInsufficientDriver|(?:requires|needs) (?:a )?(?:newer|more recent) (?:NVIDIA |CUDA )?driver",
        "{rank}cannot use the GPU: its driver is older than this build of PyTorch needs. {line}",
        "PyTorch brings its own CUDA, and that asks for a driver not older than itself. The run went on on the "
        "CPU, or ended.",
        "nvidia-smi    # CUDA Version: the newest that the driver knows; choose a build of PyTorch not above it",
        "lab doctor    # inside the job",
        source="github.com/ultralytics/yolov5/issues/2389",
    ),
    symptom(
        "stub-driver",
        0,
        r"(?P<what>(?:\bError 34: )?CUDA driver is a stub library|\bError 34: .{0,80}|cudaErrorStubLibrary)",
        "{rank}loads an empty stand-in for the driver's library (a stub of libcuda.so.1): {what}.",
        "A folder called stubs, of the CUDA toolkit's, is in LD_LIBRARY_PATH: it is for the linker only. "
        "That no "
        "GPU "
        "is found follows from it.",
        "echo $LD_LIBRARY_PATH | tr : '\\n' | grep stubs    # in the job: take this folder out where it is set",
        "grep -n stubs ~/.bashrc env/*",
        source="docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html",
    ),
    symptom(
        "mps-daemon",
        0,
        r"(?P<what>\bError (?:80[5-9]|810): [^(\n]{0,100}|MPS (?:client|server|control daemon) .{0,100}"
        r"|cudaErrorMps\w+|CUDA_ERROR_MPS_\w+)",
        "{rank}was told to use CUDA's Multi-Process Service, and could not: {what}.",
        "CUDA_MPS_PIPE_DIRECTORY is set, and on this node no daemon answers there, it is another user's, or it "
        "has as "
        "many clients as it may. The GPU itself is not to blame.",
        "unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY   # before srun: one process for each GPU "
        "needs no "
        "MPS",
        "srun --ntasks-per-node=1 pgrep -a nvidia-cuda-mps    # where it is wanted: does it run on each node?",
        source="docs.nvidia.com/deploy/mps",
    ),
    symptom(
        "driver-mismatch",
        1,
        r"Driver/library version mismatch|forward compatibility was attempted"
        r"|unsupported display driver / cuda driver combination"
        r"|Error 80[34]:",
        "{rank}found parts of two GPU drivers: {line}",
        "The driver was updated without a restart of the node, or a container brings another libcuda.so.1 along.",
        "nvidia-smi    # in the job: does it fail too? then tell your administrators",
        "echo $LD_LIBRARY_PATH    # a compat folder of CUDA's in it hides the driver's own library",
        source="github.com/pytorch/pytorch/issues/40671",
    ),
    symptom(
        "card-not-supported",
        1,
        r"no kernel image is available|is not compatible with the current PyTorch installation"
        r"|device kernel image is invalid|ptxas fatal\s*: Value 'sm_\d+\w?' is not defined"
        r"|nvcc fatal\s*: Unsupported gpu architecture"
        r"|Cuda failure (?:\d+ )?'(?:named symbol not found|invalid device function)'",
        "{rank}has a build of PyTorch without code for this card: {line}",
        "The card is newer, or much older, than those that this build, or its compiler, was made for.",
        "python -c 'import torch; print(torch.version.cuda, torch.cuda.get_arch_list())'    # is its sm_ there?",
        "python -m pip install --upgrade torch    # a build whose list holds it, in a new environment",
        cases=(
            case(
                r"Cuda failure (?:\d+ )?'(?:named symbol|invalid device function|no kernel|device kernel)",
                "It is the NCCL library that was loaded, not PyTorch: it was built for other cards than "
                "this one. "
                "Mostly a module's, or one in LD_LIBRARY_PATH or LD_PRELOAD, instead of PyTorch's own.",
                "echo $LD_LIBRARY_PATH $LD_PRELOAD ; module list    # in the job: which NCCL comes first?",
                "env -u LD_LIBRARY_PATH -u LD_PRELOAD {rerun}    # or without that module",
                saw="{rank}NCCL has no code for this card: {line}",
            ),
        ),
        source="github.com/pytorch/pytorch/issues/31285",
    ),
    symptom(
        "failing-gpu",
        0,
        r"uncorrectable (?:ECC|NVLink)|ECC error|GPU is lost|fallen off the bus|Xid .{0,80}: (?:4[58]|6[1-4]"
        r"|7[49]|92|94|95|1[1-5]\d)\b"
        r"|Unable to determine the device handle for GPU|CUDA error: hardware",
        "{rank}has met a GPU or a link that is failing: {line}",
        "The hardware of this node: nothing that your program did.",
        "sbatch --exclude=NODE run.sh    # without that node; tell your administrators node and GPU",
        "srun --nodelist=NODE nvidia-smi --query-gpu=index,uuid,ecc.errors.uncorrected.volatile.total "
        "--format=csv",
        source="docs.nvidia.com/deploy/xid-errors",
    ),
    symptom(
        "nvlink-sharp",
        1,
        r"^.{0,200}(?:[Ff]ailed to (?:bind|create|add|map|allocate) NVLink SHARP"
        r"|transport/nvls\.cc:\d+ NCCL WARN (?!.{0,80}(?:initialization error|out of memory))"
        r"|cuMulticast\w+.{0,80}(?:[Ff]ail|[Ee]rror)|Disable NVLS \(NCCL_NVLS_ENABLE=0\))",
        "NVLink SHARP (NVLS), with which NVSwitches add up for the GPUs, does not work on a node: {line}",
        "The node's fabric manager or its NVSwitches are in a bad state, or are kept from the container or the "
        "virtual machine: nothing that your program did.",
        "NCCL_NVLS_ENABLE=0 {rerun}    # without it, a little slower",
        "sbatch --exclude=NODE run.sh    # or without that node; tell your administrators",
        unless=r"NCCL INFO",
        source="github.com/NVIDIA/nccl/issues/1788",
    ),
    symptom(
        "gpu-fabric",
        1,
        r"system not yet initialized|Error 802\b|[Ff]abric ?[Mm]anager.{0,80}(?:not running|fail|error)",
        "The GPUs of this node are not joined yet: {line}",
        "On machines with NVSwitch a service, the fabric manager, joins them; it does not run, or not for this "
        "driver.",
        "sbatch --exclude=NODE run.sh    # without that node; tell your administrators",
        source="docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide",
    ),
    symptom(
        "device-busy",
        1,
        r"device\(s\) is/are busy or unavailable|all CUDA-capable devices are busy",
        "{rank}was given a GPU that is busy or closed: {line}",
        "It is in exclusive mode and has a process already (of another rank, or left over), or its node "
        "is not in "
        "order.",
        "nvidia-smi    # in the job, on that node: compute mode and processes",
        "grep -n -E 'torch.load|set_device|cuda\\(' *.py    # torch.load() without map_location uses GPU 0",
        "lab check 2.2    # does each rank use a GPU of its own?",
        source="github.com/pytorch/pytorch/issues/1494",
    ),
    symptom(
        "device-index",
        1,
        r"invalid device ordinal|device >= 0 && device < num_gpus",
        "{rank}asked for a GPU that this process cannot see.",
        "There are more processes on the node than GPUs for them, the rank was used as the index of the device "
        "instead of the local rank, or each process sees one GPU only, which is 0.",
        "lab check 2.2",
        "srun bash -c 'echo $SLURM_PROCID: $CUDA_VISIBLE_DEVICES'   # in the job: who sees which",
        unless=r"NCCL WARN|Cuda failure",
        cases=(
            case(
                r"\bMIG-[0-9a-f]|\bMIG \d+\w\.\d+gb",
                "The GPUs here are slices of a card (MIG), and a process sees one slice only, the first of "
                "CUDA_VISIBLE_DEVICES: a second rank needs a whole GPU. NCCL joins no two slices of one card "
                "either.",
                "sinfo --format='%P %G' ; sbatch --gpus-per-node=TYPE:2 run.sh    # TYPE: one without MIG",
                "sbatch --ntasks-per-node=1 --gpus-per-node=1 run.sh    # or one rank, on one slice",
                anywhere=True,
            ),
            case(
                r"--gpus-per-task[= ](?:\w+:)?1\b|--gpu-bind=(?:single|per_task):1\b|\b[Vv]isible\W{1,3}1 GPU\b"
                r"|\bdevice_count(?:\(\))?\W{1,4}1\b",
                "Each task sees one GPU only (--gpus-per-task), and that is number 0 to it, whatever its local "
                "rank.",
                "sbatch --ntasks-per-node=4 --gpus-per-node=4 run.sh    # instead of --gpus-per-task: each sees "
                "all",
                "grep -n -E 'set_device|LOCAL_RANK' *.py exercises/*.py    # or set_device(0) where one only is "
                "seen",
                anywhere=True,
            ),
        ),
        source="docs.nvidia.com/datacenter/tesla/mig-user-guide",
    ),
    symptom(
        "same-gpu",
        1,
        r"Duplicate GPU detected ?: rank (?P<one>\d+) and rank (?P<two>\d+) both on CUDA device",
        "Ranks {one} and {two} are both on the same GPU.",
        "Each rank needs a GPU of its own: torch.cuda.set_device(local_rank) comes before the process group.",
        "lab check 2.2",
        "sbatch --ntasks-per-node=4 --gpus-per-node=4 run.sh   # as many GPUs as tasks",
        cases=(
            case(
                r"\bMIG-[0-9a-f]|\bMIG \d+\w\.\d+gb",
                "Both have a slice of one card (MIG): NCCL takes one rank for each card, and joins no slices.",
                "sinfo --format='%P %G' ; sbatch --gpus-per-node=TYPE:2 run.sh    # TYPE: one without MIG",
                anywhere=True,
            ),
        ),
    ),
    GPU_CLOSED,
    symptom(
        "no-gpu",
        1,
        r"No (?:CUDA|HIP) GPUs are available|Torch not compiled with CUDA enabled|Found no NVIDIA driver"
        r"|no CUDA-capable device is detected|CUDA unknown error|no GPUs found|NVIDIA-SMI has failed because"
        r"|Can't initialize NVML|Failed to initialize NVML: (?!Driver)|hipErrorNoDevice"
        r"|Error: .{0,60}\b(?:CUDA|GPUs?|cuda|gpus?) (?:is|are) (?:not|un)(?: ?available| ?found|detected)"
        r"|Error: .{0,60}\b(?:needs|requires?) (?:a |an |at least \w+ )?(?:NVIDIA |CUDA )?GPU",
        "{rank}cannot use a GPU: {line}",
        "The job got no GPU, or this build of PyTorch is one without CUDA.",
        "srun --gpus=1 nvidia-smi    # does a job that asks for one get it?",
        "lab doctor     # inside the job, and the container",
        source="docs.pytorch.org/docs/stable/notes/cuda.html",
    ),
    symptom(
        "device-assert",
        1,
        r"device-side assert triggered|\.cu:\d+: .{0,200}: block: \[.{0,120}Assertion .{0,120} failed",
        "{rank}hit an assertion in a CUDA kernel.",
        "Mostly a label outside 0 .. classes - 1, as 255 for no class. CUDA tells of it later, at a line "
        "that is not to blame.",
        "CUDA_LAUNCH_BLOCKING=1 {rerun}    # slow, but the traceback then names the right line",
        "sbatch --gpus-per-node=0 run.sh --epochs 1    # the same on the CPU: the error is a plain one there",
        cases=(
            case(
                r"srcIndex < srcSelectDimSize|indexSelect\w*Index: block|EmbeddingBag|Embedding\.cu",
                "An index is past the end of an embedding: a token that was added to the tokenizer, and not to "
                "the "
                "model, ids of another tokenizer, or positions beyond the longest. CUDA tells of it later, at a "
                "line "
                "that is not to blame.",
                "grep -n -E 'add_special_tokens|pad_token|resize_token_embeddings' *.py    # "
                "model.resize_token_embeddings(len(tokenizer))",
                "CUDA_LAUNCH_BLOCKING=1 {rerun}    # slow, but the traceback then names the right line",
            ),
        ),
        source="docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",
    ),
    symptom(
        "gpu-fault",
        2,
        r"an illegal memory access was encountered|misaligned address|unspecified launch failure"
        r"|illegal instruction was encountered|the launch timed out and was terminated"
        r"|CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_MAPPING_ERROR"
        r"|CUDA_ERROR_ILLEGAL_ADDRESS",
        "{rank}was ended by a fault in a GPU kernel: {line}",
        "A kernel read or wrote where it must not. CUDA tells of it later, at a line that is not to blame.",
        "CUDA_LAUNCH_BLOCKING=1 {rerun}    # slow, but the traceback then names the right line",
        "compute-sanitizer python exercises/main.py    # on one GPU: which kernel, which address",
        source="github.com/pytorch/pytorch/issues/21819",
    ),
    symptom(
        "gpu-peer-access",
        1,
        r"peer access is not supported between|failed to open CUDA IPC handle"
        r"|cuMemImportFromShareableHandle.{0,80}fail"
        r"|CUDA_ERROR_PEER_ACCESS|peer mapping resources exhausted"
        r"|mapping of buffer object failed|p2p\.cc:\d+ NCCL WARN C(?:uda|UDA) failure .{0,60}peer access"
        r"|p2p\.cc:\d+ NCCL WARN Cuda failure (?:\d+ )?'invalid device ordinal'",
        "Two GPUs of one node cannot reach each other's memory: {line}",
        "Direct access (P2P) is not possible between these cards, or is kept from a container, a virtual "
        "machine "
        "or tasks that see one GPU each (--gpus-per-task).",
        "nvidia-smi topo -p2p r    # which pairs may read each other?",
        "NCCL_P2P_DISABLE=1 {rerun}    # through the host's memory",
        cases=(
            case(
                r"invalid device ordinal",
                "Each task sees one GPU only (--gpus-per-task, --gpu-bind, a container for each): NCCL cannot "
                "open that "
                "of its neighbour. It is not your program that asks for a wrong device.",
                "sbatch --gpus-per-node=4 run.sh    # instead of --gpus-per-task: each task sees all, and takes "
                "its own",
                "NCCL_P2P_DISABLE=1 {rerun}    # or through the host's memory; NCCL_CUMEM_ENABLE=0 may do as well",
            ),
        ),
        source="github.com/ray-project/ray_lightning/issues/24",
    ),
    symptom(
        "kernel-too-large",
        1,
        r"out of resources?: [\w ]{1,40}, Required: \d+, Hardware limit: \d+"
        r"|uses too much shared data \(0x\w+ bytes"
        r"|too many resources requested for launch|No valid triton configs",
        "{rank}met a kernel that is too large for this GPU: {line}",
        _TOO_LARGE,
        *_SMALLER,
        cases=(
            case(
                r"out of resources?: (?P<what>[\w ]{1,40}), Required: (?P<need>\d+), Hardware limit: (?P<has>\d+)",
                _TOO_LARGE,
                *_SMALLER,
                saw="{rank}met a kernel that is too large for this GPU: a block of it needs {need} of {what}, and "
                "the hardware has {has}: {line}",
            ),
        ),
        source="github.com/triton-lang/triton/issues/1696",
    ),
    PRECISION_NOT_HERE,
)
