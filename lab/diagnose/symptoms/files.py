"""Disks, data sets, checkpoints and the internet."""

from lab.diagnose.symptoms.downloads import (
    ACCESS_LOST,
    BROKEN_DATA,
    CHECKPOINT_EXISTS,
    COMPILED_STALE,
    COMPILER_CACHE,
    FILE_LOCKED,
    LOCKS_OF_A_HUB,
    NO_INTERNET,
    NO_LOCKS,
    OTHER_TORCH,
    RENAMED,
)
from lab.diagnose.symptoms.entry import case, symptom

# A path that two ranks name, each in a line of its own.
_ONE_FILE_OF_TWO = (
    r"^\[rank(?P<one>\d+)\]:.{0,200}[Ss]tale (?:NFS )?file handle: (?P<path>'[^'\n]+').*\n"
    r"(?:.*\n){0,60}?\[rank(?!(?P=one)\])\d+\]:.{0,200}[Ss]tale (?:NFS )?file handle: (?P=path)"
)
_GONE = "{rank}had a file open that was taken from it: {line}"

FILES = (
    symptom(
        "disk-full",
        1,
        r"No space left on device|Disk quota exceeded|\[Errno 122\]|\[Errno 28\]"
        r"|PytorchStreamWriter failed writing",
        "A file could not be written: {line}",
        "The disk is full, or your quota on it is used up.",
        "df -h . ; df -i . ; quota -s ; du -sh results/*",
        "{rerun} --output-dir $SCRATCH/results    # another disk; without --save-frequency fewer are kept",
        cases=(
            case(
                r"^(?:\[rank\d+\]: ?|\d+: )?(?P<line>.*(?:\[Errno 122\]|[Qq]uota exceeded).*)$",
                "Your quota on this disk is used up, of bytes or of files; the disk itself may have room.",
                "quota -s ; du -sh results/* ; find . -xdev | wc -l    # bytes, and the number of files",
                "{rerun} --output-dir $SCRATCH/results    # another disk; without --save-frequency fewer are kept",
                anywhere=True,
            ),
            case(
                r"['\" ]/(?:var/)?tmp/|torchinductor_|/\.triton/|\b100% /(?:var/)?tmp$",
                "The node's own disk below /tmp is full, by you or by others; of some nodes it is memory.",
                "srun --ntasks-per-node=1 df -h /tmp    # on the job's nodes",
                "TMPDIR=$SCRATCH HF_HOME=$SCRATCH/hf {rerun}",
            ),
            case(
                r"\b100% (?P<file>/\S*)$",
                "The disk is full: df, in the log, names {file}.",
                "df -h {file} ; du -sh {file}/* | sort -h | tail",
                "{rerun} --output-dir $SCRATCH/results    # another disk",
                anywhere=True,
            ),
        ),
        unless=r"/dev/shm|Write on output file failed|FATAL|unsquashfs|while (?:building|extracting)"
        r"|container process|shared memory"
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
        cases=(
            case(
                r"(?:Transport endpoint is not connected"
                r"|\[Errno 107\]).{0,40}?['\" ](?P<file>(?:/[\w.@+-]+){1,2})",
                "A file system that a program of its own serves (FUSE: s3fs, gcsfuse, sshfs, squashfuse): that "
                "program "
                "has ended on this node, perhaps for memory. Mount it again, or copy the data to the node "
                "first.",
                "srun --ntasks=1 --nodelist=NODE ls {file}    # on the node that lost it",
                "fusermount -u {file}    # on that node, then mount it again, and {rerun} --run-id {run_id} "
                "--resume auto",
            ),
            COMPILED_STALE,
            case(
                _ONE_FILE_OF_TWO,
                "Several ranks found the same file gone while they had it open: each of them makes or "
                "writes it, "
                "and on a shared disk (NFS) who replaces it takes it from the others. The disk is in order.",
                "grep -n -E 'rank == 0|barrier|is_main_process' *.py    # rank 0 makes it first, the "
                "others after "
                "a barrier",
                "HF_HOME=/tmp/hf XDG_CACHE_HOME=/tmp/cache {rerun}    # or its cache on the node's own disk",
                saw=_GONE,
                anywhere=True,
            ),
            case(
                r"[Ss]tale .{0,80}?['\" ]\S*[/.]\w*cache\w*/|['\" ]/\S*[/.]\w*cache\w*/.{0,200}[Ss]tale",
                "On a shared disk (NFS) a file is stale when another process has replaced or removed it: of a "
                "cache, mostly another rank or job that writes it at the same time. The disk is in order.",
                "HF_HOME=/tmp/hf XDG_CACHE_HOME=/tmp/cache TRITON_CACHE_DIR=/tmp/triton {rerun}    # on each "
                "node's own disk",
                "{rerun} --run-id {run_id} --resume auto",
                saw=_GONE,
            ),
            case(
                r"(?:[Ss]tale|Input/output|Remote I/O|Errno).{0,80}?['\" ](?P<file>(?:/[\w.@+-]+){1,3})",
                "A shared disk did not answer this node: nothing that your program did.",
                "srun --ntasks=1 --nodelist=NODE ls {file}    # on the node that lost it: does it answer now?",
                "{rerun} --run-id {run_id} --resume auto",
            ),
        ),
        source="nfs.sourceforge.net",
    ),
    symptom(
        "no-locks",
        1,
        NO_LOCKS,
        "{rank}asked for a lock on a file where there are none: {line}",
        "The file system has no locks, or their service (lockd) does not run on this node: nobody holds the "
        "file. Homes "
        "on NFS and some parallel file systems are so mounted.",
        "export HF_HOME=$SCRATCH/hf XDG_CACHE_HOME=$SCRATCH/cache   # where locks work; a cache may lie in /tmp "
        "too",
        "flock -n FILE true    # in the job, on a file there: does that fail too? then tell your administrators",
        cases=(
            case(
                r"h5py|HDF5|unable to lock file|\.h5\b",
                "The file system has no locks, or their service (lockd) does not run on this node: nobody holds "
                "the "
                "file. HDF5 can do without, where nobody writes.",
                "HDF5_USE_FILE_LOCKING=FALSE {rerun}    # only where nobody writes to it",
            ),
            LOCKS_OF_A_HUB,
        ),
        source="github.com/h5py/h5py/issues/1101",
    ),
    symptom(
        "lmdb",
        1,
        r"MDB_(?:READERS_FULL|MAP_FULL|BAD_RSLOT|TLS_FULL|VERSION_MISMATCH|INVALID|MAP_RESIZED|DBS_FULL)"
        r"|lmdb\.(?:ReadersFull|MapFull|BadRslot|Lock|Invalid|ReadonlyError|TlsFull|VersionMismatch)\w*"
        r"|lmdb\.Error: .{0,200}",
        "{rank}could not read the LMDB data set: {line}",
        "Not that the disk is full or the data is damaged. All processes of all ranks share one lock file "
        "beside "
        "the "
        "data, and its limits.",
        "grep -n -A 4 'lmdb.open' *.py    # readonly=True, lock=False, readahead=False; opened in each loader "
        "process",
        cases=(
            case(
                r"READERS_FULL|ReadersFull",
                "Its table of readers is full (126, if nothing else is said): all ranks' loader processes "
                "have a "
                "place in "
                "it, and those of runs that were killed keep theirs.",
                "grep -n -A 4 'lmdb.open' *.py    # readonly=True, lock=False; or max_readers=2048",
                "python -c 'import lmdb, sys; print(lmdb.open(sys.argv[1]).reader_check())' PATH    # "
                "frees dead "
                "ones",
                "{rerun} --num-workers 2    # or fewer readers",
            ),
            case(
                r"MAP_FULL|MapFull|MAP_RESIZED",
                "The size that was given when it was opened (map_size) is used up: not the disk.",
                "grep -n -A 4 'lmdb.open' *.py    # map_size=2**40 costs nothing: it is but address space",
            ),
            case(
                r"BAD_RSLOT|BadRslot|TLS_FULL",
                "It was opened before the loader processes were forked, which then use one and the same reader.",
                "grep -n -A 4 'lmdb.open' *.py    # open it in __getitem__, the first time, not in __init__",
            ),
            case(
                r"(?:lmdb\.(?:Lock|Readonly)?Error): .{0,200}(?:No locks|[Pp]ermission|Read-only|temporarily"
                r"|implemented)",
                "It makes a lock file beside the data, which this file system or its rights do not allow.",
                "grep -n -A 4 'lmdb.open' *.py    # readonly=True, lock=False",
            ),
        ),
        source="lmdb.readthedocs.io",
    ),
    FILE_LOCKED,
    RENAMED,
    COMPILER_CACHE,
    CHECKPOINT_EXISTS,
    symptom(
        "read-only",
        1,
        r"Read-only file system|\[Errno 30\]",
        "{rank}could not write there: {line}",
        "On many clusters homes are read-only on the nodes, and so is a container's own inside.",
        "{rerun} --output-dir $SCRATCH/results",
        source="apptainer.org/docs/user/main/bind_paths_and_mounts.html",
    ),
    ACCESS_LOST,
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
    BROKEN_DATA,
    symptom(
        "broken-checkpoint",
        1,
        r"PytorchStreamReader failed|failed finding central directory|invalid header or archive is corrupted"
        r"|unpickling stack underflow|pickle data was truncated|EOFError: Ran out of input"
        r"|UnpicklingError: invalid load key|assert metadata is not None|SafetensorError: .{0,60}deserializ",
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
        "other-optimizer",
        1,
        r"loaded state dict (?:contains|has) (?:a parameter group|a different number)",
        "{rank}read the state of another optimizer from a checkpoint: {line}",
        "Another set of parameters is trained than when it was saved (--fine-tune freezes some, a layer is new, "
        "groups "
        "were made otherwise). The weights may all have fitted: it is the optimizer's state that does not.",
        "grep -n -E 'fine.tune|requires_grad|load_state_dict' *.py exercises/*.py    # the options of the run "
        "before",
        "{rerun}    # with the same options as then; or load the model only, and begin with a fresh optimizer",
        source="docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.load_state_dict.html",
    ),
    symptom(
        "other-checkpoint",
        1,
        r"Error\(s\) in loading state_dict|Missing key in checkpoint state_dict"
        r"|size mismatch for \S+: copying a param",
        "{rank}read a checkpoint of another network: {line}",
        "Its tensors have other names or sizes than the network's: another --model, or one that was wrapped "
        "otherwise.",
        "lab check 1.1    # and the --model in the run's config.json",
        cases=(
            OTHER_TORCH,
            case(
                r"[Kk]ey\(s\) in state_dict: .{0,40}?\"(?P<prefix>(?:module|_orig_mod|_fsdp_wrapped_module"
                r"|_checkpoint_wrapped_module)\.)",
                "Only the names differ, by {prefix}: one of the two was wrapped (module. is DDP's, _orig_mod. "
                "that of "
                "torch.compile), the other not.",
                "grep -n -E 'state_dict\\(' *.py exercises/*.py    # save model.module.state_dict(), or "
                "take the "
                "prefix "
                "out: torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, '{prefix}')",
            ),
            case(
                r"(?:[Kk]eys?\b|state_dict).{0,120}?[\w.](?P<prefix>(?:_orig_mod|_fsdp_wrapped_module"
                r"|_checkpoint_wrapped_module)\.)",
                "Only the names differ, by {prefix} within them: in one of the two a part of the network was "
                "wrapped "
                "(_orig_mod is torch.compile's), in the other not. Both files and weights are in order.",
                "grep -n -E 'compile\\(|checkpoint_wrapper|load' *.py    # load first and wrap then; "
                "block.compile() "
                "keeps the names",
                "grep -n load_state_dict *.py    # or take {prefix} out of each name, with str.replace, before it",
            ),
        ),
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
    NO_INTERNET,
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
