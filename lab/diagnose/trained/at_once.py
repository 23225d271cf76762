"""What several ranks or processes had in their hands at once, or one alone, and what a script left empty."""

import re

from lab.base.words import one_line, rank_list
from lab.diagnose.told import exceptions
from lab.diagnose.told.finding import Finding
from lab.diagnose.told.left_behind import IN_VAIN

# A cache that is made when a program first asks for it, and of what.
_CACHE = (
    r"[^'\"\s]{0,200}(?:[/.]cache/|_cache/|cache-[0-9a-f]{6,}|/datasets/|\.incomplete|/hub/|nltk_data/"
    r"|tokeniz\w*/|\.npy\b|\.arrow\b|\.idx\b)[^'\"\s]{0,200}"
)
_NOT_WHOLE = re.compile(
    rf"(?:\[Errno (?:2|17|39|116)\]|[Nn]o such file|[Ff]ile exists|not empty|[Ss]tale"
    rf"|Cannot find data file).{{0,200}}?"
    rf"['\" ](?P<path>/{_CACHE})"
    rf"|['\" ](?P<before>/{_CACHE})['\"]?.{{0,80}}(?:No such file|File exists|not empty|[Ss]tale|truncated"
    rf"|is empty)"
    r"|(?P<arrow>ArrowInvalid: .{0,160}|Tried reading schema message, was null or length 0)"
)
_IN_A_CACHE = re.compile(r"Errno|o such file|exists|not empty|tale|Arrow|schema message|data file")
_MAKES = re.compile(
    r"\b(?:Generating \w+ split|Map(?: \(num_proc=\d+\))?|Tokeniz\w+|Running tokenizer|Filter|Grouping|Downloading"
    r"(?: data| \w+)?|Extracting|Building|Creating|Preprocess\w*|Indexing|Packing|Caching"
    r"|build(?:ing)? \w+ index)\b"
)
_COMPILERS = re.compile(r"triton|torchinductor|torch_extensions|/inductor|\.nv/", re.I)

_IN_WORKER = re.compile(r"Caught \w+ in DataLoader worker process|_worker_loop|DataLoader worker \(pid", re.I)
_HANDLE = re.compile(
    r"(?P<hdf>(?:Unable to (?:synchronously |asynchronously )?(?:open|read|get|close)"
    r"|[Cc]an't (?:synchronously )?read|"
    r"[Uu]nable to) .{0,80}\((?:bad|wrong|inflate|addr|incorrect|can't|unable|file read|filter|unknown"
    r"|corrupt)[^)]*\))"
    r"|(?P<sqlite>database disk image is malformed|sqlite3\.\w+: .{0,120}(?:disk I/O|locking protocol"
    r"|same thread))"
    r"|(?P<zip>Bad magic number for (?:file header|central directory)|Bad CRC-32 for file|Overlapped entries"
    r"|Error -3 while decompressing|invalid (?:block type|stored block lengths|distance))"
)
_IS_RAISED = re.compile(r"(?:Error|BadZipFile|zlib\.error): (?!Caught )")
_OPENED = re.compile(
    r"^.*(?:h5py\.File|ZipFile|sqlite3\.connect|\bopened\b.{0,80}\.(?:h5|hdf5|zip|db)\b).*$", re.M
)
_HAS_ONE = re.compile(r"self\.\w*(?:zip|archive|zf|zfile|db|h5|file|hdf)\w*\b", re.I)

_WAITED = re.compile(
    r"[Rr]ank (?P<rank>\d+)\]?.{0,120}Watchdog caught .{0,40}timeout: WorkNCCL\(SeqNum=(?P<number>\d+), "
    r"OpType=(?P<call>\w+),(?: NumelIn=(?P<size>\d+))?"
)
_THROUGH = re.compile(
    r"^(?P<said>.*(?:\b(?:training|train|fit)\b.{0,40}\b(?:finished|done|complete\w*|over|ended)\b"
    r"|\bmax_(?:epochs|steps)\S{0,12} reached|\b(?:sav|writ|export|upload)\w*\b.{0,40}\bfinal"
    r"|\bfinal\w*[. ].{0,30}(?:sav|writ)"
    r"|\b(?:all|last) (?:\d+ )?epochs? (?:done|finished)).*)$",
    re.M | re.I,
)
_TRAINS = re.compile(r"\b(?:step|iter\w*|epoch|batch)\W{0,4}\d+.{0,80}\bloss\W{0,3}\d", re.I)

_REFUSED = re.compile(
    r"^(?:sbatch|srun|salloc): error: (?P<why>(?!\S+: tasks? \d)(?=.{0,160}?(?:[Ii]nvalid|submission failed"
    r"|specification|Unable to (?:allocate|create))).+)$",
    re.M,
)
_PROGRAM = re.compile(
    r"\s(?:\S*python[\d.]*|torchrun|bash|\S+\.(?:sh|py|sbatch|slurm|sif))(?:\s|$)"
)  # what is started
_COMMAND = re.compile(r"\b(?:sbatch|srun|salloc|SBATCH)\b")
_EMPTY = re.compile(r"\s(?P<option>--[a-z][a-z-]{1,40})=(?=\s|$|\"\"|'')")
_LONGEST = 2000  # characters of a line that are looked at
_UNSET = re.compile(r"^\++ (?:export )?(?P<name>[A-Za-z_]\w*)=(?:''|\"\")?$", re.M)


def cache_of_all(log: str) -> Finding | None:
    """A data set's cache that several ranks make at the same time, so that one finds it half made."""
    found = _NOT_WHOLE.search(log) if _IN_A_CACHE.search(log) else None
    if found is None or _COMPILERS.search(found[0]) or exceptions.first_of(log) is None:
        return None
    makers = {
        who[1] or who[2]
        for line in log.splitlines()
        if (who := exceptions.RANK.match(line)) and _MAKES.search(line)
    }
    path = found["path"] or found["before"] or ""
    folder = path.partition(".incomplete")[0].rpartition("/")[0]
    victims = {
        who[1] or who[2]
        for line in log.splitlines()
        if folder and folder in line and (who := exceptions.RANK.match(line))
    }
    if len(makers) < 2 and not (len(victims) >= 2 and ".incomplete" in log):
        return None
    ranks = sorted(int(one) for one in makers or victims)
    line = next(line for line in log[found.start() :].splitlines() if line)
    return Finding(
        "cache-made-by-all",
        f"{rank_list(ranks).capitalize()} made the same cache at the same time, and one found it half made: "
        f"{one_line(exceptions.RANK.sub('', line), 180)}",
        "Each of them looked, found nothing and began; who is through first renames or removes what the others "
        "write. Neither the data nor the disk is to blame, and what other ranks say of lost connections follows "
        "from it.",
        (
            "python -c 'from data import build; build()'    # once, before the job: then all find the cache whole",
            "if rank == 0: build()    # then dist.barrier(), then build() on the others, who read it from the "
            "cache",
            "ls -d ~/.cache/huggingface/datasets/*/*/*/*.incomplete    # what is left half made: remove it",
        ),
        order=0,
    )


def opened_before_fork(log: str) -> Finding | None:
    """A file that the data set has open, read by several loader processes through one and the same handle."""
    if not _IN_WORKER.search(log):
        return None
    raised = exceptions.first_of(log)
    line = raised[1] if raised else next((one for one in log.splitlines() if _IS_RAISED.search(one)), "")
    found = _HANDLE.search(line)
    if found is None or (found["zip"] and not _HAS_ONE.search(log)):
        return None
    kind = "HDF5" if found["hdf"] else "sqlite" if found["sqlite"] else "zip"
    opened = _OPENED.search(log)
    seen = f" The log shows where it was opened: {one_line(opened[0].strip(), 100)}." if opened else ""
    return Finding(
        "opened-before-fork",
        f"A loader process read nonsense from a {kind} file: {one_line(exceptions.RANK.sub('', line), 200)}",
        "Likeliest the file is in order, and was opened before the loader processes were forked (in __init__): "
        f"they share one handle, and one moves the place at which another reads.{seen}",
        (
            "{rerun} --num-workers 0    # if that goes well, it is this, and not the file",
            "grep -n -E 'h5py.File|ZipFile|connect\\(' *.py    # open it in __getitem__ the first time, or in "
            "worker_init_fn",
            "h5ls -r FILE    # does that fail too? then the file itself is damaged",
        ),
        order=0,
    )


def at_the_end(log: str) -> Finding | None:
    """One rank alone in a small collective, after training was over."""
    waits = list(_WAITED.finditer(log))
    if len({(one["rank"], one["number"]) for one in waits}) != 1 or int(waits[0]["size"] or 0) > 16:
        return None
    before = IN_VAIN.split(log)[0]
    over = list(_THROUGH.finditer(before))
    raised = exceptions.first_of(log)
    if not over or raised or any(_TRAINS.search(line) for line in before[over[-1].end() :].splitlines()):
        return None
    one, said = waits[0], exceptions.RANK.sub("", over[-1]["said"].strip())
    barrier = ", of one number, as a barrier" if one["size"] == "1" else ""
    return Finding(
        "collectives-differ",
        f"Rank {one['rank']} alone waited in {one['call']}{barrier}, its collective number {one['number']}, "
        f"after training was over: {one_line(said, 100)}",
        "Likeliest a call that all ranks must make together (saving a trainer's or a sharded checkpoint, a "
        "barrier, an evaluation) stands under 'if rank == 0': the others had gone. What was saved before is "
        "whole.",
        (
            "grep -n -E 'rank == 0|is_global_zero|is_main_process' *.py    # what is below it that all must call?",
            "py-spy dump --pid PID    # of that rank, the next time, while it hangs: in which line?",
        ),
        order=2,
    )


def empty_option(log: str) -> Finding | None:
    """An option of Slurm's without its value, where Slurm refused what it was given."""
    refused = _REFUSED.search(log)
    commands = [one for one in log.splitlines() if _COMMAND.search(one[:_LONGEST])] if refused else []
    empty = next(filter(None, (_EMPTY.search(_PROGRAM.split(one[:_LONGEST])[0]) for one in commands)), None)
    if refused is None or empty is None:
        return None
    unset = [one["name"] for one in _UNSET.finditer(log[: log.find(empty.string)])]
    which = f" The log shows that {unset[0]} is empty." if unset else ""
    return Finding(
        "sbatch-refused",
        f"Slurm did not take the job: {one_line(refused['why'], 160)}. It was given {empty['option']}= without "
        "a value.",
        f"A variable stands behind it that is empty: it was never set, or not where the script runs.{which} "
        "Older versions of Slurm pass over some of these; the cluster is not to blame.",
        (
            f"grep -n -e '{empty['option']}=' *.sh    # which variable?",
            f"{empty['option']}=${{NAME:?is not set}}    # stops the script where it is empty; or leave the "
            "option out",
        ),
        order=-1,
    )
