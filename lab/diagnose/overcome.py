"""What a log complains of, and the program lived through: no cause of what ended it later."""

import re

# A line of a program that trains: an epoch or a step with its loss, or a bar that moves.
_GOES_ON = re.compile(
    r"\b(?:epoch|step|iter(?:ation)?|batch)\b.{0,60}\bloss\b\W{1,3}\d|\bloss\b\W{1,5}\d.{0,120}\b(?:epoch|step"
    r"|iter)\b"
    r"|\b[1-9]\d?%\|.{0,80}\d+/\d+ \[|\d(?:it/s|s/it)\b"
)
_IN_SUCH = ("loss", "%|", "it/s", "s/it")
# An exception names itself, or is about to be raised.
_ERROR = re.compile(r"(?:^|[\s.:])\w*(?:Error|Exception)\b(?:: |$)|^\s*(?:\[rank\d+\]:|\d+:)?\s*raise ")
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
    r"^(?!.*(?:NCCL WARN|CUDA initialization|current PyTorch installation|nv files|NVIDIA (?:binaries|libraries)))"
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

# An exception that nobody could catch any more, mostly while Python tidied up.
IGNORED = re.compile(
    r"^Exception ignored in.*\n(?:Traceback.*\n)?(?:[ \t].*\n)*\w\S*(?:Error|Exception)\b.*\n?", re.M
)


def since(log: str, failed: int) -> int:
    """Where a log goes on after the last line before `failed` that shows training; 0 where none does."""
    end = failed
    while end > 0:
        begin = log.rfind("\n", 0, end - 1) + 1
        line = log[begin:end].lower()
        if any(word in line for word in _IN_SUCH) and _GOES_ON.search(line):
            return end
        end = begin
    return 0


def may_be(name: str, line: str) -> bool:
    """Whether a program may live through what this line complains of: not through an exception, or Slurm's end."""
    slurms = line.startswith(("slurmstepd", "srun:")) and "chdir" not in line
    return name not in _LASTING and not slurms and not _ERROR.search(line)


def is_about_the_same(one: str, other: str) -> bool:
    """Whether a complaint and an exception share a word that says something."""
    return bool({*_WORD.findall(one.lower())} & {*_WORD.findall(other.lower())} - _SAYS_NOTHING)
