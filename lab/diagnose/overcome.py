"""What a log complains of, and the program lived through: no cause of what ended it later."""

import re

# A line of a program that trains: an epoch or a step with its loss or its measure, or a bar that moves.
_COUNTS = r"\b(?:epochs?|steps?|iter(?:ation)?s?|it|batch|updates?|train)\b"
_VALUE = r"\W{1,5}(?:\d|nan\b)"
_MEASURE = (
    rf"\b(?:\w+[_/ @-])?(?:loss(?:es)?|acc\w*|top-?[15]|ppl|perplexity|miou|map\S*|psnr|f1|wer|bleu|auc|mse|mae"
    rf"|dice|reward){_VALUE}"
)
_GOES_ON = re.compile(
    rf"{_COUNTS}.{{0,200}}?{_MEASURE}|{_MEASURE}.{{0,120}}{_COUNTS}"
    rf"|{_COUNTS}\W{{0,4}}\d+.{{0,120}}?\b(?:improved to|lr|skipped|tok\w*/s\w*|samples/s\w*|img/s\w*"
    rf"|time){_VALUE}"
    r"|\b[1-9]\d?%\|.{0,80}\d+/\d+ \[|\d(?:it/s|s/it)\b|\d/\d+ \[[=>.]+\].{0,80}loss|^\d+\|\d+\|loss: \d"
    r"|\baccuracy: \d+/\d+|^\s*\d+/\d+\s+[\d.]+g\s+[\d.]+"
)
_IN_SUCH = ("loss", "%|", "it/s", "s/it", "epoch", "step", "iter", "accuracy: ", "g  ")
# Bars of what is done before, or beside, training; one that is full may be of anything.
_NO_TRAINING = re.compile(
    r"^\W*100%\|(?!.*loss)|download|\bmap\b ?(?:\(|:)|tokeniz|\bload|extract|preprocess|resolving"
    r"|fetching|filter|generating|saving"
    r"|building|caching|copying|sanity|\bvalid\w*:|\beval\w*:|predict|\binstall"
)
# An exception names itself, or is about to be raised.
_ERROR = re.compile(r"(?:^|[\s.:])\w*(?:Error|Exception)\b(?:: |$)|^\s*(?:\[rank\d+\]:|\d+:)?\s*raise ")
_LONGEST = 1000  # characters of a line that are looked at
_WORD = re.compile(r"[a-z]{5,}")
_SAYS_NOTHING = {
    "error",
    "errno",
    "failed",
    "could",
    "cannot",
    "found",
    "which",
    "there",
    "their",
    "other",
    "raised",
}
# What a program goes on after for a while, and then ends by: a loader or a rank that was killed, a card or a link
# that fails.
_LASTING = ("out-of-memory", "loader-died", "failing-gpu", "infiniband", "not-finite", "keyboard", "hung-up")
# Warnings of programs and of Python: of what was overcome, or did no harm.
WARNS = re.compile(
    r"^(?!.*(?:NCCL WARN|CUDA initialization|current PyTorch installation|nv files|NVIDIA (?:binaries"
    r"|libraries)))"
    r".*(?:\[WARNING\]|\bWARNING(?::| )|\w+Warning: ).*\n?",
    re.M,
)
# What is in many logs and tells nothing: advice, caches, plugins of other software that were not there.
HARMLESS = re.compile(
    r"^(?:.*(?:mkdir -p failed for path|trying to write in your cache|mca_base_component|\(ignored\)$"
    r"|task_g_set_affinity|unable to get cgroup|setlocale: |not a git repository|Inappropriate ioctl"
    r"|no job control|cannot modify limit|Ignoring conflicting option|ldconfig: Can|NCCL WARN Failed to open lib"
    r"|Could not load dynamic library|: [WI] (?:tensorflow|external|tsl|xla)/|Unable to register cu\w+ factory)"
    r"|(?:\w+: )?(?:If you (?!are a user)|[Tt]ip: |TIP: |[Hh]int: |ERROR: pip's dependency)).*\n?",
    re.M,
)

# What NCCL says without warning of it, and what was tried once more.
_EXCEPTION_ITSELF = r"(?:\[rank\d+\]: ?|\d{1,5}: )?(?:\w+\.)*\w*(?:Error|Exception)\b"
_TRIED_AGAIN = re.compile(
    rf"^(?!{_EXCEPTION_ITSELF}).*(?:\bNCCL INFO\b|\b(?:[Rr]etrying|[Tt]rying again|[Ww]ill retry"
    r"|[Ss]ucceeded (?:after|on|at)|(?:retry|attempt)\b.{0,40}\bsucceeded)\b)"
)
_IN_SUCH_TRIES = ("NCCL INFO", "etrying", "rying again", "ill retry", "ucceeded")
_JOINED = "Init COMPLETE"  # NCCL's: all ranks of a communicator have found each other
# Words of which every line that a symptom is seen in holds one, whatever is seen there.
TELLS = re.split(
    r"\|",
    "error|fail|warn|fatal|not|no |cannot|can't|unable|invalid|kill|denied|exceed|signal|timed|timeout|"
    "missing|nan| inf|lost|xid|oom|out of|assert|cancel|unrecognized|mismatch|break|illegal|sigill|busy|"
    "reset|closed|pipe|unexpected|exit|main.py|srun|slurm|sbatch|run.sh|already|retry|again|alloc|full|"
    "symbol|version|compat|peer|errno|status=|/dev/shm|unreachable|refused|interface|architecture|sighup|"
    "tcp_store|create_backend|exception ignored|"
    "broken|disabled|partially|renam|toomany|unauthorized|manifest|gpu|duplicate|ancdata|module|stale|"
    "twice|only once|inconsistent|differ|expired|launch|unavailable|unspecified|memory|limit|exercise|"
    "semlock|mig|worker_count|joined|downloading|100% /|.local/lib|local-rank|local_rank|no such option|consume|"
    "interrupt|space|enroot|pyxis|abort|exec|ibv_|insufficient|died|address|incompatible|bad |corrupt|truncat|"
    "ticket|\\r'|^m: |loss scale|outofresources|shared data|group="
    "|.forward(|.encode(|.generate(|flock(|lockf(|cudagraphs|run_backward"
    "|nvidia-nccl|nvidia-cudnn|rdzv-endpoint|rdzv_endpoint|temporary sandbox|ifname",
)
# An exception that nobody could catch any more, mostly while Python tidied up.
IGNORED = re.compile(
    r"^Exception ignored in.*\n(?:Traceback.*\n)?(?:[ \t].*\n)*\w\S*(?:Error|Exception)\b.*\n?", re.M
)
# Of a child of spawn() that got only a part of what its parent was to hand over: no file is meant.
HANDED_OVER = re.compile(
    r"^.*/multiprocessing/spawn\.py\", line \d.*\n.*\n"
    r".*(?:pickle data was truncated|EOFError(?:: Ran out of input)?)\n",
    re.M,
)


def since(log: str, failed: int) -> int:
    """Where a log goes on after the last line before `failed` that shows training; 0 where none does."""
    end = failed
    while end > 0:
        begin = log.rfind("\n", 0, end - 1) + 1
        if trains(log[begin:end]):
            return end
        end = begin
    return 0


def went_on(log: str, began: int) -> str:
    """A log without what was tried again before its program trained, up to `began`, or its ranks had joined."""
    until = max(began, log.rfind(_JOINED))
    return without_tries(log[:until]) + log[until:] if until > 0 else log


def without_tries(log: str) -> str:
    """A log without the lines of what was tried again, and what NCCL tells without a warning."""
    return "".join(
        line
        for line in log.splitlines(keepends=True)
        if not (any(words in line for words in _IN_SUCH_TRIES) and _TRIED_AGAIN.match(line))
    )


def trains(line: str) -> bool:
    """Whether a line shows that a program trains."""
    line = line[:_LONGEST].lower()
    return any(word in line for word in _IN_SUCH) and bool(_GOES_ON.search(line)) and not _NO_TRAINING.search(line)


def may_be(name: str, line: str) -> bool:
    """Whether a program may live through what this line complains of: not through an exception, or "
    "Slurm's end."""
    slurms = line.startswith(("slurmstepd", "srun:")) and "chdir" not in line
    return name not in _LASTING and not slurms and not _ERROR.search(line)


def is_about_the_same(one: str, other: str) -> bool:
    """Whether a complaint and an exception share a word that says something."""
    return bool({*_WORD.findall(one.lower())} & {*_WORD.findall(other.lower())} - _SAYS_NOTHING)
