"""Disks, data sets, checkpoints and the internet."""

from lab.diagnose.symptoms.entry import case, symptom

INTERNET = r"urlopen error|Max retries exceeded|HTTPS?Connection|URLError|HTTPError"

FILES = (
    symptom(
        "disk-full",
        1,
        r"No space left on device|Disk quota exceeded|\[Errno 122\]|\[Errno 28\]"
        r"|PytorchStreamWriter failed writing",
        "A file could not be written: {line}",
        "The disk is full, or your quota on it is used up.",
        "df -h . ; df -i . ; quota -s ; du -sh results/*",
        "{rerun} --save-frequency 10    # fewer checkpoints; or --output-dir on another disk",
        cases=(
            case(
                r"(?:\[Errno 122\]|[Qq]uota)",
                "Your quota on this disk is used up, of bytes or of files; the disk itself may have room.",
                "quota -s ; du -sh results/* ; find . -xdev | wc -l    # bytes, and the number of files",
                "{rerun} --save-frequency 10    # fewer checkpoints; or --output-dir on another disk",
            ),
            case(
                r"['\" ]/(?:var/)?tmp/|torchinductor_|/\.triton/",
                "The node's own disk below /tmp is full, by you or by others.",
                "srun --ntasks-per-node=1 df -h /tmp    # on the job's nodes",
                "TMPDIR=$SCRATCH {rerun}",
            ),
        ),
        unless=r"/dev/shm|FATAL|unsquashfs|while (?:building|extracting)|container process|shared memory"
        r"|cgroup|inotify|slurmstepd: error",  # what is full there is no disk of the user's
    ),
    symptom(
        "file-system",
        1,
        r"Stale (?:NFS )?file handle|Input/output error|Transport endpoint is not connected|Remote I/O error"
        r"|Cannot send after transport endpoint shutdown|\[Errno (?:5|116|107|108|121)\]",
        "{rank}lost the file system: {line}",
        "A shared disk did not answer this node: nothing that your program did.",
        "srun --ntasks=1 ls .    # does it answer now? then {rerun} --run-id {run_id} --resume auto",
        source="nfs.sourceforge.net",
    ),
    symptom(
        "file-locked",
        1,
        r"unable to lock file|No locks available|database is locked|\[Errno 37\]",
        "{rank}found a file locked: {line}",
        "Another process has it open for writing (each rank opens it?), or the file system knows no locks.",
        "lsof FILE    # on the node: who has it open?",
        "HDF5_USE_FILE_LOCKING=FALSE {rerun}    # only where nobody writes to it",
        source="github.com/h5py/h5py/issues/1101",
    ),
    symptom(
        "read-only",
        1,
        r"Read-only file system|\[Errno 30\]",
        "{rank}could not write there: {line}",
        "On many clusters homes are read-only on the nodes, and so is a container's own inside.",
        "{rerun} --output-dir $SCRATCH/results",
        source="apptainer.org/docs/user/main/bind_paths_and_mounts.html",
    ),
    symptom(
        "no-permission",
        2,
        r"PermissionError: .{0,300}|\[Errno 13\]",
        "{rank}may not read or write there: {line}",
        "The folder belongs to somebody else, or a file in it was made by another user or in a container as root.",
        "ls -ld . results ; id",
        "{rerun} --output-dir $SCRATCH/results",
        unless=r"execve",
    ),
    symptom(
        "broken-data",
        1,
        r"UnidentifiedImageError|image file is truncated|cannot identify image file|[Ff]ile not found or corrupted"
        r"|Dataset not found or corrupted|BadZipFile|BadGzipFile|Compressed file ended before|tarfile\.ReadError"
        r"|MDB_CORRUPTED|CorruptedError|zlib\.error: Error -[35]",
        "{rank}found data that is damaged or not whole: {line}",
        "A download or a copy was cut off, or several ranks wrote it at the same time.",
        "lab fetch cifar10 --data-dir data    # on the login node, once; remove the damaged file before",
        source="docs.pytorch.org/vision/stable/datasets.html",
    ),
    symptom(
        "broken-checkpoint",
        1,
        r"PytorchStreamReader failed|failed finding central directory|invalid header or archive is corrupted"
        r"|unpickling stack underflow|pickle data was truncated|EOFError: Ran out of input"
        r"|UnpicklingError: invalid load key|assert metadata is not None",
        "{rank}could not read a checkpoint: {line}",
        "It was cut off while it was written (disk full, job ended), or is the text of a pointer, not the file.",
        "ls -l results/*/checkpoints    # best.pth and epoch_*.pth are older ones",
        "{rerun} --run-id {run_id} --resume best",
        unless=r"[Ww]eights only",
        source="github.com/pytorch/pytorch/issues/31620",
    ),
    symptom(
        "checkpoint-not-plain",
        1,
        r"Weights only load failed|Unsupported global: GLOBAL",
        "{rank}was refused a checkpoint that holds more than tensors: {line}",
        "torch.load(weights_only=True), the default, reads tensors and plain values: others could run code.",
        "grep -n 'torch.save' exercises/*.py    # save state_dict()s, no whole objects",
        source="docs.pytorch.org/docs/stable/notes/serialization.html",
    ),
    symptom(
        "other-checkpoint",
        1,
        r"Error\(s\) in loading state_dict|Missing key in checkpoint state_dict"
        r"|size mismatch for \S+: copying a param"
        r"|loaded state dict (?:contains|has) (?:a parameter group|a different number)",
        "{rank}read a checkpoint of another network: {line}",
        "Its tensors have other names or sizes than the network's: another --model, or one that was wrapped "
        "otherwise.",
        "lab check 1.1    # and the --model in the run's config.json",
        source="docs.pytorch.org/tutorials/beginner/saving_loading_models.html",
    ),
    symptom(
        "checkpoint-device",
        1,
        r"Attempting to deserialize object on (?:a )?CUDA device",
        "{rank}has read tensors of a GPU that is not here: {line}",
        "A checkpoint names the devices of its tensors; map_location says where they are to go.",
        "grep -n 'torch.load' exercises/*.py    # torch.load(..., map_location=device)",
        source="docs.pytorch.org/docs/stable/generated/torch.load.html",
    ),
    symptom(
        "no-internet",
        1,
        rf"(?:{INTERNET}|LocalEntryNotFoundError|We couldn't connect to|ConnectTimeout|Could not resolve host"
        r"|HTTP Error \d{3})",
        "{rank}could not download: {line}",
        "Compute nodes often have no internet, and servers refuse who asks too often.",
        "lab fetch cifar10 --data-dir data    # on the login node, before the job",
        cases=(
            case(
                r"HTTP Error (?:4\d\d)|(?:403|404|429) Client Error|Too Many Requests",
                "The server was reached, and refused: the file has moved, or too many have asked.",
                "lab fetch cifar10 --data-dir data    # once, on the login node, not by every rank",
            ),
        ),
        source="docs.pytorch.org/vision/stable/datasets.html",
    ),
    symptom(
        "file-not-found",
        2,
        r"FileNotFoundError: .{0,300}|NotADirectoryError: .{0,300}",
        "{rank}did not find a file or a folder: {line}",
        "Its path is wrong, relative to another folder, or not one that the node sees.",
        "srun --ntasks=1 pwd    # paths are taken from here; --data-dir names the data",
        unless=r"torchinductor|[/.]triton|\.tmp\.pid",  # a compiler's cache, in which another process tidied up
        source="docs.python.org/3/library/exceptions.html",
    ),
)
