"""How the process that ended first was ended, when it could not say so itself."""

import re
import signal

from lab.diagnose.told import native
from lab.diagnose.told.finding import Finding, interrupted
from lab.slurm import messages

# torchrun's words for how a process ended. Before its report, torchrun names the rank on its node only.
_REPORTED = re.compile(r"(?P<who>rank)\s*:\s*(?P<rank>\d+) .*\n.*exitcode\s*:\s*(?P<code>-?\d+)")
_REPORT, _FIRST_OBSERVED = "\nFailures:\n", "Root Cause (first observed failure)"
_FAILED = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) (?P<who>local_rank): (?P<rank>\d+)")
# torch.multiprocessing.spawn's words; its processes are the ranks.
_SPAWNED = re.compile(
    r"process (?P<rank>\d+) (?P<who>terminated) with (?:exit code (?P<code>\d+)|signal (?P<how>SIG\w+))"
)
# Those of torch.distributed.launch, before torchrun.
_DIED = re.compile(
    r"--local[-_]rank=(?P<rank>\d+).{0,2000}?(?P<who>died) with <Signals\.(?P<how>SIG\w+)(?P<code>: \d{9})?"
)
# Those of DeepSpeed's launcher.
_RETURNED = re.compile(r"--local[-_]rank=(?P<rank>\d+).{0,2000}?(?P<who>exits) with return code = (?P<code>-\d+)")
# Those of mpirun and its like: Open MPI, PRRTE, MPICH and Intel MPI, Cray's PALS, jsrun, horovodrun.
_MPIRUN = r"(?:mpirun|mpiexec|orterun|prterun|prun)"
_BY_MPI = tuple(
    re.compile(pattern, re.M)
    for pattern in (
        rf"{_MPIRUN} noticed that (?P<who>process) rank (?P<rank>\d+) .{{0,200}}exited on signal (?P<signal>\d+)",
        r"(?P<who>Process) name: \[.{0,80}?(?P<rank>\d+)\]\s+Exit code: +(?P<code>\d+)",
        r"(?P<who>RANK) (?P<rank>\d+) PID .*\n=\s+(?:EXIT CODE: (?P<code>\d+)"
        r"|KILLED BY SIGNAL: (?P<signal>\d+))",
        r"MPI_ABORT was invoked on (?P<who>rank) (?P<rank>\d+)\b.*(?:\n.*)?with errorcode (?P<code>\d+)",
        r"^\S{1,100}: (?P<who>rank) (?P<rank>\d+) (?:exited with code (?P<code>\d+)"
        r"|died from signal (?P<signal>\d+))",
        r"first noticed (?P<who>rank) (?P<rank>\d+)\) terminated with signal (?P<signal>\d+)",
        r"^(?P<who>Process) (?P<rank>\d+) exit with status code (?P<code>\d+)",
    )
)
# A step in sacct's table: the task is not named there.
_STEP = re.compile(r"^(?P<rank>\d+\.\d+)\s.{0,80}?\b(?P<who>FAILED)\b.{0,80}?\b(?P<code>\d+):\d+\b", re.M)
_TORN_DOWN = re.compile(
    r"^srun: (?:Terminating (?:StepId|job step)|Job step aborted|Force Terminated|First task exited)", re.M
)
_KILLED = "Nothing in a program can say that of itself: most often memory ran out, or somebody used kill -9."
_OF_THE_NODE = (
    "The kernel kills a process when the memory of its node (not of the GPU) is used up, and nobody can say so in "
    "the log. What is offloaded to the CPU needs it: of Adam's states 12 bytes for each parameter, on all ranks "
    "of "
    "the node together."
)
_NEEDS_MEMORY = (
    "sacct -j {job} --format=JobID,State,ExitCode,ReqMem,MaxRSS    # was it at its limit?",
    "dmesg | grep -i oom     # on that node, if you may: was it the kernel?",
    "{rerun} --num-workers 2 --per-device-batch-size {half} --accumulate 2   # needs less memory",
)
_EXITED = "A program that ends itself says no more than it has printed: why is in its own last lines, if anywhere."
_NOT_HERE = (
    "If this log does not say why, its own standard error went elsewhere: to another file, or another node."
)
_LOOK_ELSEWHERE = (
    "scontrol show job {job} | grep -E 'Std(Err|Out)'    # which files were its own?",
    "ls -lt *.err *.out results/*    # is there one that holds its last words?",
    "grep -n 'exit(' exercises/*.py    # sys.exit(), os._exit() end without a word",
)
_A_PLAIN_END = 2  # exit codes up to it say only that it failed
_LABELS = re.compile(r"^(?:\[rank\d+\]:|\d{1,5}: \S)", re.M)
_LOOK_FOR_EXITS = ("tail -n 20 {log}", "grep -n 'exit(' exercises/*.py    # sys.exit(), os._exit()")
_LOOK_AT_CRASHES = (
    "PYTHONFAULTHANDLER=1 {rerun}    # each rank's Python lines when it crashes",
    "echo $LD_LIBRARY_PATH ; module list    # in the job: what else is loaded?",
    "ulimit -c unlimited    # in run.sh: then gdb python core, bt",
)
_MEANS: dict[int, str] = {
    signal.SIGTERM: "Somebody or something told the job to stop: scancel, a time limit, Ctrl-C.",
    signal.SIGSEGV: "Compiled code touched memory that is not its own. Which, and why, this log does not say: is "
    "it always the same rank or node, or since the last package that was installed?",
    signal.SIGABRT: "Compiled code gave up: the lines above its end say why.",
    signal.SIGUSR1: "The warning a minute before the time is up came before the run had begun: too little time.",
    signal.SIGBUS: "Shared memory, or a file on disk, ran out underneath the process.",
}
# DeepSpeed's see_memory_usage, psutil, and what programs print in the same words.
_HOST_MEMORY = re.compile(
    r"(?:CPU Virtual Memory: +used|\b(?:host|cpu|system|node)[ _]?(?:mem\w*|ram)"
    r"|(?<!gpu )\b(?:RAM|VmRSS|virtual_memory))\b"
    r".{0,60}?(?P<part>\d{1,3}(?:\.\d+)?) ?%",
    re.I,
)
_OFFLOAD = re.compile(r"cpu_adam|offload|CPU ?Adam|fp32 partitions|initializing optimizer states", re.I)
_GPU_FULL = re.compile(r"CUDA out of memory|OutOfMemoryError|HIP out of memory")
_NEARLY_FULL, _FULL_SOON = 90.0, 70.0  # percent; from the second on with more that was about to be allocated


def ended(log: str) -> Finding | None:
    """How the process that ended first was ended, when it could not say so itself."""
    reported = list(_REPORTED.finditer(log)) or list(_FAILED.finditer(log))
    by_mpi = [found for pattern in _BY_MPI for found in pattern.finditer(log)]
    found = sorted(
        (
            *reported,
            *_SPAWNED.finditer(log),
            *_DIED.finditer(log),
            *_RETURNED.finditer(log),
            *messages.TASK_ENDED.finditer(log),
            *by_mpi,
        ),
        key=_when,
    )
    ends = [(_code(match), match) for match in found or _STEP.finditer(log)]
    causes = [end for end in ends if end[0] not in messages.NO_CAUSE]
    if not causes and any(code == messages.SAVED for code, _ in ends):
        return interrupted(order=4)
    said = [end for end in ends if end[0] not in messages.SAYS_NOTHING]
    first = next((end for end in ends if end[0] not in (0, messages.SAVED)), None)
    if first is not None and 0 < first[0] <= _A_PLAIN_END:
        torn_down = _TORN_DOWN.search(log, first[1].end())
        causes = [end for end in causes if not _follows(*end, torn_down)]
        all_alike = first[1]["who"] == "task" and first[1]["rank"] == "0" and len(ends) == 1
        if not causes and not all_alike:
            return crashed(log) or _first_to_end(log, *first, alone=len(ends) == 1)
    if not causes and not said:
        return crashed(log) or _without_a_word(log)
    ends = causes or said
    code, match = ends[0]
    who = f"{'Local rank' if match['who'] == 'local_rank' else 'Rank'} {match['rank']}"
    if code > 0:
        return Finding("exited", f"{who} ended with exit code {code}.", _EXITED, _LOOK_FOR_EXITS, order=6)
    number = -code
    name = signal.Signals(number).name if number in signal.Signals.__members__.values() else f"signal {number}"
    saw = f"{who} was ended by {name}."
    if number == signal.SIGKILL:
        if used_up := _memory_used_up(log):
            return Finding("out-of-memory", f"{saw[:-1]}: {used_up}.", _OF_THE_NODE, _NEEDS_MEMORY, order=2)
        return Finding("killed", saw, _KILLED, _NEEDS_MEMORY, order=4)
    again = "{longer}" if number == signal.SIGUSR1 else "{rerun}"
    # SIGTERM is what the others get when one has failed; before abort() the program has said why.
    order = {int(signal.SIGTERM): 9, int(signal.SIGABRT): 8}.get(number, 4)
    crashes = number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE)
    if crashes and (seen := crashed(log, who)) is not None:
        return seen
    do = _LOOK_AT_CRASHES if crashes else (again,)
    return Finding("ended-by-signal", saw, _MEANS.get(number, "It did not end by itself."), do, order)


def _when(ended: re.Match[str]) -> int:
    """Where a log tells of an end; torchrun's report has the first one last, below a heading of its own."""
    heading = ended.string.rfind(_FIRST_OBSERVED, 0, ended.start())
    begins = ended.string.rfind(_REPORT, 0, ended.start())
    return begins if 0 <= begins < heading else ended.start()


def _code(ended: re.Match[str]) -> int:
    """As messages.exit_code(), of those too that name a signal by its number."""
    groups = ended.groupdict()
    if groups.get("signal"):
        return -int(groups["signal"])
    return messages.exit_code(ended) if groups.get("code") or "how" in groups else 0


def _follows(code: int, ended: re.Match[str], torn_down: re.Match[str] | None) -> bool:
    """Whether a process ended so because another had: it gave up, or Slurm killed what was left of the step."""
    killed = code == -signal.SIGKILL and torn_down is not None and torn_down.start() < ended.start()
    return code == -signal.SIGABRT or killed


def _first_to_end(log: str, code: int, ended: re.Match[str], *, alone: bool) -> Finding:
    """Of a process that ended by itself, with a code that says no more, before the others were ended."""
    step = ended["who"] == "FAILED"
    rank = ended["rank"]
    who = f"Step {rank}" if step else f"{'Local rank' if ended['who'] == 'local_rank' else 'Rank'} {rank}"
    after = "" if alone or step else " Those that ended after it were told to stop, or had lost it."
    own_words = re.search(rf"^(?:\[rank{rank}\]:|{rank}: ).*(?:[Ee]rror|Exception)\b", log, re.M)
    silent = own_words is None and _LABELS.search(log) is not None
    return Finding(
        "exited",
        f"{who} {'ended' if alone or step else 'was the first to end,'} with exit code {code}.",
        f"It ended by itself. {_NOT_HERE}{after}",
        _LOOK_ELSEWHERE,
        order=6 if silent and ended["who"] == "task" else 8,
    )


def crashed(log: str, who: str = "") -> Finding | None:
    """A crash of which the log tells itself, with the frame in which compiled code was."""
    seen = native.crash(log)
    if seen is None:
        return None
    who = f"Rank {seen.rank}" if seen.rank else who or "A rank"
    where = f", in {seen.frame}" if seen.frame else ""
    means = f"It was in {seen.owner}" if seen.owner else _MEANS[signal.SIGSEGV]
    return Finding("ended-by-signal", f"{who} crashed ({seen.signal}){where}.", means, _LOOK_AT_CRASHES, order=4)


def by_itself(log: str) -> re.Match[str] | None:
    """torchrun's first line about a process that ended with a code of its own."""
    found = (*_FAILED.finditer(log), *_REPORTED.finditer(log))
    return next((one for one in found if int(one["code"]) > 0), None)


def _without_a_word(log: str) -> Finding | None:
    """Of a rank that torchrun has seen end with 1 or 2: most print why, this one may not have."""
    if (found := by_itself(log)) is None:
        return None
    who = "Local rank" if found["who"] == "local_rank" else "Rank"
    saw = f"{who} {found['rank']} ended with exit code {found['code']}."
    return Finding("exited", saw, _EXITED, _LOOK_FOR_EXITS, order=8)


def _memory_used_up(log: str) -> str:
    """How full the node's memory was when a process was killed, in words; "" where it was not, or nothing says."""
    said = list(_HOST_MEMORY.finditer(log))
    if not said or _GPU_FULL.search(log):
        return ""
    part = float(said[-1]["part"])
    offload = part >= _FULL_SOON and _OFFLOAD.search(log)
    if not (_NEARLY_FULL <= part <= 100 or offload):
        return ""
    where = " and optimizer or parameters were being placed there (offload)" if offload else ""
    return f"the node's memory was {part:g} % full{where}"
