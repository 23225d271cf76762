"""How the process that ended first was ended, when it could not say so itself."""

import re
import signal

from lab.diagnose.told import native
from lab.diagnose.told.finding import Finding, interrupted
from lab.slurm import messages

# torchrun's words for how a process ended. Before its report, torchrun names the rank on its node only.
_REPORTED = re.compile(r"(?P<who>rank)\s*:\s*(?P<rank>\d+) .*\n.*exitcode\s*:\s*(?P<code>-?\d+)")
_FAILED = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) (?P<who>local_rank): (?P<rank>\d+)")
# torch.multiprocessing.spawn's words; its processes are the ranks.
_SPAWNED = re.compile(
    r"process (?P<rank>\d+) (?P<who>terminated) with (?:exit code (?P<code>\d+)|signal (?P<how>SIG\w+))"
)
# Those of torch.distributed.launch, before torchrun.
_DIED = re.compile(
    r"--local[-_]rank=(?P<rank>\d+).{0,2000}?(?P<who>died) with <Signals\.(?P<how>SIG\w+)(?P<code>: \d{9})?"
)
_KILLED = "Nothing in a program can say that of itself: most often memory ran out, or somebody used kill -9."
_NEEDS_MEMORY = (
    "sacct -j {job} --format=JobID,State,ExitCode,ReqMem,MaxRSS    # was it at its limit?",
    "dmesg | grep -i oom     # on that node, if you may: was it the kernel?",
    "{rerun} --num-workers 2 --per-device-batch-size {half} --accumulate 2   # needs less memory",
)
_EXITED = "A program that ends itself says no more than it has printed: why is in its own last lines, if anywhere."
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


def ended(log: str) -> Finding | None:
    """How the process that ended first was ended, when it could not say so itself."""
    reported = list(_REPORTED.finditer(log)) or list(_FAILED.finditer(log))
    found = sorted(
        (*reported, *_SPAWNED.finditer(log), *_DIED.finditer(log), *messages.TASK_ENDED.finditer(log)),
        key=re.Match.start,
    )
    ends = [(messages.exit_code(match), match) for match in found]
    causes = [end for end in ends if end[0] not in messages.NO_CAUSE]
    if not causes and any(code == messages.SAVED for code, _ in ends):
        return interrupted(order=4)
    said = [end for end in ends if end[0] not in messages.SAYS_NOTHING]
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
        return Finding("killed", saw, _KILLED, _NEEDS_MEMORY, order=4)
    again = "{longer}" if number == signal.SIGUSR1 else "{rerun}"
    # SIGTERM is what the others get when one has failed; before abort() the program has said why.
    order = {int(signal.SIGTERM): 9, int(signal.SIGABRT): 8}.get(number, 4)
    crashes = number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE)
    if crashes and (seen := crashed(log, who)) is not None:
        return seen
    do = _LOOK_AT_CRASHES if crashes else (again,)
    return Finding("ended-by-signal", saw, _MEANS.get(number, "It did not end by itself."), do, order)


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
