"""The internet, which a compute node mostly has not, what came not whole, and rights to a disk that expire."""

import re

from lab.diagnose.symptoms.entry import case, symptom

INTERNET = r"urlopen error|Max retries exceeded|HTTPS?Connection|URLError|HTTPError"
_OFTEN = "Compute nodes often have no internet, and servers refuse who asks too often."
_OFFLINE = "HF_HUB_OFFLINE=1 {rerun}    # with the same HF_HOME as there: it then asks nobody"

NO_INTERNET = symptom(
    "no-internet",
    1,
    rf"(?:{INTERNET}|LocalEntryNotFoundError|We couldn't connect to|ConnectTimeout|Could not resolve host"
    r"|HTTP Error \d{3})",
    "{rank}could not download: {line}",
    _OFTEN,
    "srun --ntasks=1 curl -sI https://HOST | head -n 1    # HOST: of the line; has the node internet at all?",
    "grep -n -i -E 'download|url' *.py    # what it is: fetched on the login node, before the job",
    cases=(
        case(
            r"/datasets/(?P<name>[\w.-]+/[\w.-]+)/resolve/",
            f"{_OFTEN} It is a data set of Hugging Face's, and not whole in the cache of this user (HF_HOME).",
            "hf download --repo-type dataset {name}    # on the login node, before the job; older: "
            "huggingface-cli",
            _OFFLINE,
        ),
        case(
            r"(?:(?:huggingface\.co|url: )/|looks like )(?P<name>[\w.-]+/[\w.-]+)(?:/resolve/| is not the path)",
            f"{_OFTEN} It is a model of Hugging Face's, and not whole in the cache of this user (HF_HOME).",
            "hf download {name}    # on the login node, before the job; older: huggingface-cli download",
            _OFFLINE,
        ),
        case(
            r"huggingface|hf_hub|/transformers/|LocalEntryNotFound|hf\.co\b",
            f"{_OFTEN} It is something of Hugging Face's, and not whole in the cache of this user (HF_HOME).",
            "hf download NAME    # on the login node, before the job; a data set with --repo-type dataset",
            _OFFLINE,
        ),
        case(
            r"wandb",
            "The node does not reach the service that keeps the curves, wandb: training needs none of it.",
            "WANDB_MODE=offline {rerun}    # then, on the login node: wandb sync wandb/offline-run-*",
        ),
        case(
            r"(?P<tool>mlflow|neptune|comet_ml|clearml|swanlab|tensorboard\.dev)",
            "The node does not reach the service that keeps the curves, {tool}: training needs none of it.",
            "grep -n {tool} *.py    # its offline mode, or a folder instead of a server; then {rerun}",
        ),
        case(
            r"\bpip\b|/simple/|No matching distribution",
            f"{_OFTEN} A job has what its environment has: it installs nothing.",
            "python -m pip install -r requirements.txt    # on the login node, into the job's environment",
        ),
        case(
            r"unable to access 'https?://\S+'|\bgit clone\b",
            f"{_OFTEN} It is a repository of git's.",
            "git clone URL    # on the login node, before the job",
        ),
        case(
            r"(?i:cifar)",
            _OFTEN,
            "lab fetch cifar10 --data-dir data    # on the login node, before the job",
        ),
        case(r"(?i:mnist)", _OFTEN, "lab fetch mnist --data-dir data    # on the login node, before the job"),
        case(
            r"\.pth\b|torch/hub|\btimm\b",
            f"{_OFTEN} It is a model's weights, which torch.hub keeps in $TORCH_HOME (~/.cache/torch).",
            "python -c 'import torchvision; torchvision.models.resnet50(weights=\"DEFAULT\")'    # the "
            "program's "
            "own model, on the login node, before the job",
        ),
        case(
            r"HTTP Error (?:4\d\d)|(?:403|404|429) Client Error|Too Many Requests",
            "The server was reached, and refused: the file has moved, or too many have asked.",
            "grep -n -i -E 'download|url' *.py    # what it is: fetched once, on the login node, not by "
            "every rank",
        ),
    ),
    source="docs.pytorch.org/vision/stable/datasets.html",
)

BROKEN_DATA = symptom(
    "broken-data",
    1,
    r"UnidentifiedImageError|image file is truncated|cannot identify image file"
    r"|[Ff]ile not found or corrupted"
    r"|Dataset not found or corrupted|BadZipFile|BadGzipFile|Compressed file ended before|tarfile\.ReadError"
    r"|MDB_CORRUPTED|CorruptedError|zlib\.error: Error -[35]",
    "{rank}found data that is damaged or not whole: {line}",
    "A download or a copy was cut off, or several ranks wrote it at the same time.",
    "ls -lL FILE    # the one in the line: remove it, and fetch it once more, on the login node",
    "grep -n 'download=' *.py    # by rank 0 alone, the others after a barrier",
    cases=(
        case(
            r"^(?:\[rank\d+\]: ?|\d+: )?(Downloading \S+) .*\n(?:.*\n){0,9}?(?:\[rank\d+\]: ?|\d+: )?\1 ",
            "Several ranks downloaded it at the same time to one place, and each found what another was "
            "writing: the file on the server is in order.",
            "grep -n 'download=' *.py    # by rank 0 alone, the others after dist.barrier(); or before the job",
            "rm -r data ; lab fetch cifar10 --data-dir data    # once, on the login node; mnist too",
            anywhere=True,
        ),
        case(
            r"(?i:cifar)",
            "A download or a copy was cut off, or several ranks wrote it at the same time.",
            "lab fetch cifar10 --data-dir data    # on the login node, once; remove the damaged file before",
        ),
        case(
            r"(?i:mnist)",
            "A download or a copy was cut off, or several ranks wrote it at the same time.",
            "lab fetch mnist --data-dir data    # on the login node, once; remove the damaged file before",
        ),
    ),
    source="docs.pytorch.org/vision/stable/datasets.html",
)

TICKETS = (
    "A ticket or token gave the right to that disk (Kerberos, AFS, NFS with krb5), for 8 to 25 hours mostly: it "
    "has expired, or did not come along to the job's node."
)
TO_DO = (
    "srun --ntasks=1 bash -c 'klist; tokens'    # in the job: is there a ticket, and until when?",
    "krenew -b -t -K 60    # first in the script, renews it while the job runs; some sites have auks or k5start",
    "{rerun} --run-id {run_id} --resume auto    # then goes on from the last checkpoint",
)

ACCESS_LOST = symptom(
    "access-lost",
    1,
    r"Key has expired|Required key not available|Key has been revoked|\[Errno 12[678]\]"
    r"|(?:GSSAPI|GSS|gss|[Kk]erberos|[Kk]rb5|KRB5).{0,120}(?:[Ee]xpired|EXPIRED|[Nn]ot found|[Nn]o credentials"
    r"|[Uu]navailable|fail)"
    r"|[Tt]ickets? (?:has |have )?expired|[Nn]o credentials cache|^(?:aklog|kinit|krenew|klist): .{0,200}"
    r"(?:expired|[Nn]o |not |[Cc]ouldn't|unable|fail|while)"
    r"|\btokens? for (?:cell|afs)\b.{0,80}\bexpired",
    "{rank}lost its right to a disk: {line}",
    TICKETS,
    *TO_DO,
    source="docs.openafs.org/Reference/1/aklog.html",
)

# What one rank compiles the others read: in a home that several nodes share, half written or replaced.
_COMPILED = (
    r"[/.](?:triton|torchinductor\w*|inductor(?:[-_]cache)?|torch_extensions|torch_compile\w*|ComputeCache)/"
)
_ITS_OWN = (
    "export TRITON_CACHE_DIR=/tmp/triton-$SLURM_JOB_ID TORCHINDUCTOR_CACHE_DIR=/tmp/inductor-$SLURM_JOB_ID "
    "TORCH_EXTENSIONS_DIR=/tmp/ext-$SLURM_JOB_ID    # in the job's script: on each node's own disk",
    "{rerun} --run-id {run_id} --resume auto",
)
_OF_A_COMPILER = (
    "A compiler's cache (Triton, Inductor, C++ extensions) to which several ranks write at the same time, here "
    "on a disk that nodes share: one replaces what another reads. Neither the network nor the code is to blame; "
    "to empty the cache helps until the next time."
)
COMPILED_STALE = case(
    rf"{_COMPILED}.{{0,200}}[Ss]tale|[Ss]tale .{{0,120}}{_COMPILED}",
    _OF_A_COMPILER,
    *_ITS_OWN,
    saw="{rank}had a compiled file taken from it: {line}",
)
COMPILER_CACHE = symptom(
    "compiler-cache",
    1,
    rf"(?:(?:FileNotFound|FileExists|OS)Error: \[Errno \d+\]|ImportError:) .{{0,200}}{_COMPILED}.{{0,300}}"
    rf"|{_COMPILED}\S{{0,200}} ?(?:file too short|Text file busy|invalid ELF header)",
    "{rank}found a compiled file gone or half written: {line}",
    _OF_A_COMPILER,
    *_ITS_OWN,
    cases=(
        case(
            r"['\" ]/(?:var/)?(?:tmp|dev/shm)/",
            "A compiler's cache (Triton, Inductor, C++ extensions) to which several ranks, or jobs, of this "
            "node write at the same time: one replaces or removes what another reads. The code is not to blame.",
            "export TRITON_CACHE_DIR=/tmp/triton-$SLURM_JOB_ID-$SLURM_LOCALID    # within srun's command: of "
            "each rank its own; TORCHINDUCTOR_CACHE_DIR and TORCH_EXTENSIONS_DIR too",
            "grep -n -E 'compile|cpp_extension' *.py    # or rank 0 compiles first, the others after a barrier",
        ),
    ),
    unless=r"[Ss]tale|No space left|quota|lock|[Pp]ermission|Read-only|undefined symbol|version .{0,20}not found",
    source="github.com/PrimeIntellect-ai/prime-rl/pull/2305",
)

OTHER_TORCH = case(
    r"[\w.]*(?:param_groups|optim\w*)\.\S*\.(?P<name>decoupled_weight_decay|foreach|capturable|maximize"
    r"|differentiable|fused|amsgrad|initial_lr)\b",
    "An older (or newer) PyTorch wrote it, whose optimizer had no such setting: {name}. The weights and moments "
    "are all there; the number of ranks and the network are not to blame.",
    "grep -n -E 'dcp.load|DefaultLoadPlanner' *.py    # planner=DefaultLoadPlanner(allow_partial_load=True), "
    "then set {name} as it is in a fresh optimizer",
    "python -c 'import torch; print(torch.__version__)'    # or load and save it with the one that wrote it",
    saw="{rank}read a checkpoint of another PyTorch's optimizer: {line}",
)
CHECKPOINT_EXISTS = symptom(
    "checkpoint-exists",
    2,
    r"FileExistsError: .{0,40}'(?P<file>[^'\n]{0,200}(?:step|epoch|ckpt|checkpoint|iter|global)[^'\n/]{0,60})'$",
    "{rank}was to save a checkpoint that is there already: {line}",
    "Likeliest a run before this one had saved it, and the mark of the latest (LATEST, latest.txt) stayed at an "
    "older one: its disk or quota was full, or it ended between the two. Else several ranks make the folder. "
    "Timeouts of other ranks follow from it.",
    "ls -lt {file} ; df -h . ; quota -s    # whole? resume from it, or move it away; lfs quota on Lustre",
    "grep -n -E 'makedirs|mkdir' *.py    # exist_ok=True; the mark written to a new file, then os.replace()",
    unless=r"' -> '|\.lock\b|cache",
    source="github.com/NVIDIA-NeMo/Automodel/pull/3390",
)

NO_LOCKS = (
    r"No locks available|does not (?:appear to )?support f?lock|f(?:lock"
    r"|cntl\.lockf)\(.*\n(?:.*\n)?.*\[Errno (?:38|95|524)\]"
    r"|\[Errno 37\]|ENOLCK|lock.{0,80}(?:\[Errno (?:38|95|524)\]|Function not implemented"
    r"|Operation not supported)"
)

LOCKS_OF_A_HUB = case(
    r"does not (?:appear to )?support f?lock|huggingface|filelock|\bflock\(",
    "The file system has no locks (Lustre without the option flock, some of NFS, FUSE), and a library puts its "
    "lock files there: a download's cache or its local_dir. What other ranks say of lost connections follows "
    "from it.",
    "export HF_HOME=/tmp/$USER-hf    # and local_dir there too: a disk with locks, then copy",
    "flock -n FILE true    # in the job, on a file there: does that fail too? then tell your administrators",
)

FILE_LOCKED = symptom(
    "file-locked",
    1,
    r"unable to lock file|database is locked|Unable to (?:acquire|obtain) lock|filelock\S{0,20}Timeout",
    "{rank}found a file locked: {line}",
    "Another process has it open for writing (each rank opens it?), or one that was killed has left its lock.",
    "lsof FILE    # on the node: who has it open?",
    cases=(
        case(
            r"MIOpen|miopen",
            "MIOpen keeps what it has compiled and tuned in a database in your home, and all ranks write to it: "
            "on "
            "a shared disk (NFS) one locks out the others. Whether it goes well is chance.",
            "export MIOPEN_USER_DB_PATH=/tmp/$USER-miopen-$SLURM_PROCID    # on the node, of each rank its own",
            "export MIOPEN_CUSTOM_CACHE_DIR=$MIOPEN_USER_DB_PATH ; rm -f ~/.config/miopen/*-journal",
            saw="{rank}found MIOpen's database of kernels locked by another rank: {line}",
        ),
        case(
            r"triton|torchinductor|torch_extensions|/\.nv/|hugging|datasets|/\.cache/",
            "Ranks share a cache, here in your home or on a shared disk, and one of them holds its lock, or a job "
            "that was ended has left it.",
            "export TRITON_CACHE_DIR=/tmp/$USER/triton TORCHINDUCTOR_CACHE_DIR=/tmp/$USER/inductor "
            "TORCH_EXTENSIONS_DIR=/tmp/$USER/ext    # on the node's own disk",
            "find ~/.cache -name '*lock' -mmin +60    # with no job of yours running: remove those",
        ),
        case(
            r"unable to lock file|h5py|HDF5|\.h5\b",
            "Another process has it open for writing (each rank opens it?), or the file system knows no locks.",
            "lsof FILE    # on the node: who has it open?",
            "HDF5_USE_FILE_LOCKING=FALSE {rerun}    # only where nobody writes to it",
        ),
    ),
    unless=NO_LOCKS,
    source="github.com/h5py/h5py/issues/1101",
)

_PASSING = re.compile(
    r"te?mp|incomplete|partial|\.part\b|staging|checkpoint|ckpt|cache|snapshot|\.old\b|latest", re.I
)


def _for_the_time_being(found: re.Match[str]) -> bool:
    """Whether a name is one that is to be changed, or two ranks say the same of it."""
    return bool(_PASSING.search(found["path"])) or found.string.count(found[0]) > 1


# What was saved under a name for the time being, and was to get its own: of several ranks, one finds it there.
RENAMED = symptom(
    "renamed-by-all",
    1,
    r"(?:FileNotFoundError|FileExistsError|NotADirectoryError|OSError): \[Errno (?:2|17|20|39)\] .{0,60}"
    r"'(?P<path>[^'\n]{1,300})' -> '[^'\n]{1,300}'",
    "{rank}found nothing to rename, or the new name taken: {line}",
    "Several ranks write under one name for the time being and rename it: one of them has done so, and the others "
    "find it gone. What was saved may well be whole. transformers 4.36.0 does so with tmp-checkpoint-*, of each "
    "node on a shared disk.",
    "ls -l    # is it there under its new name, and whole? then {rerun} --resume auto",
    "python -m pip install --upgrade transformers    # where it is its Trainer: 4.36.1 and later",
    "grep -n -E 'rename|replace|move' *.py    # on rank 0 alone, the others behind a barrier",
    unless=r"torchinductor|[/.]triton|\.tmp\.pid",
    when=_for_the_time_being,
    source="github.com/huggingface/transformers/issues/27925",
)
